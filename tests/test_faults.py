"""What users of other projects reported, by class, and the tests that would have told them.

The classes are those of `FAULTS`; each is a promise, and its tests have to exist.
"""

import ast
import functools
from pathlib import Path

import pytest

HERE = Path(__file__).parent

FAULTS = {
    "C1 a draft is drawn from one law and scored by another": [
        "conformance/test_exactness.py::test_two_steps_follow_the_target_exactly",
        "drafters/test_autoregressive.py::test_a_law_is_what_its_token_was_drawn_from",
        "test_acceptance.py::test_measured_acceptance_is_the_overlap_of_the_laws",
        "verification/test_enumeration.py::test_a_law_that_is_not_the_one_drawn_from_is_detected",
        "verification/test_enumeration.py::test_an_unfiltered_report_would_move_the_law",
    ],
    "C2 a control is missed, or applied in another order, at some position": [
        "conformance/test_drafters.py::test_banned_tokens_never_appear",
        "conformance/test_drafters.py::test_a_huge_penalty_allows_each_token_once",
        "test_options.py::test_every_field_reaches_the_device_in_its_row",
        "test_sampling.py::test_every_control_changes_the_law_at_every_node",
        "test_sampling.py::test_every_node_sees_the_law_that_its_committed_path_would",
        "test_sampling.py::test_filters_come_after_temperature_and_in_their_order",
        "test_sampling.py::test_mixed_rows_equal_rows_alone_bit_for_bit",
        "test_sampling.py::test_no_field_of_sampling_is_left_out_of_the_audit",
        "test_sampling.py::test_temperature_zero_is_the_lowest_tied_argmax_whatever_the_filters",
    ],
    "C3 the end of a text inside a block": [
        "test_completions.py::test_more_text_never_changes_where_it_stops",
        "test_decoding.py::test_a_block_is_cut_where_plain_decoding_ends",
        "test_engine.py::test_a_stop_string_cuts_ids_text_and_logprobs_alike",
        "test_engine.py::test_rows_end_at_the_ids_they_name_or_the_models_own",
    ],
    "C4 caches that skip, repeat or keep a token": [
        "conformance/test_drafters.py::test_a_perfect_draft_is_always_accepted",
        "drafters/test_autoregressive.py::test_the_draft_has_taken_in_the_whole_prompt",
        "models/test_table.py::test_a_path_that_is_none_is_a_fault",
        "test_decoding.py::test_drafters_are_told_every_token_with_the_feature_that_predicted_it",
        "test_decoding.py::test_steps_after_the_end_change_nothing",
    ],
    "C5 positions, masks and trees": [
        "models/test_decoder.py::test_branches_do_not_see_each_other",
        "models/test_decoder.py::test_tree_logits_equal_those_of_each_path_alone",
        "test_acceptance.py::test_a_token_in_two_branches_does_not_switch_branches",
        "test_acceptance.py::test_paths_are_paths_of_eligible_nodes",
        "test_trees.py::test_pointer_jumping_finds_the_ancestors",
        "test_trees.py::test_share_moves_children_to_the_first_eligible_twin",
    ],
    "C6 limits of context, buffers and tree sizes": [
        "conformance/test_drafters.py::test_a_draft_model_of_shorter_context_stops_guessing",
        "conformance/test_drafters.py::test_rows_fill_their_slots_and_no_more",
        "test_engine.py::test_a_row_without_budget_or_room_says_nothing",
        "test_requests.py::test_capacities_are_buckets",
        "test_trees.py::test_write_keeps_to_its_count_and_drops_what_does_not_fit",
    ],
    "C7 vocabularies, tokenizers and padding ids": [
        "models/test_resized.py::test_ids_that_mean_other_things_are_refused",
        "models/test_resized.py::test_sizes_that_differ_by_padding_keep_the_law",
        "tasks/test_tokenizer.py::test_the_beginning_is_marked_if_the_model_wants_it_and_once",
        "test_acceptance.py::test_padding_of_token_zero_is_never_accepted_though_zero_is_the_argmax",
        "test_requests.py::test_requests_that_cannot_be_met_are_refused",
    ],
    "C8 empty drafts, short prompts, no end of sequence, temperature zero": [
        "drafters/test_lookup.py::test_a_lookup_without_room_proposes_the_root",
        "test_acceptance.py::test_a_root_alone_yields_the_targets_own_token",
        "test_acceptance.py::test_typical_in_the_cold_is_greedy",
        "test_options.py::test_none_takes_the_models_ends_and_an_empty_tuple_takes_none",
        "test_sampling.py::test_extreme_temperatures_are_finite",
    ],
    "C9 random streams": [
        "test_decoding.py::test_match_says_the_same_whatever_is_drafted",
        "test_engine.py::test_a_second_call_and_a_second_engine_give_the_same_numbers",
        "test_engine.py::test_seeds_and_numbers_name_streams",
        "test_sampling.py::test_a_position_keeps_its_noise_whatever_is_drafted",
        "test_sampling.py::test_a_thousand_rows_share_no_noise",
    ],
    "C10 numerics": [
        "test_acceptance.py::test_every_round_ends_with_a_token_that_the_target_may_say",
        "test_decoding.py::test_decoding_stops_at_the_first_step_whose_logits_are_not_finite",
        "test_decoding.py::test_one_impossible_token_is_no_fault",
        "test_engine.py::test_weights_that_are_no_numbers_are_named_with_the_step",
        "test_sampling.py::test_draw_never_returns_a_token_of_probability_zero",
        "test_sampling.py::test_half_precision_logits_are_scored_in_single",
    ],
    "C11 rows and devices that disagree": [
        "conformance/test_rows.py::test_a_row_is_the_same_in_a_batch_of_one",
        "models/test_decoder.py::test_a_mesh_changes_nothing",
        "test_engine.py::test_a_row_of_a_batch_equals_the_row_alone",
    ],
    "C12 what is counted": [
        "test_acceptance.py::test_only_the_leading_run_counts",
        "test_analysis.py::test_a_summary_adds_up_rows_before_it_divides",
        "test_analysis.py::test_expected_tokens_equals_a_simulation",
        "test_decoding.py::test_only_what_a_row_keeps_is_counted",
        "test_engine.py::test_a_simulated_draft_is_accepted_at_its_rate",
        "test_engine.py::test_padding_rows_are_neither_returned_nor_counted",
    ],
    "C13 options and weights that are silently not used": [
        "checkpoints/test_safetensors.py::test_each_missing_weight_is_named",
        "drafters/test_names.py::test_an_unknown_option_is_refused_with_the_known_ones",
        "test_engine.py::test_a_call_refuses_what_cannot_be_honoured_before_it_decodes",
        "test_engine.py::test_an_engine_refuses_what_it_cannot_build",
        "test_options.py::test_a_control_that_does_not_exist_is_refused",
    ],
    "C14 compilations and speed": [
        "conformance/test_traces.py::test_other_controls_compile_nothing",
        "drafters/test_autoregressive.py::test_passes_of_the_draft_model_are_counted",
        "test_analysis.py::test_the_best_draft_length_where_drafting_pays_little_or_much",
        "test_engine.py::test_nothing_is_compiled_over_mixed_prompts_once_warm",
    ],
    "C15 what is shown: stream, logprobs, reason": [
        "test_decoding.py::test_logprobs_are_the_raw_targets_for_every_kind_of_token",
        "test_engine.py::test_a_stream_equals_the_whole",
        "test_streaming.py::test_a_stream_in_any_pieces_is_the_whole_cut_at_the_stop",
        "test_streaming.py::test_half_a_character_is_never_shown",
    ],
}


@functools.cache
def names_in(file: str) -> set[str]:
    module = ast.parse((HERE / file).read_text())
    return {node.name for node in module.body if isinstance(node, ast.FunctionDef)}


def test_every_class_of_faults_has_tests():
    assert [name.split()[0] for name in FAULTS] == [f"C{number}" for number in range(1, 16)]
    assert all(len(tests) >= 3 for tests in FAULTS.values())


@pytest.mark.parametrize("fault", FAULTS)
def test_the_tests_of_a_fault_exist(fault):
    missing = [
        test for test in FAULTS[fault] if test.split("::")[1] not in names_in(test.split("::")[0])
    ]
    assert not missing

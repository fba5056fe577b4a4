"""The same seed gives the same tokens, wherever target and drafter live."""

import numpy as np
import pytest

from specsample.partitioning import Shared

from . import subjects

SHAPES = [(1, 1), (1, 4), (2, 2), (4, 1), (1, 8), (2, 4)]


def same(drafter, placement, greedy, **options):
    wanted = subjects.reference(drafter, greedy, **options)
    made, result = subjects.on(drafter, placement, greedy, **options)
    assert [c.ids for c in result.completions] == [c.ids for c in wanted.completions]
    reasons = [c.finish_reason for c in wanted.completions]
    assert [c.finish_reason for c in result.completions] == reasons
    assert result.summary.counters == wanted.summary.counters
    for one, other in zip(result.completions, wanted.completions, strict=True):
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=2e-4)
    return made


@pytest.mark.parametrize("placement", ["shared", "reshaped", "disjoint"])
@pytest.mark.parametrize("drafter", subjects.DRAFTERS)
def test_every_drafter_under_every_placement(drafter, placement):
    same(drafter, subjects.PLACEMENTS[placement], greedy=False)


@pytest.mark.exhaustive
@pytest.mark.parametrize("greedy", [False, True], ids=["sampled", "greedy"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("kind", ["shared", "reshaped", "disjoint", "ahead"])
@pytest.mark.parametrize("drafter", subjects.DRAFTERS)
def test_everything_everywhere(drafter, kind, shape, greedy):
    if kind == "ahead" and drafter in subjects.NEVER_AHEAD:
        pytest.skip("drafts nothing, or nothing that could be drafted ahead")
    same(drafter, subjects.place(kind, *shape), greedy)


def test_drafting_ahead_changes_nothing():
    traffic = same("autoregressive", subjects.PLACEMENTS["ahead"], greedy=False).programs.traffic
    assert traffic.steps > traffic.ahead


def test_a_draft_that_is_always_right_is_drafted_ahead():
    made = same("simulated", subjects.PLACEMENTS["ahead"], greedy=True, alpha=1.0)
    traffic = made.programs.traffic
    # All but the steps that end rows, whose recordings are over.
    assert traffic.ahead >= traffic.steps - 2 > 0


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("drafter", ["autoregressive", "lookup"])
def test_every_mesh(drafter, shape):
    devices = subjects.devices(shape[0] * shape[1])
    same(drafter, Shared(subjects.mesh(*shape)).resolve(devices), greedy=False)


@pytest.mark.parametrize("placement", ["reshaped", "disjoint"])
def test_a_stream_is_the_same_text(placement):
    made = subjects.engine("autoregressive", subjects.PLACEMENTS[placement])
    plain = subjects.engine("autoregressive")
    for number in (0, 1):
        row = subjects.SAMPLINGS[number]
        pieces = made.stream(subjects.PROMPTS[number], row)
        ids = [token for piece in pieces for token in piece.ids]
        wanted = plain.generate([subjects.PROMPTS[number]], row).completions[0].ids
        assert ids == list(wanted)


def test_what_crosses_meshes_is_trees_and_commits():
    made, result = subjects.on("autoregressive", subjects.PLACEMENTS["disjoint"])
    traffic, rows = made.programs.traffic, len(subjects.PROMPTS)
    steps = traffic.steps
    # A judge and a follow-up a step; four programs to begin with.
    assert traffic.dispatches == 2 * steps + 4
    nodes, vocab = made.drafter.nodes, made.model.network.vocab
    law = 4 * rows * nodes * vocab
    small = 64 * rows * nodes  # integers of trees and commits
    head = 8 * 4 * rows * 256  # once: tokens and controls
    assert steps * law < traffic.bytes < (steps + 1) * (law + small) + head
    assert result.summary.counters["target_passes"] > 0


def test_laws_stay_at_home_where_no_rule_reads_them():
    made, _ = subjects.on("autoregressive", subjects.PLACEMENTS["disjoint"], accept="match")
    nodes, vocab = made.drafter.nodes, made.model.network.vocab
    assert made.programs.traffic.bytes < made.programs.traffic.steps * 4 * 4 * nodes * vocab

import json

import pytest

from specsample import Engine, load

PROMPT = "a b c a b c a b"


@pytest.fixture(scope="module")
def plain(models):
    engine = Engine(load(str(models / "target")))
    return engine.generate([PROMPT], max_new_tokens=8).completions[0]


def test_a_completion_is_the_engine_s_own(call, models, plain, tmp_path):
    outcome = call(
        "generate", "--model", models / "target", "--prompt", PROMPT, "--max_new_tokens", 8,
        "--json", "out.json",
    )  # fmt: skip
    assert (outcome.status, outcome.out) == (0, plain.text + "\n")
    assert "8 tokens, 1.00 per target pass" in outcome.err
    record = json.loads((tmp_path / "out.json").read_text())
    assert record["completions"][0]["ids"] == list(plain.ids)
    assert record["lossless"] is True and record["summary"]["counters"]["emitted"] == 8
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_a_stream_is_the_same_text_with_origins(call, models, plain, tmp_path):
    outcome = call(
        "generate", "--model", models / "target", "--prompt", PROMPT, "--max_new_tokens", 8,
        "--drafter", "lookup", "--drafter_option", "gamma=7", "--stream", "--color",
        "--json", "out.json",
    )  # fmt: skip
    assert outcome.status == 0 and "\x1b[" in outcome.out
    completion = json.loads((tmp_path / "out.json").read_text())["completions"][0]
    assert completion["ids"] == list(plain.ids) and completion["text"] == plain.text
    kinds = completion["kinds"]
    assert len(kinds) == 8 and set(kinds) <= {"drafted", "corrected", "bonus"}


def test_what_a_drafter_has_learnt_is_kept_in_its_file(call, models, plain, tmp_path):
    def passes(store):
        outcome = call(
            "generate", "--model", models / "target", "--prompt", PROMPT, "--max_new_tokens", 8,
            "--drafter", "trie", "--drafter_option", f"store={store}", "--json", "out.json",
        )  # fmt: skip
        assert (outcome.status, outcome.out) == (0, plain.text + "\n")
        counters = json.loads((tmp_path / "out.json").read_text())["summary"]["counters"]
        return counters["target_passes"], outcome.err

    cold, _ = passes("learnt")
    warm, _ = passes("learnt")
    assert warm < cold and (tmp_path / "learnt").is_file()
    lost, said = passes("none/learnt")
    assert lost == cold and said.count("none/learnt' cannot be written") == 1


def test_a_lossy_rule_is_announced(call, models, tmp_path):
    outcome = call(
        "generate", "--model", models / "target", "--prompt", PROMPT, "--max_new_tokens", 4,
        "--accept", "typical", "--json", "out.json",
    )  # fmt: skip
    assert outcome.status == 0
    assert "acceptance 'typical' is lossy" in outcome.err.splitlines()[0]
    assert json.loads((tmp_path / "out.json").read_text())["lossless"] is False


@pytest.mark.parametrize(
    "argv, text",
    [
        (["--model", "nothing"], "neither a known name"),
        (["--drafter", "eagel"], "choose from 'none', 'simulated'"),
        (["--accept", "exakt"], "choose from exact, longest"),
        (["--drafter_option", "gama=1", "--drafter", "lookup"], "no option 'gama'; it has: gamma"),
        (["--drafter_option", "gamma"], "NAME=VALUE"),
        (["--gamma", "3"], "drafter 'none' has no option 'gamma'"),
        (["--drafter", "lookup", "--gamma", "-1"], "gamma must be 0 or more, got -1"),
        (["--prompt_file", "missing.txt"], "missing.txt: cannot be read"),
        (["--prompt", ""], "prompt 1 is empty"),
        (["--temperature", "-0.1"], "temperature=-0.1"),
        (["--temperature", "warm"], "invalid float value"),
        (["--top_p", "0"], "top_p=0.0"),
        (["--top_p", "1.5"], "top_p=1.5"),
        (["--top_k", "-1"], "top_k=-1"),
        (["--logit_bias", "3"], "ID=VALUE"),
        (["--logit_bias", "999=1"], "logit_bias names token 999"),
        (["--eos_id", "999"], "eos_ids names token 999"),
        (["--stop", ""], "not empty"),
        (["--accept", "longest", "--temperature", "1"], "'longest' cannot decode"),
        (["--stream", "--prompt", "another"], "--stream shows one prompt"),
        (["--json", "no/such/place.json"], "create it first"),
    ],
)
def test_bad_input_is_refused(refused, models, argv, text):
    assert text in refused("generate", "--model", models / "target", "--prompt", "a", *argv)


def test_a_prompt_that_does_not_fit_is_refused(refused, models):
    error = refused("generate", "--model", models / "short", "--prompt", "a" * 65)
    assert "prompt 0 has 65 tokens" in error and "64" in error


def test_a_draft_with_another_vocabulary_is_refused(refused, models):
    error = refused(
        "generate", "--model", models / "target", "--draft_model", models / "odd",
        "--drafter", "autoregressive", "--prompt", "a",
    )  # fmt: skip
    assert "different vocabularies (258 and 257 ids)" in error


def test_a_truncated_gguf_file_is_refused(refused, tmp_path):
    from tests.checkpoints.tiny import gguf_weights, write_gguf

    path = write_gguf(tmp_path / "model.gguf", gguf_weights())
    path.write_bytes(path.read_bytes()[:-4000])
    assert "model.gguf" in refused("generate", "--model", path, "--prompt", "a")

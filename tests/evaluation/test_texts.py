"""BLEU, chrF and ROUGE against what their libraries say without us."""

import json

import numpy as np
import pytest

from specsample.errors import UserError
from specsample.evaluation.bleu import Bleu, Chrf
from specsample.evaluation.bootstrap import Bootstrap
from specsample.evaluation.rouge import Rouge

sacrebleu = pytest.importorskip("sacrebleu", reason="needs `pip install specsample[data]`")
rouge_scorer = pytest.importorskip(
    "rouge_score.rouge_scorer", reason="needs `pip install specsample[data]`"
)

WORDS = "the cat sat on a mat while two dogs ran over hills . some birds sang".split()


def corpus(size, seed=0):
    """References, and outputs that differ from them in some words."""
    random = np.random.default_rng(seed)
    targets = [list(random.choice(WORDS, random.integers(6, 20))) for _ in range(size)]
    outputs = [[w if random.random() < 0.8 else random.choice(WORDS) for w in t] for t in targets]
    return [" ".join(words) for words in outputs], [" ".join(words) for words in targets]


LIBRARY = {"bleu": (Bleu(), "BLEU"), "chrf": (Chrf(), "CHRF")}


@pytest.mark.parametrize("name", LIBRARY)
def test_a_corpus_scores_as_in_sacrebleu(name):
    metric, kind = LIBRARY[name]
    outputs, targets = corpus(30)
    theirs = getattr(sacrebleu.metrics, kind)()
    expected = theirs.corpus_score(outputs, [targets]).score
    found = metric.evaluate(outputs, targets)
    assert found["scores"][name]["value"] == pytest.approx(expected, abs=1e-9)
    assert found["signature"] == str(theirs.get_signature())
    assert f"version:{sacrebleu.__version__}" in found["signature"]
    assert found["examples"] == 30
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("name", LIBRARY)
def test_intervals_are_those_of_sacrebleus_own_bootstrap(name, monkeypatch):
    from sacrebleu import significance

    metric, kind = LIBRARY[name]
    outputs, targets = corpus(25)
    theirs = getattr(sacrebleu.metrics, kind)()
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    counts = theirs._extract_corpus_statistics(outputs, [targets])
    _, drawn = significance._bootstrap_resample(counts, theirs, 500)
    expected = np.quantile([score.score for score in drawn], [0.025, 0.975])
    found = metric.evaluate(outputs, targets, Bootstrap(seed=7, resamples=500))["scores"][name]
    assert found["interval"] == pytest.approx(expected, rel=1e-4)
    assert found["interval"][0] < found["value"] < found["interval"][1]


def test_any_of_several_references_will_do():
    outputs = ["the cat sat on the mat today", "some birds sang over two hills"]
    targets = [["nothing like it at all", outputs[0]], outputs[1]]
    for name, (metric, _) in LIBRARY.items():
        assert metric.evaluate(outputs, targets)["scores"][name]["value"] == pytest.approx(100)
    scores = Rouge().evaluate(outputs, targets)["scores"]
    assert [score["value"] for score in scores.values()] == pytest.approx([100] * 4)


def test_options_reach_the_library_and_its_signature():
    outputs, targets = ["THE CAT sat on the mat"], ["the cat sat on the mat"]
    assert Bleu().evaluate(outputs, targets)["scores"]["bleu"]["value"] < 99
    found = Bleu(lowercase=True, tokenize="char").evaluate(outputs, targets)
    assert found["scores"]["bleu"]["value"] == pytest.approx(100)
    assert "case:lc" in found["signature"] and "tok:char" in found["signature"]
    assert "nw:2" in Chrf(word_order=2).evaluate(outputs, targets)["signature"]
    stems = ["the cats sat"], ["the cat sat"]
    assert Rouge().evaluate(*stems)["scores"]["rouge1"]["value"] < 99
    found = Rouge(use_stemmer=True).evaluate(*stems)
    assert found["scores"]["rouge1"]["value"] == pytest.approx(100)
    assert "stemmer:yes" in found["signature"]


def test_rouge_is_the_mean_of_the_librarys_scores():
    outputs, targets = corpus(20)
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"])
    pairs = zip(targets, outputs, strict=True)
    each = [scorer.score(target, output) for target, output in pairs]
    found = Rouge().evaluate(outputs, targets)
    for name in ("rouge1", "rouge2", "rougeL"):
        expected = 100 * np.mean([score[name].fmeasure for score in each])
        assert found["scores"][name]["value"] == pytest.approx(expected)
        low, high = found["scores"][name]["interval"]
        assert low < expected < high
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("between", [" . ", "\n"])
def test_rouge_lsum_takes_sentences_in_any_order(between):
    output, target = between.join(["c d e", "a b"]), between.join(["a b", "c d e"])
    scores = Rouge().evaluate([output], [target])["scores"]
    assert scores["rougeL"]["value"] == pytest.approx(60)
    assert scores["rougeLsum"]["value"] == pytest.approx(100)


def test_a_text_without_line_breaks_is_one_sentence():
    scores = Rouge().evaluate(["c d e. a b"], ["a b. c d e"])["scores"]
    assert scores["rougeLsum"]["value"] == pytest.approx(scores["rougeL"]["value"])


@pytest.mark.parametrize("metric", [Bleu(), Chrf(), Rouge()])
def test_an_output_without_words_scores_zero_and_a_reference_without_is_refused(metric):
    for score in metric.evaluate([""], ["two words"])["scores"].values():
        assert score == {"value": 0, "interval": [0, 0]}
    with pytest.raises(UserError, match="reference 1 has ' '; give a text"):
        metric.evaluate(["a", "b"], ["c", " "])
    with pytest.raises(UserError, match="reference 0 is None; give a text, or a list"):
        metric.evaluate(["a"], [None])


def test_options_that_do_not_exist_are_refused():
    with pytest.raises(UserError, match="tokenize='13b'; choose from 13a, char"):
        Bleu(tokenize="13b").evaluate(["a"], ["a"])
    with pytest.raises(UserError, match="word_order=-1; use 0"):
        Chrf(word_order=-1).evaluate(["a"], ["a"])

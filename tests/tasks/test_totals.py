import pytest

from specsample.tasks import totals
from specsample.tasks.records import difference


def summary(passes, accepted, corrections, drafted, histogram, reached=(), taken=()):
    bonus = passes - corrections
    emitted = accepted + passes
    counters = {
        "target_passes": passes, "accepted": accepted, "corrections": corrections,
        "bonus": bonus, "drafted": drafted, "emitted": emitted, "truncated": 0,
    }  # fmt: skip
    return {"counters": counters, "histogram": histogram, "reached": reached, "taken": taken}


def test_totals_are_sums_over_sums():
    combined = totals.combine(
        [
            summary(10, 20, 5, 40, (2, 4, 4), (10, 8), (8, 4)),
            summary(1, 0, 1, 4, (1,), (1,), (0,)),
            summary(0, 0, 0, 0, ()),
        ]
    )
    assert combined["tau"] == pytest.approx(31 / 11)
    assert combined["alpha"] == pytest.approx(20 / 26)
    assert combined["acceptance_rate"] == pytest.approx(20 / 44)
    assert combined["mean_drafted"] == pytest.approx(4)
    assert combined["histogram"] == [3, 4, 4]
    assert combined["alpha_by_depth"] == pytest.approx([8 / 11, 4 / 8])


def test_totals_of_nothing_are_defined():
    combined = totals.combine([])
    assert (combined["tau"], combined["alpha"], combined["histogram"]) == (0, None, [])


def test_configurations_differ_in_what_they_bind():
    old = "# a\nimport x\nA = 1\nb.c = 2\nOUTPUT_DIR = 'x'\n"
    assert difference(old, "# z\nb.c = 2\nA = 1\nOUTPUT_DIR = 'y'\n") == ""
    assert difference(old, "A = 3\nb.c = 2\n") == "A: 1 there, 3 now"
    assert difference(old, "A = 1\nd = 4") == "b.c: 2 there, unset now; d: unset there, 4 now"

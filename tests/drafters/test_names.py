import importlib

import pytest

from specsample import drafters
from tests.drafters import toys


@pytest.mark.parametrize("name", drafters.NAMES)
def test_every_name_builds_a_drafter_that_keeps_the_protocol(name):
    parts, needed = (toys.language(), toys.language(seed=1)), toys.needed(name)
    drafter, _ = drafters.build(name, *parts, **needed)
    assert hash(drafter) == hash(drafters.build(name, *parts, **needed)[0])
    assert drafter.nodes >= drafter.depth + 1 >= 1
    assert drafter.widths[-1] == drafter.nodes and list(drafter.widths) == sorted(drafter.widths)
    assert drafter.draws >= 0 and isinstance(drafter.taps, tuple)
    assert isinstance(drafter.harvests, bool)
    assert drafter.context is None or drafter.context > 0


@pytest.mark.parametrize("name", drafters.NAMES)
def test_every_option_has_a_default_and_a_word_in_the_documentation(name):
    module = importlib.import_module(f"specsample.drafters.{name}")
    text = "".join(filter(None, (module.build.__doc__, module.__doc__)))
    text += "".join(filter(None, (value.__doc__ for value in vars(module).values())))
    for option in drafters.options_of(name):
        assert option in text


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="unknown drafter 'medusae'; choose from none, simulated"):
        drafters.build("medusae", toys.table())


def test_an_unknown_option_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="'lookup' has no option 'gama'; it has: gamma, "):
        drafters.build("lookup", toys.table(), gama=3)
    with pytest.raises(ValueError, match="'none' has no option 'gamma'; it has no options"):
        drafters.build("none", toys.table(), gamma=3)


def test_a_drafters_own_refusal_comes_through():
    for name in ("autoregressive", "skip", "lookup", "simulated"):
        with pytest.raises(ValueError, match="gamma"):
            drafters.build(name, toys.language(), gamma=-1)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("lookup", {"gamma": "3"}, "gamma must be a whole number, got '3'"),
        ("lookup", {"gamma": 2.5}, "gamma must be a whole number, got 2.5"),
        ("lookup", {"gamma": 10**14}, "at most 255 guesses a step, got 100000000000000"),
        ("lookup", {"longest": 2.5}, "longest must be a whole number, got 2.5"),
        ("lookup", {"first": 7}, "first must be True or False, got 7"),
        ("simulated", {"gamma": 10**11}, "at most 255"),
        ("simulated", {"alpha": "x"}, "alpha must be a number, got 'x'"),
        ("skip", {"layers": 1}, "layers must be a tuple of whole numbers, got 1"),
        ("skip", {"layers": (0, "a")}, "layers must be a tuple"),
        ("skip", {"gamma": 256}, "at most 255"),
        ("autoregressive", {"branching": 2}, "branching must be a tuple"),
        ("autoregressive", {"branching": (-2,)}, "branching must be 0 or more, got -2"),
        ("autoregressive", {"branching": (100, 100, 100)}, "branching must make at most 255"),
    ],
)
def test_options_of_another_kind_or_size_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        drafters.build(name, toys.language(), **options)

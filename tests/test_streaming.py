import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsample.completions import find_stop, tokens_before
from specsample.streaming import Releaser
from tests.drafters.toys import ToyTokenizer

# Half characters, a character of four bytes, and a token without text.
PIECES = ["a", "b", "ab", b"\xc3", b"\xa9", "é", b"\xf0\x9f", b"\x98", b"\x80a", "<end>"]
TOKENIZER = ToyTokenizer(PIECES, special_ids=(9,))
IDS = st.lists(st.integers(0, len(PIECES) - 1), max_size=12)
STOPS = st.lists(st.text("abé\N{GRINNING FACE}", min_size=1, max_size=3), max_size=3)


def entries_of(ids):
    return [(token, "drafted", -float(place)) for place, token in enumerate(ids)]


def push_all(releaser, entries, sizes):
    """Pushes in pieces, and yields what comes out, until the row has ended."""
    while True:
        size = next(sizes)
        now, entries = entries[:size], entries[size:]
        yield releaser.push(now, final=not entries)
        if releaser.stopped or not entries:
            return


@settings(max_examples=400, deadline=None)
@given(IDS, STOPS, st.lists(st.integers(1, 5), min_size=12, max_size=12))
def test_a_stream_in_any_pieces_is_the_whole_cut_at_the_stop(ids, stop, sizes):
    text = TOKENIZER.decode(ids)
    at = find_stop(text, stop)
    keep = len(ids) if at is None else tokens_before(TOKENIZER.offsets(ids), at)
    releaser = Releaser(TOKENIZER, stop)
    shown, out = "", []
    for piece, sure in push_all(releaser, entries_of(ids), iter(sizes)):
        shown, out = shown + piece, out + sure
        assert text.startswith(shown) and find_stop(shown, stop) is None
        assert out == entries_of(ids)[: len(out)]
    assert releaser.stopped == (at is not None)
    assert shown == text[:at]
    assert out == entries_of(ids)[:keep]


def test_text_waits_while_it_may_still_be_a_stop_string():
    releaser = Releaser(TOKENIZER, ("aba",))
    assert releaser.push(entries_of([0]), final=False) == ("", [])
    text, sure = releaser.push(entries_of([0]), final=False)
    assert text == "a" and len(sure) == 1
    assert releaser.push([(1, "bonus", 0.0)], final=False) == ("", [])
    text, sure = releaser.push([(1, "bonus", 0.0)], final=False)
    assert text == "abb" and [token for token, *_ in sure] == [0, 1, 1]
    assert not releaser.stopped


def test_what_waited_comes_out_at_the_end():
    releaser = Releaser(TOKENIZER, ("aba",))
    releaser.push(entries_of([0, 1]), final=False)
    text, sure = releaser.push(entries_of([3]), final=True)
    assert text == "ab\ufffd" and len(sure) == 3


@pytest.mark.parametrize("stop", [(), ("never",)])
def test_half_a_character_is_never_shown(stop):
    releaser = Releaser(TOKENIZER, stop)
    shown = [releaser.push(entries_of([token]), final=False)[0] for token in (6, 7, 8, 3, 4)]
    assert shown == ["", "", "\N{GRINNING FACE}a", "", "é"]


def test_without_a_tokenizer_tokens_pass_and_text_is_empty():
    releaser = Releaser(None, ())
    assert releaser.push(entries_of([1, 2]), final=False) == ("", entries_of([1, 2]))
    assert releaser.push([(3, "bonus", 0.0)], final=True) == ("", [(3, "bonus", 0.0)])
    assert not releaser.stopped


def test_the_toy_tokenizer_finds_what_it_says():
    rng = np.random.default_rng(0)
    for _ in range(50):
        text = "".join(rng.choice(list("abé"), rng.integers(0, 8)))
        ids = TOKENIZER.encode(text)
        assert TOKENIZER.decode(ids) == text
        assert (TOKENIZER.offsets(ids) or [0])[-1] == len(text)

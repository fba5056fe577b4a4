import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsample.completions import find_stop, tokens_before


@pytest.mark.parametrize(
    ("text", "stop", "at"),
    [
        ("abcabc", ("c",), 2),
        ("abcabc", ("ca", "b"), 1),
        ("abcabc", ("bc", "c"), 1),  # complete at one character: the longer one
        ("abxyz", ("bx", "abxy"), 1),  # complete first, though it begins later
        ("abc", (), None),
        ("abc", ("d", "cb"), None),
        ("", ("a",), None),
        ("aaa", ("aa",), 0),
    ],
)
def test_the_stop_string_that_is_complete_first_counts(text, stop, at):
    assert find_stop(text, stop) == at


@settings(deadline=None)
@given(
    st.text("ab", max_size=12),
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    st.integers(0, 12),
)
def test_more_text_never_changes_where_it_stops(text, stop, cut):
    early = find_stop(text[:cut], stop)
    if early is not None:
        assert find_stop(text, stop) == early
    at = find_stop(text, stop)
    if at is not None:
        assert any(text[at:].startswith(string) for string in stop)


def test_a_search_may_begin_later():
    assert find_stop("abab", ("ab",), 1) == 2
    assert find_stop("abab", ("ab",), 3) is None


@pytest.mark.parametrize(
    ("ends", "at", "keep"),
    [
        ([1, 2, 3], 0, 0),
        ([1, 2, 3], 1, 1),
        ([2, 4], 1, 1),  # the token carries a character that stays
        ([2, 4], 2, 1),
        ([2, 4], 3, 2),
        ([1, 1, 2], 1, 2),  # a token without text stands before the match
        ([3], 9, 1),
        ([], 0, 0),
    ],
)
def test_a_cut_keeps_tokens_whose_text_stays(ends, at, keep):
    assert tokens_before(ends, at) == keep

"""What a model is given: ends of sequence, limits, and ids of the task's own."""

import dataclasses

import pytest

from specsample.errors import UserError
from specsample.tasks.prompts import Example, Limits, Task, encode, encode_example
from tests.drafters import toys
from tests.tasks import pieces

WORDS = pieces.tokenizer()
T5 = pieces.encoder_decoder(WORDS)
DECODER = toys.language()
LONG = Example("long", "the sea and the ships sang of it", inputs="the sea and the ships sang")


def given(model, example, lack="", tokenizer=None, **limits):
    task = Task("t", (example,), limits=Limits(**limits), tokenizer=tokenizer, decoders_lack=lack)
    return encode_example(model, task, example)


def test_an_encoder_is_given_an_end_and_a_decoder_none():
    assert encode(T5, "the sea") == (*WORDS.encode("the sea"), 1)
    assert encode(DECODER, "abc") == tuple(DECODER.tokenizer.encode("abc"))


def test_an_encoder_is_given_inputs_and_a_decoder_the_prompt():
    example = Example("a", "abc", inputs="the sea")
    assert given(T5, example) == encode(T5, "the sea")
    assert given(DECODER, example) == encode(DECODER, "abc")
    assert given(T5, Example("a", "the sea", chat=True)) == encode(T5, "the sea")


def test_longer_prompts_are_refused_by_name_and_cut_when_asked():
    whole = given(T5, LONG)
    assert given(T5, LONG, inputs=len(whole)) == whole
    with pytest.raises(UserError, match=f"'long' has {len(whole)} tokens and .* allows 3; .*TRUNC"):
        given(T5, LONG, inputs=3)
    assert given(T5, LONG, inputs=3, truncate=True) == (*whole[:2], 1)
    assert given(T5, LONG, inputs=1, truncate=True) == (1,)


def test_a_decoder_keeps_the_end_of_what_is_cut():
    example = Example("a", "abcdef")
    assert given(DECODER, example, inputs=2, truncate=True) == encode(DECODER, "ef")
    framed = dataclasses.replace(example, chat=True)
    frame = type("Frame", (), {"render": staticmethod(lambda turns: turns[0]["content"])})()
    chatting = dataclasses.replace(DECODER, chat=frame)
    with pytest.raises(UserError, match="its chat frame cannot be cut to 2"):
        given(chatting, framed, inputs=2, truncate=True)


def test_ids_of_a_task_are_used_where_they_mean_the_same():
    example = Example("a", "the sea", ids=(9, 8, 1))
    assert given(T5, example, tokenizer=pieces.tokenizer()) == (9, 8, 1)
    assert given(T5, example, tokenizer=pieces.tokenizer(11)) == encode(T5, "the sea")
    assert given(T5, example) == encode(T5, "the sea")
    silent = pieces.encoder_decoder(None, vocab=20)
    assert given(silent, example) == (9, 8, 1)
    with pytest.raises(UserError, match="has no tokenizer"):
        given(silent, example, tokenizer=pieces.tokenizer())
    decoder = dataclasses.replace(DECODER, tokenizer=WORDS)
    assert given(decoder, example, tokenizer=pieces.tokenizer()) == (9, 8)


def test_a_task_may_be_for_encoders_alone():
    assert given(T5, LONG, lack="no examples to show") == given(T5, LONG)
    with pytest.raises(UserError, match="no examples to show"):
        given(DECODER, Example("a", "abc"), lack="no examples to show")

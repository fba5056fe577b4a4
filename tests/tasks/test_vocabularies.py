"""Vocabularies of T5 and byT5, against SentencePiece's own library."""

import itertools
import json
import random

import pytest
import sentencepiece

from specsample.errors import UserError
from specsample.tasks import vocabularies
from specsample.tasks.bytewise import Bytewise
from specsample.tasks.sentencepieces import SentencePieces
from specsample.tasks.tokenizer import Tokenizer, TokenStream
from tests.tasks import pieces


def random_text(source, length):
    common = "the sea  ships,1 2\t\nÄé🙂ab"
    return "".join(source.choice(common) for _ in range(source.randrange(length)))


def bare(text):
    """Without the space before an unknown piece that a text begins with: not all remove it."""
    return text.removeprefix(" ") if text.startswith(" \u2047") else text


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("options", [{}, {"remove_extra_whitespaces": False}])
def test_sentencepiece_models_agree_with_their_library(kind, options):
    model = pieces.trained(kind, **options)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    ours, source = Tokenizer(SentencePieces(model, "here")), random.Random(0)
    assert ours.vocab_size == theirs.get_piece_size() + 100
    assert (ours.bos_id, ours.eos_ids, ours.special_ids) == (None, (1,), {0, 1})
    for _ in range(200):
        text = random_text(source, 30) + source.choice(pieces.WORDS)
        ids = theirs.encode(text)
        assert ours.encode(text) == ours.encode(text, parse=False) == ids
        assert bare(ours.decode(ids)) == bare(theirs.decode(ids))
        assert ours.offsets(ids)[-1] == len(ours.decode(ids))


def test_any_ids_become_text_as_in_their_library():
    model = pieces.trained()
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    ours, source = Tokenizer(SentencePieces(model, "here", 0)), random.Random(1)
    for _ in range(300):
        ids = [source.randrange(3, ours.vocab_size) for _ in range(source.randrange(1, 12))]
        assert bare(ours.decode(ids)) == bare(theirs.decode(ids))
        stream = TokenStream(ours)
        assert "".join(stream.push([i]) for i in ids) + stream.flush() == ours.decode(ids)
    assert ours.decode([0, 5, 1]) == theirs.decode([0, 5, 1])


def test_sentinels_stand_behind_the_pieces_the_first_one_last():
    words = pieces.tokenizer(extra_ids=10)
    last = words.vocab_size - 1
    ids = words.encode("the <extra_id_0> and <extra_id_9>")
    assert [index for index in ids if index > last - 10] == [last, last - 9]
    assert words.encode("<extra_id_9>") == [last - 9]
    assert words.decode([last]) == "<extra_id_0>"
    literal = words.encode("<extra_id_9>", parse=False)
    assert len(literal) > 3 and max(literal) <= last - 10


def test_bytes_of_pieces_without_letters_of_their_own():
    model = pieces.trained("bpe", byte_fallback=True, vocab_size=340)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    words = Tokenizer(SentencePieces(model, "here", 0))
    ids = words.encode("the 你好")
    assert ids == theirs.encode("the 你好") and words.decode(ids) == "the 你好"
    parts = [index for index in ids if words.token_bytes(index) in (b"\xe4", b"\xbd", b"\xa0")]
    stream = TokenStream(words)
    assert [stream.push([index]) for index in parts[:3]] == ["", "", "你"]


@pytest.mark.parametrize("name", ["sentencepiece.model", "spiece.model"])
def test_a_folder_with_a_sentencepiece_model_has_a_tokenizer(tmp_path, name):
    (tmp_path / name).write_bytes(pieces.trained())
    words = Tokenizer.from_path(tmp_path)
    assert words.vocab_size == pieces.tokenizer(100).vocab_size
    assert Tokenizer.from_path(tmp_path / name).fingerprint == words.fingerprint
    (tmp_path / "tokenizer_config.json").write_text('{"extra_ids": 7}')
    assert Tokenizer.from_path(tmp_path).fingerprint == pieces.tokenizer(7).fingerprint
    (tmp_path / "tokenizer_config.json").write_text('{"extra_ids": "x"}')
    with pytest.raises(UserError, match="extra_ids='x'; it must be a whole number"):
        Tokenizer.from_path(tmp_path)


def test_saved_vocabularies_are_the_same(tmp_path):
    for number, words in enumerate((pieces.tokenizer(5), Tokenizer(Bytewise(3)))):
        folder = tmp_path / str(number)
        folder.mkdir()
        words.save(folder)
        again = Tokenizer.from_path(folder)
        assert again.fingerprint == words.fingerprint
        assert (again.vocab_size, again.eos_ids) == (words.vocab_size, words.eos_ids)
        text = "the <extra_id_0> sea"
        assert again.encode(text) == words.encode(text)
        assert again.encode(text, parse=False) == words.encode(text, parse=False)


def test_a_definition_goes_before_a_file_that_is_not_t5s(tmp_path):
    definition = {
        "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                    "use_regex": False},
        "added_tokens": [],
    }  # fmt: skip
    (tmp_path / "tokenizer.json").write_text(json.dumps(definition))
    (tmp_path / "spiece.model").write_bytes(pieces.trained())
    assert Tokenizer.from_path(tmp_path).vocab_size == 1
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "T5Tokenizer"}')
    assert Tokenizer.from_path(tmp_path).vocab_size > 100


def test_fingerprints_of_pieces_tell_them_apart():
    prints = [pieces.tokenizer(n).fingerprint for n in (0, 10, 10)]
    assert prints[0] != prints[1] == prints[2]
    assert Tokenizer(Bytewise()).fingerprint != Tokenizer(Bytewise(0)).fingerprint


def test_a_damaged_model_is_refused(tmp_path):
    (tmp_path / "spiece.model").write_bytes(b"no model")
    with pytest.raises(UserError, match=r"spiece\.model: this is no SentencePiece model"):
        Tokenizer.from_path(tmp_path)


def test_bytes_are_ids_after_three():
    words, source = Tokenizer(Bytewise()), random.Random(2)
    assert (words.vocab_size, words.bos_id, words.eos_ids) == (384, None, (1,))
    assert words.encode("aé") == [100, 198, 172]
    for _ in range(50):
        text = random_text(source, 20)
        ids = words.encode(text)
        assert words.decode([0, *ids, 1, 2, 383]) == text
        assert len(ids) == len(text.encode())
        stream = TokenStream(words)
        parts = [stream.push([i]) for i in ids]
        ends = words.offsets(ids)
        assert [text[a:b] for a, b in itertools.pairwise([0, *ends])] == parts


def test_what_may_be_named_as_a_vocabulary(tmp_path):
    (tmp_path / "spiece.model").write_bytes(pieces.trained())
    for given in (str(tmp_path), str(tmp_path / "spiece.model")):
        assert vocabularies.load(given).fingerprint == pieces.tokenizer(100).fingerprint
    assert vocabularies.load("bytes").vocab_size == 384
    with pytest.raises(UserError, match="VOCABULARY='nothing': there is no such file"):
        vocabularies.load("nothing")
    with pytest.raises(UserError, match="VOCABULARY=3; give a SentencePiece model"):
        vocabularies.load(3)


def test_a_vocabulary_must_fit_its_model():
    words = pieces.tokenizer()
    model = pieces.encoder_decoder(None, vocab=words.vocab_size)
    assert vocabularies.attach(model, words).tokenizer is words
    small = pieces.encoder_decoder(None, vocab=8)
    with pytest.raises(UserError, match=f"has {words.vocab_size} ids and model 'tiny' 8"):
        vocabularies.attach(small, words)

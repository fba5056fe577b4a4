"""Tokenizers against hand-made ones; none of this needs a download, except where it says so."""

import io
import itertools
import json
import random
import re

import gguf
import pytest

from specsample import pretrained
from specsample.checkpoints.gguf_file import GGUFFile
from specsample.errors import UserError
from specsample.tasks.chat import ChatTemplate
from specsample.tasks.tokenizer import Tokenizer, TokenStream

PRINTS = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
OTHERS = [b for b in range(256) if b not in PRINTS]
ALPHABET = {b: chr(b) for b in PRINTS} | {b: chr(256 + n) for n, b in enumerate(OTHERS)}
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
MERGES = ["Ġ t", "h e", "Ġt he", "Ã ©", "l l", "e r"]
TEMPLATE = "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}{% endfor %}{{ eos_token }}"


def pieces():
    """Three control tokens, a user's own, all bytes, merges, and two ids that nothing produces."""
    merged = [pair.replace(" ", "") for pair in MERGES]
    listed = ["<s>", "</s>", "<turn>", "[tool]", *ALPHABET.values(), *merged, "[unused]", "he"]
    kinds = [CONTROL] * 3 + [USER] + [NORMAL] * (256 + len(merged)) + [UNUSED, NORMAL]
    return listed, kinds


def write_gguf(path, model="gpt2", **metadata):
    listed, kinds = pieces()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_tokenizer_pre(metadata.pop("pre", "smollm"))
    writer.add_token_list(metadata.pop("tokens", listed))
    writer.add_token_types(metadata.pop("kinds", kinds))
    if "scores" in metadata:
        writer.add_token_scores(metadata.pop("scores"))
    writer.add_token_merges(MERGES)
    values = {"bos_token_id": 0, "eos_token_id": 1, "eot_token_id": 2, "add_bos_token": False}
    for key, value in (values | metadata).items():
        add = writer.add_bool if isinstance(value, bool) else writer.add_uint32
        add(f"tokenizer.ggml.{key}", value)
    writer.add_chat_template(TEMPLATE)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def path(tmp_path):
    return write_gguf(tmp_path / "tiny.gguf")


@pytest.fixture
def tokenizer(path):
    return Tokenizer.from_path(path)


def random_text(source, length):
    common = "the hell er 'll  \t\n.,!?0123456789éüß你好🙂مرحبا①ⅷ\u00a0\u200d\u3000"
    text = []
    for _ in range(source.randrange(length)):
        rare = chr(source.choice([source.randrange(0xD800), source.randrange(0xE000, 0x110000)]))
        text.append(rare if source.random() < 0.1 else source.choice(common))
    return "".join(text)


def merge(characters, ranks):
    """Byte-pair encoding as its paper describes it: join the most urgent pair, and again."""
    parts = list(characters)
    while True:
        pairs = [
            (ranks.get(pair, len(ranks)), i) for i, pair in enumerate(itertools.pairwise(parts))
        ]
        if not pairs or min(pairs)[0] == len(ranks):
            return parts
        at = min(pairs)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def reference(listed, merges):
    """Digits apart, then GPT-2's split into words, then merges."""
    words = pytest.importorskip("regex").compile(
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    )
    digits = __import__("regex").compile(r"(\p{N})")
    ids = {}
    for index, piece in enumerate(listed):
        ids.setdefault(piece, index)
    ranks = {tuple(pair.split(" ")): rank for rank, pair in enumerate(merges)}

    def encode(text):
        found = []
        for part in digits.split(text):
            for word in words.findall(part):
                parts = merge([ALPHABET[b] for b in word.encode()], ranks)
                found += [ids[p] for p in parts if p in ids]
        return found

    return encode


def test_text_is_split_and_merged_as_described(tokenizer):
    encode, source = reference(pieces()[0], MERGES), random.Random(0)
    for _ in range(300):
        text = random_text(source, 30)
        assert tokenizer.encode(text) == encode(text), repr(text)


def test_text_survives_the_round_trip(tokenizer):
    source = random.Random(1)
    for _ in range(1000):
        text = random_text(source, 30)
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert not set(ids) & tokenizer.special_ids


def test_smollm2_is_encoded_as_described():
    try:
        path = pretrained.resolve("smollm2-135m")
    except UserError as error:
        pytest.skip(str(error))
    tokenizer, data = Tokenizer.from_path(path), GGUFFile(path).metadata
    encode = reference(data["tokenizer.ggml.tokens"], data["tokenizer.ggml.merges"])
    source = random.Random(2)
    texts = [random_text(source, 40) for _ in range(200)]
    texts.append("It's 1969: naïve folk don't  say\n\n\t“hello”, they'll say 你好!   ")
    for text in texts:
        assert tokenizer.encode(text) == encode(text), repr(text)
    assert (tokenizer.vocab_size, tokenizer.bos_id, tokenizer.eos_ids) == (49152, 1, (2,))
    assert tokenizer.decode(tokenizer.encode(texts[-1])) == texts[-1]


def test_control_tokens_are_read_unless_they_are_plain_text(tokenizer):
    text = "he<turn>he[tool]"
    assert tokenizer.encode(text) == [261, 2, 261, 3]
    assert tokenizer.decode([261, 2, 261, 3]) == "hehe[tool]"
    assert tokenizer.decode([261, 2, 261, 3], skip_special=False) == text
    plain = tokenizer.encode(text, parse=False)
    assert 2 not in plain and tokenizer.decode(plain) == text


def test_the_beginning_is_marked_if_the_model_wants_it_and_once(tmp_path):
    tokenizer = Tokenizer.from_path(write_gguf(tmp_path / "m.gguf", add_bos_token=True))
    assert tokenizer.encode("he") == [0, 261]
    assert tokenizer.encode("<s>he") == [0, 261]
    assert tokenizer.encode("he", special=False) == [261]
    assert tokenizer.encode("") == [0]
    assert tokenizer.encode("<s>", parse=False)[:2] != [0, 0]


def test_ids_of_no_text_do_no_harm(tokenizer):
    listed, _ = pieces()
    assert tokenizer.vocab_size == len(listed)
    assert tokenizer.eos_ids == (1, 2)
    assert tokenizer.decode([len(listed), -1, 10**6]) == ""
    assert tokenizer.decode([len(listed) - 2]) == "[unused]"
    assert tokenizer.decode([len(listed) - 1]) == "he"  # a second id of the same text
    assert tokenizer.offsets([]) == []


def test_a_stream_gives_whole_characters_and_in_all_the_text(tokenizer):
    source = random.Random(3)
    for _ in range(200):
        text = random_text(source, 20)
        ids = tokenizer.encode(text)
        stream = TokenStream(tokenizer)
        parts = [stream.push([index]) for index in ids]
        assert "".join(parts) == text and stream.flush() == ""
        assert "\ufffd" not in "".join(parts) or "\ufffd" in text
        ends = tokenizer.offsets(ids)
        assert [text[a:b] for a, b in itertools.pairwise([0, *ends])] == parts


def test_bytes_that_are_no_text_are_shown_as_such(tokenizer):
    source = random.Random(4)
    for _ in range(300):
        ids = [source.randrange(tokenizer.vocab_size) for _ in range(12)]
        raw = b"".join(tokenizer.token_bytes(i) for i in ids)
        assert tokenizer.decode(ids) == raw.decode("utf-8", "replace")
        stream = TokenStream(tokenizer)
        assert stream.push(ids[:5]) + stream.push(ids[5:]) + stream.flush() == tokenizer.decode(ids)
        assert tokenizer.offsets(ids)[-1] == len(tokenizer.decode(ids))


def test_lone_surrogates_are_refused(tokenizer):
    with pytest.raises(UserError, match="lone surrogates"):
        tokenizer.encode("a\ud800b")


def test_a_saved_tokenizer_is_the_same(tokenizer, path, tmp_path):
    folder = tmp_path / "saved"
    folder.mkdir()
    ChatTemplate.from_path(path)
    tokenizer.save(folder)
    again, source = Tokenizer.from_path(folder), random.Random(5)
    for _ in range(50):
        text = random_text(source, 20) + "<turn>[tool]"
        assert again.encode(text) == tokenizer.encode(text)
    assert again.eos_ids == tokenizer.eos_ids and again.bos_id == tokenizer.bos_id
    turns = [{"role": "user", "content": "he"}]
    rendered = ChatTemplate.from_path(path).render(turns)
    assert ChatTemplate.from_path(folder).render(turns) == rendered == "<s>user: he</s>"


def test_fingerprints_tell_vocabularies_apart(tmp_path):
    listed, kinds = pieces()
    swapped = [*listed]
    swapped[10], swapped[11] = swapped[11], swapped[10]
    prints = [
        Tokenizer.from_path(write_gguf(tmp_path / f"{i}.gguf", tokens=tokens)).fingerprint
        for i, tokens in enumerate((listed, listed, swapped))
    ]
    assert prints[0] == prints[1] != prints[2]
    assert re.fullmatch("[0-9a-f]{64}", prints[0])


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"model": "bert"}, "tokenizer type 'bert' is not supported; these are: gpt2, llama"),
        ({"pre": "tekken"}, r"'tekken' \(tokenizer.ggml.pre\) is not supported"),
        ({"kinds": [1]}, "tokens but 1 token types"),
    ],
)
def test_unknown_kinds_are_named(tmp_path, settings, message):
    with pytest.raises(UserError, match=message):
        Tokenizer.from_path(write_gguf(tmp_path / "m.gguf", **settings))


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "qwen2"])
def test_other_splits_keep_the_text(tmp_path, pre):
    tokenizer = Tokenizer.from_path(write_gguf(tmp_path / "m.gguf", pre=pre))
    source = random.Random(6)
    import unicodedata

    for _ in range(200):
        text = random_text(source, 30)
        want = unicodedata.normalize("NFC", text) if pre == "qwen2" else text
        assert tokenizer.decode(tokenizer.encode(text)) == want


def test_sentencepiece_is_encoded_as_by_its_library(tmp_path):
    library = pytest.importorskip("sentencepiece")
    words = [
        "the lighthouse keeper wrote",
        "the sea and the ships sang",
        "a keeper of ships, 1 2 3",
    ]
    model = io.BytesIO()
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(words * 20),
        model_writer=model,
        model_type="bpe",
        vocab_size=320,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    theirs = library.SentencePieceProcessor(model_proto=model.getvalue())
    indices = range(theirs.get_piece_size())
    kinds = [
        UNKNOWN
        if theirs.is_unknown(i)
        else CONTROL
        if theirs.is_control(i)
        else BYTE
        if theirs.is_byte(i)
        else NORMAL
        for i in indices
    ]
    path = write_gguf(
        tmp_path / "m.gguf",
        model="llama",
        tokens=[theirs.id_to_piece(i) for i in indices],
        scores=[theirs.get_score(i) for i in indices],
        kinds=kinds,
        bos_token_id=1,
        eos_token_id=2,
        eot_token_id=2,
        add_bos_token=True,
    )
    ours, source = Tokenizer.from_path(path), random.Random(7)
    for _ in range(300):
        text = random_text(source, 20) + source.choice(words)
        assert ours.encode(text) == [1, *theirs.encode(text)], repr(text)
        assert ours.decode(ours.encode(text)) == text
        ids = ours.encode(text)
        assert ours.offsets(ids)[-1] == len(text)


def test_the_files_that_gpt2_came_with_are_enough(tmp_path):
    listed, _ = pieces()
    listed = listed[:3] + listed[4:-2]
    (tmp_path / "vocab.json").write_text(json.dumps({p: i for i, p in enumerate(listed)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(MERGES) + "\n")
    settings = {"add_bos_token": True, "bos_token": {"content": "<s>"}, "eos_token": "</s>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = Tokenizer.from_path(tmp_path)
    assert tokenizer.encode("the</s>") == [0, *tokenizer.encode("the", special=False), 1]
    assert tokenizer.eos_ids == (1,)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [1, 2]}')
    assert Tokenizer.from_path(tmp_path).eos_ids == (1, 2)


def test_a_template_may_add_the_beginning(tmp_path, tokenizer):
    tokenizer.save(tmp_path)
    definition = json.loads((tmp_path / "tokenizer.json").read_text())
    definition["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<s>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(definition))
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "<s>"}')
    assert Tokenizer.from_path(tmp_path).encode("he") == [0, 261]


@pytest.mark.parametrize(
    "content, message",
    [
        ("{", "cannot be read as JSON"),
        ("[]", "an object was expected"),
        ("{}", "not a tokenizer definition"),
        (
            '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["x", "y"]]}}',
            "cannot be built",
        ),
        (
            '{"model": {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "a", '
            '"continuing_subword_prefix": "##", "max_input_chars_per_word": 9}, '
            '"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true}}',
            "decode by WordPiece are not supported",
        ),
    ],
)
def test_damaged_and_unknown_definitions_are_refused(tmp_path, content, message):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(UserError, match=message):
        Tokenizer.from_path(tmp_path)


def test_a_directory_without_a_tokenizer_says_so(tmp_path):
    with pytest.raises(UserError, match=r"no tokenizer\.json"):
        Tokenizer.from_path(tmp_path)


def test_a_model_without_a_template_says_so(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(UserError, match="no chat template"):
        ChatTemplate.from_path(tmp_path)


@pytest.mark.parametrize(
    "source, message",
    [
        ("{% if %}", "cannot be read"),
        ("{{ ''.__class__.__mro__ }}", "refuses this"),
        ("{{ raise_exception('no system role') }}", "no system role"),
        ("{{ messages[0].absent.deeper }}", "refuses this"),
        ("{{ 1 / 0 }}", "refuses this"),
    ],
)
def test_templates_that_fail_are_reported(source, message):
    with pytest.raises(UserError, match=message):
        ChatTemplate(source, "here").render([{"role": "user", "content": "x"}])


def test_messages_need_a_role_and_content():
    with pytest.raises(UserError, match="needs 'role' and 'content'"):
        ChatTemplate("", "here").render([{"role": "user"}])


def test_templates_have_what_they_were_written_for():
    source = (
        "{% for m in messages %}\n"
        "    {% if loop.index == 2 %}{% break %}{% endif %}\n"
        "{{ m | tojson }}{{ strftime_now('%Y') | length }}{{ add_generation_prompt }}\n"
        "{% endfor %}"
    )
    turns = [{"role": "user", "content": "<é>"}, {"role": "user", "content": "b"}]
    text = ChatTemplate(source, "here").render(turns, add_generation_prompt=False)
    assert text == '{"role": "user", "content": "<é>"}4False\n'

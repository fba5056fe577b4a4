"""Every public name says what it is, and nothing grows beyond what one reads in one go."""

import ast
import re
from pathlib import Path

import specsample

REPOSITORY = Path(__file__).parents[2]
FILES = sorted((REPOSITORY / "specsample").rglob("*.py"))

FUNCTION_LINES = 60
MODULE_LINES = 300

# What a protocol declares, it also documents; implementations need not repeat it.
PROTOCOLS = ast.parse((REPOSITORY / "specsample" / "protocols.py").read_text())
DECLARED = {
    member.name if isinstance(member, ast.FunctionDef) else ast.unparse(member.target)
    for role in PROTOCOLS.body
    if isinstance(role, ast.ClassDef)
    for member in role.body
    if isinstance(member, ast.FunctionDef | ast.AnnAssign)
}

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def definitions(file: Path):
    """Yields the module, then each class and function with its dotted name."""
    module = ast.parse(file.read_text())
    todo: list[tuple[str, ast.AST]] = [(str(file.relative_to(REPOSITORY)), module)]
    while todo:
        name, node = todo.pop()
        yield name, node
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Definition):
                todo.append((f"{name}:{child.name}", child))


def is_public(name: str) -> bool:
    return not any(part.startswith("_") for part in name.split(":")[1:])


def is_documented(name: str, node: ast.AST) -> bool:
    *_, owner, member = ("", *name.split(":"))
    declared = member in DECLARED and not owner.endswith(".py")
    return declared or ast.get_docstring(node) is not None


def test_public_names_have_docstrings():
    missing = []
    for file in FILES:
        functions = set()
        for name, node in definitions(file):
            inside = name.rpartition(":")[0] in functions
            if inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions.add(name)
            if not inside and is_public(name) and not is_documented(name, node):
                missing.append(name)
    assert not missing, "\n".join(["without a docstring:", *missing])


def test_public_surface_stands_in_the_documentation():
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")]
    text = "\n".join(page.read_text() for page in pages)
    words = set(re.findall(r"\w+", text))
    missing = [name for name in specsample.__all__ if name not in words]
    assert not missing, f"in specsample.__all__ but in no page: {missing}"


def test_names_in_all_exist():
    missing = [name for name in specsample.__all__ if not hasattr(specsample, name)]
    assert not missing, f"in specsample.__all__ but not in specsample: {missing}"


def test_functions_fit_a_screen():
    long = [
        f"{name}: {node.end_lineno - node.lineno + 1}"
        for file in FILES
        for name, node in definitions(file)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno - node.lineno >= FUNCTION_LINES
    ]
    assert not long, "\n".join([f"over {FUNCTION_LINES} lines:", *long])


def test_modules_fit_a_sitting():
    lengths = {file: len(file.read_text().splitlines()) for file in FILES}
    long = [
        f"{file.relative_to(REPOSITORY)}: {lines}"
        for file, lines in lengths.items()
        if lines > MODULE_LINES
    ]
    assert not long, "\n".join([f"over {MODULE_LINES} lines:", *long])

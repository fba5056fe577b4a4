"""Notebooks run from top to bottom, and use public names only."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))


def test_there_are_notebooks():
    assert [path.stem for path in NOTEBOOKS] == ["01_one_step", "02_exactness", "03_meshes"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run_without_warnings(path):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-W", "error", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.strip()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_use_public_names_only(path):
    nodes = list(ast.walk(ast.parse(path.read_text())))
    attributes = [node.attr for node in nodes if isinstance(node, ast.Attribute)]
    imported = [
        alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    private = [name for name in attributes + imported if name.startswith("_")]
    assert not [name for name in private if not name.endswith("__")]

"""The house rules of `architectures/`: short files, and shared blocks that are shared."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from flopcalc import architectures
from flopcalc.architectures import blocks, towers

FOLDER = Path(architectures.__path__[0])
SHARED = {"__init__.py", "blocks.py", "towers.py"}
FAMILIES = {path.name: path.read_text() for path in FOLDER.glob("*.py") if path.name not in SHARED}


def test_the_average_architecture_costs_fewer_than_25_lines_without_its_schema() -> None:
    lines, types = 0, 0
    for text in FAMILIES.values():
        functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
        for function in functions:
            first = min(node.lineno for node in (function, *function.decorator_list))
            lines += function.end_lineno - first + 1
            types += sum("register" in ast.unparse(decorator) for decorator in function.decorator_list)
    assert types > 200
    assert lines / types < 25


def families_of(name: str, definitions: dict[str, str]) -> set[str]:
    """The files that name a block, or a block that is made of it."""
    names, found = [name], set()
    for each in names:
        found |= {file for file, text in FAMILIES.items() if re.search(rf"\b{each}\b", text)}
        names += [
            other for other, text in definitions.items() if other not in names and re.search(rf"\b{each}\b", text)
        ]
    return found


@pytest.mark.parametrize("shared", [blocks, towers], ids=["blocks", "towers"])
def test_a_shared_block_serves_more_than_one_family(shared) -> None:
    nodes = ast.parse(Path(shared.__file__).read_text()).body
    definitions = {node.name: ast.unparse(node) for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    for name in shared.__all__:
        assert len(families_of(name, definitions)) >= 2, name

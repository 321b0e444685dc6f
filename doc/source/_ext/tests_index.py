"""Which test names which fault (``F001``) or rule (``R1``): read from the text of the tests.

A mark in a test's name (``test_f001_``), docstring or body is that test's; a mark in a comment outside any
test belongs to the test that follows it; a mark in a module's docstring belongs to the whole file.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
NAMED = re.compile(r"test_(f\d{3})_")
MARK = re.compile(r"\b(F\d{3}|R1?\d)\b(?:\s*(?:-|to)\s*\b(F\d{3}|R1?\d)\b)?")


def marks(text: str) -> set[str]:
    """The marks in a text; ``F117-F119`` is three."""
    found = set()
    for first, last in MARK.findall(text):
        found.add(first)
        if last and last[0] == first[0]:
            width = len(first) - 1
            numbers = range(int(first[1:]), int(last[1:]) + 1)
            found.update(f"{first[0]}{number:0{width}}" for number in numbers)
    return found


def _tests(tree: ast.Module) -> list[tuple[int, int, str]]:
    """(first line, last line, name) of each test function, decorators included."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            found.append((first, node.end_lineno or node.lineno, node.name))
    return sorted(found)


def in_file(path: Path) -> dict[str, list[str]]:
    """Mark to the names of the tests of one file (``""`` for the whole file)."""
    text = path.read_text(encoding="utf-8")
    if not MARK.search(text) and not NAMED.search(text):
        return {}
    tree = ast.parse(text)
    tests = _tests(tree)
    found: dict[str, list[str]] = {}

    def note(mark: str, name: str) -> None:
        names = found.setdefault(mark, [])
        if name not in names:
            names.append(name)

    for mark in sorted(marks(ast.get_docstring(tree) or "")):
        note(mark, "")
    for _first, _last, test in tests:
        if named := NAMED.match(test):
            note(named[1].upper(), test)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (tokenize.COMMENT, tokenize.STRING):
            continue
        line = token.start[0]
        inside = next((name for first, last, name in tests if first <= line <= last), None)
        after = next((name for first, _last, name in tests if first > line), None)
        name = inside or (after if token.type == tokenize.COMMENT else None)
        for mark in sorted(marks(token.string)) if name else ():
            note(mark, name or "")
    return found


@lru_cache(maxsize=1)
def all_tests() -> dict[str, list[str]]:
    """Mark to tests as ``tests/db/test_book.py::test_name``, in order of their files."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith("tests/doc/"):
            continue
        for mark, tests in in_file(path).items():
            found.setdefault(mark, []).extend(f"{name}::{test}" if test else name for test in tests)
    return found

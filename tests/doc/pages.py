"""The text of the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "doc" / "source"

_LITERAL = re.compile(r"``([^`\n]+(?:\n[^`\n]+)?)``")


def pages() -> list[Path]:
    """README and every page."""
    return [ROOT / "README.rst", *sorted(SOURCE.glob("*.rst"))]


def literals() -> Iterator[tuple[str, str]]:
    """(page, text) of everything in double backticks."""
    for page in pages():
        for found in _LITERAL.findall(page.read_text(encoding="utf-8")):
            yield page.name, " ".join(found.split())


def console_lines() -> Iterator[tuple[str, str]]:
    """(page, command) of every line that a reader is told to type."""
    for page in pages():
        for line in page.read_text(encoding="utf-8").splitlines():
            mark, _, command = line.strip().partition("$ ")
            if not mark and command:
                yield page.name, command.partition("   #")[0].strip()

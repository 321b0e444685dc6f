"""Pieces of reStructuredText as lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SPECIAL = re.compile(r"([*`|_\\<>])")


def escaped(text: str) -> str:
    """Text that means only itself, but for what stands between double backticks, as in docstrings."""
    parts = " ".join(text.split()).split("``")
    if len(parts) % 2 == 0:  # a pair is not complete
        parts = ["``".join(parts)]
    return "``".join(part if number % 2 else _SPECIAL.sub(r"\\\1", part) for number, part in enumerate(parts))


def literal(text: object) -> str:
    """Text in the type of code; nothing for nothing."""
    shown = str(text)
    return f"``{shown}``" if shown else ""


def literals(texts: Iterable[object]) -> str:
    """Several of them, with commas."""
    return ", ".join(literal(text) for text in texts)


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], widths: Sequence[int] = ()) -> list[str]:
    """A table whose cells are one-line reStructuredText."""
    lines = [".. list-table::", "   :header-rows: 1"]
    if widths:
        lines.append(f"   :widths: {' '.join(map(str, widths))}")
    lines.append("")
    for row in (headers, *rows):
        for number, cell in enumerate(row):
            lines.append(f"   {'*' if number == 0 else ' '} - {cell}".rstrip())
    return [*lines, ""]


def title(text: str, mark: str) -> list[str]:
    """A heading."""
    return [text, mark * len(text), ""]


def indented(lines: Iterable[str]) -> list[str]:
    """The lines as the content of a directive."""
    return [f"   {line}" if line else "" for line in lines]

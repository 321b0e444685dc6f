"""Reported faults of other control planes, and the tests that keep them out."""

from __future__ import annotations

import csv
from pathlib import Path

from doc.source._ext import rst, tests_index

CATALOGUE = Path(__file__).resolve().parent.parent / "faults.csv"


def catalogue() -> list[tuple[str, str, str]]:
    """(number, title, public references) of each fault."""
    with CATALOGUE.open(encoding="utf-8", newline="") as file:
        return [(row["number"], row["title"], row["references"]) for row in csv.DictReader(file)]


def _references(text: str) -> str:
    return ", ".join(
        f":lp:`{word.removeprefix('LP')}`" if word.startswith("LP") else rst.escaped(word)
        for word in text.split()
    )


def table() -> list[str]:
    """All faults, each with the tests that name it."""
    known = tests_index.all_tests()
    rows = []
    for number, title, references in catalogue():
        shown = ", ".join(rst.literal(test) for test in known.get(number, ())) or "no test yet"
        rows.append((number, rst.escaped(title), _references(references), shown))
    listed = {row[0] for row in rows}
    unlisted = sorted(mark for mark in known if mark.startswith("F") and mark not in listed)
    rows += [(number, "(not in this list)", "", rst.literals(known[number])) for number in unlisted]
    return rst.table(("Fault", "What went wrong", "Reported as", "Tests"), rows, (8, 32, 12, 48))


def shown_by(mark: str, more: list[str]) -> list[str]:
    """One line that names the tests of a rule: those that carry its mark, and ``more``."""
    tests = dict.fromkeys([*tests_index.all_tests().get(mark, ()), *more])
    shown = ", ".join(rst.literal(test) for test in tests) or "no test names it yet"
    return [f"*Shown by:* {shown}.", ""]

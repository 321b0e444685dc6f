"""The states picture equals the table."""

from __future__ import annotations

import re

from doc.source._ext.states import ANY, dot, transition_rows
from pinfold.model import states

_ARROW = re.compile(r'^  "([\w-]+)" -> "([\w-]+)" \[label="([^"]*)"')


def drawn() -> set[tuple[str, str, str, str]]:
    """(kind, before, outcome, after) of every arrow of the picture."""
    found: set[tuple[str, str, str, str]] = set()
    for line in dot():
        arrow = _ARROW.match(line)
        if arrow is None:
            continue
        before, after, labels = arrow.groups()
        befores = set(states.VM_STATES) - {states.DELETED} if before == ANY else {before}
        for label in labels.split("\\n"):
            kind, outcome = label.split(": ")
            found.update((kind, one, outcome, after) for one in befores)
    return found


def test_the_picture_has_the_lines_of_the_table_and_no_others() -> None:
    assert drawn() == {(line.kind, line.before, line.outcome, line.after) for line in states.TRANSITIONS}


def test_the_table_has_a_row_for_each_line() -> None:
    assert len(transition_rows()) == len(states.TRANSITIONS)


def test_the_picture_has_every_state() -> None:
    boxes = {line.split()[0].strip('"') for line in dot() if "[label=" in line and "->" not in line}
    assert boxes == {ANY, *states.VM_STATES}

"""The lifecycle of a server, from ``pinfold.model.states``: a picture and the table it is drawn from.

A line that is the same for every state but ``deleted`` is drawn once, from a box that stands for all of them.
"""

from __future__ import annotations

from doc.source._ext import rst
from pinfold.model import states
from pinfold.model.states import Transition

ANY = "any"

_HEAD = (
    "digraph lifecycle {",
    '  graph [rankdir=LR, nodesep=0.5, ranksep=0.9, fontname="sans-serif"];',
    '  node [shape=box, style=rounded, fontname="sans-serif", fontsize=11];',
    '  edge [fontname="sans-serif", fontsize=9];',
)


def _everywhere() -> set[tuple[str, str, str]]:
    """(kind, outcome, after) of lines that every state but ``deleted`` has."""
    befores: dict[tuple[str, str, str], set[str]] = {}
    for line in states.TRANSITIONS:
        befores.setdefault((line.kind, line.outcome, line.after), set()).add(line.before)
    every = set(states.VM_STATES) - {states.DELETED}
    return {key for key, before in befores.items() if before == every}


def arrows() -> dict[tuple[str, str], list[tuple[str, str]]]:
    """The (kind, outcome) pairs on the arrow from one state to another; ``ANY`` is every state but ``deleted``."""
    everywhere = _everywhere()
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for line in states.TRANSITIONS:
        shared = (line.kind, line.outcome, line.after) in everywhere
        labels = found.setdefault((ANY if shared else line.before, line.after), [])
        if (line.kind, line.outcome) not in labels:
            labels.append((line.kind, line.outcome))
    return found


def dot() -> list[str]:
    """The picture, in the language of graphviz."""
    lines = [*_HEAD, f'  "{ANY}" [label="any state", style="rounded,dashed"];']
    lines += [f'  "{name}" [label="{name}"];' for name in states.VM_STATES]
    for (before, after), labels in arrows().items():
        text = "\\n".join(f"{kind}: {outcome}" for kind, outcome in labels)
        style = ", style=dashed" if before == after else ""
        lines.append(f'  "{before}" -> "{after}" [label="{text}"{style}];')
    return [*lines, "}"]


def picture(alt: str) -> list[str]:
    """The picture as a directive of sphinx.ext.graphviz."""
    return [".. graphviz::", f"   :alt: {alt}", "", *rst.indented(dot()), ""]


def state_table() -> list[str]:
    """Every state and what it means."""
    rows = [
        (rst.literal(state), rst.literal(states.status(state, None)), rst.escaped(text))
        for state, text in states.VM_STATES.items()
    ]
    return rst.table(("vm_state", "status", "What it means"), rows, (20, 22, 58))


def transition_rows() -> list[tuple[str, str, str, str, str]]:
    """The table, a row for each line; befores with the same line are not merged."""
    return [(line.kind, line.before, line.outcome, line.after, line.why) for line in states.TRANSITIONS]


def transition_table() -> list[str]:
    """What follows what, and why."""
    merged: dict[tuple[str, str, str, str], list[Transition]] = {}
    for line in states.TRANSITIONS:
        after = "as before" if line.after == line.before else rst.literal(line.after)
        merged.setdefault((line.kind, line.outcome, after, line.why), []).append(line)
    rows = [
        (
            rst.literal(kind),
            rst.literals(line.before for line in lines),
            rst.literal(outcome),
            after,
            rst.escaped(why),
        )
        for (kind, outcome, after, why), lines in merged.items()
    ]
    return rst.table(("Operation", "From", "Outcome", "To", "Why"), rows, (16, 26, 12, 16, 30))


def kind_table() -> list[str]:
    """Every kind of operation, step by step."""
    rows = []
    for kind in states.KINDS.values():
        if not kind.steps:
            rows.append((rst.literal(kind.name), "", "the request itself", "", ""))
        for number, step in enumerate(kind.steps):
            rows.append(
                (
                    f"{rst.literal(kind.name)} ({kind.deadline} s)" if number == 0 else "",
                    rst.literal(step.name),
                    step.where,
                    rst.literal(step.shows or ""),
                    "never" if step.forward else rst.literal(step.undo or ""),
                )
            )
    headers = ("Kind (deadline)", "Step", "Done by", "task_state", "Taken back by")
    return rst.table(headers, rows, (26, 16, 14, 26, 18))

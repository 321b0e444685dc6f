"""CPU lists as text, such as ``0-3,8,^2``.

The grammar is the one that Nova's options and extra specs have: numbers and ranges between commas, spaces and
empty parts ignored, ``^`` before a part to leave it out; exclusions count wherever they stand, and one of a
CPU that is not in the list is no error. CPU numbers have no upper bound, but one list has at most
``MAX_CPUS`` of them, since lists also come from users.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pinfold.model.errors import InvalidRequest

MAX_CPUS = 65_536

_PART = re.compile(r"(\^?)\s*([0-9]{1,9})(?:\s*-\s*([0-9]{1,9}))?", re.ASCII)


def parse(text: str) -> frozenset[int]:
    """The CPUs that ``text`` names; none for an empty text.

    Raises InvalidRequest, code ``invalid-cpu-list``, with the text in its message.
    """
    included: set[int] = set()
    excluded: set[int] = set()
    for part in text.split(","):
        part = part.strip()
        if not part:
            continue
        match = _PART.fullmatch(part)
        if match is None:
            raise _invalid(text, f"'{_short(part)}' is not a CPU number or a range")
        first = int(match[2])
        last = first if match[3] is None else int(match[3])
        if last < first:
            raise _invalid(text, f"the range '{part}' runs backwards")
        if last - first >= MAX_CPUS:
            raise _invalid(text, f"the range '{part}' has more than {MAX_CPUS} CPUs")
        (excluded if match[1] else included).update(range(first, last + 1))
        if len(included) > MAX_CPUS or len(excluded) > MAX_CPUS:
            raise _invalid(text, f"it has more than {MAX_CPUS} CPUs")
    return frozenset(included - excluded)


def render(cpus: Iterable[int]) -> str:
    """The shortest list without exclusions, ascending: ``parse(render(cpus)) == frozenset(cpus)``."""
    parts: list[str] = []
    run: list[int] = []
    for cpu in sorted(set(cpus)):
        if run and cpu != run[-1] + 1:
            parts.append(_run(run))
            run = []
        run.append(cpu)
    if run:
        parts.append(_run(run))
    return ",".join(parts)


def _run(run: list[int]) -> str:
    return str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}"


def _invalid(text: str, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"The CPU list '{_short(text)}' is not valid: {why}; write it like '0-3,8,^2'.",
        code="invalid-cpu-list",
    )


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."

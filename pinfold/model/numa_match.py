"""Assigning rows to columns: a maximum matching, and the first one in order of preference.

Rows are guest cells, columns are host cells in order of preference. Which columns a row may have is a bitmask,
lowest bit most preferred. Everything here is polynomial: O(rows² · columns) bit operations.
"""

from __future__ import annotations

from collections.abc import Sequence


def assign(rows: Sequence[int]) -> list[int] | None:
    """The lexicographically first list of distinct columns, one for each row, or None where there is none.

    It is the answer that trying all permutations in order of preference would end with.
    """
    chosen: list[int] = [-1] * len(rows)
    owner: dict[int, int] = {}
    for row in range(len(rows)):
        if not _augment(rows, row, 0, chosen, owner):
            return None
    _prefer(rows, chosen, owner)
    return chosen


def largest(rows: Sequence[int]) -> int:
    """How many rows can have a column of their own at the same time."""
    chosen: list[int] = [-1] * len(rows)
    owner: dict[int, int] = {}
    return sum(_augment(rows, row, 0, chosen, owner) for row in range(len(rows)))


def _augment(rows: Sequence[int], row: int, barred: int, chosen: list[int], owner: dict[int, int]) -> bool:
    """Give ``row`` a column outside ``barred``, moving others where that helps (Kuhn's augmenting path)."""
    return _find(rows, row, chosen, owner, [barred])


def _find(rows: Sequence[int], row: int, chosen: list[int], owner: dict[int, int], seen: list[int]) -> bool:
    while open_ := rows[row] & ~seen[0]:
        bit = open_ & -open_
        seen[0] |= bit
        column = bit.bit_length() - 1
        if column not in owner or _find(rows, owner[column], chosen, owner, seen):
            chosen[row] = column
            owner[column] = row
            return True
    return False


def _prefer(rows: Sequence[int], chosen: list[int], owner: dict[int, int]) -> None:
    """Turn a complete matching into the first one: row by row, the most preferred column that leaves
    the rows after it complete."""
    fixed = 0
    for row in range(len(rows)):
        bit = 1 << chosen[row]
        better = rows[row] & ~fixed & (bit - 1)
        if better:
            better &= _releasable(rows, row, fixed, chosen)
        if better:
            column = (better & -better).bit_length() - 1
            moved = owner.get(column)
            del owner[chosen[row]]
            chosen[row], owner[column] = column, row
            bit = 1 << column
            if moved is not None:
                _augment(rows, moved, fixed | bit, chosen, owner)
        fixed |= bit


def _releasable(rows: Sequence[int], row: int, fixed: int, chosen: list[int]) -> int:
    """The columns that can become free for ``row`` when rows after it move: those from which an
    alternating path leads to a free column or to the one that ``row`` gives up."""
    taken = 0
    for column in chosen:
        taken |= 1 << column
    reach = (~taken | (1 << chosen[row])) & ~fixed
    waiting = list(range(row + 1, len(rows)))
    grew = True
    while grew:
        grew = False
        for other in waiting[:]:
            if rows[other] & reach:
                reach |= 1 << chosen[other]
                waiting.remove(other)
                grew = True
    return reach

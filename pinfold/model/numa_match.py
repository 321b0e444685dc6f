"""Assigning rows to columns: a maximum matching, and the first one in order of preference.

Rows are guest cells, columns are host cells in order of preference. Which columns a row may have is a
bitmask, lowest bit most preferred. Everything here is polynomial: at most O(rows² · columns) operations on
bitmasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


def assign(rows: Sequence[int]) -> list[int] | None:
    """The lexicographically first list of distinct columns, one for each row, or None where there is none.

    It is the answer that trying all permutations in order of preference would end with.
    """
    chosen: list[int] = []
    taken = 0
    for row in rows:
        free = row & ~taken
        if not free:
            return _assign_moving(rows)
        bit = free & -free
        taken |= bit
        chosen.append(bit.bit_length() - 1)
    return chosen


def largest(rows: Sequence[int]) -> int:
    """How many rows can have a column of their own at the same time."""
    matching = _Matching(rows)
    return sum(matching.augment(row) for row in range(len(rows)))


def spare(rows: Sequence[int], chosen: list[int], left: Callable[[int, int], int]) -> list[int]:
    """Of the complete assignments onto the columns of ``chosen``, one that leaves the most in a single
    column.

    ``left(row, column)`` is what the row leaves there. ``chosen`` itself is the answer where none is better.
    """
    columns = _mask(chosen)
    best = max(left(row, column) for row, column in enumerate(chosen))
    found = None
    for row in range(len(rows)):
        for column in _bits(rows[row] & _swappable(rows, row, chosen)):
            if left(row, column) > best:
                best, found = left(row, column), (row, column)
    if found is None:
        return chosen
    others = columns & ~(1 << found[1])
    fixed = [1 << found[1] if row == found[0] else mask & others for row, mask in enumerate(rows)]
    return assign(fixed) or chosen


class _Matching:
    """A matching that grows by augmenting paths (Kuhn's algorithm)."""

    def __init__(self, rows: Sequence[int]) -> None:
        self.rows = rows
        self.chosen = [-1] * len(rows)
        self.owner: dict[int, int] = {}

    def augment(self, row: int, barred: int = 0) -> bool:
        """Give ``row`` a column outside ``barred``, moving other rows where that helps."""
        return self._find(row, [barred])

    def _find(self, row: int, seen: list[int]) -> bool:
        while free := self.rows[row] & ~seen[0]:
            bit = free & -free
            seen[0] |= bit
            column = bit.bit_length() - 1
            if column not in self.owner or self._find(self.owner[column], seen):
                self.take(row, column)
                return True
        return False

    def take(self, row: int, column: int) -> None:
        self.chosen[row] = column
        self.owner[column] = row


def _assign_moving(rows: Sequence[int]) -> list[int] | None:
    """``assign`` where a row's best free column may have to go to a later row."""
    matching = _Matching(rows)
    if 0 in rows or not all(matching.augment(row) for row in range(len(rows))):
        return None
    _prefer(matching)
    return matching.chosen


def _prefer(matching: _Matching) -> None:
    """Turn a complete matching into the first one: row by row, the most preferred column that leaves the rows
    after it complete."""
    fixed = 0
    for row, mask in enumerate(matching.rows):
        old = matching.chosen[row]
        better = mask & ~fixed & ((1 << old) - 1)
        if better:
            better &= _releasable(matching.rows, row, fixed, matching.chosen)
        if better:
            column = (better & -better).bit_length() - 1
            moved = matching.owner.get(column)
            del matching.owner[old]
            matching.take(row, column)
            if moved is not None:
                matching.augment(moved, fixed | 1 << column)
        fixed |= 1 << matching.chosen[row]


def _releasable(rows: Sequence[int], row: int, fixed: int, chosen: list[int]) -> int:
    """The columns that can become free for ``row`` when rows after it move: an alternating path leads from
    them to a free column, or to the one that ``row`` gives up."""
    start = (~_mask(chosen) | 1 << chosen[row]) & ~fixed
    return _reach(rows, start, range(row + 1, len(rows)), chosen)


def _swappable(rows: Sequence[int], row: int, chosen: list[int]) -> int:
    """The columns of ``chosen`` that ``row`` can have while all columns stay in use."""
    others = [other for other in range(len(rows)) if other != row]
    return _reach(rows, 1 << chosen[row], others, chosen)


def _reach(rows: Sequence[int], start: int, movable: Sequence[int], chosen: list[int]) -> int:
    """The columns from which their rows, of those that are ``movable``, can move on until one gets to
    ``start``."""
    reach = start
    waiting = list(movable)
    grew = True
    while grew:
        grew = False
        still = []
        for row in waiting:
            if rows[row] & reach:
                reach |= 1 << chosen[row]
                grew = True
            else:
                still.append(row)
        waiting = still
    return reach


def _mask(columns: Sequence[int]) -> int:
    mask = 0
    for column in columns:
        mask |= 1 << column
    return mask


def _bits(mask: int) -> list[int]:
    return [column for column in range(mask.bit_length()) if mask >> column & 1]

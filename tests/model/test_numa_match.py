"""Assigning rows to columns: against trying all permutations."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from pinfold.model.numa_match import assign, largest, spare

rows_of_five = st.lists(st.integers(0, 31), min_size=1, max_size=5)


def _all(rows: list[int]) -> list[list[int]]:
    """All complete assignments, in order of preference."""
    columns = permutations(range(5), len(rows))
    return [list(each) for each in columns if all(row >> c & 1 for row, c in zip(rows, each, strict=True))]


@given(rows_of_five)
def test_the_first_permutation_that_fits_is_found(rows: list[int]) -> None:
    assert assign(rows) == next(iter(_all(rows)), None)


@given(rows_of_five)
def test_all_rows_get_a_column_exactly_where_an_assignment_exists(rows: list[int]) -> None:
    assert (largest(rows) == len(rows)) == bool(_all(rows))


@given(rows_of_five, st.lists(st.integers(0, 9), min_size=25, max_size=25))
def test_of_the_assignments_onto_the_same_columns_one_leaves_the_most(
    rows: list[int], left: list[int]
) -> None:
    chosen = assign(rows)
    if chosen is None:
        return
    same = [each for each in _all(rows) if set(each) == set(chosen)]
    most = max(left[row * 5 + c] for each in same for row, c in enumerate(each))
    found = spare(rows, chosen, lambda row, column: left[row * 5 + column])
    assert found in same
    assert max(left[row * 5 + c] for row, c in enumerate(found)) == most


def test_an_assignment_that_leaves_the_most_already_stays() -> None:
    assert spare([3, 3], [0, 1], lambda row, column: 1) == [0, 1]


def test_a_later_row_that_has_no_other_column_gets_it() -> None:
    assert assign([0b11, 0b01]) == [1, 0]


def test_a_hundred_rows_of_which_one_has_no_column_are_no_matter() -> None:
    ninety_nine = (1 << 99) - 1
    assert assign([ninety_nine] * 100) is None
    assert largest([ninety_nine] * 100) == 99

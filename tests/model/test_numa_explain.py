"""Why there is no place: which constraint, how much asked, how much free."""

from __future__ import annotations

import pytest

from pinfold.model import numa
from pinfold.model.numa import LARGE, CellUsage, GuestTopology, HostPages, Limits, Refusal
from tests.model.numa_worlds import (
    LARGE_KB,
    SMALL_KB,
    Host,
    cell,
    dedicated,
    host,
    mixed,
    no_smt,
    shared,
    smt,
)

_PAGED = host(cell(0, "0-3", pages=[HostPages(SMALL_KB, 4096), HostPages(LARGE_KB, 64, 32)]))
_BROKEN = host(cell(0, "0-3", threads=2), pinned="0,1")
_BUSY = host(cell(0, "", "0-3", memory_mb=1024))
_BUSY = _BUSY[0], (CellUsage(0, shared_vcpus=6, memory_mb=800),)


@pytest.mark.parametrize(
    ("on", "guest", "constraint", "asked", "free"),
    [
        (host(cell(0, "0-3")), dedicated(5), "dedicated-cpus", 5, 4),
        (host(cell(0, "0-3"), pinned="0-1"), dedicated(3), "free-dedicated-cpus", 3, 2),
        (host(cell(0, "0-3")), dedicated(4, emulator="isolate"), "dedicated-cpus", 5, 4),
        (
            host(cell(0, "0-7", threads=2), pinned="0"),
            dedicated(4, threads="isolate"),
            "whole-free-cores",
            4,
            3,
        ),
        (_BROKEN, dedicated(2, threads="require"), "sibling-threads", 2, 0),
        (host(cell(0, "0-3")), dedicated(2, threads="require"), "sibling-threads", 2, 0),
        (host(cell(0, "0-3", "4")), mixed((2, 1)), "shared-cpus", 2, 1),
        (host(cell(0, "0-3", "4-5")), mixed((2, 0), emulator="isolate"), "dedicated-vcpus", 1, 0),
        (host(cell(0, "0-3")), dedicated(1, memory_mb=9000), "memory", 9000, 8192),
        (_BUSY, shared(3, memory_mb=8), "shared-cpus-ratio", 3, 2),
        (_BUSY, shared(1, memory_mb=800), "memory-ratio", 800, 736),
        (_PAGED, dedicated(1, memory_mb=128, page_size=LARGE_KB), "pages", 64, 32),
        (_PAGED, dedicated(1, memory_mb=15, page_size=LARGE), "page-multiple", 15, LARGE_KB),
        (_PAGED, dedicated(1, page_size=64), "page-size", 64, 0),
        (no_smt(), dedicated(1, page_size=LARGE), "page-size", 0, 0),
    ],
)
def test_the_reason_names_the_constraint_and_both_numbers(
    on: Host, guest: GuestTopology, constraint: str, asked: int, free: int
) -> None:
    reasons = numa.explain(*on, guest, Limits(2.0, 1.5))
    assert reasons[0] == Refusal(0, constraint, asked, free, guest_cell=0)


def test_there_is_a_reason_for_each_host_cell() -> None:
    reasons = numa.explain(*host(cell(0, "0-1"), cell(1, "2-7"), pinned="2-6"), dedicated(3))
    assert [(each.cell, each.constraint) for each in reasons] == [
        (0, "dedicated-cpus"),
        (1, "free-dedicated-cpus"),
    ]


def test_equal_guest_cells_give_one_reason() -> None:
    reasons = numa.explain(*no_smt(), dedicated(5, 5))
    assert [(each.cell, each.guest_cell) for each in reasons] == [(0, 0), (1, 0), (None, None)]


def test_cells_that_fit_one_by_one_but_not_together_are_said_to() -> None:
    on = host(cell(0, "0-1"), cell(1, "2-3"), pinned="0")
    assert numa.explain(*on, dedicated(2, 2)) == (
        Refusal(0, "free-dedicated-cpus", 2, 1, guest_cell=0),
        Refusal(None, "cells-at-once", 2, 1),
    )


def test_a_guest_with_more_cells_than_the_host_is_refused_at_once() -> None:
    assert numa.explain(*smt(), dedicated(1, 1, 1)) == (Refusal(None, "cells", 3, 2),)


def test_there_is_no_reason_where_it_fits() -> None:
    assert numa.explain(*smt(), dedicated(1)) == ()

"""Many lives of small clouds, each with faults of its own: after every step the invariants hold, and all settles.

These seeds are a sample; by hand, as many as there is time for: ``python -m tests.simulation --seeds 0-9999``.
"""

from __future__ import annotations

import pytest

from tests.simulation.commands import simulate


@pytest.mark.parametrize("seeds", ["0-19", "20-39", "40-59", "100-119"])
def test_nothing_is_stuck_leaked_or_doubled_whatever_fails(seeds: str) -> None:
    ran = simulate("--seeds", seeds)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_seed_replays_exactly() -> None:
    ran = simulate("--seeds", "0-1", "--twice")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_without_faults_nothing_is_found() -> None:
    ran = simulate("--seeds", "0-1", "--faults", "none")
    assert ran.returncode == 0, ran.stdout + ran.stderr

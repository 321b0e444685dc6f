"""NUMA cells of hosts and guests, what a claim takes, and the one fit function.

``fit`` is used unchanged by the scheduler to propose and by the resource tracker to commit. This module is
the door; behind it are

- :mod:`~pinfold.model.numa_types`: the values,
- :mod:`~pinfold.model.numa_pack`: choosing CPUs on one host cell,
- :mod:`~pinfold.model.numa_match`: assigning guest cells to host cells,
- :mod:`~pinfold.model.numa_fit`: the fit, and why there is none,
- :mod:`~pinfold.model.numa_usage`: adding and releasing what a claim holds.
"""

from __future__ import annotations

from pinfold.model.numa_fit import explain, fit
from pinfold.model.numa_types import (
    ANY,
    LARGE,
    SMALL,
    CellUsage,
    GuestCell,
    GuestTopology,
    HostCell,
    HostPages,
    HostTopology,
    Limits,
    PlacedCell,
    Placement,
    Refusal,
)
from pinfold.model.numa_usage import add, empty_usage, held_cpus, release

__all__ = [
    "ANY",
    "LARGE",
    "SMALL",
    "CellUsage",
    "GuestCell",
    "GuestTopology",
    "HostCell",
    "HostPages",
    "HostTopology",
    "Limits",
    "PlacedCell",
    "Placement",
    "Refusal",
    "add",
    "empty_usage",
    "explain",
    "fit",
    "held_cpus",
    "release",
]

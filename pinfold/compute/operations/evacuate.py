"""Evacuate: claim a place, and have a guest there: on its old disk where that can be reached, else from its image."""

from __future__ import annotations

from pinfold.compute.operations import spawning
from pinfold.compute.operations.attempt import Attempt, Failed
from pinfold.compute.operations.runner import Deed, Plan
from pinfold.virt import driver
from pinfold.virt.driver import Source


def spawn(attempt: Attempt) -> None:
    """A new guest. Its disk is lost with its host, unless it stands on storage that the two hosts share."""
    work = attempt.work
    source = Source(*work.source) if work.source else None
    if source is not None and _shares_disk(attempt, source):
        attempt.drive(
            "started on its disk",
            lambda: attempt.tools.driver.spawn_on_disk(spawning.spec_of(attempt), source, power_on=work.runs),
        )
        return
    spawning.spawn(attempt)
    if not work.runs:
        attempt.drive("shut down", lambda: attempt.tools.driver.power_off(work.node, work.instance))


def _shares_disk(attempt: Attempt, source: Source) -> bool:
    """What the hypervisor says; whoever has said otherwise in the request was wrong. Raises Failed."""
    work = attempt.work
    found = attempt.drive(
        "looked for on shared storage",
        lambda: attempt.tools.driver.shares_disk(work.node, work.instance, source),
    )
    if work.shared_storage not in (None, found):
        there = "can" if found else "cannot"
        raise Failed(
            f"Invalid state of instance files on shared storage: the server's disk {there} be reached from host "
            f"{work.host}.",
            code="shared-storage",
        )
    return found


PLAN = Plan(
    "evacuate",
    {"claim": spawning.DEEDS["claim"], "spawn": Deed(spawn, undo=spawning.remove, begins=False)},
    driver.RUNNING,
)

"""What a worker does for each kind of operation: one file per kind, run by ``runner``."""

from __future__ import annotations

from collections.abc import Mapping

from pinfold.compute.operations import create, delete, shelve, shelve_offload, unshelve, unshelve_in_place
from pinfold.compute.operations.runner import Plan

PLANS: Mapping[str, Plan] = {
    plan.kind: plan
    for plan in (
        create.PLAN,
        shelve.PLAN,
        shelve_offload.PLAN,
        unshelve.PLAN,
        unshelve_in_place.PLAN,
        delete.PLAN,
        delete.FORCE_PLAN,
    )
}

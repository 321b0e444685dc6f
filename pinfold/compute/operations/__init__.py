"""What a worker does for each kind of operation: one file per kind, run by ``runner``; those that are one call of the
hypervisor are the table in ``guest``."""

from __future__ import annotations

from collections.abc import Mapping

from pinfold.compute.operations import (
    confirm_resize,
    create,
    create_image,
    delete,
    evacuate,
    guest,
    live_migrate,
    moving,
    rebuild,
    revert_resize,
    shelve,
    shelve_offload,
    unshelve,
    unshelve_in_place,
)
from pinfold.compute.operations.runner import Plan, plan_key

PLANS: Mapping[str, Plan] = {
    plan_key(plan.kind, plan.leg): plan
    for plan in (
        create.PLAN,
        shelve.PLAN,
        shelve_offload.PLAN,
        unshelve.PLAN,
        unshelve_in_place.PLAN,
        evacuate.PLAN,
        *live_migrate.PLANS,
        *moving.PLANS,
        confirm_resize.PLAN,
        *revert_resize.PLANS,
        delete.PLAN,
        delete.FORCE_PLAN,
        create_image.PLAN,
        rebuild.PLAN,
        *guest.PLANS,
    )
}

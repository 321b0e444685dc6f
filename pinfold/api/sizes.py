"""Flavors as servers get them: who may choose one, the copy that a server keeps, and what that asks of a host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pinfold.api.call import Call
from pinfold.api.flavors import may_use
from pinfold.db import flavors as book_flavors
from pinfold.db.flavors import FlavorRow
from pinfold.model import errors
from pinfold.model.request import Demand, demand_for


def chosen(call: Call, reference: str | int) -> FlavorRow:
    """The flavor that a request names. Raises InvalidRequest, Forbidden."""
    flavorid = str(reference)
    flavor = call.deps.book.read(lambda session: book_flavors.get(session, flavorid))
    if flavor is None or flavor.disabled or not may_use(call, flavor):
        raise errors.InvalidRequest(
            f"Invalid flavorRef provided: flavor {flavorid[:100]} could not be found.",
            code="flavor-not-found",
        )
    if flavor.root_gb == 0:
        call.require("servers:create:zero_disk_flavor")
    return flavor


def copy(flavor: FlavorRow) -> dict[str, Any]:
    """The flavor as it is now; its id comes first (lists are filtered by that)."""
    kept = ("flavorid", "name", "vcpus", "memory_mb", "root_gb", "ephemeral_gb", "swap_mb", "extra_specs")
    values = msgspec.structs.asdict(flavor)
    return {name: values[name] for name in kept}


def demand(flavor: FlavorRow, image_properties: Mapping[str, str]) -> Demand:
    """What it asks of a host, with an image. Raises InvalidRequest for what can never be."""
    return demand_of(copy(flavor), image_properties)


def demand_of(kept: Mapping[str, Any], image_properties: Mapping[str, str]) -> Demand:
    """The same of the copy that a server has of its flavor."""
    return demand_for(
        vcpus=kept["vcpus"],
        memory_mb=kept["memory_mb"],
        disk_gb=kept["root_gb"] + kept["ephemeral_gb"] + -(-kept["swap_mb"] // 1024),
        extra_specs=kept["extra_specs"],
        image_properties=image_properties,
    )

"""Fills a book with hosts, servers, operations and deleted servers that nobody has to run."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from pinfold.db.models import Base
from pinfold.model.host import NodeReport
from pinfold.model.numa import HostCell, HostTopology, PlacedCell, Placement
from pinfold.model.request import demand_for

#: Servers of one project.
PROJECT = 100
_AHEAD = 10 * 86400.0
_BATCH = 1000
_PINNED = {"hw:cpu_policy": "dedicated"}
_FLAVOR = {"flavorid": "p4", "name": "p4", "vcpus": 4, "memory_mb": 512, "root_gb": 1, "ephemeral_gb": 0,
           "swap_mb": 0, "extra_specs": _PINNED}  # fmt: skip
_DEMAND = demand_for(vcpus=4, memory_mb=512, disk_gb=1, extra_specs=_PINNED, image_properties={})
Row = dict[str, Any]


def _id(kind: int, number: int) -> str:
    return str(uuid.UUID(int=kind << 96 | number))


def report(name: str) -> NodeReport:
    """A node of one cell with four dedicated CPUs and a shared one."""
    cores = tuple(frozenset({cpu}) for cpu in range(5))
    cell = HostCell(0, frozenset({0}), frozenset(range(1, 5)), cores, 4096)
    return NodeReport(name, HostTopology((cell,)), 4096, 100)


def _hosts(first: int, last: int, at: float) -> Iterator[tuple[Row, Row]]:
    """Services that are up, each with a node whose four dedicated CPUs one server has."""
    for number in range(first, last):
        name = f"filled-{number}"
        service = {"id": _id(1, number), "binary": "pinfold-compute", "host": name, "host_id": _id(1, number),
                   "incarnation": _id(1, number), "ready": True, "last_seen_at": at + _AHEAD, "created_at": at,
                   "disabled": False, "forced_down": False}  # fmt: skip
        node = {"id": 1_000_000 + number, "uuid": _id(2, number), "name": name, "host": name, "generation": 1,
                "taken_at": 1, "report": report(name), "created_at": at, "updated_at": at,
                "changed_at": at - 86400}  # fmt: skip
        yield service, node


def _instance(id_: str, number: int, at: float, **fields: Any) -> Row:
    project = f"project-{number // PROJECT}"
    return {"id": id_, "project_id": project, "user_id": "user", "name": f"server-{number}",
            "hostname": f"server-{number}", "reservation_id": "r-filled", "launch_index": 0, "power_state": 1,
            "created_at": at + number / 1e6, "updated_at": at, "launched_at": at, "terminated_at": None,
            "deleted_at": None, "image_ref": "", "image_properties": {}, "flavor": _FLAVOR, "demand": _DEMAND,
            "meta": {}, "tags": [], "hints": {}, "config_drive": "", "disk_config": "MANUAL",
            "access_ip_v4": "", "access_ip_v6": "", "vm_state": "active", **fields}  # fmt: skip


def _operation(id_: str, instance: str, number: int, kind: str, at: float) -> Row:
    steps = ("schedule", "claim", "spawn", "finish")
    return {"id": id_, "kind": kind, "instance_id": instance, "open_key": None, "attempt": 1, "finishes": {},
            "lease_until": at, "deadline_at": at + 300, "left_leftover": False, "result": "succeeded",
            "arguments": {}, "targets": [], "refusals": [], "request_id": f"req-{id_}",
            "project_id": f"project-{number // PROJECT}", "user_id": "user", "created_at": at, "updated_at": at,
            "ended_at": at, "log": [{"step": step, "attempt": 1, "host": "filled", "start": at, "end": at,
                                     "error": None} for step in steps]}  # fmt: skip


def fill(engine: sa.Engine, first: int, last: int) -> None:
    """Hosts, servers and deleted servers number ``first`` to ``last``, with two operations for each server."""
    with engine.connect() as connection:
        at: float = connection.scalar(sa.text("SELECT extract(epoch FROM clock_timestamp())")) or 0.0
    at = float(at) - 3600
    rows: dict[str, list[Row]] = {
        name: [] for name in ("services", "nodes", "instances", "operations", "claims", "pins")
    }
    for service, node in _hosts(first, last, at):
        rows["services"].append(service)
        rows["nodes"].append(node)
    for number in range(first, last):
        server, deleted, claim = _id(3, number), _id(4, number), _id(5, number)
        rows["instances"] += [
            _instance(server, number, at),
            _instance(deleted, number, at, vm_state="deleted", deleted_at=at, terminated_at=at),
        ]
        rows["operations"] += [
            _operation(_id(6, number), server, number, "create", at),
            _operation(_id(7, number), deleted, number, "create", at),
            _operation(_id(8, number), deleted, number, "delete", at),
        ]
        placed = PlacedCell(0, 0, frozenset(), {cpu: cpu + 1 for cpu in range(4)}, 512)
        rows["claims"].append(
            {
                "id": claim,
                "instance_id": server,
                "node_id": 1_000_000 + number,
                "role": "current",
                "slot": "current",
                "operation_id": _id(6, number),
                "memory_mb": 512,
                "disk_gb": 1,
                "shared_vcpus": 0,
                "placement": Placement((placed,)),
                "created_at": at,
            }
        )
        rows["pins"] += [
            {"node_id": 1_000_000 + number, "cpu": cpu, "claim_id": claim} for cpu in range(1, 5)
        ]
    with engine.begin() as connection:
        for name, made in rows.items():
            for start in range(0, len(made), _BATCH):
                connection.execute(sa.insert(Base.metadata.tables[name]), made[start : start + _BATCH])


def empty(engine: sa.Engine) -> None:
    """Remove all that ``fill`` made."""
    tables = Base.metadata.tables
    nodes, instances, services = tables["nodes"], tables["instances"], tables["services"]
    filled = sa.select(instances.c.id).where(instances.c.reservation_id == "r-filled")
    with engine.begin() as connection:
        for name in ("claims", "operations"):
            connection.execute(sa.delete(tables[name]).where(tables[name].c.instance_id.in_(filled)))
        connection.execute(sa.delete(instances).where(instances.c.reservation_id == "r-filled"))
        connection.execute(sa.delete(nodes).where(nodes.c.id >= 1_000_000))
        connection.execute(sa.delete(services).where(services.c.host.like("filled-%")))

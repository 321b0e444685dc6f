"""Services as the API shows and changes them."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.db import aggregates, hosts
from pinfold.db.models import Base, Claim, Node, Operation, Service
from pinfold.model import errors

EVACUATE = "evacuate"


class ServiceRow(msgspec.Struct, frozen=True):
    """A service. ``zone`` is None for one whose host is in no aggregate with a zone. Times are seconds since 1970."""

    id: str
    binary: str
    host: str
    up: bool
    last_seen_at: float
    disabled: bool
    disabled_reason: str | None
    forced_down: bool
    zone: str | None

    @property
    def number(self) -> int:
        """The id where clients expect a number."""
        return int(self.id[:7], 16)


_services = Base.metadata.tables["services"]


def listed(session: Session, service_down: float) -> list[ServiceRow]:
    """All services, workers last, each with the zone of its host: one statement."""
    rows = session.execute(
        sa.select(
            _services.c.id,
            _services.c.binary,
            _services.c.host,
            sa.cast(hosts.is_up(service_down), sa.Integer),
            _services.c.last_seen_at,
            _services.c.disabled,
            _services.c.disabled_reason,
            _services.c.forced_down,
            aggregates.zones.c.zone,
        )
        .select_from(_services)
        .outerjoin(aggregates.zones, aggregates.zones.c.host == _services.c.host)
        .order_by(
            sa.case((_services.c.binary == hosts.COMPUTE, 1), else_=0), _services.c.binary, _services.c.host
        )
    )
    return [ServiceRow(id_, binary, host, bool(up), *rest) for id_, binary, host, up, *rest in rows]


def locked(session: Session, service: str) -> Service | None:
    """The service, locked until the transaction ends."""
    return session.scalar(sa.select(Service).where(Service.id == service).with_for_update())


def update(session: Session, service: Service, values: dict[str, Any]) -> None:
    """Enable, disable or force down. Raises errors.Conflict when it is too early to say that its host is back.

    A host is not up again while an evacuation from it is open: its guests would run twice.
    """
    if values.get("forced_down") is False and service.forced_down and _is_evacuated(session, service.host):
        raise errors.Conflict(
            f"Host {service.host} cannot be said to be up while an evacuation from it is under way.",
            code="evacuation-open",
        )
    session.execute(sa.update(Service).where(Service.id == service.id).values(**values))
    hosts.touch(session, [service.host])


def _is_evacuated(session: Session, host: str) -> bool:
    query = (
        sa.select(Operation.id)
        .join(Claim, Claim.instance_id == Operation.instance_id)
        .join(Node, Node.id == Claim.node_id)
        .where(Operation.kind == EVACUATE, Operation.open_key.is_not(None), Node.host == host)
        .limit(1)
    )
    return session.scalar(query) is not None


def delete(session: Session, service: Service) -> None:
    """Forget a service; a worker with its nodes and its places in aggregates.

    Raises errors.Conflict while servers hold claims on its nodes: the nodes are locked, so none comes meanwhile.
    """
    if service.binary == hosts.COMPUTE:
        held = aggregates.servers_on(session, [service.host])
        if held:
            raise errors.Conflict(
                f"Unable to delete compute service that is hosting instances: {held} servers hold claims on host "
                f"{service.host}. Migrate, offload or delete them first.",
                code="host-in-use",
            )
        session.execute(sa.delete(Node).where(Node.host == service.host))
        aggregates.forget_host(session, service.host)
    session.execute(sa.delete(Service).where(Service.id == service.id))


def zones_with_room(session: Session) -> set[str | None]:
    """The zones in which a worker is enabled; None stands for the default zone."""
    query = (
        sa.select(aggregates.zones.c.zone)
        .select_from(_services)
        .outerjoin(aggregates.zones, aggregates.zones.c.host == _services.c.host)
        .where(_services.c.binary == hosts.COMPUTE, sa.not_(_services.c.disabled))
    )
    return set(session.scalars(query))

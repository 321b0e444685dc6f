"""Questions to workers, and their answers: rows in the book."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.db import claims as book_claims
from pinfold.db import hosts
from pinfold.db.models import Claim, Node, Report
from pinfold.db.session import AGAIN
from pinfold.db.types import epoch
from pinfold.model import errors


def place_of(session: Session, server: str, service_down: float) -> Node:
    """The node on which a server is, whose worker can be asked. Raises errors.Conflict."""
    node: Node | None = session.scalar(
        sa.select(Node)
        .join(Claim, Claim.node_id == Node.id)
        .where(Claim.instance_id == server, Claim.slot == book_claims.CURRENT)
    )
    if node is None:
        raise errors.Conflict(f"Instance {server} is not ready: it has no host.", code="no-host")
    if not hosts.host_is_up(session, node.host, service_down):
        raise errors.Conflict(
            f"The compute service of the host of instance {server} is down.", code="host-down"
        )
    return node


def ask(session: Session, request: str, kind: str, host: str, arguments: dict[str, Any]) -> None:
    """Write a question down, which whoever asks casts."""
    if session.info.get(AGAIN):
        drop(session, request)
    session.execute(
        sa.insert(Report).values(
            id=request, kind=kind, host=host, arguments=arguments, asked_at=epoch(), cast_at=epoch()
        )
    )


def answer(session: Session, request: str) -> Any:
    """The answer, or None while there is none."""
    return session.scalar(
        sa.select(Report.answer).where(Report.id == request, Report.answered_at.is_not(None))
    )


def drop(session: Session, request: str) -> None:
    """Forget a question."""
    session.execute(sa.delete(Report).where(Report.id == request))

"""The rules about where a server may be that hold exactly: looked at again in the transaction of its claim.

A scheduler's choice is made on what was so a moment ago. Two members of an anti-affinity group may be sent to one
host at once, or a host may change its zone meanwhile; here the second comes after the first has committed.
"""

from __future__ import annotations

import msgspec
from sqlalchemy.orm import Session

from pinfold.conductor.operations.base import Deed
from pinfold.db import aggregates, hosts, server_groups
from pinfold.db.models import Instance, Node
from pinfold.model.numa import Refusal
from pinfold.model.placement import OTHER_ZONE, HostRefusal
from pinfold.model.work import Bell


def barred(session: Session, server: Instance, node: Node, default_zone: str) -> str | None:
    """The rule that forbids a claim of ``server`` on ``node``, if any.

    Locks what the answer depends on until the transaction ends: the server's group, and the node, whose host's zone
    changes under that lock only.
    """
    if "group" in server.hints:
        rule = server_groups.rule_for(session, server.id, lock=True)
        against = rule.barred(node.host) if rule else None
        if against is not None:
            return against
    if server.availability_zone is not None:
        hosts.node_by_name(session, node.name, lock=True)
        if (aggregates.zone_of(session, node.host) or default_zone) != server.availability_zone:
            return OTHER_ZONE
    return None


def misplaced(deed: Deed, node: Node, rule: str) -> Bell:
    """Another was faster: the operation looks for a place again, by what is so now."""
    operation = deed.operation
    refusal = HostRefusal(node.host, node.name, (Refusal(None, rule, 0, 0),))
    operation.refusals = [*operation.refusals, msgspec.to_builtins(refusal)]
    operation.targets = [name for name in operation.targets if name != node.name]
    operation.lease_until = deed.patience()
    return Bell(run=(operation.id,))

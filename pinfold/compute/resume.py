"""When a guest may be started although nobody has just asked for it (the rule R8 of the model)."""

from __future__ import annotations

from pinfold.rpcapi.messages import GuestView

INCOMING, CURRENT, LEFTOVER = "incoming", "current", "leftover"


def is_allowed(view: GuestView, apart_from: str | None = None) -> bool:
    """The server's only claim is current here, its host is not forced down, and no operation is open, ``apart_from``
    one's own (and the place that this one has taken)."""
    own = apart_from is not None
    roles = [
        claim.role
        for claim in view.claims
        if not (own and claim.role == INCOMING and claim.operation == apart_from)
    ]
    return (
        not view.forced_down
        and view.other_claims == 0
        and roles == [CURRENT]
        and view.open_operation in (None, apart_from)
    )

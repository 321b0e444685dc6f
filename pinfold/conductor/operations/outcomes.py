"""What the end of a move means for the server."""

from __future__ import annotations

from pinfold.conductor.operations.base import Deed
from pinfold.db import operations
from pinfold.db.models import Operation
from pinfold.model import states


def done_or_off(deed: Deed) -> str:
    """How it ends: with a guest that runs, or is shut down, as before the move."""
    moved = deed.instance.moved_from or deed.operation.arguments
    return states.DONE if moved.get("runs", True) else states.OFF


def end_move(deed: Deed, outcome: str) -> None:
    """Nothing waits to be confirmed any more; the move's own record says how it ended."""
    moved = deed.instance.moved_from
    deed.instance.moved_from = None
    deed.instance.moved_at = None
    operation = deed.session.get(Operation, moved["operation"]) if moved else None
    if operation is not None:
        operations.set_arguments(operation, outcome=outcome)

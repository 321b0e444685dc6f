"""What the end of a move means for the server."""

from __future__ import annotations

from pinfold.conductor.operations.base import Deed
from pinfold.model import states


def done_or_off(deed: Deed) -> str:
    """How it ends: with a guest that runs, or is shut down, as before the move."""
    return states.DONE if deed.operation.arguments.get("runs", True) else states.OFF

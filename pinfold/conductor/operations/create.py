"""Create: schedule, claim, spawn."""

from __future__ import annotations

from pinfold.conductor.operations.placing import Placing


class Create(Placing):
    """A new server. When it fails the server is in ERROR and holds nothing."""

"""What the product logs: part of the history when asked for, and a failure where it did not expect an error."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from tests.simulation.invariants import Violation
from tests.simulation.loop import Killed
from tests.simulation.world import World


class _Handler(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        world, fiber = self._world, self._world.loop.current
        where = fiber.process.name if fiber else "world"
        world.history.add(where, "log: %s", record.getMessage())
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, Killed):
            world.fail(Violation(f"{record.getMessage()}: {type(error).__name__}: {error}"), error)


@contextmanager
def watched(world: World, *, all_levels: bool) -> Iterator[None]:
    """Look at what is logged meanwhile."""
    logger = logging.getLogger("pinfold")
    handler = _Handler(world)
    logging.disable(logging.NOTSET if all_levels else logging.WARNING)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logging.disable(logging.CRITICAL)

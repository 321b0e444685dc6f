"""What a guest does, as the hypervisor tells it (the compute API's numbers), and what follows where the book says
something else."""

from __future__ import annotations

from typing import Literal

from pinfold.model import states

NOSTATE, RUNNING, PAUSED, SHUTDOWN, CRASHED, SUSPENDED = 0, 1, 3, 4, 6, 7

PowerState = int
"""One of the numbers above."""

OFF = frozenset({NOSTATE, SHUTDOWN, CRASHED})

OF_STATE: dict[str, PowerState] = {
    states.ACTIVE: RUNNING,
    states.STOPPED: SHUTDOWN,
    states.PAUSED: PAUSED,
    states.SUSPENDED: SUSPENDED,
    states.SHELVED: SHUTDOWN,
    states.SHELVED_OFFLOADED: SHUTDOWN,
    states.SOFT_DELETED: SHUTDOWN,
    states.DELETED: NOSTATE,
}
"""What a server's guest does in each state. In ERROR and while it is built, nobody knows."""

Follow = Literal["nothing", "stop", "report"]

_STOP: dict[str, frozenset[PowerState]] = {
    states.ACTIVE: frozenset({SHUTDOWN, CRASHED, SUSPENDED}),
    states.STOPPED: frozenset({RUNNING, PAUSED, SUSPENDED}),
    states.PAUSED: frozenset({SHUTDOWN, CRASHED}),
}
_FITS: dict[str, frozenset[PowerState]] = {
    states.ACTIVE: frozenset({RUNNING}),
    states.STOPPED: OFF,
    states.PAUSED: frozenset({PAUSED}),
    states.SUSPENDED: OFF | {SUSPENDED},
    states.SHELVED: OFF,
    states.SOFT_DELETED: OFF,
}


def follow(vm_state: str, seen: PowerState) -> Follow:
    """What follows when a guest is ``seen`` while its server is in ``vm_state`` and nothing is under way.

    ``stop``: the server becomes STOPPED, and its guest is shut down if it is not. A user who shuts a system down
    from inside wants it off; what runs although it was stopped was started behind the book's back. ``report``: this
    does not fit, and nobody can say who is right.
    """
    if seen in _STOP.get(vm_state, ()):
        return "stop"
    fits = _FITS.get(vm_state)
    return "nothing" if fits is None or seen in fits else "report"

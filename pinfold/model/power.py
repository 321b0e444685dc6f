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

Follow = Literal["nothing", "stop", "run", "report"]

_ON = frozenset({RUNNING, PAUSED, SUSPENDED})
_STOP: dict[str, frozenset[PowerState]] = {
    states.ACTIVE: frozenset({SHUTDOWN, CRASHED, SUSPENDED}),
    states.STOPPED: _ON,
    states.PAUSED: frozenset({SHUTDOWN, CRASHED}),
    # what they have is in an image, or is to be as it was when it was deleted
    states.SHELVED: _ON,
    states.SOFT_DELETED: _ON,
}
_LEFT: dict[str, frozenset[PowerState]] = {
    states.ACTIVE: frozenset({SHUTDOWN, CRASHED, SUSPENDED, PAUSED}),
    states.PAUSED: frozenset({RUNNING}),
    states.SUSPENDED: frozenset({RUNNING, PAUSED}),
}
_FITS: dict[str, frozenset[PowerState]] = {
    states.ACTIVE: frozenset({RUNNING}),
    states.STOPPED: OFF,
    states.PAUSED: frozenset({PAUSED}),
    states.SUSPENDED: OFF | {SUSPENDED},
    states.SHELVED: OFF,
    states.SOFT_DELETED: OFF,
}


def follow(vm_state: str, seen: PowerState, *, failed: bool = False) -> Follow:
    """What follows when a guest is ``seen`` while its server is in ``vm_state`` and nothing is under way.

    ``stop``: the guest is shut down if it is not, and the server becomes STOPPED unless it is to be off anyway. A
    user who shuts a system down from inside wants it off; what runs although it was stopped was started behind the
    book's back. ``run``: the server's last operation has ``failed`` and may have left this; its guest runs, and the
    server is ACTIVE. ``report``: this does not fit, and nobody can say who is right.
    """
    if failed and seen in _LEFT.get(vm_state, ()):
        return "run"
    if seen in _STOP.get(vm_state, ()):
        return "stop"
    fits = _FITS.get(vm_state)
    return "nothing" if fits is None or seen in fits else "report"

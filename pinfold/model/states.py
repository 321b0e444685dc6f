"""The lifecycle of a server: its states, the kinds of operation, and one table of what follows what.

``after`` is the only place that says what an operation makes of a server; the picture in the
documentation is drawn from ``TRANSITIONS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pinfold.model import errors

BUILDING = "building"
ACTIVE = "active"
STOPPED = "stopped"
PAUSED = "paused"
SUSPENDED = "suspended"
RESIZED = "resized"
SHELVED = "shelved"
SHELVED_OFFLOADED = "shelved_offloaded"
SOFT_DELETED = "soft-delete"
ERROR = "error"
DELETED = "deleted"

VM_STATES = {
    BUILDING: "It has been asked for and has never run.",
    ACTIVE: "Its guest runs.",
    STOPPED: "Its guest is shut down and keeps its place.",
    PAUSED: "Its guest is in memory and does not run.",
    SUSPENDED: "Its guest is saved to disk and keeps its place.",
    RESIZED: "It has a new size or host, and keeps the old one until that is confirmed or reverted.",
    SHELVED: "Its guest is off and its disk is in an image; it keeps its place.",
    SHELVED_OFFLOADED: "It is an image only: no host, no CPUs.",
    SOFT_DELETED: "Its user has deleted it. It is off and keeps its place until it is restored or reclaimed.",
    ERROR: "It cannot be used; it can be deleted.",
    DELETED: "It is gone; its record stays until a purge.",
}

# How an operation ends. ``recorded`` is no end: the point from which a shelve only goes forward. ``off`` is done,
# with the guest shut down.
DONE = "done"
FAILED = "failed"
RECORDED = "recorded"
OFFLOADED = "offloaded"
OFF = "off"
IMAGE_GONE = "image-gone"
DISK_LOST = "disk-lost"

# What a kind may take over, where it is everything.
EVERYTHING = ("*",)

# The legs of an operation that goes from worker to worker; each is a cast of its own, with an attempt of its own.
CLAIM, SEND, RECEIVE = "claim", "send", "receive"
WITHDRAW, RESTORE, DROP = "withdraw", "restore", "drop"
HAND_OVER, SETTLE = "hand_over", "settle"


_STARTS = ("power_on", "reboot", "unpause", "resume", "rebuild")
"""Steps after which a guest runs that may have been off."""


class Step(msgspec.Struct, frozen=True):
    """One step of an operation.

    ``where`` does it: conductor or compute. ``shows`` is the task state from its start on, ``undo`` the name of
    what takes it back. ``forward`` steps are never undone, nor is anything before them once they began. ``leg`` is
    the part of the operation that it belongs to, where several workers have one each.
    """

    name: str
    where: str
    shows: str | None = None
    undo: str | None = None
    forward: bool = False
    leg: str = ""


class Kind(msgspec.Struct, frozen=True):
    """A kind of operation: its steps in order, and what it may do.

    ``places``: it takes a claim of its own. ``takes_over``: kinds of open operations that it may supersede.
    ``deadline``: seconds until it is unwound (the default of an option). ``waits`` is the task state until its first
    step begins, where that is not the step's. One without steps is done when it is accepted; its outcome is the state
    that the server is to have.
    """

    name: str
    steps: tuple[Step, ...] = ()
    deadline: int = 0
    places: bool = False
    takes_over: tuple[str, ...] = ()
    waits: str | None = None

    def step(self, name: str) -> Step:
        """The step of this name. Raises KeyError."""
        for step in self.steps:
            if step.name == name:
                return step
        raise KeyError(f"{self.name} has no step {name!r}")

    @property
    def first_shows(self) -> str | None:
        """The task state from the moment the operation is opened."""
        return self.waits or self.steps[0].shows

    @property
    def starts_a_guest(self) -> bool:
        """Whether it makes a guest run in its place that may have been off."""
        return any(step.name in _STARTS for step in self.steps)

    def may_take_over(self, kind: str) -> bool:
        """Whether it may supersede an open operation of ``kind``."""
        return self.takes_over == EVERYTHING or kind in self.takes_over


def _guest(name: str, step: str, shows: str, **more: Any) -> Kind:
    """A kind with one call of the hypervisor, which is taken back by making the guest what it was."""
    return Kind(name, (Step(step, "compute", shows=shows, undo="restore"),), deadline=120, **more)


def _move(kind: str) -> Kind:
    """A resize or a cold migration: claim at the destination, send from the source, receive at the destination.

    ``withdraw`` and ``restore`` are its way back: the destination lets go, then the source is as it was.
    """
    return Kind(
        kind,
        (
            Step("schedule", "conductor", shows="resize_prep"),
            Step("claim", "compute", shows="resize_prep", undo="release", leg=CLAIM),
            Step("power_off", "compute", shows="resize_migrating", undo="power_on", leg=SEND),
            Step("migrate_disk", "compute", shows="resize_migrating", undo="delete_image", leg=SEND),
            Step("finish_migration", "compute", shows="resize_finish", undo="destroy", leg=RECEIVE),
            Step("withdraw", "compute", shows="resize_migrating", leg=WITHDRAW),
            Step("restore", "compute", shows="resize_migrating", leg=RESTORE),
        ),
        deadline=900,
        places=True,
    )


_DELETE_STEPS = (Step("destroy", "compute", shows="deleting", forward=True),)

KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "create",
            (
                Step("schedule", "conductor", shows="scheduling"),
                Step("claim", "compute", shows="spawning", undo="release"),
                Step("spawn", "compute", shows="spawning", undo="destroy"),
            ),
            deadline=300,
            places=True,
        ),
        Kind(
            "shelve",
            (
                Step("power_off", "compute", shows="shelving", undo="power_on"),
                Step("snapshot", "compute", shows="shelving_image_uploading", undo="delete_image"),
                Step("record", "compute", shows="shelving_offloading", forward=True),
                Step("destroy", "compute", shows="shelving_offloading", forward=True),
            ),
            deadline=600,
        ),
        Kind(
            "shelve_offload",
            (Step("destroy", "compute", shows="shelving_offloading", forward=True),),
            deadline=120,
        ),
        Kind(
            "unshelve",
            (
                Step("schedule", "conductor", shows="unshelving"),
                Step("claim", "compute", shows="spawning", undo="release"),
                Step("spawn", "compute", shows="spawning", undo="destroy"),
            ),
            deadline=300,
            places=True,
        ),
        Kind(
            "unshelve_in_place",
            (Step("power_on", "compute", shows="powering-on", undo="power_off"),),
            deadline=120,
        ),
        _move("resize"),
        _move("migrate"),
        Kind("confirm_resize", (Step("confirm_migration", "compute", forward=True),), deadline=120),
        Kind(
            "revert_resize",
            (
                Step("destroy", "compute", shows="resize_reverting", forward=True, leg=DROP),
                Step("revert_migration", "compute", shows="resize_reverting", forward=True, leg=RESTORE),
            ),
            deadline=300,
        ),
        Kind(
            "evacuate",
            (
                Step("schedule", "conductor", shows="rebuilding"),
                Step("claim", "compute", shows="rebuilding", undo="release"),
                Step("spawn", "compute", shows="rebuild_spawning", undo="destroy"),
            ),
            deadline=600,
            places=True,
            takes_over=EVERYTHING,
        ),
        Kind(
            "live_migrate",
            (
                Step("schedule", "conductor", shows="migrating"),
                Step("claim", "compute", shows="migrating", undo="release", leg=CLAIM),
                Step("check", "compute", shows="migrating", leg=CLAIM),
                Step("live_migrate", "compute", shows="migrating", leg=HAND_OVER),
                Step("settle", "compute", shows="migrating", leg=SETTLE),
                Step("withdraw", "compute", shows="migrating", leg=WITHDRAW),
            ),
            deadline=1800,
            places=True,
        ),
        Kind("delete", _DELETE_STEPS, deadline=120, takes_over=EVERYTHING),
        Kind("force_delete", _DELETE_STEPS, deadline=120, takes_over=EVERYTHING),
        _guest("soft_delete", "power_off", "soft-deleting", takes_over=EVERYTHING),
        _guest("restore", "power_on", "restoring"),
        _guest("start", "power_on", "powering-on"),
        _guest("stop", "power_off", "powering-off"),
        _guest("reboot", "reboot", "reboot_started", waits="rebooting"),
        _guest(
            "hard_reboot",
            "reboot",
            "reboot_started_hard",
            waits="rebooting_hard",
            takes_over=("reboot", "hard_reboot", "pause", "unpause", "suspend", "resume"),
        ),
        _guest("pause", "pause", "pausing"),
        _guest("unpause", "unpause", "unpausing"),
        _guest("suspend", "suspend", "suspending"),
        _guest("resume", "resume", "resuming"),
        Kind("power_sync", (Step("power_off", "compute", shows="powering-off"),), deadline=120),
        Kind("power_restore", (Step("power_on", "compute", shows="powering-on"),), deadline=120),
        Kind(
            "create_image",
            (Step("snapshot", "compute", shows="image_uploading", undo="delete_image"),),
            deadline=600,
            waits="image_snapshot_pending",
        ),
        Kind(
            "rebuild",
            (
                Step("prepare", "compute", shows="rebuilding", undo="release"),
                Step("rebuild", "compute", shows="rebuild_spawning", forward=True),
            ),
            deadline=300,
        ),
        Kind("reset_state", takes_over=EVERYTHING),
        Kind("lock"),
        Kind("unlock"),
    )
}


class Transition(msgspec.Struct, frozen=True):
    """When an operation of ``kind`` comes to ``outcome``, a server in ``before`` is in ``after``."""

    kind: str
    before: str
    outcome: str
    after: str
    why: str


def _lines(
    kind: str, before: tuple[str, ...], outcomes: Mapping[str, tuple[str | None, str]]
) -> list[Transition]:
    return [
        Transition(kind, state, outcome, after or state, why)
        for state in before
        for outcome, (after, why) in outcomes.items()
    ]


def _moves(kind: str, before: tuple[str, ...], after: str, why: str) -> list[Transition]:
    """The lines of a kind that changes what its guest does, or leaves everything as it was."""
    return _lines(kind, before, {DONE: (after, why), FAILED: (None, "Its guest is again as it was.")})


_UP = (ACTIVE, STOPPED, PAUSED, SUSPENDED)
_ANY = tuple(state for state in VM_STATES if state != DELETED)
_GONE = {DONE: (DELETED, "A delete is never undone; it only goes forward.")}

_MOVED: Mapping[str, tuple[str | None, str]] = {
    DONE: (RESIZED, "Its guest has the new size or host; the old place is kept for a revert."),
    FAILED: (None, "The new place is given up, and it goes on in the old one."),
}

TRANSITIONS: tuple[Transition, ...] = (
    *_lines(
        "create",
        (BUILDING,),
        {
            DONE: (ACTIVE, "The guest runs on its claim."),
            FAILED: (ERROR, "No host took it, or none could start it; the fault says why."),
        },
    ),
    *_lines(
        "shelve",
        _UP,
        {
            RECORDED: (SHELVED, "Its image is complete; from here on a shelve only goes forward."),
            FAILED: (None, "Nothing was recorded, so it goes on as it was."),
        },
    ),
    *_lines(
        "shelve",
        (SHELVED,),
        {
            DONE: (SHELVED, "It is to keep its place for now."),
            OFFLOADED: (SHELVED_OFFLOADED, "Its guest is gone, and its claim with it."),
        },
    ),
    *_lines(
        "shelve_offload",
        (SHELVED,),
        {
            OFFLOADED: (SHELVED_OFFLOADED, "Its guest is gone, and its claim with it."),
            FAILED: (SHELVED, "The guest had not been touched."),
        },
    ),
    *_lines(
        "unshelve",
        (SHELVED_OFFLOADED,),
        {
            DONE: (ACTIVE, "The guest runs on a new claim; its image is no longer needed."),
            FAILED: (
                SHELVED_OFFLOADED,
                "No claim is left; the image is as it was, so it can be tried again.",
            ),
            IMAGE_GONE: (ERROR, "There is nothing left to start it from."),
        },
    ),
    *_lines(
        "unshelve_in_place",
        (SHELVED,),
        {
            DONE: (ACTIVE, "The guest was still there and runs again."),
            FAILED: (SHELVED, "It could not be started; it keeps its place and its image."),
        },
    ),
    *_lines("resize", (ACTIVE, STOPPED), _MOVED),
    *_lines("migrate", (ACTIVE, STOPPED), _MOVED),
    *_lines(
        "confirm_resize",
        (RESIZED,),
        {
            DONE: (ACTIVE, "The old place is given up; the guest runs in the new one."),
            OFF: (
                STOPPED,
                "The old place is given up; the guest is shut down in the new one, as it was before.",
            ),
            FAILED: (RESIZED, "The guest in the old place had not been touched."),
        },
    ),
    *_lines(
        "revert_resize",
        (RESIZED,),
        {
            DONE: (ACTIVE, "The new place is given up; the guest runs in the old one."),
            OFF: (STOPPED, "The new place is given up; the guest is shut down in the old one."),
            FAILED: (RESIZED, "The guest in the new place had not been touched."),
        },
    ),
    *_lines(
        "evacuate",
        (ACTIVE, STOPPED, ERROR),
        {
            DONE: (ACTIVE, "A new guest runs in a new place; what its dead host has is a leftover."),
            OFF: (STOPPED, "A new guest is shut down in a new place; what its dead host has is a leftover."),
            FAILED: (None, "The new place is given up; the old one is as it was."),
        },
    ),
    *_lines(
        "live_migrate",
        (ACTIVE, PAUSED),
        {
            DONE: (None, "Its guest goes on in the new place, without having stopped."),
            FAILED: (None, "Its guest goes on where it was; the new place is given up."),
        },
    ),
    *_lines("delete", _ANY, _GONE),
    *_lines("force_delete", _ANY, _GONE),
    *_moves(
        "soft_delete",
        (*_UP, SHELVED, ERROR, SOFT_DELETED),
        SOFT_DELETED,
        "Its guest is off; it can be restored until it is reclaimed.",
    ),
    *_moves("restore", (SOFT_DELETED,), ACTIVE, "Its guest runs again."),
    *_moves("start", (STOPPED,), ACTIVE, "Its guest runs again."),
    *_moves("stop", (ACTIVE, ERROR), STOPPED, "Its guest is off."),
    *_moves("reboot", (ACTIVE,), ACTIVE, "Its system has started afresh."),
    *_moves("hard_reboot", (*_UP, ERROR), ACTIVE, "Its guest runs afresh, whatever it did before."),
    *_moves("pause", (ACTIVE,), PAUSED, "Its guest stands still."),
    *_moves("unpause", (PAUSED,), ACTIVE, "Its guest goes on."),
    *_moves("suspend", (ACTIVE,), SUSPENDED, "Its guest's memory is on disk."),
    *_moves("resume", (SUSPENDED,), ACTIVE, "Its guest goes on from where it was."),
    *_lines(
        "power_sync",
        (ACTIVE, STOPPED, PAUSED),
        {
            DONE: (STOPPED, "Its guest was found to be what the book does not say, and is off now."),
            FAILED: (None, "Its guest could not be stopped; the next audit looks again."),
        },
    ),
    *_lines(
        "power_sync",
        (SHELVED, SOFT_DELETED),
        {
            DONE: (None, "Its guest was found running, and is off now as it should be."),
            FAILED: (None, "Its guest could not be stopped; the next audit looks again."),
        },
    ),
    *_lines(
        "power_restore",
        (ACTIVE, PAUSED, SUSPENDED),
        {
            DONE: (
                ACTIVE,
                "Its guest runs, after an operation that had failed and left it in another state.",
            ),
            FAILED: (None, "Its guest could not be started; the next audit looks again."),
        },
    ),
    *_lines(
        "create_image",
        _UP,
        {
            DONE: (None, "The image is complete; the guest has not been touched."),
            FAILED: (None, "There is no image; the guest has not been touched."),
        },
    ),
    *_lines(
        "rebuild",
        (ACTIVE, STOPPED),
        {
            DONE: (None, "Its guest has a new disk and does what it did before."),
            FAILED: (None, "Its disk had not been touched."),
            DISK_LOST: (ERROR, "Its old disk is gone, and the new one is not complete."),
        },
    ),
    *_lines(
        "rebuild",
        (ERROR,),
        {
            DONE: (ACTIVE, "Its guest runs from a new disk."),
            FAILED: (None, "Its disk had not been touched."),
            DISK_LOST: (None, "Its old disk is gone, and the new one is not complete."),
        },
    ),
    *_lines(
        "reset_state",
        _ANY,
        {
            ACTIVE: (ACTIVE, "An admin says so, and it has a claim to run on."),
            ERROR: (ERROR, "An admin says so."),
            RESIZED: (RESIZED, "An admin calls it good, and its move is still to be confirmed or reverted."),
            SHELVED: (SHELVED, "An admin calls it good, and it has its place and its image."),
            SHELVED_OFFLOADED: (SHELVED_OFFLOADED, "An admin calls it good, and all it has is its image."),
        },
    ),
)

_AFTER = {(line.kind, line.before, line.outcome): line.after for line in TRANSITIONS}


def after(kind: str, vm_state: str, outcome: str) -> str:
    """The state of a server once an operation of ``kind`` has come to ``outcome``.

    Raises KeyError for what is not in the table: a programming error.
    """
    return _AFTER[kind, vm_state, outcome]


def has_step(kind: str, step: str) -> bool:
    """Whether operations of ``kind`` have a step of this name."""
    return any(declared.name == step for declared in KINDS[kind].steps)


def may_start(kind: str, vm_state: str) -> bool:
    """Whether a server in ``vm_state`` may start an operation of ``kind``."""
    if kind == "shelve":
        return vm_state in _UP
    return any(line.kind == kind and line.before == vm_state for line in TRANSITIONS)


def require_start(kind: str, vm_state: str, open_kind: str | None) -> None:
    """Raise errors.Conflict, naming the field and its value, if the server may not start ``kind`` now."""
    if open_kind is not None and not KINDS[kind].may_take_over(open_kind):
        raise errors.Conflict(
            f"Cannot {kind} the server while its operation {open_kind} is under way (task_state is set).",
            code="operation-open",
        )
    if not may_start(kind, vm_state):
        wanted = sorted(
            {line.before for line in TRANSITIONS if line.kind == kind and may_start(kind, line.before)}
        )
        raise errors.Conflict(
            f"Cannot {kind} the server while its vm_state is {vm_state}; it must be {' or '.join(wanted)}.",
            code="wrong-state",
        )


_STATUS = {
    ACTIVE: "ACTIVE",
    BUILDING: "BUILD",
    STOPPED: "SHUTOFF",
    PAUSED: "PAUSED",
    SUSPENDED: "SUSPENDED",
    RESIZED: "VERIFY_RESIZE",
    SHELVED: "SHELVED",
    SHELVED_OFFLOADED: "SHELVED_OFFLOADED",
    SOFT_DELETED: "SOFT_DELETED",
    ERROR: "ERROR",
    DELETED: "DELETED",
}
_RESIZE = ("resize_prep", "resize_migrating", "resize_migrated", "resize_finish")
_REBUILD = ("rebuilding", "rebuild_block_device_mapping", "rebuild_spawning")

# What a task shows instead of the state.
_STATUS_DURING = {
    **{(state, task): "RESIZE" for state in (ACTIVE, STOPPED) for task in _RESIZE},
    **{(state, task): "REBUILD" for state in (ACTIVE, STOPPED, ERROR) for task in _REBUILD},
    **{(ACTIVE, task): "REBOOT" for task in ("rebooting", "reboot_pending", "reboot_started")},
    **{(ACTIVE, f"{task}_hard"): "HARD_REBOOT" for task in ("rebooting", "reboot_pending", "reboot_started")},
    (RESIZED, "resize_reverting"): "REVERT_RESIZE",
    **{(state, "migrating"): "MIGRATING" for state in (ACTIVE, PAUSED)},
}


def task_states() -> list[str]:
    """All that an operation may show, in order."""
    shown = {step.shows for kind in KINDS.values() for step in kind.steps} | {
        kind.waits for kind in KINDS.values()
    }
    return sorted(task for task in shown if task is not None)


def status(vm_state: str, task_state: str | None) -> str:
    """The ``status`` that the compute API shows for the two."""
    during = _STATUS_DURING.get((vm_state, task_state or ""))
    return during or _STATUS.get(vm_state, "UNKNOWN")

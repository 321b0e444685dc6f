"""Operations by the names that the compute API has for them: actions, and the events inside them.

An operation's steps are finer than the events that clients know, so consecutive steps with one event name are one
event. A new kind of operation needs a line in ``ACTIONS`` only where its name is not the API's, and one in
``EVENTS`` where its work is not called ``compute_<kind>_instance``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

# kind of operation: the action
ACTIONS = {
    "delete": "delete",
    "force_delete": "delete",
    "soft_delete": "delete",
    "hard_reboot": "reboot",
    "live_migrate": "live-migration",
    "power_restore": "start",
    "power_sync": "stop",
    "unshelve_in_place": "unshelve",
}

# (kind of operation, step): the event; a step that is not named here belongs to the kind's own event
EVENTS = {
    ("create", "schedule"): "conductor_schedule_and_build_instances",
    ("unshelve", "schedule"): "schedule_instances",
    ("evacuate", "schedule"): "rebuild_server",
    ("rebuild", "prepare"): "rebuild_server",
    ("lock", "lock"): "api_lock",
    ("unlock", "unlock"): "api_unlock",
    **{
        (kind, step): event
        for kind in ("migrate", "resize")
        for step, event in {
            "schedule": "cold_migrate",
            "claim": "compute_prep_resize",
            "finish_migration": "compute_finish_resize",
        }.items()
    },
    ("revert_resize", "revert_migration"): "compute_finish_revert_resize",
}
_OWN_EVENTS = {
    "create": "compute__do_build_and_run_instance",
    "create_image": "compute_snapshot_instance",
    "delete": "compute_terminate_instance",
    "evacuate": "compute_rebuild_instance",
    "confirm_resize": "compute_confirm_resize",
    "force_delete": "compute_terminate_instance",
    "live_migrate": "compute_live_migration",
    "migrate": "compute_resize_instance",
    "hard_reboot": "compute_reboot_instance",
    "power_restore": "compute_start_instance",
    "power_sync": "compute_stop_instance",
    "revert_resize": "compute_revert_resize",
    "unshelve_in_place": "compute_start_instance",
}
# What comes before the first step, and needs no step of its own.
_LOOKS_FIRST = {"unshelve": "get_image_info"}
# Events that clients expect to see only when they went wrong.
_ONLY_FAILED = frozenset({"conductor_schedule_and_build_instances"})


class ActionEvent(msgspec.Struct, frozen=True):
    """A stretch of an operation's work. Times are seconds since 1970; ``end`` is None while it goes on."""

    name: str
    host: str | None
    start: float
    end: float | None
    error: str | None

    @property
    def result(self) -> str | None:
        """``Success``, ``Error``, or None while it goes on."""
        if self.error is not None:
            return "Error"
        return None if self.end is None else "Success"


def action(kind: str) -> str:
    """The action that an operation of ``kind`` is: ``shelve_offload`` is ``shelveOffload``."""
    if kind in ACTIONS:
        return ACTIONS[kind]
    first, *rest = kind.split("_")
    return first + "".join(word.capitalize() for word in rest)


def events(
    kind: str, log: Iterable[Mapping[str, Any]], started: float = 0.0, error: str | None = None
) -> tuple[ActionEvent, ...]:
    """The events of an operation with this log, newest first.

    ``started`` is when the operation was, and ``error`` how it ended.
    """
    found: list[ActionEvent] = []
    entries = list(log)
    if kind in _LOOKS_FIRST and (entries or error):
        end = entries[0]["start"] if entries else started
        found.append(ActionEvent(_LOOKS_FIRST[kind], None, started, end, None if entries else error))
    for entry in entries:
        name = EVENTS.get((kind, entry["step"])) or _OWN_EVENTS.get(kind, f"compute_{kind}_instance")
        event = ActionEvent(name, entry["host"], entry["start"], entry["end"], entry["error"])
        last = found[-1] if found else None
        if last is not None and (last.name, last.host, last.error) == (name, event.host, None):
            found[-1] = msgspec.structs.replace(event, start=last.start)
        else:
            found.append(event)
    kept = (event for event in found if event.error is not None or event.name not in _ONLY_FAILED)
    return tuple(reversed(tuple(kept)))

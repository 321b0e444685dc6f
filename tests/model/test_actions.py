"""Operations by the names of the compute API."""

from __future__ import annotations

from typing import Any

import pytest

from pinfold.model import actions, states


def entry(step: str, start: float, end: float | None = None, **more: Any) -> dict[str, Any]:
    return {"step": step, "attempt": 1, "host": None, "start": start, "end": end, "error": None, **more}


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        ("create", "create"),
        ("shelve", "shelve"),
        ("shelve_offload", "shelveOffload"),
        ("unshelve", "unshelve"),
        ("unshelve_in_place", "unshelve"),
        ("force_delete", "delete"),
        ("create_image", "createImage"),
        ("confirm_resize", "confirmResize"),
        ("reset_state", "resetState"),
        ("stop", "stop"),
    ],
)
def test_a_kind_of_operation_is_an_action(kind: str, action: str) -> None:
    assert actions.action(kind) == action


def test_every_kind_and_step_has_a_name() -> None:
    for kind in states.KINDS.values():
        assert actions.action(kind.name)
        for step in kind.steps:
            (event,) = actions.events(kind.name, [entry(step.name, 1.0, 2.0, error="x")])[:1]
            assert event.name.startswith(("compute_", "conductor_", "schedule_", "cold_", "rebuild_"))


def test_the_steps_of_a_create_are_one_event() -> None:
    log = [
        entry("schedule", 1.0, 2.0),
        entry("claim", 2.0, 3.0, host="n1"),
        entry("spawn", 3.0, 4.0, host="n1"),
    ]
    (event,) = actions.events("create", log)
    assert (event.name, event.host, event.start, event.end, event.result) == (
        "compute__do_build_and_run_instance",
        "n1",
        2.0,
        4.0,
        "Success",
    )


def test_a_create_that_found_no_host_tells_of_its_scheduling() -> None:
    (event,) = actions.events("create", [entry("schedule", 1.0, 2.0, error="No valid host")])
    assert (event.name, event.result) == ("conductor_schedule_and_build_instances", "Error")


def test_each_host_that_was_tried_is_an_event_of_its_own() -> None:
    log = [
        entry("claim", 2.0, 3.0, host="n1"),
        entry("spawn", 3.0, 4.0, host="n1", error="no"),
        entry("claim", 5.0, 6.0, host="n2"),
        entry("spawn", 6.0, None, host="n2"),
    ]
    newest, oldest = actions.events("create", log)
    assert (oldest.host, oldest.result) == ("n1", "Error")
    assert (newest.host, newest.result, newest.end) == ("n2", None, None)


def test_an_unshelve_looks_for_its_image_then_for_a_host_then_starts() -> None:
    log = [
        entry("schedule", 2.0, 3.0),
        entry("claim", 3.0, 4.0, host="n1"),
        entry("spawn", 4.0, 5.0, host="n1"),
    ]
    names = [event.name for event in actions.events("unshelve", log, 1.0)]
    assert names == ["compute_unshelve_instance", "schedule_instances", "get_image_info"]


def test_an_unshelve_without_its_image_fails_at_looking_for_it() -> None:
    (event,) = actions.events("unshelve", [], 1.0, "its image is gone")
    assert (event.name, event.result) == ("get_image_info", "Error")


def test_a_local_delete_has_no_events() -> None:
    assert actions.events("delete", [], 1.0) == ()

"""What an operation did and waited for, from its log."""

from __future__ import annotations

from typing import Any

from pinfold.model import timeline


def entry(step: str, start: float, end: float | None, **more: Any) -> dict[str, Any]:
    return {"step": step, "attempt": 1, "host": None, "start": start, "end": end, "error": None} | more


def rows(
    *log: dict[str, Any], ended: float | None = None, now: float = 20.0
) -> list[tuple[str, str, float, float]]:
    spans = timeline.spans(10.0, ended, log, now)
    return [(span.what, span.name, span.start, round(span.seconds, 3)) for span in spans]


def test_the_time_until_the_first_step_is_a_wait() -> None:
    assert rows(entry("schedule", 10.5, 11.0), ended=11.0) == [
        ("wait", "conductor", 10.0, 0.5),
        ("step", "schedule", 10.5, 0.5),
    ]


def test_an_operation_that_nobody_has_taken_up_still_waits() -> None:
    (span,) = timeline.spans(10.0, None, [], 13.0)
    assert (span.what, span.name, span.seconds, span.open) == ("wait", "conductor", 3.0, True)


def test_a_step_under_way_lasts_until_now() -> None:
    spans = timeline.spans(10.0, None, [entry("schedule", 10.0, 11.0), entry("spawn", 11.0, None)], 20.0)
    assert [(span.name, span.seconds, span.open) for span in spans[-2:]] == [
        ("schedule", 1.0, False),
        ("spawn", 9.0, True),
    ]


def test_what_a_worker_waited_for_lies_before_the_step_that_it_is_told_with() -> None:
    log = (
        entry("schedule", 10.0, 15.0),
        entry("claim", 15.0, 15.0, host="n1", waits={"queue": 2.0, "lock": 0.5}),
        entry("spawn", 15.0, 18.0, host="n1"),
    )
    assert rows(*log, ended=18.0) == [
        ("wait", "conductor", 10.0, 0.0),
        ("step", "schedule", 10.0, 5.0),
        ("wait", "queue", 12.5, 2.0),
        ("wait", "lock", 14.5, 0.5),
        ("step", "claim", 15.0, 0.0),
        ("step", "spawn", 15.0, 3.0),
    ]


def test_errors_hosts_and_attempts_are_kept() -> None:
    log = [entry("spawn", 11.0, 12.0, host="n1", error="no disk", attempt=2)]
    step = timeline.spans(10.0, 12.0, log, 20.0)[-1]
    assert (step.host, step.error, step.attempt) == ("n1", "no disk", 2)


def test_a_clock_that_was_set_back_makes_no_negative_time() -> None:
    assert [row[3] for row in rows(entry("schedule", 9.0, 8.0), ended=9.0)] == [0.0, 0.0]

"""Half a minute of it; by hand ``python -m tests.functional.chaos`` goes on for as long as one likes."""

from __future__ import annotations

from tests.functional.chaos.run import run
from tests.functional.harness import Cloud, only_multi


@only_multi
def test_after_half_a_minute_of_chaos_everything_settles_and_the_audit_is_clean(cloud: Cloud) -> None:
    lines: list[str] = []
    report = run(cloud, 1, 30.0, lines.append)
    assert report.problems == (), "\n".join([*lines, str(report)])
    assert sum(report.asked.values()) > 0

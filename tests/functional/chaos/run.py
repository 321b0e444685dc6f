"""One run of chaos, from a cloud that is well to one that is well again."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from random import Random

import httpx
import msgspec

from devstack.client import ApiError, Client, NotReached, until
from tests.functional.chaos.blows import Blows
from tests.functional.chaos.load import PICTURE, User
from tests.functional.harness import Cloud, check_books, check_node

SETTLES_WITHIN = 240.0


class Report(msgspec.Struct, frozen=True):
    """What a run did and found. ``problems`` is empty when all was well."""

    seed: int
    seconds: float
    asked: dict[str, int]
    refused: dict[str, int]
    unanswered: int
    blows: dict[str, int]
    settled_after: float
    problems: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}: {self.seconds:.0f} s, {sum(self.asked.values())} requests accepted, "
            f"{sum(self.refused.values())} refused, {self.unanswered} unanswered; settled after "
            f"{self.settled_after:.0f} s; {len(self.problems)} problems",
            *(f"  {name}: {_counts(found)}" for name, found in self._counters()),
            *(f"  PROBLEM: {problem}" for problem in self.problems),
        ]
        return "\n".join(lines)

    def _counters(self) -> list[tuple[str, dict[str, int]]]:
        return [("asked", self.asked), ("refused", self.refused), ("blows", self.blows)]


def _counts(found: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(found.items()))


class Watch(threading.Thread):
    """Looks all the time whether a CPU is held twice. ``problems`` are sentences."""

    def __init__(self, url: str, stop: threading.Event) -> None:
        super().__init__(daemon=True, name="watch")
        self._client = Client(url)
        self._halt = stop
        self.problems: list[str] = []
        self.looks = 0

    def run(self) -> None:
        """Until told to stop."""
        with self._client:
            while not self._halt.wait(0.5):
                try:
                    for node in self._client.nodes().values():
                        check_node(node)
                    self.looks += 1
                except AssertionError as error:
                    self.problems.append(str(error).splitlines()[0])
                except (httpx.HTTPError, ApiError):
                    continue  # the API is being killed or replaced


def run(cloud: Cloud, seed: int, seconds: float, tell: Callable[[str], None] = lambda line: None) -> Report:
    """Load and blows for so many seconds, then peace until all has settled."""
    random, stop = Random(seed), threading.Event()
    users = [User(cloud.url, cloud.image, seed * 100 + number, stop) for number in range(4)]
    watch = Watch(cloud.url, stop)
    blows = Blows(cloud, random, tell)
    began = time.monotonic()
    for thread in (*users, watch):
        thread.start()
    try:
        while time.monotonic() - began < seconds:
            stop.wait(random.uniform(1.0, 6.0))
            blows.strike(time.monotonic())
    finally:
        blows.mend()
        stop.set()
    for user in users:
        user.join(60.0)
    watch.join(60.0)
    problems = [*watch.problems, *(wrong for user in users for wrong in user.wrong)]
    settled_after, left = _settle(cloud)
    return Report(
        seed=seed,
        seconds=time.monotonic() - began,
        asked=dict(_sum(user.asked for user in users)),
        refused=dict(_sum(user.refused for user in users)),
        unanswered=sum(user.unanswered for user in users),
        blows=dict(blows.count),
        settled_after=settled_after,
        problems=(*problems, *left),
    )


def _sum(counters: object) -> Counter[str]:
    total = Counter[str]()
    for counter in counters:  # type: ignore[attr-defined]
        total.update(counter)
    return total


def _settle(cloud: Cloud) -> tuple[float, list[str]]:
    """How long it took, and what never came right."""
    began = time.monotonic()
    try:
        cloud.await_healthy(SETTLES_WITHIN)
        until(lambda: not _open(cloud), lambda: f"still open: {_open(cloud)}", SETTLES_WITHIN)
        _tidy(cloud)
        check_books(cloud, SETTLES_WITHIN)
    except NotReached as error:
        return time.monotonic() - began, [str(error)]
    took = time.monotonic() - began
    audit = cloud.manage("audit", "--json")
    if audit.returncode != 0:
        return took, [f"audit: {audit.stdout}{audit.stderr}"]
    return took, []


def _open(cloud: Cloud) -> list[str]:
    listed = cloud.manage("operation", "list", "--json")
    if listed.returncode != 0:
        return [listed.stderr]
    return [f"{found['kind']} of {found['instance_id']}" for found in json.loads(listed.stdout)]


def _tidy(cloud: Cloud) -> None:
    """What waits for its user, who has gone: moves are confirmed, what is in ERROR and pictures are deleted."""
    for server in cloud.client.servers():
        if server["status"] == "VERIFY_RESIZE":
            cloud.client.act(server["id"], "confirmResize")
        elif server["status"] == "ERROR":
            cloud.client.delete(server["id"])
    for image in cloud.shelved_images():
        if image["name"] == PICTURE:
            cloud.client.request("DELETE", f"/image/v2/images/{image['id']}")
    until(lambda: not _open(cloud), lambda: f"still open: {_open(cloud)}", SETTLES_WITHIN)

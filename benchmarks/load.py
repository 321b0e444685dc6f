"""Clients that run cycles: boot, shelve with immediate offload, unshelve, delete of a pinned server."""

from __future__ import annotations

import http.client
import json
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

OPERATIONS = ("boot", "shelve", "unshelve", "delete")
_HEADERS = {
    "X-Auth-Token": "admin:admin:admin",
    "OpenStack-API-Version": "compute 2.90",
    "Accept": "application/json",
    "Content-Type": "application/json",
}
#: Seconds that one operation may take.
LIMIT = 120.0


class Failed(Exception):
    """A cycle that did not go as it should."""


class Connection:
    """One kept-alive connection: cheaper than a full client, since the generator shares the machine."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        text = None if body is None else json.dumps(body)
        for attempt in (1, 2):
            try:
                self._http.request(method, path, text, _HEADERS)
                answer = self._http.getresponse()
                content = answer.read()
                break
            except (http.client.HTTPException, ConnectionError):
                # The server closed an idle connection; only a request that changes nothing is sent again.
                self._http.close()
                if attempt == 2 or method != "GET":
                    raise
        try:
            return answer.status, json.loads(content) if content else None
        except ValueError:
            return answer.status, content.decode(errors="replace")


class Result:
    """What a load measured."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {operation: [] for operation in OPERATIONS}
        self.cycles, self.wall, self.polls = 0, 0.0, 0
        self.failures: list[str] = []

    @property
    def rate(self) -> float:
        return self.cycles / self.wall if self.wall else 0.0

    def milliseconds(self, operation: str, part: float) -> float:
        taken = sorted(self.seconds[operation])
        if not taken:
            return float("nan")
        if part == 0.5:
            return 1000 * statistics.median(taken)
        return 1000 * taken[min(len(taken) - 1, round(part * (len(taken) - 1)))]


class Load:
    """``poll_port`` may be that of another API process, so that polling can be told from work."""

    def __init__(self, port: int, poll_port: int, flavor: str, image: str, poll: float) -> None:
        self._ports, self._flavor, self._image, self._poll = (port, poll_port), flavor, image, poll
        self._lock = threading.Lock()
        self._left = 0
        self._until = 0.0
        self.result = Result()

    def run(self, clients: int, cycles: int | None, seconds: float | None) -> Result:
        """Until ``cycles`` are done in all, or for ``seconds``."""
        self.result = Result()
        self._left = 10**9 if cycles is None else cycles
        began = time.monotonic()
        self._until = began + (10**9 if seconds is None else seconds)
        threads = [threading.Thread(target=self._client, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.result.wall = time.monotonic() - began
        return self.result

    def _take(self) -> bool:
        with self._lock:
            self._left -= 1
            return self._left >= 0 and time.monotonic() < self._until

    def _client(self, number: int) -> None:
        work, look = (Connection(port) for port in self._ports)
        count = 0
        while self._take():
            count += 1
            cycle = Cycle(work, look, self._poll)
            try:
                cycle.run(f"bench-{number}-{count}", self._flavor, self._image)
            except (Failed, OSError, http.client.HTTPException, KeyError, TypeError) as error:
                with self._lock:
                    self.result.failures.append(f"{cycle.at}: {type(error).__name__}: {str(error)[:300]}")
                cycle.clean_up()
                continue
            with self._lock:
                self.result.cycles += 1
                self.result.polls += cycle.polls
                for operation, taken in cycle.seconds.items():
                    self.result.seconds[operation].append(taken)


class Cycle:
    """One server's life."""

    def __init__(self, work: Connection, look: Connection, poll: float) -> None:
        self._work, self._look, self._poll = work, look, poll
        self.at, self.server, self.polls = "", "", 0
        self.seconds: dict[str, float] = {}

    def run(self, name: str, flavor: str, image: str) -> None:
        wanted = {"name": name, "flavorRef": flavor, "imageRef": image, "networks": "none"}
        self._time("boot", lambda: self._create({"server": wanted}), "ACTIVE")
        self._time("shelve", lambda: self._act("shelve"), "SHELVED_OFFLOADED")
        self._time("unshelve", lambda: self._act("unshelve"), "ACTIVE")
        self._time("delete", lambda: self._ask(204, "DELETE", f"/v2.1/servers/{self.server}"), None)

    def _time(self, operation: str, ask: Callable[[], object], status: str | None) -> None:
        self.at, began = operation, time.monotonic()
        ask()
        self._await(status)
        self.seconds[operation] = time.monotonic() - began

    def _ask(self, status: int, method: str, path: str, body: Any = None) -> Any:
        got, document = self._work(method, path, body)
        if got != status:
            raise Failed(f"{method} {path}: {got} {document}")
        return document

    def _create(self, body: Any) -> None:
        self.server = self._ask(202, "POST", "/v2.1/servers", body)["server"]["id"]

    def _act(self, action: str) -> None:
        self._ask(202, "POST", f"/v2.1/servers/{self.server}/action", {action: None})

    def _await(self, status: str | None) -> None:
        deadline = time.monotonic() + LIMIT
        while True:
            self.polls += 1
            got, document = self._look("GET", f"/v2.1/servers/{self.server}")
            if self._arrived(got, document, status):
                return
            if time.monotonic() > deadline:
                raise Failed(f"no {status} within {LIMIT:.0f} s: {got} {document}")
            time.sleep(self._poll)

    def _arrived(self, got: int, document: Any, status: str | None) -> bool:
        if got == 404 and status is None:
            return True
        if got != 200:
            raise Failed(f"GET: {got} {document}")
        shown = document["server"]
        if shown["OS-EXT-STS:task_state"] is not None:
            return False
        if shown["status"] == status:
            # Nova forgets the host a moment later
            return (shown["OS-EXT-SRV-ATTR:host"] is None) == (status == "SHELVED_OFFLOADED")
        if shown["status"] == "ERROR" or shown.get("fault"):
            raise Failed(f"{shown['status']}: {shown.get('fault')}")
        return False

    def clean_up(self) -> None:
        """After a failure: so that the next cycles find the room."""
        if self.server:
            try:
                self._work("DELETE", f"/v2.1/servers/{self.server}")
            except (OSError, http.client.HTTPException):
                pass

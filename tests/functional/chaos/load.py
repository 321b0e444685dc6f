"""Users: each asks for one thing after another that makes sense, and takes a refusal for an answer."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import httpx

from devstack.client import ApiError, Client, Json

PATIENCE = 40.0
MOST_SERVERS = 8
#: What images are called that users ask for.
PICTURE = "chaos"
#: By status: actions with their arguments; what stands there twice is asked for twice as often.
ACTIONS: dict[str, tuple[tuple[str, Any], ...]] = {
    "ACTIVE": (
        ("shelve", None),
        ("shelve", None),
        ("resize", {"flavorRef": "p2"}),
        ("resize", {"flavorRef": "p1"}),
        ("migrate", None),
        ("migrate", None),
        ("os-migrateLive", {"host": None, "block_migration": "auto"}),
        ("os-stop", None),
        ("reboot", {"type": "SOFT"}),
        ("reboot", {"type": "HARD"}),
        ("pause", None),
        ("suspend", None),
        ("createImage", {"name": PICTURE}),
        ("rebuild", {}),
        ("delete", None),
    ),
    "SHUTOFF": (
        ("os-start", None),
        ("os-start", None),
        ("shelve", None),
        ("migrate", None),
        ("delete", None),
    ),
    "PAUSED": (("unpause", None), ("reboot", {"type": "HARD"})),
    "SUSPENDED": (("resume", None),),
    "SHELVED": (("shelveOffload", None), ("unshelve", None)),
    "SHELVED_OFFLOADED": (("unshelve", None), ("unshelve", None), ("unshelve", None), ("delete", None)),
    "VERIFY_RESIZE": (("confirmResize", None), ("revertResize", None)),
    "ERROR": (("delete", None), ("reboot", {"type": "HARD"})),
    "BUILD": (("delete", None),),
}


class User(threading.Thread):
    """``asked`` counts what was accepted, ``refused`` what was not, by status; ``wrong`` are answers that nobody may
    ever get."""

    def __init__(self, url: str, image: str, seed: int, stop: threading.Event) -> None:
        super().__init__(daemon=True, name=f"user-{seed}")
        self._client = Client(url, timeout=PATIENCE)
        self._image = image
        self._random = Random(seed)
        self._halt = stop
        self.asked = Counter[str]()
        self.refused = Counter[str]()
        self.unanswered = 0
        self.wrong: list[str] = []

    def run(self) -> None:
        """Until told to stop."""
        with self._client:
            while not self._halt.is_set():
                self._try(self._act)
                self._halt.wait(self._random.choice((0.0, 0.1, 0.5, 1.5)) * self._random.random())

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except ApiError as error:
            self.refused[f"{error.status} {error.code}"] += 1
            if error.status == 500:
                self.wrong.append(str(error))
        except httpx.HTTPError:
            # an API that is being killed or replaced
            self.unanswered += 1
            self._halt.wait(0.5)

    def _act(self) -> None:
        servers = self._client.servers()
        if len(servers) < self._random.randint(2, MOST_SERVERS):
            self._client.boot("chaos", self._random.choice(("p1", "p2", "s1")), self._image)
            self.asked["create"] += 1
            return
        idle = [server for server in servers if server["OS-EXT-STS:task_state"] is None]
        server: Json = self._random.choice(idle if idle and self._random.random() < 0.9 else servers)
        action, argument = self._random.choice(ACTIONS.get(server["status"], (("delete", None),)))
        if action == "delete":
            self._client.delete(server["id"])
        elif action == "rebuild":
            self._client.act(server["id"], action, {"imageRef": self._image})
        else:
            self._client.act(server["id"], action, argument)
        self.asked[action] += 1

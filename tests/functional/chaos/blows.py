"""What strikes the processes of a cloud: each blow makes itself good after a while, by the seed."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from random import Random

from devstack import processes, rabbit
from devstack.client import Json
from devstack.story import write_faults
from tests.functional.harness import Cloud, stack

CALLS = (
    "spawn",
    "destroy",
    "power_on",
    "power_off",
    "snapshot",
    "rebuild",
    "migrate_disk",
    "finish_migration",
    "confirm_migration",
    "revert_migration",
    "live_migrate",
)


class Blows:
    """``strike`` does one thing, at random; ``mend`` makes good all that is still broken. ``count`` is by kind."""

    def __init__(self, cloud: Cloud, random: Random, tell: Callable[[str], None]) -> None:
        self._cloud = cloud
        self._random = random
        self._tell = tell
        self._stopped: dict[int, float] = {}
        self.count = Counter[str]()
        self._kinds: tuple[tuple[Callable[[], str], int], ...] = (
            (self._kill, 8),
            (self._freeze, 4),
            (self._cut, 3),
            (self._disorder, 4),
            (self._host_dies, 1),
            (self._kill_broker, 1),
            (self._kill_database, 1),
        )

    def strike(self, now: float) -> None:
        """One blow; ``now`` is of any clock that goes on."""
        self._go_on(now)
        acts, weights = zip(*self._kinds, strict=True)
        (act,) = self._random.choices(acts, weights)
        name = act.__name__.strip("_")
        self.count[name] += 1
        if act == self._freeze:
            self._tell(self._freeze_until(now + self._random.uniform(1.0, 25.0)))
        else:
            self._tell(act())

    def mend(self) -> None:
        """Nothing strikes any more, and what is dead is started."""
        write_faults(self._cloud.layout.faults)
        self._start_what_is_dead()

    def _start_what_is_dead(self) -> str:
        """As an operator does. It waits for all to be well, which they need not be now; what stands still goes on."""
        self._go_on(float("inf"))
        done = stack("--dir", str(self._cloud.folder), "--resume", check=False)
        return " ".join(done.stdout.split())[:120]

    def _go_on(self, now: float) -> None:
        for pid, until in list(self._stopped.items()):
            if until <= now:
                del self._stopped[pid]
                _send(pid, signal.SIGCONT)

    def _service(self) -> str:
        return self._random.choice(self._cloud.options.services)

    def _pid(self, service: str) -> int | None:
        try:
            return self._cloud.pid(service)
        except (FileNotFoundError, ValueError):
            return None

    # --- blows ---------------------------------------------------------------------------------

    def _kill(self) -> str:
        service = self._service()
        pid = self._pid(service)
        if pid is not None:
            _send(pid, signal.SIGKILL)
        return f"kill -9 of {service} ({pid})"

    def _freeze(self) -> str:
        raise AssertionError("it wants to know until when")

    def _freeze_until(self, until: float) -> str:
        service = self._service()
        pid = self._pid(service)
        if pid is not None and pid not in self._stopped:
            self._stopped[pid] = until
            _send(pid, signal.SIGSTOP)
        return f"SIGSTOP of {service} ({pid})"

    def _cut(self) -> str:
        """The broker throws out all connections of a worker."""
        account = self._random.choice([name for name in self._cloud.options.services if "compute" in name])
        self._control("close_all_user_connections", account, "chaos")
        return f"the broker closes the connections of {account}"

    def _control(self, *arguments: str) -> None:
        broker = self._cloud.state.servers[rabbit.NAME]
        try:
            rabbit.control(self._cloud.layout, broker, *arguments)
        except Exception as error:
            self._tell(f"the broker does not obey just now: {error}")

    def _disorder(self) -> str:
        """Hypervisors fail, hang and are slow for a while."""
        rules: list[Json] = [
            {
                "host": self._random.choice(("*", *self._cloud.options.host_names)),
                "call": self._random.choice(CALLS),
                "server": "*",
                "effect": self._random.choice(("fail", "fail", "delay", "hang")),
                "seconds": self._random.uniform(0.5, 10.0),
                "times": self._random.choice((1, 2, 5)),
                "when": self._random.choice(("before", "after")),
            }
            for _ in range(self._random.randint(0, 3))
        ]
        write_faults(self._cloud.layout.faults, *rules)
        told = ", ".join(
            f"{rule['call']} {rule['effect']}s {rule['when']} on {rule['host']}" for rule in rules
        )
        return f"hypervisors: {told or 'all is well'}"

    def _host_dies(self) -> str:
        """With its supervisor; somebody starts it again at the next blow of this kind, or at the end."""
        self._start_what_is_dead()
        service = self._random.choice([name for name in self._cloud.options.services if "compute" in name])
        self._cloud.stop_at_once(service)
        return f"{service} dies with its supervisor"

    def _kill_broker(self) -> str:
        brokers = [name for name in self._cloud.state.servers if name.startswith(rabbit.NAME)]
        return self._kill_server(self._random.choice(sorted(brokers)))

    def _kill_database(self) -> str:
        others = [
            name for name in self._cloud.state.servers if not name.startswith((rabbit.NAME, rabbit.MAPPER))
        ]
        return self._kill_server(self._random.choice(sorted(others)))

    def _kill_server(self, name: str) -> str:
        process = self._cloud.state.processes[name]
        for pid in processes.members(process):
            _send(pid, signal.SIGKILL)
        return f"{name} was killed and started again: {self._start_what_is_dead()}"


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass

"""What the heartbeats of many workers cost: the real conductor, broker and database, and simulated workers.

    ./stack.sh --multi --no-story --hosts 1 --conductors 1
    .venv/bin/python -m benchmarks.heartbeats --workers 1000

All workers are in this process. Each registers, has a queue of its own, beats as a worker does and counts the echoes
that come back through that queue. Bounded on purpose: they share a few connections, and have no fanout queues (a
thousand real workers have 3,000 connections and as many queues: half a gigabyte of the broker).
"""

from __future__ import annotations

import argparse
import random
import secrets
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pinfold import concurrency

concurrency.choose()

import kombu  # noqa: E402  the mode comes first, as in every entry point
import sqlalchemy as sa  # noqa: E402
from oslo_config import cfg  # noqa: E402

from benchmarks import filled, meter  # noqa: E402
from devstack import postgres, rabbit  # noqa: E402
from devstack.layout import Layout, State  # noqa: E402
from pinfold.conf import rpc, service  # noqa: E402
from pinfold.db.session import make_engine  # noqa: E402
from pinfold.rpcapi import messages, permissions, transport  # noqa: E402
from pinfold.rpcapi.clients import COMPUTE_TOPIC, CONDUCTOR_TOPIC, ConductorClient  # noqa: E402
from pinfold.rpcapi.context import Context  # noqa: E402
from pinfold.rpcapi.wire import CallTimeout, Undeliverable  # noqa: E402
from pinfold.runtime import RealRuntime  # noqa: E402

_kombu: Any = kombu  # its typing is incomplete
#: Calls under way at once: so many threads, each with a connection at most.
_THREADS = 16


def _arguments() -> argparse.Namespace:
    root = Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", type=Path, default=root / ".stack", help="the cloud's folder (./.stack)")
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--interval", type=float, default=3.0, help="seconds between two beats of one (3)")
    return parser.parse_args()


@contextmanager
def _account(layout: Layout, broker: dict[str, Any]) -> Iterator[str]:
    """The url of an account that may be every worker."""
    user, password = f"bench-{secrets.token_hex(4)}", secrets.token_hex(8)
    rabbit.control(layout, broker, "add_user", user, password)
    try:
        rabbit.control(layout, broker, "set_permissions", user, ".*", ".*", ".*")
        yield rabbit.url(broker, user, password)
    finally:
        rabbit.control(layout, broker, "delete_user", user)


class Ears:
    """Takes what comes to the workers' queues, over one connection."""

    def __init__(self, url: str, hosts: list[str]) -> None:
        self.heard = 0
        self._stop = threading.Event()
        self._connection = _kombu.Connection(url.replace("rabbit://", "amqp://"))
        exchange = _kombu.Exchange(permissions.EXCHANGE, "topic", durable=False, auto_delete=False)
        channel = self._connection.channel()
        self._queues = [
            _kombu.Queue(f"{COMPUTE_TOPIC}.{host}", exchange, f"{COMPUTE_TOPIC}.{host}", channel=channel,
                         durable=False, auto_delete=False)
            for host in hosts
        ]  # fmt: skip
        for queue in self._queues:
            queue.declare()
        self._consumer = _kombu.Consumer(channel, self._queues, on_message=self._hear, no_ack=True)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Ears:
        self._consumer.consume()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.cancel()
        for queue in self._queues:
            queue.delete()
        self._connection.release()

    def _hear(self, message: object) -> None:
        self.heard += 1

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._connection.drain_events(timeout=0.2)
            except TimeoutError:
                continue


class Workers:
    """All workers: each beats once in ``interval`` seconds, at moments of its own."""

    def __init__(self, conductor: ConductorClient, hosts: list[str], interval: float) -> None:
        self._conductor = conductor
        self._interval = interval
        self._records = [messages.Heartbeat(host, str(uuid.uuid4()), echo=1) for host in hosts]
        self._lock = threading.Lock()
        self.beats, self.echoed, self.lost, self.late = 0, 0, 0, 0.0

    def register(self) -> None:
        def one(beat: messages.Heartbeat) -> None:
            nodes = (filled.report(beat.host),)
            refused = self._conductor.register(
                messages.Register(beat.host, beat.host, beat.incarnation, nodes)
            ).refused
            assert refused is None, refused

        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(one, self._records))

    def run(self, seconds: float) -> None:
        began = time.monotonic()
        phases = [(random.uniform(0, self._interval), record) for record in self._records]
        shares = [sorted(phases[number::_THREADS], key=lambda each: each[0]) for number in range(_THREADS)]
        threads = [
            threading.Thread(target=self._share, args=(share, began, began + seconds)) for share in shares
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _share(self, share: list[tuple[float, messages.Heartbeat]], began: float, until: float) -> None:
        turn = 0
        while True:
            for phase, record in share:
                due = began + phase + turn * self._interval
                if due > until:
                    return
                time.sleep(max(0.0, due - time.monotonic()))
                self._beat(record, time.monotonic() - due)
            turn += 1

    def _beat(self, record: messages.Heartbeat, late: float) -> None:
        try:
            heard = self._conductor.heartbeat(record)
        except (Undeliverable, CallTimeout):
            heard = messages.Heard(echoed=False)
            self.lost += 1
        assert not heard.superseded
        with self._lock:
            self.beats += 1
            self.echoed += heard.echoed
            self.late = max(self.late, late)


def _client(url: str) -> tuple[transport.RabbitTransport, ConductorClient]:
    conf = cfg.ConfigOpts()
    conf([], project="pinfold", default_config_files=[], default_config_dirs=[])
    for options in (rpc, service, transport):
        options.register(conf)
    conf.set_override("transport_url", url)
    made = transport.connect(conf, RealRuntime())
    made.warm_up(CONDUCTOR_TOPIC)
    return made, ConductorClient(made, Context("req-heartbeats"), timeout=15.0)


def _forget(state: State) -> None:
    """Remove the workers from the book."""
    engine = make_engine(postgres.url(state.servers[postgres.NAME]))
    with engine.begin() as connection:
        for table in ("nodes", "services"):
            connection.execute(sa.text(f"DELETE FROM {table} WHERE host LIKE 'beating-%'"))
    engine.dispose()


def main() -> None:
    """Beat for a while, and print what each process spent."""
    arguments = _arguments()
    layout = Layout(arguments.dir.resolve())
    state = layout.load()
    if state is None or postgres.NAME not in state.servers or rabbit.NAME not in state.servers:
        raise SystemExit(
            f"there is no cloud with a broker in {layout.root}; start one with ./stack.sh --multi"
        )
    hosts = [f"beating-{number}" for number in range(arguments.workers)]
    with _account(layout, state.servers[rabbit.NAME]) as url:
        made, conductor = _client(url)
        try:
            with Ears(url, hosts) as ears:
                workers = Workers(conductor, hosts, arguments.interval)
                workers.register()
                before, heard, began = meter.read(layout, state, messages=False), ears.heard, time.monotonic()
                workers.run(arguments.seconds)
                spent, wall = (
                    meter.between(before, meter.read(layout, state, messages=False)),
                    time.monotonic() - began,
                )
                heard = ears.heard - heard
        finally:
            made.close()
            _forget(state)
    wanted = arguments.workers / arguments.interval
    print(
        f"{arguments.workers} workers, one beat each {arguments.interval:g} s: {workers.beats / wall:.0f} beats/s of "
        f"{wanted:.0f}, {workers.lost} lost, {workers.echoed} echoes sent, {heard} heard, "
        f"the latest {workers.late:.1f} s late"
    )
    for name, seconds in sorted(spent.cpu.items(), key=lambda each: -each[1]):
        each = seconds / max(1, workers.beats)
        print(f"{name:20} {1000 * each:6.2f} ms of CPU a beat, {each * wanted:5.2f} cores at this interval")
    if spent.sql is not None:
        print(f"{sum(spent.sql.values()) / max(1, workers.beats):.2f} SQL statements a beat")


if __name__ == "__main__":
    main()

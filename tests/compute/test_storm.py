"""The model's story with the real worker: random requests, at every event random faults; then calm, and all is clean.

``PINFOLD_STORMS=N`` runs N seeds of each; a failure names its seed.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import msgspec
import pytest

from pinfold.compute.jobs import Key
from pinfold.image.store import ImageNotFound
from pinfold.model import errors, states
from pinfold.model.work import Work
from pinfold.rpcapi import wire
from pinfold.virt.driver import RUNNING, SHUTDOWN, DriverError
from tests.compute.books import FakeBook, pinned
from tests.compute.realbook import RealBook
from tests.compute.world import HOST, NODE, PARTITION, Killed, World

# Room for two servers of four CPUs at a time: they fight for the same ones.
NARROW = msgspec.structs.replace(PARTITION, cpu_dedicated_set="4-7,12-15")
REQUESTS = {
    states.ACTIVE: ("shelve",) * 8 + ("delete",),
    states.SHELVED: ("shelve_offload", "unshelve", "unshelve", "delete"),
    states.SHELVED_OFFLOADED: ("unshelve",) * 8 + ("delete",),
    states.ERROR: ("delete",),
}
MEANWHILE = ("double", "double", "again", "again", "expire", "delete", "audit", "audit", "move_on")
SEEDS = int(os.environ.get("PINFOLD_STORMS", "0"))


class Storm:
    """One seed's run."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.servers: list[str] = []
        self.last: dict[str, Work] = {}
        self.waiting: list[Work] = []
        self.sent: list[Work] = []
        self.faults = self.worst = 0
        self.calm = False
        self.working = False
        self.history: list[str] = []
        self.wrong: list[str] = []
        world.at = world.watch.at = self.strike

    def strike(self, number: int, event: str, when: str) -> None:
        """Called before and after everything that the worker does outside itself."""
        self.history.append(f"{when} {event}")
        self.look()
        if self.calm or self.faults >= self.worst or self.random.random() > 0.1:
            return
        self.faults += 1
        self.history[-1] += " !"
        if self.working:
            self.random.choice((self.fail, self.kill, self.interfere, self.interfere))(event, when)
        elif event not in ("conductor.register", "conductor.heartbeat"):
            self.fail(event, when)

    def fail(self, event: str, when: str) -> None:
        if event.startswith("conductor."):
            raise wire.CallTimeout(f"{event} was lost {when}")
        if event.startswith("driver."):
            raise DriverError(f"{event} failed {when}")
        if self.random.random() < 0.5:
            raise errors.Unavailable("The store does not answer.")

    def kill(self, event: str, when: str) -> None:
        raise Killed(f"{event}, {when}")

    def interfere(self, event: str, when: str) -> None:
        """Somebody else does something meanwhile."""
        server = self.random.choice(self.servers)
        opened = self.world.book.server(server).open_kind is not None
        what = self.random.choice(MEANWHILE)
        self.history.append(f"{what} {server}")
        if what == "double":
            self.waiting.append(self.random.choice(self.sent))
        elif what == "again" and opened:
            self.cast_again(server)
        elif what == "expire" and opened:
            self.world.book.expire(self.last[server])
        elif what == "delete":
            self.request("delete", server)
        elif what == "audit" and event != "conductor.claim":  # made under the node's lock
            self.world.reconcile()
        elif what == "move_on":
            self.world.book.move_on(NODE)

    def cast(self, work: Work) -> None:
        self.last[work.instance] = work
        self.waiting.append(work)
        self.sent.append(work)

    def cast_again(self, server: str) -> None:
        """The sweeper: it may end the operation instead."""
        try:
            self.cast(self.world.book.again(self.last[server]))
        except errors.Conflict:
            return

    def request(self, kind: str, server: str) -> None:
        """What an API would accept, or not."""
        if self.world.book.server(server).vm_state == states.DELETED:
            return
        try:
            holds = any(
                claim.instance == server and claim.role != "leftover"
                for claim in self.world.book.claims(NODE)
            )
            leftover = any(
                claim.instance == server and claim.role == "leftover"
                for claim in self.world.book.claims(NODE)
            )
            if kind == "delete" and not holds:
                self.world.book.delete_locally(server)
            elif not (kind == "unshelve" and leftover):
                self.cast(self.world.book.ask(kind, server))
        except errors.Conflict:
            return

    def step(self) -> None:
        """One thing happens."""
        self.faults, self.worst = 0, self.random.choice((0, 0, 1, 1, 2, 4))
        living = [
            server for server in self.servers if self.world.book.server(server).vm_state != states.DELETED
        ]
        choice = self.random.random()
        if len(living) < 3 and choice < 0.5:
            work = self.world.book.create(pinned(4))
            self.servers.append(work.instance)
            self.cast(work)
        elif choice < 0.8 and living:
            server = self.random.choice(living)
            for kind in self.random.choices(
                REQUESTS.get(self.world.book.server(server).vm_state, ("delete",))
            ):
                self.request(kind, server)
        elif choice < 0.85:
            self.restart(power_cut=self.random.random() < 0.5)
        elif choice < 0.9:
            self.world.book.offload_at_once(self.random.random() < 0.6)
        elif self.sent:
            self.waiting.append(self.random.choice(self.sent))
        while self.waiting and self.random.random() < 0.85:
            self.run(self.waiting.pop(self.random.randrange(len(self.waiting))))

    def run(self, work: Work) -> None:
        """In its lane, as the worker does."""
        killed: list[Killed] = []

        def job() -> None:
            self.working = True
            try:
                self.world.run(work, seconds=1.0)
            except Killed as error:
                self.history.append(f"killed at {error}")
                killed.append(error)
            finally:
                self.working = False

        key = Key(work.operation, work.attempt, work.node)
        self.world.jobs.submit(work.instance, job, key=key, seconds=30)
        assert self.world.jobs.drain(20), "a lane is stuck"
        if killed:
            self.restart(power_cut=False)

    def restart(self, *, power_cut: bool) -> None:
        if power_cut:
            for server, power_state in self.world.guests().items():
                if power_state == RUNNING:
                    self.world.hypervisor.power_off(NODE, server)
        self.world.start_worker()

    def look(self) -> None:
        """Keep what is wrong: a thread of the worker would only log it."""
        try:
            self.check()
        except AssertionError as error:
            self.wrong.append(f"{error} at {self.history[-12:]}")

    def check(self) -> None:
        """I1, I2: no CPU is held twice, and no guest runs without a claim."""
        claims = self.world.book.claims(NODE)
        pins = [
            cpu
            for claim in claims
            if claim.placement
            for cell in claim.placement.cells
            for cpu in cell.pins.values()
        ]
        assert len(pins) == len(set(pins)), "two claims have one CPU"
        assert set(self.world.guests()) <= {claim.instance for claim in claims}, "a guest without a claim"
        assert self.world.refused == [], "the hypervisor was asked for the impossible"

    def settle(self) -> None:
        """Calm: the sweeper and the audit do what they do; what is still open then is ended at its deadline."""
        self.calm = True
        for round_number in range(8):
            self.restart(power_cut=False)
            while self.waiting:
                self.run(self.waiting.pop())
            for server in self.servers:
                if self.world.book.server(server).open_kind is None:
                    continue
                if round_number > 4:
                    self.world.book.expire(self.last[server])
                else:
                    self.cast_again(server)
        self.world.reconcile()

    def assert_clean(self) -> None:
        """I5 of the model: nothing is open, nothing is left over, and who holds a place runs there."""
        assert self.wrong == []
        self.check()
        claims = self.world.book.claims(NODE)
        assert {claim.role for claim in claims} <= {"current"}
        homes = {claim.instance for claim in claims}
        assert set(self.world.guests()) == homes
        for server in self.servers:
            seen = self.world.book.server(server)
            assert seen.open_kind is None
            at_home = seen.vm_state in (states.ACTIVE, states.SHELVED)
            assert (server in homes) == at_home, (server, seen)
            if seen.vm_state == states.ACTIVE:
                assert self.world.guests()[server] == RUNNING
            elif seen.vm_state == states.SHELVED:
                assert self.world.guests()[server] == SHUTDOWN
            elif seen.vm_state == states.SHELVED_OFFLOADED:
                assert server not in homes
        self.assert_images()
        self.world.check()

    def assert_images(self) -> None:
        """I4: every shelved server has its image, and no image is left that nobody needs."""
        self.world.book.outbox()
        needed = {self.world.book.server(server).image for server in self.servers} - {None}
        there = {image.id for image in self.world.images.list()} - {"tiny"}
        for server in self.servers:
            seen = self.world.book.server(server)
            if seen.vm_state in (states.SHELVED, states.SHELVED_OFFLOADED):
                assert seen.image in there
                assert self.world.images.get(seen.image or "").status == "active"
        assert there <= needed, "an image that nobody needs"


def storm(folder: Path, seed: int, *, real: bool) -> None:
    world = World(
        folder,
        lambda world: RealBook(world.folder, world.images) if real else FakeBook(world.images),
        partition=NARROW,
    )
    try:
        weather = Storm(world, seed)
        for _ in range(30):
            weather.step()
        weather.settle()
        weather.assert_clean()
    except (AssertionError, ImageNotFound) as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    finally:
        world.stop.set()
        if isinstance(world.book, RealBook):
            world.book.close()
    assert HOST


@pytest.mark.parametrize("seed", range(SEEDS or 60))
def test_a_storm_over_the_fake_book_leaves_everything_clean(tmp_path: Path, seed: int) -> None:
    storm(tmp_path, seed, real=False)


@pytest.mark.parametrize("seed", range(SEEDS or 20))
def test_a_storm_over_the_real_conductor_leaves_everything_clean(tmp_path: Path, seed: int) -> None:
    storm(tmp_path, seed, real=True)

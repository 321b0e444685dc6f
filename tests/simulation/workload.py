"""Users: each asks an API for one thing after another, mostly for things that make sense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy.orm import Session

from pinfold.api.deps import Deps
from pinfold.db import moves, starts
from pinfold.db.models import Instance
from pinfold.db.moves import Size
from pinfold.db.operations import Requester
from pinfold.model import errors
from pinfold.model.request import demand_for
from pinfold.model.work import Bell
from pinfold.rpcapi.context import Context
from tests.simulation.invariants import InstanceRow
from tests.simulation.loop import Event
from tests.simulation.world import BASE_IMAGE, World

WHO = Requester("req-user", "project", "user")
PATIENCE = 20.0
MOST_SERVERS = 6

_SENSIBLE = {
    "active": ("shelve", "shelve", "shelve", "resize", "migrate", "delete"),
    "shelved": ("shelve_offload", "unshelve", "delete"),
    "shelved_offloaded": ("unshelve", "unshelve", "unshelve", "delete"),
    "resized": ("confirm", "revert", "delete"),
    "error": ("delete",),
    "building": ("delete", "none"),
}
_ANY = (
    "shelve",
    "shelve_offload",
    "unshelve",
    "resize",
    "migrate",
    "confirm",
    "revert",
    "delete",
    "force_delete",
)


def _size(name: str, vcpus: int, **extra: str) -> Size:
    specs = {f"hw:{key}": value for key, value in extra.items()}
    demand = demand_for(vcpus=vcpus, memory_mb=512, disk_gb=1, extra_specs=specs, image_properties={})
    return Size({"flavorid": name, "name": name, "vcpus": vcpus, "extra_specs": specs}, demand)


SIZES = (
    _size("p1", 1, cpu_policy="dedicated"),
    _size("p2", 2, cpu_policy="dedicated"),
    _size("p2-require", 2, cpu_policy="dedicated", cpu_thread_policy="require"),
    _size("p1-isolate", 1, cpu_policy="dedicated", cpu_thread_policy="isolate"),
    _size("p4", 4, cpu_policy="dedicated"),
    _size("s1", 1),
)


class Users:
    """``asked`` counts what was accepted; ``gone`` are servers whose delete was accepted."""

    def __init__(self, world: World, operations: int) -> None:
        self._world = world
        self._left = operations
        self.asked = 0
        self.gone: set[str] = set()
        self.busy = 0

    def start(self, count: int) -> None:
        """So many users begin."""
        self.busy = count
        for number in range(count):
            self._world.loop.spawn(self._world.outside, self._run, f"user{number + 1}")

    def _run(self) -> None:
        world = self._world
        random = world.loop.random
        while self._left > 0 and world.failure is None:
            self._left -= 1
            self._act()
            pause = random.choice((0.0, 0.0, 0.05, 0.5, 2.0, 6.0))
            world.loop.sleep(world.outside, pause * random.random())
        self.busy -= 1

    def _act(self) -> None:
        random = self._world.loop.random
        picture = self._world.picture
        servers = sorted(picture.instances.items()) if picture else []
        if len(servers) < random.randint(1, MOST_SERVERS):
            self.ask("create", "")
            return
        server, row = random.choice(servers)
        self.ask(self._sensible(row), server)

    def _sensible(self, row: InstanceRow) -> str:
        random = self._world.loop.random
        if random.random() < 0.1:
            return random.choice(_ANY)
        return random.choice(_SENSIBLE.get(row.vm_state, _ANY))

    def ask(self, kind: str, server: str) -> None:
        """One request, to any API, and wait for its answer for a while."""
        world = self._world
        if kind == "none":
            return
        ready = [place for place in world.apis if place.up]
        if not ready:
            world.loop.sleep(world.outside, 1.0)
            return
        api = world.loop.random.choice(ready)
        assert api.deps is not None
        assert api.process is not None
        deps, name = api.deps, api.process.name
        done = Event(world.loop, world.outside)

        def serve() -> None:
            world.history.add(name, "is asked: %s %s", kind, server)
            try:
                self._write(deps, kind, server)
            except errors.PinfoldError as error:
                world.history.add(name, "refuses: %s", error)
            done.set()

        world.loop.spawn(api.process, serve, f"request {kind}")
        done.wait(PATIENCE)

    def _write(self, deps: Deps, kind: str, server: str) -> None:
        bell = deps.book.write(self._writer(deps, kind, server))
        self.asked += 1
        if kind in ("delete", "force_delete"):
            self.gone.add(server)
        deps.ring(bell, Context("req-user"))

    def _writer(self, deps: Deps, kind: str, server: str) -> Callable[[Session], Bell]:
        operation, other = deps.runtime.new_id(), deps.runtime.new_id()
        size = self._world.loop.random.choice(SIZES)
        if kind == "create":
            return _create(deps, operation, other, size)
        shelved = {"image_id": other, "image_name": "shelved", "image_properties": {}}
        starters: dict[str, tuple[Callable[..., Bell], dict[str, Any]]] = {
            "shelve": (starts.shelve, shelved),
            "shelve_offload": (starts.shelve_offload, {}),
            "unshelve": (starts.unshelve, {}),
            "delete": (starts.delete, {}),
            "force_delete": (starts.delete, {"force": True}),
            "resize": (moves.resize, {"image_id": other, "size": size}),
            "migrate": (moves.migrate, {"image_id": other}),
            "confirm": (moves.confirm, {}),
            "revert": (moves.revert, {}),
        }
        start, more = starters[kind]
        return lambda session: start(session, server, WHO, deps.times, operation_id=operation, **more)


def _create(deps: Deps, operation: str, identity: str, size: Size) -> Callable[[Session], Bell]:
    def write(session: Session) -> Bell:
        instance = Instance(
            id=identity,
            project_id="project",
            user_id="user",
            name="s",
            hostname="s",
            reservation_id="r-1",
            vm_state="",
            image_ref=BASE_IMAGE,
            flavor=size.flavor,
            hints={},
            demand=size.demand,
        )
        return starts.create(session, [instance], WHO, deps.times, operation_ids=[operation])

    return write

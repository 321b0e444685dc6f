"""Users: each asks an API for one thing after another, mostly for things that make sense."""

from __future__ import annotations

from pinfold.model import errors
from pinfold.rpcapi.context import Context
from tests.simulation.invariants import InstanceRow
from tests.simulation.loop import Event, Process
from tests.simulation.requests import ANY, DELETES, SENSIBLE, Request
from tests.simulation.world import World

PATIENCE = 20.0
MOST_SERVERS = 6


class Answer:
    """What came of a request: ``over`` once its API has done with it, or has died."""

    def __init__(self, process: Process, done: Event) -> None:
        self.done = done
        self.accepted = False
        self._process = process

    @property
    def over(self) -> bool:
        """Whether it can have no effect any more that it has not had."""
        return self.done.is_set() or self._process.dead


def ask(world: World, kind: str, subject: str) -> Answer | None:
    """Send one request to any API; None when there is none."""
    ready = [place for place in world.apis if place.up]
    if not ready:
        return None
    api = world.loop.random.choice(ready)
    deps, process = api.deps, api.process
    assert deps is not None
    assert process is not None
    answer = Answer(process, Event(world.loop, world.outside))

    def serve() -> None:
        world.history.add(process.name, "is asked: %s %s", kind, subject)
        request = Request(deps, world.loop.random, kind, subject)
        try:
            bell = deps.book.write(request.write)
            answer.accepted = True
            deps.ring(bell, Context("req-user"))
        except errors.PinfoldError as error:
            world.history.add(process.name, "refuses: %s", error)
        answer.done.set()

    world.loop.spawn(process, serve, f"request {kind}")
    return answer


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
            self._act()
            pause = random.choice((0.0, 0.0, 0.05, 0.5, 2.0, 6.0))
            world.loop.sleep(world.outside, pause * random.random())
        self.busy -= 1

    def _act(self) -> None:
        random = self._world.loop.random
        picture = self._world.picture
        servers = sorted(picture.instances.items()) if picture else []
        if len(servers) < random.randint(1, MOST_SERVERS):
            self._left -= 1
            self._ask("create", "")
            return
        busy = {row.instance for row in picture.operations.values()} if picture else set()
        idle = [(server, row) for server, row in servers if server not in busy]
        hasty = random.random() < 0.15
        if not idle and not hasty:
            self._world.loop.sleep(self._world.outside, random.uniform(0.0, 3.0))
            return
        server, row = random.choice(servers if hasty else idle)
        self._left -= 1
        self._ask(self._sensible(row), server)

    def _sensible(self, row: InstanceRow) -> str:
        random = self._world.loop.random
        if random.random() < 0.1:
            return random.choice(ANY)
        return random.choice(SENSIBLE.get(row.vm_state, ANY))

    def _ask(self, kind: str, server: str) -> None:
        """One request, and wait for its answer for a while."""
        world = self._world
        if kind == "none":
            return
        answer = ask(world, kind, server)
        if answer is None:
            world.loop.sleep(world.outside, 1.0)
            return
        answer.done.wait(PATIENCE)
        self.asked += answer.accepted
        soft = kind == "delete" and world.times.keep_deleted > 0
        if kind in DELETES and answer.accepted and not soft:
            self.gone.add(server)

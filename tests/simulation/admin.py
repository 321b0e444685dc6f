"""The operator: says that a host is fenced when it has no power, evacuates its servers, and lifts that later.

The operator is truthful: a host gets its power back only once what was asked for it can have no late effect.
"""

from __future__ import annotations

from tests.simulation.workload import Answer, ask
from tests.simulation.world import Place, World


class Operator:
    """One for all hosts."""

    def __init__(self, world: World) -> None:
        self._world = world

    def begin(self, place: Place) -> None:
        """The host ``place`` has no power, and will not get it before this says so."""
        world = self._world
        place.fenced = True
        world.loop.spawn(world.outside, lambda: self._care(place), f"operator of {place.name}")

    def _care(self, place: Place) -> None:
        world = self._world
        forced = world.loop.random.random() < 0.7 and self._insist("force_down", place.name)
        world.loop.sleep(world.outside, world.loop.random.uniform(0.0, 15.0))
        self._evacuate(place)
        place.fenced = False
        while not place.up:
            world.loop.sleep(world.outside, 1.0)
        world.loop.sleep(world.outside, world.loop.random.uniform(0.0, 15.0))
        while forced and not self._insist("lift", place.name):
            world.loop.sleep(world.outside, 2.0)

    def _evacuate(self, place: Place) -> None:
        """Some of its servers."""
        world = self._world
        nodes = {machine.node for machine in place.machines}
        claims = world.picture.claims.values() if world.picture else ()
        servers = sorted(
            {claim.instance for claim in claims if claim.node in nodes and claim.role == "current"}
        )
        for server in servers:
            if world.loop.random.random() < 0.6:
                answer = ask(world, "evacuate", server)
                self._await_end(answer)

    def _insist(self, kind: str, host: str) -> bool:
        """Ask, and know what came of it."""
        answer = ask(self._world, kind, host)
        self._await_end(answer)
        return answer is not None and answer.accepted

    def _await_end(self, answer: Answer | None) -> None:
        world = self._world
        while answer is not None and not answer.over:
            world.loop.sleep(world.outside, 0.5)

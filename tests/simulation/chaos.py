"""The world's blows, and the supervisor that starts again what has died."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pinfold.virt.driver import RUNNING, SHUTDOWN
from tests.simulation.admin import Operator
from tests.simulation.loop import Process
from tests.simulation.world import Place, World


class Chaos:
    """Strikes now and then while the world's faults are on. ``mend`` makes good whatever can be made good."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._operator = Operator(world)
        self._blows: dict[str, Callable[[], None]] = {
            "kill": self._kill,
            "stop": self._stop,
            "pause": self._pause,
            "cut": self._cut,
            "power-off": self._power_off,
            "clock": self._clock,
            "broker-away": self._broker_away,
            "database-away": self._database_away,
            "image-lost": self._image_lost,
            "guest-off": self._guest_off,
        }

    def start(self) -> None:
        """Begin to strike, and to start again what has died."""
        world = self._world
        for place in world.places:
            world.loop.spawn(world.outside, partial(self._supervise, place), f"supervise {place.name}")
        world.loop.spawn(world.outside, self._strike, "chaos")

    def _sleep(self, seconds: float) -> None:
        self._world.loop.sleep(self._world.outside, seconds)

    def _supervise(self, place: Place) -> None:
        world = self._world
        while True:
            if place.process is None or place.process.dead:
                world.start(place)
            self._sleep(self._delay())

    def _delay(self) -> float:
        random = self._world.loop.random
        if not self._world.faults.on:
            return 1.0
        return random.choice((0.2, 1.0, 3.0, 25.0)) * random.random()

    def _strike(self) -> None:
        world = self._world
        pause = world.loop.random.uniform(2.0, 12.0)
        while True:
            self._sleep(world.loop.random.expovariate(1.0 / pause))
            if world.faults.on and world.faults.blows:
                blow = world.loop.random.choice(world.faults.blows)
                if blow in self._blows:
                    self._blows[blow]()
                    world.faults.note(blow)

    def _tell(self, what: str) -> None:
        self._world.history.add("world", f"!! {what}")

    def _later(self, low: float, high: float, act: Callable[[], None]) -> None:
        world = self._world
        world.loop.after(world.loop.random.uniform(low, high), act)

    def _some_process(self) -> Process | None:
        alive = [place.process for place in self._world.places if place.process and not place.process.dead]
        return self._world.loop.random.choice(alive) if alive else None

    # --- blows ---------------------------------------------------------------------------------

    def _kill(self) -> None:
        process = self._some_process()
        if process is not None:
            self._tell(f"kill -9 of {process}")
            self._world.loop.kill(process)

    def _stop(self) -> None:
        self._world.stop(self._world.loop.random.choice(self._world.places))

    def _pause(self) -> None:
        process = self._some_process()
        if process is None or process.paused:
            return
        self._tell(f"{process} is paused")
        self._world.loop.pause(process)
        self._later(0.5, 40.0, lambda: self._resume(process))

    def _resume(self, process: Process) -> None:
        if process.paused:
            self._tell(f"{process} goes on")
            self._world.loop.resume(process)

    def _cut(self) -> None:
        process = self._some_process()
        if process is None:
            return
        self._tell(f"{process} is cut off")
        self._world.broker.cut.add(process)
        self._later(0.5, 40.0, lambda: self._heal(process))

    def _heal(self, process: Process) -> None:
        broker = self._world.broker
        if process in broker.cut:
            self._tell(f"{process} is reached again")
            broker.cut.discard(process)
            broker.drain_all()

    def _power_off(self) -> None:
        place = self._world.loop.random.choice(self._world.workers)
        if not place.on:
            return
        self._tell(f"{place.name} has no power")
        place.on = False
        if place.process is not None:
            self._world.loop.kill(place.process)
        for machine in place.machines:
            machine.power_cut()
        if "fence" in self._world.faults.blows and not place.fenced:
            self._operator.begin(place)
        self._later(1.0, 60.0, lambda: self._power_on(place))

    def _power_on(self, place: Place) -> None:
        if place.fenced:
            self._later(1.0, 2.0, lambda: self._power_on(place))
        elif not place.on:
            self._tell(f"{place.name} has power again")
            place.on = True

    def _guest_off(self) -> None:
        """A user shuts a system down from inside."""
        running = [
            (machine, instance)
            for machine in self._world.machines
            for instance, guest in sorted(machine.guests.items())
            if guest.record.power_state == RUNNING
        ]
        if running:
            machine, instance = self._world.loop.random.choice(running)
            self._tell(f"the system of {instance} on {machine.node} shuts itself down")
            machine.guests[instance].turn(SHUTDOWN)
            self._world.changed()

    def _clock(self) -> None:
        random = self._world.loop.random
        seconds = random.choice((random.uniform(-15.0, 15.0), random.uniform(0.0, 90.0)))
        self._tell(f"the clock of the database is stepped by {seconds:.1f} s")
        self._world.clock_offset += seconds

    def _broker_away(self) -> None:
        self._tell("the broker is away")
        self._world.broker.away = True
        self._later(0.5, 20.0, self._broker_back)

    def _broker_back(self) -> None:
        if self._world.broker.away:
            self._tell("the broker is back")
            self._world.broker.away = False
            self._world.broker.drain_all()

    def _database_away(self) -> None:
        self._tell("the database is away")
        self._world.faults.database_away = True
        self._later(0.5, 15.0, self._database_back)

    def _database_back(self) -> None:
        if self._world.faults.database_away:
            self._tell("the database is back")
            self._world.faults.database_away = False

    def _image_lost(self) -> None:
        world = self._world
        picture = world.picture
        images = (
            sorted(row.shelved_image for row in picture.instances.values() if row.shelved_image)
            if picture
            else []
        )
        if images and world.loop.random.random() < 0.3:
            image = world.loop.random.choice(images)
            self._tell(f"somebody deletes image {image}")
            world.invariants.lost_on_purpose.add(image)
            world.images.records.pop(image, None)
            world.images.data.pop(image, None)

    def mend(self) -> None:
        """All faults end."""
        world = self._world
        self._tell("all faults end")
        world.faults.on = False
        self._broker_back()
        self._database_back()
        for process in world.processes:
            self._resume(process)
            self._heal(process)
        for place in world.workers:
            self._power_on(place)

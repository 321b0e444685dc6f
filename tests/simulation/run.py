"""One seed, from its first request until everything has settled."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence

import msgspec

from tests.simulation import faults, logs
from tests.simulation.book import Database
from tests.simulation.chaos import Chaos
from tests.simulation.invariants import Violation
from tests.simulation.loop import Runaway
from tests.simulation.workload import Users
from tests.simulation.world import World

#: Virtual seconds after the last fault within which everything must have settled.
SETTLES_WITHIN = 500.0


class Result(msgspec.Struct, frozen=True):
    """What came of one seed. ``ended`` counts operations by kind and result; ``failure`` is None when all was well;
    ``digest`` is equal for equal histories, where they are kept."""

    seed: int
    operations: int
    seconds: float
    steps: int
    faults: dict[str, int]
    ended: dict[str, int]
    failure: str | None
    digest: str
    history: tuple[str, ...] = ()


class Options(msgspec.Struct, frozen=True):
    """``operations``: requests of ``users`` (None: a few, by the seed); ``kinds``: of faults; ``logs``: the history
    has what the product logs."""

    operations: int = 50
    users: int | None = None
    kinds: tuple[str, ...] = faults.KINDS
    keep_history: bool = False
    logs: bool = False


def run_seed(seed: int, database: Database, options: Options = Options()) -> Result:
    """Run it. Equal arguments give equal results."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        world = World(seed, database, folder, options.kinds)
        with logs.watched(world, all_levels=options.logs):
            try:
                users = _play(world, options)
            finally:
                world.loop.end(world.processes)
    return _result(seed, world, users, options)


def _play(world: World, options: Options) -> Users:
    users = Users(world, options.operations)
    chaos = Chaos(world)
    try:
        chaos.start()
        world.loop.run(lambda: all(place.up for place in world.places))
        world.faults.on = True
        users.start(options.users or world.loop.random.randint(1, 4))
        world.loop.run(lambda: users.busy == 0)
        chaos.mend()
        _settle(world, users)
    except Runaway as runaway:
        world.fail(runaway)
    return users


def _settle(world: World, users: Users) -> None:
    """Time goes on, without faults, until nothing is left to do."""
    until = world.loop.now + SETTLES_WITHIN
    left = ["nobody has looked"]
    while left and world.loop.now < until and world.failure is None:
        _pass(world, 3.0)
        left = _left(world, users)
    if left:
        world.fail(Violation("it does not settle: " + "; ".join(left)))


def _pass(world: World, seconds: float) -> None:
    until = world.loop.now + seconds
    world.loop.after(seconds, lambda: None)
    world.loop.run(lambda: world.loop.now >= until)


def _left(world: World, users: Users) -> list[str]:
    world.loop.atomic = True
    try:
        left = world.unsettled()
    finally:
        world.loop.atomic = False
    alive = world.picture.instances if world.picture else {}
    return left + [
        f"server {server} was deleted and is there" for server in sorted(users.gone & alive.keys())
    ]


def _result(seed: int, world: World, users: Users, options: Options) -> Result:
    keep = options.keep_history or world.failure is not None
    lines = tuple(world.history.table()) if keep else ()
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return Result(
        seed=seed,
        operations=users.asked,
        seconds=world.loop.now,
        steps=world.loop.steps,
        faults=dict(sorted(world.faults.count.items())),
        ended=_ended(world),
        failure=None if world.failure is None else world.history.readable(str(world.failure)),
        digest=digest[:16],
        history=lines,
    )


def _ended(world: World) -> dict[str, int]:
    rows = world.database.raw.execute(
        "SELECT kind || ' ' || coalesce(result, 'open'), count(*) FROM operations GROUP BY 1 ORDER BY 1"
    )
    return dict(rows.fetchall())


def kinds_of(text: str | None) -> Sequence[str]:
    """``text``: names with commas; ``none``; ``-name`` leaves one out. Raises ValueError for others."""
    if not text:
        return faults.KINDS
    if text == "none":
        return ()
    names = text.split(",")
    for name in names:
        if name.lstrip("-") not in faults.KINDS and name not in faults.KINDS:
            raise ValueError(f"there are no faults {name!r}; there are {', '.join(faults.KINDS)}")
    out = {name[1:] for name in names if name.startswith("-")}
    kept = [name for name in names if not name.startswith("-")] or [*faults.KINDS]
    return [name for name in kept if name not in out]

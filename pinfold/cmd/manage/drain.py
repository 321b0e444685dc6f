"""pinfold-manage host drain: everything is moved off a host, by the moves that the API has.

The host takes no more servers from then on. Each round looks at the book anew and opens what can be opened, so it can
be stopped and started again at any time; conductors carry the moves out. It ends with what is left, and why.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator

import msgspec
import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.cmd.manage.shared import Shell, as_json
from pinfold.conductor.scheduler import Scheduler
from pinfold.conductor.wishes import wish_for
from pinfold.conf import operations as conf_operations
from pinfold.db import claims, hosts, moves, operations, schema, starts
from pinfold.db.models import Claim, Instance, Node, Operation
from pinfold.db.session import Book
from pinfold.model import errors, placement, states
from pinfold.model import host as model_host
from pinfold.model.host import ClaimView
from pinfold.model.placement import Candidate
from pinfold.model.ranking import Ranking
from pinfold.model.request import Demand
from pinfold.model.work import Bell, Times
from pinfold.runtime import Runtime

_PAUSE = 0.5
_ASKS = "pinfold-manage"
"""The user of its moves: what it knows them by."""
_MOVES = ("migrate", "live_migrate", "evacuate")
_UNDER_WAY = "is being moved"
_NEEDS = {
    states.SUSPENDED: "is suspended: its owner may resume or shelve it, and then it can be moved",
    states.ERROR: "is in error: reset its state, rebuild or delete it",
    states.SOFT_DELETED: "is deleted, and kept for a while: restore it, force its deletion, or wait for that",
}
_NEEDS_ITS_HOST = {
    states.PAUSED: "is paused, and its host is down: reset its state to error, and it can be evacuated",
    states.SUSPENDED: "is suspended, and its host is down: reset its state to error, and it can be evacuated",
    states.SHELVED: "is shelved, and its host is down: it can be offloaded once that is back, or deleted",
}
_RESIZED = {
    claims.CURRENT: "waits for its owner to confirm or revert a move: confirmed, it can move; reverted, it is gone",
    claims.OUTGOING: "waits for its owner to confirm or revert a move: confirmed, it has no place here any more",
}


class Task(msgspec.Struct, frozen=True):
    """A server with a claim on the host: what ``move`` would take it off, or ``why`` none does.

    A plan also says the node that it would go to as things are, ``target``, and its host.
    """

    server: str
    name: str
    state: str
    role: str
    move: str | None = None
    why: str | None = None
    target: str | None = None
    target_host: str | None = None


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``host drain``."""
    group = commands.add_parser("host", help="hosts and what is on them").add_subparsers(
        dest="command", required=True
    )
    drain = group.add_parser("drain", help="move everything off a host; 1 if something is left")
    drain.add_argument("host", metavar="HOST")
    drain.add_argument("--plan", action="store_true", help="show the moves, and change nothing")
    drain.add_argument("--parallel", type=int, default=2, metavar="N", help="moves at once (2)")
    drain.add_argument(
        "--live", action="store_true", help="move servers that run live, not by a cold migration"
    )
    drain.add_argument("--json", action="store_true")
    drain.set_defaults(run=_run)


def _run(shell: Shell, arguments: argparse.Namespace) -> int:
    schema.require(shell.book.engine)
    drain = Drain(
        shell.book, shell.runtime, arguments.host, conf_operations.times(shell.conf), live=arguments.live
    )
    if arguments.parallel < 1:
        raise errors.InvalidRequest("--parallel must be at least 1.")
    drain.check()
    if not arguments.plan:
        drain.close()
        drain.work(arguments.parallel)
    left = drain.plan(shell.conf.default_availability_zone) if arguments.plan else drain.tasks()
    if arguments.json:
        print(as_json([msgspec.to_builtins(task) for task in left]))
    else:
        print("\n".join(_lines(arguments.host, left, plan=arguments.plan)))
    return 1 if left and not arguments.plan else 0


def _lines(host: str, tasks: list[Task], *, plan: bool) -> Iterator[str]:
    if not tasks:
        yield f"Nothing is left on host {host}."
    for task in tasks:
        what = task.why or f"needs {task.move}"
        if plan and task.move and task.why is None:
            where = f" to node {task.target} of host {task.target_host}" if task.target else ""
            what = f"would be moved off by {task.move}{where}"
        yield f"{task.server}  {task.state:<18} {task.role:<9} {what}  ({task.name})"


def _with(candidate: Candidate, server: str, demand: Demand) -> Candidate:
    """The node with one more server on it."""
    place = model_host.place(candidate.report, candidate.usage, demand)
    if place is None:
        raise errors.AccountingError(
            f"Node {candidate.node} was chosen and has no place for server {server}."
        )
    claim = ClaimView(
        id=server,
        instance=server,
        role=claims.INCOMING,
        memory_mb=demand.memory_mb,
        disk_gb=demand.disk_gb,
        shared_vcpus=demand.shared_vcpus,
        placement=place.placement,
    )
    usage = model_host.add(candidate.report, candidate.usage, claim)
    return msgspec.structs.replace(candidate, usage=usage)


class Drain:
    """The host that is drained. Its moves are told apart by who asks. ``live``: what runs goes on running."""

    def __init__(self, book: Book, runtime: Runtime, host: str, times: Times, *, live: bool = False) -> None:
        self._book, self._runtime = book, runtime
        self._host = host
        self._times = times
        self._live = live
        self._failed: dict[str, str] = {}
        self._since = float("inf")

    def check(self) -> None:
        """Raises errors.NotFound for a host that is not there."""
        if self._book.read(lambda session: hosts.worker(session, self._host)) is None:
            raise errors.NotFound(f"There is no compute host {self._host}.")

    def close(self) -> None:
        """The host takes no more servers, until an operator enables its service again."""

        def write(session: Session) -> None:
            service = hosts.worker(session, self._host, lock=True)
            if service is not None and not service.disabled:
                service.disabled, service.disabled_reason = True, "drained by pinfold-manage"

        self._book.write(write)

    def work(self, parallel: int) -> None:
        """Open moves, at most so many at once, until nothing is under way and nothing more can be opened."""
        self._since = self._book.read(operations.now)
        while True:
            tasks = self.tasks()
            room = parallel - sum(task.why == _UNDER_WAY for task in tasks)
            waiting = [task for task in tasks if task.move is not None]
            opened = sum(self._open(task) for task in waiting[: max(0, room)])
            if not opened and room == parallel and not waiting:
                return
            self._runtime.sleep(_PAUSE)

    def _open(self, task: Task) -> bool:
        requester = operations.Requester(f"req-{self._runtime.new_id()}", "admin", _ASKS)
        start = self._start(task)
        try:
            self._book.write(lambda session: start(session, requester))
        except errors.PinfoldError as error:
            self._failed[task.server] = error.message
            return False
        print(f"{task.move} of server {task.server} ({task.name})", file=sys.stderr)
        return True

    def _start(self, task: Task) -> Callable[[Session, operations.Requester], Bell]:
        new_id = self._runtime.new_id
        operation, image, server, times = new_id(), new_id(), task.server, self._times
        if task.move == "migrate":
            return lambda session, who: moves.migrate(
                session, server, who, times, operation_id=operation, image_id=image
            )
        if task.move == "live_migrate":
            return lambda session, who: moves.live_migrate(
                session, server, who, times, operation_id=operation
            )
        if task.move == "evacuate":
            return lambda session, who: moves.evacuate(session, server, who, times, operation_id=operation)
        start = moves.confirm if task.move == "confirm_resize" else starts.shelve_offload
        return lambda session, who: start(session, server, who, times, operation_id=operation)

    def tasks(self) -> list[Task]:
        """What is on the host now, and what to do about it."""
        return self._book.read(self._tasks)

    def plan(self, default_zone: str) -> list[Task]:
        """The same with the node that each would go to, one after another, as things are now; nothing is changed."""
        scheduler = Scheduler(self._runtime, self._times.service_down, default_zone)

        def read(session: Session) -> list[Task]:
            free = scheduler.ranking(session)
            return [self._planned(session, task, free) for task in self._tasks(session)]

        return self._book.read(read)

    def _planned(self, session: Session, task: Task, free: Ranking) -> Task:
        """Where it would go; from then on that place is taken in ``free``."""
        instance = session.get(Instance, task.server)
        if task.move not in _MOVES or instance is None:
            return task
        asked = Operation(kind=task.move, arguments={})
        wish = wish_for(session, asked, instance)
        chosen = free.choose(instance.demand, wish, self._runtime.random(), 1)
        if not chosen:
            why = placement.sentence(placement.explain(free, instance.demand, wish))
            return msgspec.structs.replace(task, why=f"could not be moved: {why}")
        (there,) = chosen
        free.put(_with(there, task.server, instance.demand))
        return msgspec.structs.replace(task, target=there.node, target_host=there.host)

    def _tasks(self, session: Session) -> list[Task]:
        up = hosts.host_is_up(session, self._host, self._times.service_down)
        rows = session.execute(
            sa.select(Instance, Claim.role, Operation)
            .join(Claim, Claim.instance_id == Instance.id)
            .join(Node, Node.id == Claim.node_id)
            .outerjoin(Operation, Operation.open_key == Instance.id)
            .where(Node.host == self._host)
            .order_by(Instance.created_at, Instance.id, Claim.created_at)
        )
        return [self._task(session, instance, role, opened, up=up) for instance, role, opened in rows]

    def _task(
        self, session: Session, instance: Instance, role: str, opened: Operation | None, *, up: bool
    ) -> Task:
        move, why = self._move(session, instance, role, opened, up=up)
        return Task(instance.id, instance.name, instance.vm_state, role, move, why)

    def _move(
        self, session: Session, instance: Instance, role: str, opened: Operation | None, *, up: bool
    ) -> tuple[str | None, str | None]:
        """The move that takes it off, or why there is none."""
        if opened is not None:
            if opened.user_id == _ASKS:
                return None, _UNDER_WAY
            return None, (
                f"its operation {opened.kind}, asked for by user {opened.user_id} of project {opened.project_id}, is "
                "under way: wait for its end"
            )
        if role == claims.LEFTOVER:
            return None, "is left over: it goes by itself once the worker of the host is back"
        if instance.id in self._failed:
            return None, f"could not be moved: {self._failed[instance.id]}"
        if (
            instance.vm_state == states.RESIZED
            and role == claims.OUTGOING
            and self._moved_by_us(session, instance)
        ):
            return "confirm_resize", None
        return self._by_state(session, instance, role, up=up)

    def _by_state(
        self, session: Session, instance: Instance, role: str, *, up: bool
    ) -> tuple[str | None, str | None]:
        state = instance.vm_state
        if why := self._failed_before(session, instance):
            return None, why
        if not up:
            if state in (states.ACTIVE, states.STOPPED, states.ERROR):
                return "evacuate", None
        elif state in (states.ACTIVE, states.STOPPED):
            return ("live_migrate" if self._live and state == states.ACTIVE else "migrate"), None
        elif state == states.PAUSED:
            return "live_migrate", None
        elif state == states.SHELVED:
            return "shelve_offload", None
        why = _RESIZED.get(role) if state == states.RESIZED else None if up else _NEEDS_ITS_HOST.get(state)
        return None, why or _NEEDS.get(state, f"is {state}, and nothing moves it now")

    def _moved_by_us(self, session: Session, instance: Instance) -> bool:
        moved = session.get(Operation, (instance.moved_from or {}).get("operation", ""))
        return moved is not None and moved.user_id == _ASKS

    def _failed_before(self, session: Session, instance: Instance) -> str | None:
        """Why our last try failed, in this run. (A new run tries again: what was in the way may be gone.)"""
        last = session.scalar(
            sa.select(Operation)
            .where(Operation.instance_id == instance.id, Operation.user_id == _ASKS)
            .order_by(Operation.created_at.desc())
            .limit(1)
        )
        if last is None or last.result != operations.FAILED or last.created_at < self._since:
            return None
        return f"could not be moved: {last.error}"

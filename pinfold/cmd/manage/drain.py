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
from pinfold.conf import operations as conf_operations
from pinfold.db import claims, hosts, moves, operations, schema, starts
from pinfold.db.models import Claim, Instance, Node, Operation
from pinfold.db.session import Book
from pinfold.model import errors, states
from pinfold.model.work import Bell, Times
from pinfold.runtime import Runtime

_PAUSE = 0.5
_NEEDS = {
    states.PAUSED: "is paused: unpause, stop or shelve it first",
    states.SUSPENDED: "is suspended: resume or shelve it first",
    states.RESIZED: "waits for its owner to confirm or revert a move: that frees its place here",
    states.ERROR: "is in error: reset its state, rebuild or delete it first",
}


_UNDER_WAY = "is being moved"


class Task(msgspec.Struct, frozen=True):
    """A server with a claim on the host: what ``move`` would take it off, or ``why`` none does."""

    server: str
    name: str
    state: str
    role: str
    move: str | None = None
    why: str | None = None


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``host drain``."""
    group = commands.add_parser("host", help="hosts and what is on them").add_subparsers(
        dest="command", required=True
    )
    drain = group.add_parser("drain", help="move everything off a host; 1 if something is left")
    drain.add_argument("host", metavar="HOST")
    drain.add_argument("--plan", action="store_true", help="show the moves, and change nothing")
    drain.add_argument("--parallel", type=int, default=2, metavar="N", help="moves at once (2)")
    drain.add_argument("--json", action="store_true")
    drain.set_defaults(run=_run)


def _run(shell: Shell, arguments: argparse.Namespace) -> int:
    schema.require(shell.book.engine)
    drain = Drain(shell.book, shell.runtime, arguments.host, conf_operations.times(shell.conf))
    if arguments.parallel < 1:
        raise errors.InvalidRequest("--parallel must be at least 1.")
    drain.check()
    if not arguments.plan:
        drain.close()
        drain.work(arguments.parallel)
    left = drain.tasks()
    if arguments.json:
        print(as_json([msgspec.to_builtins(task) for task in left]))
    else:
        print("\n".join(_lines(arguments.host, left, plan=arguments.plan)))
    return 1 if left and not arguments.plan else 0


def _lines(host: str, tasks: list[Task], *, plan: bool) -> Iterator[str]:
    if not tasks:
        yield f"Nothing is left on host {host}."
    for task in tasks:
        what = (
            f"would be moved off by {task.move}" if task.move and plan else task.why or f"needs {task.move}"
        )
        yield f"{task.server}  {task.state:<18} {task.role:<9} {what}  ({task.name})"


class Drain:
    """The host that is drained. Its moves are told apart by their request."""

    def __init__(self, book: Book, runtime: Runtime, host: str, times: Times) -> None:
        self._book, self._runtime = book, runtime
        self._host = host
        self._times = times
        self._request = f"req-drain-{host}"[:64]
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
        requester = operations.Requester(self._request, "admin", "pinfold-manage")
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
        if task.move == "evacuate":
            return lambda session, who: moves.evacuate(session, server, who, times, operation_id=operation)
        start = moves.confirm if task.move == "confirm_resize" else starts.shelve_offload
        return lambda session, who: start(session, server, who, times, operation_id=operation)

    def tasks(self) -> list[Task]:
        """What is on the host now, and what to do about it."""
        return self._book.read(self._tasks)

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
            mine = opened.request_id == self._request
            return None, _UNDER_WAY if mine else f"its operation {opened.kind} is under way: wait for its end"
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
        return self._by_state(session, instance, up=up)

    def _by_state(self, session: Session, instance: Instance, *, up: bool) -> tuple[str | None, str | None]:
        state = instance.vm_state
        if why := self._failed_before(session, instance):
            return None, why
        if state in (states.ACTIVE, states.STOPPED):
            return ("migrate" if up else "evacuate"), None
        if state == states.ERROR and not up:
            return "evacuate", None
        if state == states.SHELVED and up:
            return "shelve_offload", None
        return None, _NEEDS.get(state, f"is {state}, and nothing moves it now")

    def _moved_by_us(self, session: Session, instance: Instance) -> bool:
        moved = session.get(Operation, (instance.moved_from or {}).get("operation", ""))
        return moved is not None and moved.request_id == self._request

    def _failed_before(self, session: Session, instance: Instance) -> str | None:
        """Why our last try failed, in this run. (A new run tries again: what was in the way may be gone.)"""
        last = session.scalar(
            sa.select(Operation)
            .where(Operation.instance_id == instance.id, Operation.request_id == self._request)
            .order_by(Operation.created_at.desc())
            .limit(1)
        )
        if last is None or last.result != operations.FAILED or last.created_at < self._since:
            return None
        return f"could not be moved: {last.error}"

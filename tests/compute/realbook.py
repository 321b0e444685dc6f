"""The real conductor on SQLite, as the worker's tests want it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa

from pinfold.compute.calls import Conductor
from pinfold.conductor.settings import Settings
from pinfold.db.models import Instance, Node, Operation, Service
from pinfold.image.files import FileStore
from pinfold.model import errors
from pinfold.model.host import ClaimView, NodeView
from pinfold.model.request import Demand
from pinfold.model.work import Work
from pinfold.rpcapi import messages
from pinfold.rpcapi.context import Context
from pinfold.rpcapi.messages import from_wire
from tests.books import new_book, sqlite_url
from tests.compute.books import SERVER_IMAGE, Server
from tests.conductor.box import Box

T = TypeVar("T")


class BoxConductor:
    """The conductor in a box, as a worker calls it."""

    def __init__(self, box: Box) -> None:
        self._box = box

    def with_context(self, context: Context) -> Conductor:
        return self

    def register(self, record: messages.Register) -> messages.Registered:
        return self._box.call("register", record, messages.Registered)

    def heartbeat(self, record: messages.Heartbeat) -> messages.Heard:
        return self._box.call("heartbeat", record, messages.Heard)

    def begin(self, record: messages.Begin) -> messages.Begun:
        return self._box.call("begin", record, messages.Begun)

    def claim(self, record: messages.Claim) -> messages.Claimed:
        return self._box.call("claim", record, messages.Claimed)

    def finish(self, record: messages.Finish) -> messages.Finished:
        return self._box.call("finish", record, messages.Finished)

    def abort(self, record: messages.Abort) -> messages.Aborted:
        return self._box.call("abort", record, messages.Aborted)

    def release(self, record: messages.Release) -> messages.Released:
        return self._box.call("release", record, messages.Released)

    def guest(self, record: messages.GuestRequest) -> messages.GuestView:
        return self._box.call("guest", record, messages.GuestView)

    def guests(self, record: messages.GuestsRequest) -> messages.Guests:
        return self._box.call("guests", record, messages.Guests)

    def power_seen(self, record: messages.PowerSeen) -> None:
        self._box.call("power_seen", record, type(None))

    def refit(self, record: messages.Refit) -> messages.Refitted:
        return self._box.call("refit", record, messages.Refitted)

    def node_view(self, node: str, host: str) -> NodeView:
        return from_wire(self._box.manager.node_view(Context("req-test"), node=node, host=host), NodeView)

    def answer(self, record: messages.Answer) -> None:
        self._box.call("answer", record, type(None))


class RealBook:
    """One conductor and a book of its own in ``folder``."""

    def __init__(self, folder: Path, images: FileStore) -> None:
        self._book = new_book(sqlite_url(folder))
        self._box = Box(self._book, images, Settings(host="conductor-1", max_attempts=1))
        self._conductor = BoxConductor(self._box)

    @property
    def conductor(self) -> Conductor:
        return self._conductor

    def create(self, demand: Demand) -> Work:
        self._box.ask_create(demand)
        return self._box.last

    def ask(self, kind: str, server: str) -> Work:
        if kind == "soft_delete":
            self._box.ask("delete", server, soft=True)
        else:
            self._box.ask("unshelve" if kind == "unshelve_in_place" else kind, server)
        return self._box.last

    def rebuild(self, server: str, demand: Demand | None = None, image: str = SERVER_IMAGE) -> Work:
        self._box.ask_rebuild(server, demand, image)
        return self._box.last

    def offload_at_once(self, at_once: bool) -> None:
        settings: Any = msgspec.structs.replace(self._box.settings, shelved_offload_time=0 if at_once else -1)
        self._box.settings = settings
        self._box.runner._settings = settings
        self._box.manager._settings = settings

    def again(self, work: Work) -> Work:
        self._box.age(work.instance)
        self._box.sweeper.operations()
        if self._box.last.operation != work.operation or self._box.last.attempt <= work.attempt:
            raise errors.Conflict("The operation has ended.")
        return self._box.last

    def expire(self, work: Work) -> None:
        self._box.age(work.instance, deadline=True)
        self._box.sweeper.operations()

    def opened(self) -> Work | None:
        work = self._box.compute.work
        if not work or self.server(work[-1].instance).open_kind != work[-1].kind:
            return None
        return work[-1]

    def set_state(self, server: str, vm_state: str) -> None:
        self._write(sa.update(Instance).where(Instance.id == server).values(vm_state=vm_state))

    def force_down(self, host: str) -> None:
        self._write(sa.update(Service).where(Service.host == host).values(forced_down=True))

    def leave(self, server: str) -> None:
        self._box.die("host-1")
        self._box.ask("delete", server)

    def delete_locally(self, server: str) -> None:
        casts = len(self._box.compute.work)
        self._box.ask("delete", server)
        assert len(self._box.compute.work) == casts

    def move_on(self, node: str) -> None:
        moved = Node.generation + 1
        self._write(
            sa.update(Node)
            .where(Node.name == node)
            .ordered_values((Node.taken_at, moved), (Node.generation, moved))
        )

    def _write(self, statement: Any) -> None:
        self._book.write(lambda session: session.execute(statement))

    def server(self, server: str) -> Server:
        row = self._box.server(server)
        kind = self._book.read(
            lambda session: session.scalar(sa.select(Operation.kind).where(Operation.open_key == server))
        )
        fault = row.fault["message"] if row.fault else None
        return Server(row.vm_state, kind, fault, row.shelved_image)

    def claims(self, node: str) -> tuple[ClaimView, ...]:
        return self._box.view(node).claims

    def outbox(self) -> None:
        self._box.sweeper.outbox()

    def close(self) -> None:
        """Let go of the database."""
        self._box.check()
        self._book.engine.dispose()

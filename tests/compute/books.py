"""What a worker's tests need of a book and its conductor, and the in-memory one.

``BookOfTests`` is kept by ``FakeBook`` here and by the real conductor on SQLite in ``realbook``: what is asked of a
worker is asked with both.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Protocol

import msgspec

from pinfold.compute.calls import Conductor
from pinfold.model import errors, host, states
from pinfold.model.host import ClaimView, NodeReport, NodeView
from pinfold.model.request import Demand, demand_for
from pinfold.model.work import Work
from pinfold.rpcapi import messages
from pinfold.rpcapi.context import Context
from pinfold.runtime import RealRuntime

SERVER_IMAGE = "tiny"


def pinned(vcpus: int, memory_mb: int = 512) -> Demand:
    """A demand for dedicated CPUs."""
    extra_specs = {"hw:cpu_policy": "dedicated"}
    return demand_for(
        vcpus=vcpus, memory_mb=memory_mb, disk_gb=1, extra_specs=extra_specs, image_properties={}
    )


def floating(vcpus: int) -> Demand:
    """A demand for shared CPUs, without a NUMA topology."""
    return demand_for(vcpus=vcpus, memory_mb=512, disk_gb=1, extra_specs={}, image_properties={})


class Server(msgspec.Struct, frozen=True):
    """What an API would show of a server; ``image`` is the shelved one."""

    vm_state: str
    open_kind: str | None
    fault: str | None
    image: str | None


class BookOfTests(Protocol):
    """A conductor, and what API, sweeper and operator do to it."""

    @property
    def conductor(self) -> Conductor:
        """Where a worker calls."""

    def create(self, demand: Demand) -> Work: ...
    def ask(self, kind: str, server: str) -> Work:
        """Open an operation of a server, superseding what a delete may; what is cast to its worker."""

    def offload_at_once(self, at_once: bool) -> None:
        """Whether a shelve goes on to destroy the guest (it does by default)."""

    def again(self, work: Work) -> Work:
        """The lease has run out: the sweeper casts anew. Raises errors.Conflict when it ended the operation."""

    def expire(self, work: Work) -> None:
        """The operation's time is over: the sweeper ends it."""

    def set_state(self, server: str, vm_state: str) -> None:
        """As a stop, pause or suspend would."""

    def force_down(self, host: str) -> None: ...
    def leave(self, server: str) -> None:
        """Delete a server whose worker looks dead: its claims become leftovers."""

    def delete_locally(self, server: str) -> None:
        """Delete a server without a claim: no worker hears of it."""

    def move_on(self, node: str) -> None:
        """Raise the node's generation, as a conductor does without telling."""

    def server(self, server: str) -> Server: ...
    def claims(self, node: str) -> tuple[ClaimView, ...]: ...
    def outbox(self) -> None:
        """Do what is to be done outside the book."""


class _Operation:
    def __init__(self, key: str, kind: str, server: str, host: str, node: str) -> None:
        self.id = key
        self.kind = kind
        self.server = server
        self.host = host
        self.node = node
        self.attempt = 1
        self.step: str | None = None
        self.open = True
        self.failed = False
        self.finished: tuple[int, messages.Finished] | None = None
        self.snapshot: str | None = None
        self.offload = False

    @property
    def recorded(self) -> bool:
        steps = states.KINDS[self.kind].steps
        names = [step.name for step in steps]
        return self.step in names and steps[names.index(self.step)].forward


class _Instance:
    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self.vm_state = states.BUILDING
        self.fault: str | None = None
        self.image: str | None = None


class FakeBook:
    """One host's nodes, in memory. Every method is one transaction."""

    def __init__(self, delete_image: Callable[[str], None], host_name: str = "host-1") -> None:
        self._host = host_name
        self._delete_image = delete_image
        self._lock = RealRuntime().lock()
        self._ids = itertools.count(1)
        self._reports: dict[str, NodeReport] = {}
        self._generations: dict[str, int] = {}
        self._claims: dict[str, tuple[str, ClaimView]] = {}
        self._instances: dict[str, _Instance] = {}
        self._operations: dict[str, _Operation] = {}
        self._incarnation = ""
        self._host_id = ""
        self._forced_down = False
        self._at_once = True
        self._doomed: list[str] = []
        self.answers: list[messages.Answer] = []
        self.beats: list[messages.Heartbeat] = []

    @property
    def conductor(self) -> Conductor:
        return self

    def with_context(self, context: Context) -> Conductor:
        return self

    # --- the worker's calls ----------------------------------------------------------------------

    def register(self, record: messages.Register) -> messages.Registered:
        with self._lock:
            if self._host_id not in ("", record.host_id):
                return messages.Registered(refused=f"The host name {record.host} belongs to another machine.")
            self._host_id, self._incarnation = record.host_id, record.incarnation
            for report in record.nodes:
                self._reports[report.name] = report
                self._generations.setdefault(report.name, 0)
            return messages.Registered(nodes=tuple(self._view(report.name) for report in record.nodes))

    def heartbeat(self, record: messages.Heartbeat) -> messages.Heard:
        with self._lock:
            if record.incarnation != self._incarnation:
                return messages.Heard(superseded=True)
            self.beats.append(record)
            known = {key for key, attempt in record.operations if self._is_open(key, attempt)}
            return messages.Heard(refused=tuple(key for key, _ in record.operations if key not in known))

    def begin(self, record: messages.Begin) -> messages.Begun:
        with self._lock:
            operation = self._operations.get(record.operation)
            if operation is None or not self._is_open(operation.id, record.attempt):
                return messages.Begun(False, undo=operation is not None and self._ended_unrecorded(operation))
            operation.step = record.step
            if record.step == "record":
                self._record(operation)
            return messages.Begun(True, offload=operation.offload)

    def _record(self, operation: _Operation) -> None:
        instance = self._instances[operation.server]
        if instance.vm_state != states.SHELVED:
            instance.vm_state = states.after("shelve", instance.vm_state, states.RECORDED)
            instance.image = operation.snapshot
            operation.offload = self._at_once

    def claim(self, record: messages.Claim) -> messages.Claimed:
        with self._lock:
            operation = self._operations.get(record.operation)
            if operation is None or not self._is_open(operation.id, record.attempt):
                return messages.Claimed("refused")
            operation.step = "claim"
            held = self._held(operation.server)
            if not held:
                if record.generation != self._generations[record.node]:
                    return messages.Claimed("stale", view=self._view(record.node))
                return self._take(operation, record)
            node, claim = held[0]
            if len(held) > 1 or node != record.node or claim.operation != operation.id:
                return messages.Claimed("refused")
            return messages.Claimed("accepted", claim.id, self._generations[node], claim.placement)

    def _take(self, operation: _Operation, record: messages.Claim) -> messages.Claimed:
        claim = ClaimView(
            record.claim,
            operation.server,
            "incoming",
            record.memory_mb,
            record.disk_gb,
            record.shared_vcpus,
            record.placement,
            operation.id,
        )
        host.usage_of(self._reports[record.node], [*self.claims_of(record.node), claim])
        self._claims[claim.id] = (record.node, claim)
        self._generations[record.node] += 1
        return messages.Claimed("accepted", claim.id, self._generations[record.node], claim.placement)

    def finish(self, record: messages.Finish) -> messages.Finished:
        with self._lock:
            operation = self._operations.get(record.operation)
            if operation is None:
                return messages.Finished(False)
            if operation.finished is not None and operation.finished[0] == record.attempt:
                return operation.finished[1]
            if not self._is_open(operation.id, record.attempt):
                return messages.Finished(False, undo=self._ended_unrecorded(operation))
            finished = self._finish(operation)
            operation.finished = (record.attempt, finished)
            return finished

    def _finish(self, operation: _Operation) -> messages.Finished:
        if states.KINDS[operation.kind].places:
            node, claim = self._held(operation.server)[0]
            self._set_role(claim.id, "current")
            self._close(operation, states.DONE)
            if operation.kind == "unshelve":
                self._forget_image(operation.server)
            return messages.Finished(True, generation=self._generations[node])
        if operation.kind == "unshelve_in_place" or (operation.kind == "shelve" and not operation.offload):
            self._close(operation, states.DONE)
            if operation.kind == "unshelve_in_place":
                self._forget_image(operation.server)
            return messages.Finished(True)
        node, claim = self._held(operation.server)[0]
        del self._claims[claim.id]
        self._generations[node] += 1
        self._close(operation, states.DONE if "delete" in operation.kind else states.OFFLOADED)
        if "delete" in operation.kind:
            self._forget_image(operation.server)
        return messages.Finished(True, released=claim.id, generation=self._generations[node])

    def abort(self, record: messages.Abort) -> messages.Aborted:
        with self._lock:
            operation = self._operations.get(record.operation)
            if operation is None or not self._is_open(operation.id, record.attempt):
                return messages.Aborted(False)
            if "delete" in operation.kind:
                return messages.Aborted(True)
            outcome = states.IMAGE_GONE if record.code == "image-gone" else states.FAILED
            return self._end(operation, outcome, record.message, clean=record.clean)

    def _end(self, operation: _Operation, outcome: str, why: str, *, clean: bool) -> messages.Aborted:
        freed = messages.Aborted(True)
        held = self._held(operation.server)
        if states.KINDS[operation.kind].places and held:
            node, claim = held[0]
            if clean:
                del self._claims[claim.id]
                self._generations[node] += 1
                freed = messages.Aborted(True, claim.id, self._generations[node])
            else:
                self._set_role(claim.id, "leftover")
        elif operation.recorded:
            self._leave(operation.server)
            outcome = states.OFFLOADED
        elif operation.snapshot is not None:
            self._doomed.append(operation.snapshot)
        self._close(operation, outcome, why)
        return freed

    def release(self, record: messages.Release) -> messages.Released:
        with self._lock:
            node, claim = self._claims.get(record.claim, ("", None))
            if claim is None or claim.role != "leftover" or node != record.node:
                return messages.Released(False)
            del self._claims[claim.id]
            self._generations[node] += 1
            return messages.Released(True, self._generations[node])

    def guest(self, record: messages.GuestRequest) -> messages.GuestView:
        with self._lock:
            if record.incarnation != self._incarnation:
                raise errors.Conflict("This incarnation has been superseded.")
            instance = self._instances.get(record.instance)
            mine = [
                (node, claim) for node, claim in self._claims.values() if claim.instance == record.instance
            ]
            here = tuple(claim for node, claim in mine if node == record.node)
            opened = self._open_operation(record.instance)
            return messages.GuestView(
                record.instance,
                record.node,
                instance.vm_state if instance else None,
                opened.id if opened else None,
                len(mine) - len(here),
                here,
                self._forced_down,
            )

    def node_view(self, node: str, host: str) -> NodeView:
        with self._lock:
            return self._view(node)

    def answer(self, record: messages.Answer) -> None:
        self.answers.append(record)

    # --- API, sweeper, operator ------------------------------------------------------------------

    def create(self, demand: Demand, node: str | None = None) -> Work:
        server = f"server-{next(self._ids)}"
        self._instances[server] = _Instance(demand)
        return self._open("create", server, node or next(iter(self._reports)))

    def ask(self, kind: str, server: str) -> Work:
        opened = self._open_operation(server)
        instance = self._instances[server]
        if opened is not None:
            states.require_start(kind, instance.vm_state, opened.kind)
            self._supersede(opened)
        if kind == "unshelve" and instance.vm_state == states.SHELVED:
            kind = "unshelve_in_place"
        states.require_start(kind, instance.vm_state, None)
        held = self._held(server)
        return self._open(kind, server, held[0][0] if held else next(iter(self._reports)))

    def _supersede(self, operation: _Operation) -> None:
        operation.open, operation.failed = False, True
        if operation.snapshot is not None and not operation.recorded:
            self._doomed.append(operation.snapshot)

    def _open(self, kind: str, server: str, node: str) -> Work:
        operation = _Operation(f"operation-{next(self._ids)}", kind, server, self._host, node)
        if kind == "shelve":
            operation.snapshot = f"image-{next(self._ids)}"
        self._operations[operation.id] = operation
        return self._work(operation)

    def _work(self, operation: _Operation) -> Work:
        instance = self._instances[operation.server]
        image = {"create": SERVER_IMAGE, "unshelve": instance.image}.get(operation.kind)
        return Work(
            operation=operation.id,
            attempt=operation.attempt,
            kind=operation.kind,
            instance=operation.server,
            name="a",
            project_id="project",
            user_id="user",
            host=operation.host,
            node=operation.node,
            demand=instance.demand,
            vm_state=instance.vm_state,
            step=operation.step,
            image=image,
            snapshot=operation.snapshot,
            snapshot_name="a-shelved" if operation.snapshot else None,
            seconds_left=30.0,
        )

    def offload_at_once(self, at_once: bool) -> None:
        self._at_once = at_once

    def again(self, work: Work) -> Work:
        operation = self._operations[work.operation]
        if not operation.open:
            raise errors.Conflict("The operation has ended.")
        operation.attempt += 1
        return self._work(operation)

    def expire(self, work: Work) -> None:
        operation = self._operations[work.operation]
        if not operation.open:
            return
        if "delete" in operation.kind:
            self._leave(operation.server)
            self._close(operation, states.DONE)
        else:
            self._end(operation, states.FAILED, "It did not end in time.", clean=False)

    def set_state(self, server: str, vm_state: str) -> None:
        self._instances[server].vm_state = vm_state

    def force_down(self, host: str) -> None:
        self._forced_down = True

    def leave(self, server: str) -> None:
        self._leave(server)
        self._instances[server].vm_state = states.DELETED

    def delete_locally(self, server: str) -> None:
        assert not self._held(server)
        opened = self._open_operation(server)
        if opened is not None:
            self._supersede(opened)
        self._instances[server].vm_state = states.DELETED
        self._forget_image(server)

    def move_on(self, node: str) -> None:
        self._generations[node] += 1

    def server(self, server: str) -> Server:
        instance = self._instances[server]
        opened = self._open_operation(server)
        return Server(instance.vm_state, opened.kind if opened else None, instance.fault, instance.image)

    def claims(self, node: str) -> tuple[ClaimView, ...]:
        return self.claims_of(node)

    def outbox(self) -> None:
        while self._doomed:
            self._delete_image(self._doomed.pop())

    # --- parts -------------------------------------------------------------------------------------

    def claims_of(self, node: str) -> tuple[ClaimView, ...]:
        """The node's claims, in order of id."""
        found = [claim for where, claim in self._claims.values() if where == node]
        return tuple(sorted(found, key=lambda claim: claim.id))

    def _view(self, node: str) -> NodeView:
        return NodeView(node, self._generations[node], self.claims_of(node))

    def _is_open(self, key: str, attempt: int) -> bool:
        operation = self._operations.get(key)
        return operation is not None and operation.open and operation.attempt == attempt

    @staticmethod
    def _ended_unrecorded(operation: _Operation) -> bool:
        return not operation.open and operation.failed and not operation.recorded

    def _open_operation(self, server: str) -> _Operation | None:
        opened = [one for one in self._operations.values() if one.open and one.server == server]
        return opened[0] if opened else None

    def _held(self, server: str) -> list[tuple[str, ClaimView]]:
        return [
            (node, claim)
            for node, claim in self._claims.values()
            if claim.instance == server and claim.role != "leftover"
        ]

    def _leave(self, server: str) -> None:
        for _node, claim in self._held(server):
            self._set_role(claim.id, "leftover")

    def _set_role(self, key: str, role: str) -> None:
        node, claim = self._claims[key]
        self._claims[key] = (node, msgspec.structs.replace(claim, role=role))
        self._generations[node] += 1

    def _close(self, operation: _Operation, outcome: str, why: str | None = None) -> None:
        instance = self._instances[operation.server]
        operation.open, operation.failed = False, why is not None
        instance.vm_state = states.after(operation.kind, instance.vm_state, outcome)
        instance.fault = why

    def _forget_image(self, server: str) -> None:
        instance = self._instances[server]
        if instance.image is not None:
            self._doomed.append(instance.image)
        instance.image = None

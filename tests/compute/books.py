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
from pinfold.image.store import Store, delete_unfinished
from pinfold.model import errors, host, power, states
from pinfold.model.host import ClaimView, NodeReport, NodeView
from pinfold.model.rebuild import Rebuild, Sizes, both, holds_both
from pinfold.model.request import Demand, demand_for
from pinfold.model.work import Work
from pinfold.rpcapi import messages
from pinfold.rpcapi.context import Context
from pinfold.runtime import RealRuntime

SERVER_IMAGE = "tiny"

# Kinds that end without a claim.
_RELEASING = ("shelve", "shelve_offload", "delete", "force_delete")


def pinned(vcpus: int, memory_mb: int = 512, cells: int | None = None) -> Demand:
    """A demand for dedicated CPUs, in so many NUMA cells."""
    extra_specs = {"hw:cpu_policy": "dedicated"}
    if cells is not None:
        extra_specs["hw:numa_nodes"] = str(cells)
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

    def rebuild(self, server: str, demand: Demand | None = None, image: str = SERVER_IMAGE) -> Work:
        """Open a rebuild from an image that asks for ``demand`` (by default what the server has)."""

    def opened(self) -> Work | None:
        """What was cast last, if it is not done."""

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
        self.rebuild: Rebuild | None = None

    @property
    def recorded(self) -> bool:
        steps = states.KINDS[self.kind].steps
        names = [step.name for step in steps]
        return self.step in names and steps[names.index(self.step)].forward

    @property
    def deletes(self) -> bool:
        return self.kind in ("delete", "force_delete")


class _Instance:
    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self.vm_state = states.BUILDING
        self.power_state: int | None = None
        self.fault: str | None = None
        self.image: str | None = None


class FakeBook:
    """One host's nodes, in memory. Every method is one transaction."""

    def __init__(self, store: Store, host_name: str = "host-1") -> None:
        self._host = host_name
        self._store = store
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
        self._unfinished: list[str] = []
        self.answers: list[messages.Answer] = []
        self.beats: list[messages.Heartbeat] = []
        self.lease = 15.0
        self.echo: Callable[[messages.Heartbeat], bool] = lambda record: False

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
            nodes = tuple(self._view(report.name) for report in record.nodes)
            return messages.Registered(nodes=nodes, lease=self.lease)

    def heartbeat(self, record: messages.Heartbeat) -> messages.Heard:
        with self._lock:
            if record.incarnation != self._incarnation:
                return messages.Heard(superseded=True)
            self.beats.append(record)
            known = {key for key, attempt in record.operations if self._is_open(key, attempt)}
            refused = tuple(key for key, _ in record.operations if key not in known)
            return messages.Heard(refused=refused, echoed=self.echo(record))

    def begin(self, record: messages.Begin) -> messages.Begun:
        with self._lock:
            operation = self._operations.get(record.operation)
            if operation is None or not self._is_open(operation.id, record.attempt):
                return messages.Begun(False, undo=operation is not None and self._ended_unrecorded(operation))
            operation.step = record.step
            if record.step == "record":
                self._record(operation)
            if record.step == "rebuild" and operation.rebuild is not None:
                self._instances[operation.server].demand = operation.rebuild.demand
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
        if operation.kind not in _RELEASING or (operation.kind == "shelve" and not operation.offload):
            self._close(operation, states.DONE)
            if operation.kind in ("unshelve_in_place", "soft_delete"):
                self._forget_image(operation.server)
            if operation.rebuild is not None and operation.rebuild.after is not None:
                return messages.Finished(True, generation=self._hold(operation, operation.rebuild.after))
            return messages.Finished(True)
        node, claim = self._held(operation.server)[0]
        del self._claims[claim.id]
        self._generations[node] += 1
        self._close(operation, states.DONE if operation.deletes else states.OFFLOADED)
        if operation.deletes:
            self._forget_image(operation.server)
        return messages.Finished(True, released=claim.id, generation=self._generations[node])

    def abort(self, record: messages.Abort) -> messages.Aborted:
        with self._lock:
            operation = self._operations.get(record.operation)
            if operation is None or not self._is_open(operation.id, record.attempt):
                return messages.Aborted(False)
            if operation.deletes:
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
        elif operation.recorded and operation.kind == "rebuild":
            outcome = states.DISK_LOST
        elif operation.recorded:
            self._leave(operation.server)
            outcome = states.OFFLOADED
        else:
            outcome = outcome if states.KINDS[operation.kind].places else states.FAILED
            self._take_back(operation)
        self._close(operation, outcome, why)
        return freed

    def _take_back(self, operation: _Operation) -> None:
        """What an operation has not recorded goes."""
        if operation.kind == "create_image":
            self._unfinished.append(operation.snapshot or "")
        elif operation.snapshot is not None:
            self._doomed.append(operation.snapshot)
        if operation.rebuild is not None and operation.rebuild.before is not None:
            self._hold(operation, operation.rebuild.before)

    def refit(self, record: messages.Refit) -> messages.Refitted:
        with self._lock:
            operation = self._operations[record.operation]
            rebuild = operation.rebuild
            if rebuild is None or not self._is_open(operation.id, record.attempt) or operation.recorded:
                return messages.Refitted("refused")
            if rebuild.after is not None:
                return messages.Refitted("accepted", rebuild.after.placement)
            if record.generation != self._generations[record.node]:
                return messages.Refitted("stale", view=self._view(record.node))
            claim = self._claims[record.claim][1]
            before = Sizes(claim.memory_mb, claim.disk_gb, claim.shared_vcpus, claim.placement)
            after = Sizes(record.memory_mb, record.disk_gb, record.shared_vcpus, record.placement)
            self._hold(operation, both(before, after))
            operation.rebuild = msgspec.structs.replace(rebuild, before=before, after=after)
            return messages.Refitted("accepted", after.placement)

    def _hold(self, operation: _Operation, sizes: Sizes) -> int:
        """Have the server's claim hold this."""
        ((node, claim),) = self._held(operation.server)
        changed = msgspec.structs.replace(claim, **msgspec.structs.asdict(sizes))
        others = [other for other in self.claims_of(node) if other.id != claim.id]
        host.usage_of(self._reports[node], [*others, changed])
        self._claims[claim.id] = (node, changed)
        self._generations[node] += 1
        return self._generations[node]

    def guests(self, record: messages.GuestsRequest) -> messages.Guests:
        with self._lock:
            servers = {claim.instance for node, claim in self._claims.values() if node == record.node}
            return messages.Guests(tuple(self._guest(record.node, server) for server in sorted(servers)))

    def power_seen(self, record: messages.PowerSeen) -> None:
        with self._lock:
            instance = self._instances[record.instance]
            if self._open_operation(record.instance) or instance.vm_state != record.vm_state:
                return
            instance.power_state = record.power_state
            follow = power.follow(record.vm_state, record.power_state, failed=instance.fault is not None)
            if follow in ("stop", "run"):
                kind = "power_restore" if follow == "run" else "power_sync"
                self._open(kind, record.instance, record.node)

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
            return self._guest(record.node, record.instance)

    def _guest(self, node: str, server: str) -> messages.GuestView:
        instance = self._instances.get(server)
        mine = [(where, claim) for where, claim in self._claims.values() if claim.instance == server]
        here = tuple(claim for where, claim in mine if where == node)
        opened = self._open_operation(server)
        return messages.GuestView(
            server,
            node,
            instance.vm_state if instance else None,
            opened.id if opened else None,
            len(mine) - len(here),
            here,
            self._forced_down,
            instance.power_state if instance else None,
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
        if not operation.recorded:
            self._take_back(operation)

    def rebuild(self, server: str, demand: Demand | None = None, image: str = SERVER_IMAGE) -> Work:
        instance, (held,) = self._instances[server], self._held(server)
        states.require_start("rebuild", instance.vm_state, None)
        asked = demand or instance.demand
        refit = asked != instance.demand or holds_both(held[1].placement)
        return self._open("rebuild", server, held[0], Rebuild(image, {}, asked, refit=refit))

    def opened(self) -> Work | None:
        operation = list(self._operations.values())[-1]
        return self._work(operation) if operation.open else None

    def _open(self, kind: str, server: str, node: str, rebuild: Rebuild | None = None) -> Work:
        operation = _Operation(f"operation-{next(self._ids)}", kind, server, self._host, node)
        operation.rebuild = rebuild
        if kind in ("shelve", "create_image"):
            operation.snapshot = f"image-{next(self._ids)}"
        self._operations[operation.id] = operation
        return self._work(operation)

    def _work(self, operation: _Operation) -> Work:
        instance, rebuild = self._instances[operation.server], operation.rebuild
        image = {"create": SERVER_IMAGE, "unshelve": instance.image}.get(operation.kind)
        held = self._held(operation.server)
        claim = held[0][1] if held else None
        placement = claim.placement if claim else None
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
            demand=rebuild.demand if rebuild else instance.demand,
            vm_state=instance.vm_state,
            step=operation.step,
            image=rebuild.image if rebuild else image,
            claim=claim.id if claim else None,
            placement=rebuild.after.placement if rebuild and rebuild.after else placement,
            refit=rebuild is not None and rebuild.refit,
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
        if operation.deletes:
            self._leave(operation.server)
            self._close(operation, states.DONE)
        else:
            self._end(operation, states.FAILED, "It did not end in time.", clean=False)

    def set_state(self, server: str, vm_state: str) -> None:
        instance = self._instances[server]
        instance.vm_state, instance.power_state = vm_state, power.OF_STATE.get(vm_state)

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
            self._store.delete(self._doomed.pop())
        while self._unfinished:
            delete_unfinished(self._store, self._unfinished.pop())

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
        instance.power_state = power.OF_STATE.get(instance.vm_state)
        instance.fault = why

    def _forget_image(self, server: str) -> None:
        instance = self._instances[server]
        if instance.image is not None:
            self._doomed.append(instance.image)
        instance.image = None

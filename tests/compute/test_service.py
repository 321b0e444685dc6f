"""The worker as a service: what it does before it takes work, while it lives, and when it ends."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pinfold.compute.service import ComputeService
from pinfold.compute.settings import Settings
from pinfold.image.files import FileStore
from pinfold.image.store import Image
from pinfold.model import errors, states
from pinfold.model.differences import Difference
from pinfold.model.host import NodeView
from pinfold.model.work import Work
from pinfold.rpcapi import messages
from pinfold.rpcapi.clients import CONDUCTOR, CONDUCTOR_TOPIC, ComputeClient, ConductorClient
from pinfold.rpcapi.context import Context
from pinfold.rpcapi.local import Hub, LocalTransport
from pinfold.rpcapi.messages import from_wire, to_wire
from pinfold.rpcapi.wire import exported
from pinfold.runtime import RealRuntime
from pinfold.virt.driver import RUNNING, Guest
from pinfold.virt.fake import FakeDriver
from tests.compute.books import SERVER_IMAGE, FakeBook, pinned
from tests.compute.test_jobs import eventually
from tests.compute.test_races import Stuck
from tests.compute.world import DISK, HOST, NODE, PARTITION, Watch, WatchedDriver

CONTEXT = Context("req-test")
OTHER = "node-2"


class Endpoint:
    """The fake book behind the wire. ``silent``: no call is answered in time."""

    def __init__(self, book: FakeBook) -> None:
        self.book = book
        self.silent = False

    def _answer(self, method: str, record: Any, kind: type[msgspec.Struct]) -> Any:
        if self.silent:
            raise errors.Unavailable("The database does not answer.")
        return to_wire(getattr(self.book, method)(from_wire(record, kind)))

    @exported
    def register(self, context: Context, record: Any) -> Any:
        return self._answer("register", record, messages.Register)

    @exported
    def heartbeat(self, context: Context, record: Any) -> Any:
        return self._answer("heartbeat", record, messages.Heartbeat)

    @exported
    def begin(self, context: Context, record: Any) -> Any:
        return self._answer("begin", record, messages.Begin)

    @exported
    def claim(self, context: Context, record: Any) -> Any:
        return self._answer("claim", record, messages.Claim)

    @exported
    def finish(self, context: Context, record: Any) -> Any:
        return self._answer("finish", record, messages.Finish)

    @exported
    def abort(self, context: Context, record: Any) -> Any:
        return self._answer("abort", record, messages.Abort)

    @exported
    def release(self, context: Context, record: Any) -> Any:
        return self._answer("release", record, messages.Release)

    @exported
    def guest(self, context: Context, record: Any) -> Any:
        return self._answer("guest", record, messages.GuestRequest)

    @exported
    def guests(self, context: Context, record: Any) -> Any:
        return self._answer("guests", record, messages.GuestsRequest)

    @exported
    def power_seen(self, context: Context, record: Any) -> None:
        self.book.power_seen(from_wire(record, messages.PowerSeen))

    @exported
    def node_view(self, context: Context, node: str, host: str) -> Any:
        return to_wire(self.book.node_view(node, host))

    @exported
    def answer(self, context: Context, record: Any) -> None:
        self.book.answer(from_wire(record, messages.Answer))


class Cloud:
    """A hub with a conductor, and workers of one host on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runtime = RealRuntime()
        self.hub = Hub(self.runtime)
        self.hypervisor = FakeDriver(self.runtime, HOST, [NODE, OTHER], str(folder / "hypervisor" / HOST))
        self.store = FileStore(self.runtime, str(folder / "images"))
        now = self.runtime.now()
        self.store.create(Image(SERVER_IMAGE, "tiny", "queued", "project", "public", now, now))
        self.store.upload(SERVER_IMAGE, [DISK])
        self.book = FakeBook(self.store)
        self.endpoint = Endpoint(self.book)
        self.watch = Watch()
        self.ended: list[str] = []
        self.services: list[ComputeService] = []
        self.compute = ComputeClient(LocalTransport(self.hub), CONTEXT)
        self.settings = Settings(
            host=HOST,
            nodes=(NODE,),
            state_path=str(folder / "state"),
            partition=PARTITION,
            heartbeat=0.1,
            audit_interval=3600,
            start_wait=5,
            stop_wait=5,
        )

    def serve(self) -> None:
        """Let the conductor answer."""
        LocalTransport(self.hub).serve(CONDUCTOR_TOPIC, "conductor-1", self.endpoint, CONDUCTOR.version)

    def worker(self, **changes: Any) -> ComputeService:
        """A worker that has not started."""
        transport = LocalTransport(self.hub)
        service = ComputeService(
            runtime=self.runtime,
            settings=msgspec.structs.replace(self.settings, **changes),
            driver=WatchedDriver(self.hypervisor, self.watch),
            store=self.store,
            transport=transport,
            conductor=ConductorClient(transport, CONTEXT, timeout=5),
            heartbeats=ConductorClient(transport, CONTEXT, timeout=1),
            on_end=self.ended.append,
        )
        self.services.append(service)
        return service

    def start(self, **changes: Any) -> ComputeService:
        """A worker that takes work."""
        service = self.worker(**changes)
        service.start()
        return service

    def cast(self, work: Work) -> Work:
        """As the conductor does."""
        self.compute.perform(HOST, work)
        return work

    def state(self, work: Work) -> str:
        """The server's vm_state."""
        return self.book.server(work.instance).vm_state

    def guests(self, node: str = NODE) -> dict[str, int]:
        """Power state by server."""
        return {guest.instance: guest.power_state for guest in self.hypervisor.list(node)}

    def named(self) -> set[tuple[str, int]]:
        """What the last heartbeat renewed."""
        return set(self.book.beats[-1].operations) if self.book.beats else set()


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    cloud = Cloud(tmp_path)
    cloud.serve()
    yield cloud
    for service in cloud.services:
        service.stop()


def test_a_server_is_booted_and_deleted_over_the_wire(cloud: Cloud) -> None:
    cloud.start()
    work = cloud.cast(cloud.book.create(pinned(4)))
    eventually(lambda: cloud.state(work) == states.ACTIVE)
    assert cloud.guests() == {work.instance: RUNNING}
    cloud.cast(cloud.book.ask("delete", work.instance))
    eventually(lambda: cloud.state(work) == states.DELETED)
    assert cloud.guests() == {}
    assert cloud.book.claims(NODE) == ()


def test_it_says_that_it_is_ready_only_once_it_takes_work(cloud: Cloud) -> None:
    cloud.start()
    assert [beat.ready for beat in cloud.book.beats[:1]] in ([], [False], [True])
    eventually(lambda: cloud.book.beats and cloud.book.beats[-1].ready)
    cloud.services[0].stop()
    assert len(cloud.book.beats) >= 1


def test_nothing_is_taken_before_what_is_there_has_been_reconciled(cloud: Cloud) -> None:
    """F018, F022: the guest of a deleted server is gone before the first message is handled."""
    cloud.start()
    work = cloud.cast(cloud.book.create(pinned(4)))
    eventually(lambda: cloud.state(work) == states.ACTIVE)
    cloud.services[0].stop()
    cloud.book.leave(work.instance)
    stuck = Stuck_on(cloud, "driver.destroy")
    second = cloud.worker()
    starting = cloud.runtime.spawn(second.start, name="start")
    assert stuck.reached.wait(10)
    waiting = cloud.cast(cloud.book.create(pinned(4)))
    eventually(lambda: cloud.book.beats and not cloud.book.beats[-1].ready)
    assert cloud.book.server(waiting.instance).open_kind == "create"
    assert waiting.instance not in cloud.guests()
    stuck.go.set()
    assert starting.join(10)
    eventually(lambda: cloud.state(waiting) == states.ACTIVE)
    assert set(cloud.guests()) == {waiting.instance}


def Stuck_on(cloud: Cloud, event: str, when: str = "before") -> Stuck:
    return Stuck(cloud, event, when)  # type: ignore[arg-type]  # it only wants the watch


def test_a_reconciliation_that_hangs_holds_up_its_own_server_only(cloud: Cloud) -> None:
    cloud.start()
    work = cloud.cast(cloud.book.create(pinned(2)))
    eventually(lambda: cloud.state(work) == states.ACTIVE)
    cloud.services[0].stop()
    cloud.book.leave(work.instance)
    stuck = Stuck_on(cloud, "driver.destroy")
    cloud.start(start_wait=0.1)
    other = cloud.cast(cloud.book.create(pinned(2)))
    eventually(lambda: cloud.state(other) == states.ACTIVE)
    assert work.instance in cloud.guests()
    stuck.go.set()
    eventually(lambda: work.instance not in cloud.guests())
    eventually(lambda: len(cloud.book.claims(NODE)) == 1)


def test_a_worker_that_the_conductor_refuses_does_not_start_and_says_why(
    cloud: Cloud, tmp_path: Path
) -> None:
    cloud.start().stop()
    with pytest.raises(errors.ConfigurationError, match="belongs to another machine"):
        cloud.worker(state_path=str(tmp_path / "elsewhere")).start()


def test_a_partition_that_does_not_hold_is_refused_before_anybody_hears_of_the_worker(cloud: Cloud) -> None:
    partition = msgspec.structs.replace(PARTITION, cpu_dedicated_set="0-99")
    with pytest.raises(errors.ConfigurationError, match="cpu_dedicated_set"):
        cloud.worker(partition=partition).start()
    assert cloud.book.beats == []


def test_a_node_that_the_hypervisor_does_not_have_is_refused(cloud: Cloud) -> None:
    with pytest.raises(errors.ConfigurationError, match="nodes names third"):
        cloud.worker(nodes=("third",)).start()


def test_a_second_worker_of_the_host_on_this_machine_is_kept_out_until_the_first_is_gone(
    cloud: Cloud,
) -> None:
    """R6: two incarnations never work side by side."""
    first = cloud.start()
    with pytest.raises(errors.ConfigurationError, match="Another worker"):
        cloud.worker().start()
    first.stop()
    cloud.start()


def test_it_waits_for_a_conductor_and_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    cloud = Cloud(tmp_path)
    service = cloud.worker()
    starting = cloud.runtime.spawn(service.start, name="start")
    assert not starting.join(1.5)
    said = [record for record in caplog.records if "No conductor answers yet" in record.getMessage()]
    assert len(said) == 1
    cloud.serve()
    assert starting.join(10)
    eventually(lambda: cloud.book.beats)
    service.stop()


def test_a_stop_while_it_waits_for_a_conductor_ends_the_start(tmp_path: Path) -> None:
    cloud = Cloud(tmp_path)
    service = cloud.worker()
    starting = cloud.runtime.spawn(service.start, name="start")
    service.stop()
    assert starting.join(10)


def test_heartbeats_and_other_servers_go_on_while_a_driver_call_hangs(cloud: Cloud) -> None:
    """R13: what is under way is named; the spawn of one server never holds up another's."""
    cloud.start()
    stuck = Stuck_on(cloud, "driver.spawn")
    hung = cloud.cast(cloud.book.create(pinned(2)))
    assert stuck.reached.wait(10)
    beats = len(cloud.book.beats)
    eventually(lambda: len(cloud.book.beats) > beats + 3)
    assert cloud.named() == {(hung.operation, 1)}
    other = cloud.cast(cloud.book.create(pinned(2)))
    eventually(lambda: cloud.state(other) == states.ACTIVE)
    stuck.go.set()
    eventually(lambda: cloud.state(hung) == states.ACTIVE)
    eventually(lambda: cloud.named() == set())


def test_a_cast_that_comes_twice_is_done_once(cloud: Cloud) -> None:
    """F023: back to back, and after it is done."""
    cloud.start()
    stuck = Stuck_on(cloud, "driver.spawn")
    work = cloud.book.create(pinned(4))
    for _ in range(3):
        cloud.cast(work)
    assert stuck.reached.wait(10)
    stuck.go.set()
    eventually(lambda: cloud.state(work) == states.ACTIVE)
    cloud.cast(work)
    eventually(lambda: cloud.watch.events.count("driver.spawn") == 1 and not cloud.named())
    assert cloud.watch.events.count("driver.spawn") == 1
    assert len(cloud.book.claims(NODE)) == 1
    assert cloud.guests() == {work.instance: RUNNING}


def test_a_message_for_another_host_or_by_another_method_is_not_done(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    cloud.start()
    work = cloud.book.create(pinned(4))
    cloud.cast(msgspec.structs.replace(work, node="other"))
    cloud.cast(msgspec.structs.replace(work, host="host-2"))
    eventually(lambda: caplog.text.count("it is not done") == 2)
    assert cloud.guests() == {}
    assert cloud.book.claims(NODE) == ()


def test_a_superseded_worker_ends_at_once_and_starts_nothing_more(cloud: Cloud) -> None:
    """R6: another incarnation has the host now."""
    service = cloud.start()
    stuck = Stuck_on(cloud, "driver.spawn", "after")
    work = cloud.cast(cloud.book.create(pinned(4)))
    assert stuck.reached.wait(10)
    report = service.tools.tracker.current_view(NODE) if service.tools else None
    assert report is not None
    cloud.book._incarnation = "another"
    eventually(lambda: cloud.ended)
    assert len(cloud.ended) == 1
    stuck.go.set()
    later = cloud.book.create(pinned(4))
    cloud.cast(later)
    assert service.tools is not None
    assert service.tools.jobs.drain(10)
    assert set(cloud.guests()) == {work.instance}


def test_a_worker_that_is_not_heard_begins_nothing_and_goes_on_when_it_is_heard_again(cloud: Cloud) -> None:
    service = cloud.start()
    assert service.tools is not None
    service.tools.fence.lease = 0.3
    stuck = Stuck_on(cloud, "driver.power_off")
    work = cloud.cast(cloud.book.create(pinned(4)))
    eventually(lambda: cloud.state(work) == states.ACTIVE)
    shelve = cloud.cast(cloud.book.ask("shelve", work.instance))
    assert stuck.reached.wait(10)
    cloud.endpoint.silent = True
    eventually(lambda: service.tools is not None and not service.tools.fence.is_open)
    stuck.go.set()
    beats = len(cloud.book.beats)
    assert "driver.snapshot" not in cloud.watch.events
    cloud.endpoint.silent = False
    eventually(lambda: len(cloud.book.beats) > beats)
    eventually(lambda: cloud.state(shelve) == states.SHELVED_OFFLOADED)


def test_a_stop_lets_what_runs_end_and_takes_nothing_new(cloud: Cloud) -> None:
    service = cloud.start()
    stuck = Stuck_on(cloud, "driver.spawn")
    work = cloud.cast(cloud.book.create(pinned(4)))
    assert stuck.reached.wait(10)
    stopping = cloud.runtime.spawn(service.stop, name="stop")
    eventually(lambda: cloud.book.beats and not cloud.book.beats[-1].ready)
    later = cloud.cast(cloud.book.create(pinned(4)))
    assert not stopping.join(0.1)
    stuck.go.set()
    assert stopping.join(10)
    assert cloud.state(work) == states.ACTIVE
    assert cloud.book.server(later.instance).open_kind == "create", "it waits for the next incarnation"
    cloud.start()
    eventually(lambda: cloud.state(later) == states.ACTIVE)


def test_a_stop_does_not_wait_for_what_hangs_and_that_touches_nothing_when_it_returns(cloud: Cloud) -> None:
    """R6: by then the next incarnation has the operation."""
    service = cloud.start(stop_wait=0.2)
    stuck = Stuck_on(cloud, "driver.spawn")
    work = cloud.cast(cloud.book.create(pinned(4)))
    assert stuck.reached.wait(10)
    stopping = cloud.runtime.spawn(service.stop, name="stop")
    assert stopping.join(10)
    assert [claim.role for claim in cloud.book.claims(NODE)] == ["incoming"]
    cloud.start()
    cloud.cast(cloud.book.again(work))
    eventually(lambda: cloud.state(work) == states.ACTIVE)
    stuck.go.set()
    assert service.tools is not None
    assert service.tools.jobs.drain(10)
    assert cloud.guests() == {work.instance: RUNNING}
    assert [claim.role for claim in cloud.book.claims(NODE)] == ["current"]


def test_it_tells_what_its_tracker_believes(cloud: Cloud) -> None:
    cloud.start()
    work = cloud.cast(cloud.book.create(pinned(4)))
    eventually(lambda: cloud.state(work) == states.ACTIVE)
    cloud.book.move_on(NODE)
    cloud.compute.report(HOST, messages.ReportRequest("r-1", "tracker"))
    eventually(lambda: cloud.book.answers)
    answer = cloud.book.answers[0]
    assert (answer.request, answer.host) == ("r-1", HOST)
    assert [from_wire(view, NodeView) for view in answer.payload] == [cloud.book.node_view(NODE, HOST)]


def test_it_tells_what_guests_its_hypervisor_has(cloud: Cloud) -> None:
    cloud.start()
    work = cloud.cast(cloud.book.create(pinned(4)))
    eventually(lambda: cloud.state(work) == states.ACTIVE)
    cloud.compute.report(HOST, messages.ReportRequest("r-1", "guests"))
    eventually(lambda: cloud.book.answers)
    (guest,) = [from_wire(guest, Guest) for guest in cloud.book.answers[0].payload]
    assert (guest.instance, guest.node, guest.power_state) == (work.instance, NODE, RUNNING)


def test_it_heals_when_it_is_asked_to_and_tells_what_it_did(cloud: Cloud) -> None:
    """R1: it looks at the hypervisor first, in the server's lane."""
    cloud.start()
    work = cloud.cast(cloud.book.create(pinned(4)))
    eventually(lambda: cloud.state(work) == states.ACTIVE)
    cloud.book.leave(work.instance)
    asked = messages.ReportRequest("r-1", "heal", to_wire(messages.HealRequest((NODE,))))
    cloud.compute.report(HOST, asked)
    eventually(lambda: cloud.book.answers)
    (did,) = [from_wire(did, Difference) for did in cloud.book.answers[0].payload]
    assert (did.kind, did.server) == ("leftover", work.instance)
    assert "removed" in did.did
    assert cloud.guests() == {}
    assert cloud.book.claims(NODE) == ()


def test_it_audits_again_and_again(cloud: Cloud) -> None:
    cloud.start(audit_interval=0.1)
    work = cloud.cast(cloud.book.create(pinned(4)))
    eventually(lambda: cloud.state(work) == states.ACTIVE)
    cloud.hypervisor.power_off(NODE, work.instance)
    eventually(lambda: cloud.book.server(work.instance).open_kind == "power_sync")
    cloud.cast(cloud.book.opened() or work)
    eventually(lambda: cloud.state(work) == states.STOPPED)


def test_the_machine_is_told_apart_by_an_id_that_stays(cloud: Cloud) -> None:
    cloud.start().stop()
    first = cloud.book._host_id
    cloud.start()
    assert cloud.book._host_id == first
    assert (cloud.folder / "state" / "host_id").read_text() == first


def test_f045_it_does_not_start_on_an_older_copy_of_the_book_and_says_so(cloud: Cloud) -> None:
    first = cloud.start(heartbeat=0.1)
    work = cloud.cast(cloud.book.create(pinned(4)))
    eventually(lambda: cloud.state(work) == states.ACTIVE)
    copy = cloud.book._generations[NODE]
    newer = cloud.cast(cloud.book.create(pinned(4)))
    eventually(lambda: cloud.state(newer) == states.ACTIVE)
    memory = cloud.folder / "state" / "generations"
    eventually(lambda: json.loads(memory.read_text())[NODE] == cloud.book._generations[NODE])
    first.stop()
    cloud.book._generations[NODE] = copy
    with pytest.raises(errors.ConfigurationError, match="an older copy") as refused:
        cloud.start()
    assert str(memory) in refused.value.message
    cloud.services[-1].stop()
    assert set(cloud.guests()) == {work.instance, newer.instance}
    memory.unlink()
    cloud.start()


def test_one_worker_serves_two_nodes_which_do_not_wait_for_each_other(cloud: Cloud) -> None:
    """F027: a claim call of one node hangs."""
    cloud.start(nodes=(NODE, OTHER))
    stuck, claim = Stuck_on(cloud, "claim"), cloud.book.claim

    def slow(record: messages.Claim) -> messages.Claimed:
        if record.node == NODE:
            return cloud.watch.see("claim", lambda: claim(record))
        return claim(record)

    cloud.book.claim = slow  # type: ignore[method-assign]
    held_up = cloud.cast(cloud.book.create(pinned(4), NODE))
    assert stuck.reached.wait(10)
    work = cloud.cast(cloud.book.create(pinned(4), OTHER))
    eventually(lambda: cloud.state(work) == states.ACTIVE)
    assert cloud.guests(OTHER) == {work.instance: RUNNING}
    stuck.go.set()
    eventually(lambda: cloud.state(held_up) == states.ACTIVE)
    assert cloud.guests(NODE) == {held_up.instance: RUNNING}


def test_one_attempt_may_concern_two_nodes_of_one_worker(cloud: Cloud) -> None:
    """A delete in the middle of a move: a cast for each claim, with one operation and attempt."""
    cloud.start(nodes=(NODE, OTHER))
    work = cloud.cast(cloud.book.create(pinned(4), NODE))
    eventually(lambda: cloud.state(work) == states.ACTIVE)
    stuck = Stuck_on(cloud, "driver.destroy")
    delete = cloud.cast(cloud.book.ask("delete", work.instance))
    assert stuck.reached.wait(10)
    cloud.cast(msgspec.structs.replace(delete, node=OTHER))
    service = cloud.services[0]
    assert service.tools is not None
    jobs = service.tools.jobs
    eventually(lambda: len(jobs._keys) == 2)
    stuck.go.set()
    assert jobs.drain(10)
    assert cloud.watch.events.count("driver.destroy") >= 1
    assert cloud.state(work) == states.DELETED

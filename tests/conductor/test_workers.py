"""What a worker may say of itself, and when it must not start."""

from __future__ import annotations

import logging

import msgspec
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from pinfold.db import hosts, services
from pinfold.db.models import Node
from pinfold.model.host import NodeReport
from pinfold.rpcapi.messages import Echo, Heard, Heartbeat, Register, Registered
from tests.compute.test_jobs import eventually
from tests.conductor.box import Box, pinned, two_cells


def without_cpus(name: str, *lost: int) -> NodeReport:
    """The node of two cells with fewer dedicated CPUs."""
    report = two_cells(name)
    cells = tuple(
        msgspec.structs.replace(cell, dedicated=cell.dedicated - set(lost)) for cell in report.topology.cells
    )
    return msgspec.structs.replace(report, topology=msgspec.structs.replace(report.topology, cells=cells))


def test_a_worker_gets_the_claims_of_its_nodes_when_it_starts(box: Box) -> None:
    server = box.boot(pinned(4), node="n1")
    registered = box.register("n1")
    assert [claim.instance for claim in registered.nodes[0].claims] == [server]
    guest = registered.guests[0]
    assert (guest.instance, guest.vm_state, guest.open_operation, guest.other_claims) == (
        server,
        "active",
        None,
        0,
    )


def test_a_configuration_that_takes_away_a_held_cpu_is_refused_and_says_what_to_do(box: Box) -> None:
    server = box.boot(pinned(4), node="n1")
    held = sorted(box.used("n1"))[0]
    refused = box.register("n1", without_cpus("n1", held)).refused or ""
    assert f"CPUs {held}" in refused
    assert server in refused
    assert "Put them back" in refused
    assert box.register("n1").refused is None


def test_a_cpu_that_nobody_holds_may_be_taken_away(box: Box) -> None:
    assert box.register("n1", without_cpus("n1", 1)).refused is None


def test_two_machines_of_one_name_are_told_apart(box: Box) -> None:
    """F045."""
    assert "another machine" in (box.register("n1", host_id="other").refused or "")


def test_a_machine_whose_name_has_changed_is_refused_until_its_former_service_is_deleted(box: Box) -> None:
    """F045."""
    machine = Register("n3", "machine-3", "i", (two_cells("n3"),))
    assert box.call("register", machine, Registered).refused is None
    renamed = Register("n3b", "machine-3", "i", (two_cells("n3b"),))
    refused = box.call("register", renamed, Registered).refused or ""
    assert "This machine is host 'n3' in the database" in refused
    assert box.book.read(lambda session: hosts.node_by_name(session, "n3b")) is None
    box.book.write(_forget)
    assert box.call("register", renamed, Registered).refused is None


def _forget(session: Session) -> None:
    service = hosts.worker(session, "n3")
    assert service is not None
    services.delete(session, service)


def test_a_host_that_is_new_to_the_database_and_has_guests_is_refused(box: Box) -> None:
    """F045: an empty database, or another cloud's."""
    busy = Register("n3", "machine-3", "i", (two_cells("n3"),), found=("a", "b"))
    refused = box.call("register", busy, Registered).refused or ""
    assert "does not know host 'n3'" in refused
    assert "2 guests, of a, b" in refused
    assert box.book.read(lambda session: hosts.worker(session, "n3")) is None
    assert box.book.read(lambda session: hosts.node_by_name(session, "n3")) is None


def test_a_host_that_is_known_may_have_any_guests(box: Box) -> None:
    known = Register("n1", "n1-id", "i", (two_cells("n1"),), found=("a",))
    assert box.call("register", known, Registered).refused is None


def test_a_node_belongs_to_one_host(box: Box) -> None:
    assert "belongs to host n1" in (box.register("n3", two_cells("n1")).refused or "")


def test_a_node_that_is_left_out_goes_unless_servers_hold_claims_on_it(box: Box) -> None:
    box.register("n3", two_cells("n3"), two_cells("n3b"))
    box.boot(node="n3b")
    assert "n3b" in (box.register("n3").refused or "")
    assert box.register("n3", two_cells("n3b")).refused is None


def test_a_node_that_another_worker_takes_over_at_that_moment_is_not_deleted(box: Box) -> None:
    """F102."""
    box.register("n3", two_cells("n3"), two_cells("n3b"))
    taken, end = box.runtime.event(), box.runtime.event()

    def take_over(session: Session) -> None:
        session.execute(sa.update(Node).where(Node.name == "n3b").values(host="n2"))
        taken.set()
        assert end.wait(60)

    other = box.runtime.spawn(box.book.write, take_over, name="another worker")
    assert taken.wait(60)
    leaves = box.runtime.spawn(box.register, "n3", name="the worker that leaves it out")
    if box.book.engine.dialect.name == "postgresql":
        # others than SQLite let it look before the first has committed
        eventually(lambda: bool(box.book.read(lambda session: session.scalar(WAITS))))
    end.set()
    assert other.join(60)
    assert leaves.join(60)
    node = box.book.read(lambda session: hosts.node_by_name(session, "n3b"))
    assert node is not None
    assert node.host == "n2"


WAITS = sa.text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")


def test_an_older_incarnation_is_told_to_end(box: Box) -> None:
    old = box.incarnations["n1"]
    box.register("n1")
    assert box.call("heartbeat", Heartbeat("n1", old), Heard).superseded
    assert not box.beat("n1").superseded


def is_up(box: Box, host: str) -> bool:
    """Whether servers may be placed there."""
    return box.book.read(lambda session: hosts.host_is_up(session, host, box.settings.times.service_down))


def heard(box: Box, **said: object) -> Heard:
    """A heartbeat of n1 that says this."""
    record = msgspec.structs.replace(Heartbeat("n1", box.incarnations["n1"]), **said)
    return box.call("heartbeat", record, Heard)


def test_a_worker_gets_the_echo_that_it_asks_for_through_its_own_queue(box: Box) -> None:
    assert heard(box, echo=7).echoed
    assert box.compute.echoes == [("n1", Echo(box.incarnations["n1"], 7))]


def test_a_worker_that_asks_for_no_echo_gets_none(box: Box) -> None:
    assert not heard(box).echoed
    assert box.compute.echoes == []


def test_an_echo_that_the_broker_did_not_take_is_not_counted(box: Box) -> None:
    box.compute.away = True
    assert not heard(box, echo=7).echoed


def test_an_echo_for_a_queue_that_is_gone_counts_as_one_that_does_not_come(box: Box) -> None:
    box.compute.deaf.add("n1")
    assert heard(box, echo=7).echoed


def test_an_older_incarnation_gets_no_echo(box: Box) -> None:
    old = box.incarnations["n1"]
    box.register("n1")
    assert box.call("heartbeat", Heartbeat("n1", old, echo=7), Heard) == Heard(superseded=True)
    assert box.compute.echoes == []


def test_a_worker_is_up_until_when_messages_have_reached_it(box: Box) -> None:
    """F048: its heartbeats alone do not keep it up."""
    down = box.settings.times.service_down
    heard(box, unheard=down - 1)
    assert is_up(box, "n1")
    heard(box, unheard=down + 1)
    assert not is_up(box, "n1")
    heard(box)
    assert is_up(box, "n1")


def test_a_deaf_worker_is_an_error_in_the_log_and_a_number(
    box: Box, caplog: pytest.LogCaptureFixture
) -> None:
    heard(box, unheard=box.settings.times.service_down + 5, deaf=True, ready=False)
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert any("host n1 takes nothing from its queue" in error for error in errors)
    assert not is_up(box, "n1")
    assert box.metrics.deaf.labels("n1")._value.get() == 1

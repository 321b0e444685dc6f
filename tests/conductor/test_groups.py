"""Where a server may be, held exactly: groups and zones are looked at again when its claim is written."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from pinfold.db import aggregates, server_groups, starts
from pinfold.db.models import Instance
from pinfold.db.server_groups import GroupRow
from pinfold.model import states
from pinfold.model.work import Work
from tests.conductor.box import WHO, Box, pinned
from tests.conductor.conftest import MakeBox


def a_group(box: Box, policy: str, most: int | None = None) -> str:
    id_ = box.runtime.new_id()
    row = GroupRow(id_, "project", "user", "g", policy, most)
    box.book.write(lambda session: server_groups.add(session, row))
    return id_


def ask(box: Box, group: str | None = None, zone: str | None = None, *, vcpus: int = 1, **hints: Any) -> str:
    """POST a server; nobody has been rung yet."""
    if group is not None:
        hints["group"] = group
    row = Instance(
        id=box.runtime.new_id(),
        project_id="project",
        user_id="user",
        name="a",
        hostname="a",
        reservation_id="r-1",
        vm_state="",
        image_ref="tiny",
        flavor={"name": "p"},
        demand=pinned(vcpus),
        hints=hints,
        availability_zone=zone,
    )

    def write(session: Any) -> None:
        starts.create(session, [row], WHO, box.times, operation_ids=[box.runtime.new_id()])
        if group is not None:
            server_groups.locked(session, group)
            server_groups.join(session, group, [row.id])

    box.book.write(write)
    return row.id


def cast(box: Box, server: str) -> Work:
    """The conductor decides; what it casts."""
    before = len(box.compute.work)
    box.runner.run(box.operation(server).id)
    assert len(box.compute.work) == before + 1, box.server(server).fault
    return box.last


def boot(box: Box, group: str | None = None, **fields: Any) -> str:
    server = ask(box, group, **fields)
    work = cast(box, server)
    assert box.claim(work).outcome == "accepted"
    assert box.finish(work).done
    return server


def host_of(box: Box, server: str) -> str:
    ((_role, node),) = box.claims(server)
    return node


def fails(box: Box, server: str) -> str:
    """It finds no host; why."""
    box.runner.run(box.operation(server).id)
    row = box.server(server)
    assert row.vm_state == states.ERROR
    assert row.fault is not None
    text: str = row.fault["message"]
    return text


# --- groups -----------------------------------------------------------------------------------------


def test_members_of_an_anti_affinity_group_never_share_a_host(box: Box) -> None:
    group = a_group(box, "anti-affinity")
    assert {host_of(box, boot(box, group)), host_of(box, boot(box, group))} == {"n1", "n2"}
    assert "2 have as many of its server group as it may have" in fails(box, ask(box, group))


def test_two_that_were_sent_to_one_host_at_once_do_not_both_stay(box: Box) -> None:
    """Both are scheduled before either has claimed; the second claim is refused and goes on to the other host."""
    group = a_group(box, "anti-affinity")
    one, other = ask(box, group), ask(box, group)
    first, second = cast(box, one), cast(box, other)
    while second.node != first.node:
        box.age(other)
        second = cast(box, other)
    assert box.claim(first).outcome == "accepted"
    assert box.claim(second).outcome == "refused"
    again = box.last
    assert (again.instance, again.attempt) == (other, second.attempt + 1)
    assert again.node != first.node
    assert box.claim(again).outcome == "accepted"
    assert box.claims(one) != box.claims(other)
    box.check()


def test_a_refused_claim_of_a_member_says_which_rule_it_was(box: Box) -> None:
    group = a_group(box, "anti-affinity")
    one, other = ask(box, group), ask(box, group)
    first, second = cast(box, one), cast(box, other)
    while second.node != first.node:
        box.age(other)
        second = cast(box, other)
    box.claim(first)
    box.claim(second)
    (refusal,) = box.operation(other).refusals
    assert (refusal["host"], refusal["reasons"][0]["constraint"]) == (first.host, "anti-affinity")


def build(box: Box, server: str) -> None:
    """What a conductor and workers do with it until it runs, or there is no host left to try."""
    box.runner.run(box.operation(server).id)
    done = 0
    while mine := [work for work in list(box.compute.work) if work.instance == server][done:]:
        done += len(mine)
        if any(try_on(box, work) for work in mine):
            return


def try_on(box: Box, work: Work) -> bool:
    """What one worker does: fit, claim (again where others were faster), spawn."""
    while (answer := box.try_claim(work)) is not None:
        if answer.outcome == "accepted":
            assert box.finish(work).done
            return True
        if answer.outcome == "refused":
            return False
    box.abort(work, "claim", code="no-fit", message="It does not fit.")
    return False


def test_f047_with_room_for_k_exactly_k_of_n_at_once_run_and_no_two_share_a_cpu(box: Box) -> None:
    for _round in range(5):
        servers = [ask(box, vcpus=4) for _ in range(5)]
        tasks = [box.runtime.spawn(build, box, server, name=server) for server in servers]
        assert all(task.join(120) for task in tasks)
        found = sorted(box.server(server).vm_state for server in servers)
        assert found == [states.ACTIVE] * 4 + [states.ERROR]
        assert [len(box.used(node)) for node in ("n1", "n2")] == [8, 8]
        box.check()
        for server in servers:
            box.ask("delete", server)
            if box.claims(server):
                work = box.last
                box.begin(work, "destroy")
                assert box.finish(work).done


def test_storms_on_an_anti_affinity_group_leave_one_on_each_host(make_box: MakeBox) -> None:
    """F047, F097 in kind: n at once against room for k leave exactly k, on k hosts."""
    box = make_box()
    hosts = [f"n{number}" for number in range(4)]
    for host in hosts:
        box.register(host)
    group = a_group(box, "anti-affinity")
    servers = [ask(box, group) for _ in range(10)]

    tasks = [box.runtime.spawn(build, box, server, name=server) for server in servers]
    assert all(task.join(120) for task in tasks)
    placed = [host_of(box, server) for server in servers if box.server(server).vm_state == states.ACTIVE]
    assert sorted(placed) == hosts
    assert [box.server(server).vm_state for server in servers].count(states.ERROR) == 6
    box.check()


def test_an_affinity_group_stays_on_one_host_even_when_its_first_two_come_at_once(box: Box) -> None:
    group = a_group(box, "affinity")
    one, other = ask(box, group), ask(box, group)
    first, second = cast(box, one), cast(box, other)
    while second.node == first.node:
        box.age(other)
        second = cast(box, other)
    assert box.claim(first).outcome == "accepted"
    assert box.claim(second).outcome == "refused"
    assert box.claim(box.last).outcome == "accepted"
    assert host_of(box, one) == host_of(box, other)


def test_a_rule_may_allow_several_on_a_host(box: Box) -> None:
    group = a_group(box, "anti-affinity", 2)
    hosts = sorted(host_of(box, boot(box, group)) for _ in range(4))
    assert hosts == ["n1", "n1", "n2", "n2"]
    fails(box, ask(box, group))


def test_soft_policies_give_way(box: Box) -> None:
    group = a_group(box, "soft-anti-affinity")
    assert sorted(host_of(box, boot(box, group)) for _ in range(4)) == ["n1", "n1", "n2", "n2"]
    group = a_group(box, "soft-affinity")
    assert len({host_of(box, boot(box, group)) for _ in range(3)}) == 1


def test_the_rule_holds_at_an_unshelve_too(box: Box) -> None:
    group = a_group(box, "anti-affinity")
    one, other = boot(box, group), boot(box, group)
    gone_from = host_of(box, one)
    box.shelve(one)
    box.ask("unshelve", one)
    assert box.last.node == gone_from
    assert box.claim(box.last).outcome == "accepted"
    assert host_of(box, other) != gone_from


def test_a_deleted_group_and_deleted_members_hold_nobody_back(box: Box) -> None:
    group = a_group(box, "anti-affinity")
    one = boot(box, group)
    box.ask("delete", one)
    box.begin(box.last, "destroy")
    assert box.finish(box.last).done
    boot(box, group)
    boot(box, group)
    lonely = ask(box, group)
    box.book.write(lambda session: server_groups.delete(session, group))
    cast(box, lonely)


# --- zones ------------------------------------------------------------------------------------------


def into_zone(box: Box, host: str, zone: str) -> int:
    def write(session: Any) -> int:
        row = aggregates.add(session, box.runtime.new_id(), zone, zone)
        aggregates.add_host(session, row.id, host)
        return row.id

    return box.book.write(write)


def test_a_pinned_server_stays_in_its_zone_at_every_placement(box: Box) -> None:
    into_zone(box, "n2", "az1")
    for zone, host in (("az1", "n2"), ("nova", "n1")):
        server = boot(box, zone=zone)
        assert host_of(box, server) == host
        box.shelve(server)
        box.ask("unshelve", server)
        assert box.last.node == host


def test_a_host_that_changed_its_zone_meanwhile_is_refused_at_the_claim(box: Box) -> None:
    server = ask(box, zone="nova")
    work = cast(box, server)
    into_zone(box, work.host, "az1")
    assert box.claim(work).outcome == "refused"
    assert box.last.node != work.node
    assert box.claim(box.last).outcome == "accepted"


def test_a_zone_without_hosts_is_an_error_that_says_so(box: Box) -> None:
    assert "2 are not in its availability zone" in fails(box, ask(box, zone="gone"))


# --- hints ------------------------------------------------------------------------------------------


def test_hints_name_servers_to_be_with_and_to_be_away_from(box: Box) -> None:
    other = boot(box)
    assert host_of(box, boot(box, same_host=[other])) == host_of(box, other)
    assert host_of(box, boot(box, different_host=other)) != host_of(box, other)


def test_to_be_with_a_server_that_is_not_there_is_an_error(box: Box) -> None:
    text = fails(box, ask(box, same_host=[box.runtime.new_id()]))
    assert "have none of the servers that it is to be with" in text


def test_servers_of_other_projects_are_nobodys_business(box: Box) -> None:
    theirs = boot(box)
    box.book.write(
        lambda session: session.execute(
            sa.update(Instance).where(Instance.id == theirs).values(project_id="other")
        )
    )
    fails(box, ask(box, same_host=[theirs]))


def test_once_it_has_run_it_does_not_look_for_companions_that_are_gone(box: Box) -> None:
    other = boot(box)
    server = boot(box, same_host=[other])
    box.shelve(server)
    box.ask("delete", other)
    box.begin(box.last, "destroy")
    assert box.finish(box.last).done
    box.ask("unshelve", server)
    assert box.claim(box.last).outcome == "accepted"


def test_f063_what_one_operation_asked_for_is_not_asked_for_again(box: Box) -> None:
    """Booted on a host that was named, and unshelved to one that was named: later it may be anywhere."""
    server = box.boot(pinned(1), host="n1")
    assert host_of(box, server) == "n1"
    row = box.server(server)
    assert (row.hints, row.availability_zone) == ({}, None)
    box.shelve(server)
    box.ask("unshelve", server, arguments={"host": "n2"})
    assert box.last.node == "n2"
    box.claim(box.last)
    box.finish(box.last)
    box.shelve(server)
    box.ask("unshelve", server)
    assert set(box.operation(server).targets) == {"n1", "n2"}
    assert (box.server(server).hints, box.server(server).availability_zone) == ({}, None)

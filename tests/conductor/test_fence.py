"""The attempt is the fence: doubled, late and forged messages change nothing."""

from __future__ import annotations

import msgspec

from pinfold.model import states
from pinfold.model.work import Work
from pinfold.rpcapi.messages import Release, Released
from tests.conductor.box import Box, pinned


def later(work: Work) -> Work:
    """The same work in an attempt that nobody has cast."""
    return msgspec.structs.replace(work, attempt=work.attempt + 1)


def test_a_step_is_accepted_again_for_the_same_attempt_and_for_no_other(box: Box) -> None:
    """F023."""
    server = box.boot()
    box.ask("shelve", server)
    assert box.begin(box.last, "power_off").accepted
    assert box.begin(box.last, "power_off").accepted
    assert not box.begin(later(box.last), "power_off").accepted
    assert len(box.operation(server).log) == 1


def test_a_claim_made_again_is_the_same_claim(box: Box) -> None:
    """F023: its reply may have been lost."""
    box.ask_create(pinned(4))
    work = box.last
    first = box.claim(work)
    again = box.claim(work)
    assert (again.outcome, again.claim, again.placement) == ("accepted", first.claim, first.placement)
    assert len(box.used(work.node)) == 4
    box.check()


def test_a_claim_of_an_old_attempt_is_refused(box: Box) -> None:
    server = box.ask_create()
    old = box.last
    box.age(server)
    box.sweep()
    assert box.last.attempt > old.attempt
    assert box.claim(old).outcome == "refused"
    assert box.claim(box.last).outcome == "accepted"


def test_a_claim_planned_on_an_old_generation_gets_the_fresh_view(box: Box) -> None:
    box.boot(pinned(4), node="n1")
    box.ask_create(pinned(4), node="n1")
    stale = box.claim(box.last, generation=0)
    assert stale.outcome == "stale"
    assert stale.view is not None
    assert len(stale.view.claims) == 1
    assert box.claim(box.last).outcome == "accepted"


def test_a_claim_of_another_hosts_node_is_refused(box: Box) -> None:
    box.ask_create(node="n1")
    forged = msgspec.structs.replace(box.last, host="n2")
    assert box.claim(forged).outcome == "refused"
    assert box.used("n1") == set()


def test_finish_is_answered_done_for_ever_once_it_was(box: Box) -> None:
    """R10."""
    server = box.boot()
    assert box.finish(box.last).done
    work = box.last
    box.shelve(server)
    assert box.finish(work).done
    assert not box.finish(later(work)).done


def test_a_finish_after_a_delete_took_over_is_refused(box: Box) -> None:
    """F019: deleted while it spawns; the guest is the delete's to remove, and the claim is held until then."""
    server = box.ask_create(pinned(4))
    spawning = box.last
    box.claim(spawning)
    box.ask("delete", server)
    deleting = box.last
    assert deleting.kind == "delete"
    assert not box.finish(spawning).done
    assert len(box.used(spawning.node)) == 4
    box.begin(deleting, "destroy")
    box.finish(deleting, 0)
    assert box.used(spawning.node) == set()
    assert box.server(server).vm_state == states.DELETED


def test_a_delete_before_the_claim_is_done_without_a_message(box: Box) -> None:
    """F018, F019, F020: no claim, so no worker is told; its late claim is refused."""
    server = box.ask_create(pinned(4))
    late = box.last
    casts = len(box.compute.work)
    box.ask("delete", server)
    assert len(box.compute.work) == casts
    assert box.claim(late).outcome == "refused"
    assert box.used(late.node) == set()
    assert box.operation(server).kind == "delete"


def test_a_late_abort_frees_nothing(box: Box) -> None:
    """F006: by then the CPUs may be somebody else's."""
    server = box.ask_create(pinned(4), node="n1")
    old = box.last
    box.claim(old)
    box.abort(old)
    assert box.used("n1") == set()
    box.boot(pinned(4), name="b", node="n1")
    held = box.used("n1")
    assert not box.abort(old).accepted
    assert box.used("n1") == held
    assert box.server(server).vm_state == states.ERROR


def test_release_frees_a_leftover_named_by_its_id_and_nothing_else(box: Box) -> None:
    """R5."""
    server = box.boot(pinned(4))
    node = box.last.node
    claim_id = box.view(node).claims[0].id

    def release(claim_id: str) -> Released:
        return box.call("release", Release(node, box.incarnations[node], node, claim_id), Released)

    assert not release(claim_id).released
    box.die(node)
    box.ask("delete", server)
    assert not release("another").released
    assert release(claim_id).released
    assert not release(claim_id).released
    assert box.used(node) == set()


def test_a_superseded_shelve_leaves_no_image(box: Box) -> None:
    """F092."""
    server = box.boot()
    box.ask("shelve", server)
    shelving = box.last
    box.begin(shelving, "power_off")
    box.make_image(shelving.snapshot or "")
    box.ask("delete", server)
    refused = box.begin(shelving, "record")
    assert (refused.accepted, refused.undo) == (False, True)
    box.sweep()
    assert box.images.list() == []

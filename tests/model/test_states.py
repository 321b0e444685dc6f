"""The transition table says all there is to say about what follows what."""

from __future__ import annotations

import pytest

from pinfold.model import errors, power, states


def test_every_state_and_kind_of_the_table_is_declared() -> None:
    for line in states.TRANSITIONS:
        assert {line.before, line.after} <= states.VM_STATES.keys()
        assert line.kind in states.KINDS
        assert line.why


def test_no_line_stands_twice() -> None:
    keys = [(line.kind, line.before, line.outcome) for line in states.TRANSITIONS]
    assert len(keys) == len(set(keys))


def test_every_operation_can_end_well_and_fail_from_each_state_it_may_start_in() -> None:
    for kind in (kind.name for kind in states.KINDS.values() if kind.steps):
        for vm_state in states.VM_STATES:
            if not states.may_start(kind, vm_state):
                continue
            outcomes = {
                line.outcome for line in states.TRANSITIONS if (line.kind, line.before) == (kind, vm_state)
            }
            assert outcomes & {states.DONE, states.OFFLOADED, states.RECORDED}
            # a delete is never undone
            assert states.FAILED in outcomes or kind in ("delete", "force_delete")


def test_only_a_delete_leads_to_deleted_and_it_may_start_anywhere_else() -> None:
    for line in states.TRANSITIONS:
        assert (line.after == states.DELETED) == (line.kind in ("delete", "force_delete"))
    assert all(states.may_start("delete", state) for state in states.VM_STATES if state != states.DELETED)


def test_a_server_that_is_being_built_always_shows_a_task() -> None:
    assert [step.shows for step in states.KINDS["create"].steps] == ["scheduling", "spawning", "spawning"]


def test_an_open_operation_is_only_taken_over_by_a_delete_a_hard_reboot_a_reset_or_an_evacuation() -> None:
    taken = {
        kind.name: {other for other in states.KINDS if kind.may_take_over(other)}
        for kind in states.KINDS.values()
    }
    everything = {"delete", "force_delete", "soft_delete", "reset_state", "evacuate"}
    for kind, others in taken.items():
        if kind in everything:
            assert others == states.KINDS.keys()
        elif kind == "hard_reboot":
            assert others == {"reboot", "hard_reboot", "pause", "unpause", "suspend", "resume"}
        else:
            assert others == set()


def test_an_open_operation_that_may_not_be_taken_over_is_named() -> None:
    with pytest.raises(errors.Conflict, match="operation shelve is under way"):
        states.require_start("hard_reboot", states.ACTIVE, "shelve")
    states.require_start("hard_reboot", states.ACTIVE, "pause")


def test_no_operation_but_an_offload_a_delete_or_a_failed_rebuild_loses_what_a_server_was() -> None:
    """What fails leaves the server as it was."""
    for line in states.TRANSITIONS:
        if line.outcome == states.FAILED and line.kind != "create":
            assert line.after == line.before, line


@pytest.mark.parametrize("vm_state", states.VM_STATES)
@pytest.mark.parametrize("seen", [0, 1, 3, 4, 6, 7])
def test_what_follows_from_what_a_guest_does(vm_state: str, seen: int) -> None:
    """The compute API's table of power states: active and off, stopped and not off, paused and off. And what is to be
    off is off."""
    on = {power.RUNNING, power.PAUSED, power.SUSPENDED}
    stop = {
        states.ACTIVE: {power.SHUTDOWN, power.CRASHED, power.SUSPENDED},
        states.STOPPED: on,
        states.PAUSED: {power.SHUTDOWN, power.CRASHED},
        states.SHELVED: on,
        states.SOFT_DELETED: on,
    }
    follow = power.follow(vm_state, seen)
    assert (follow == "stop") == (seen in stop.get(vm_state, ()))
    if seen == power.OF_STATE.get(vm_state):
        assert follow == "nothing"
    if follow == "stop":
        after = vm_state if vm_state in (states.SHELVED, states.SOFT_DELETED) else states.STOPPED
        assert states.after("power_sync", vm_state, states.DONE) == after


@pytest.mark.parametrize("vm_state", states.VM_STATES)
@pytest.mark.parametrize("seen", [1, 3, 4, 6, 7])
def test_what_a_failed_operation_has_left_runs_again_or_is_off_as_it_should_be(
    vm_state: str, seen: int
) -> None:
    """Nothing that an operation on a guest can leave stays as it is."""
    follow = power.follow(vm_state, seen, failed=True)
    if vm_state in (states.ACTIVE, states.PAUSED, states.SUSPENDED, states.STOPPED, states.SHELVED):
        fits = seen == power.OF_STATE[vm_state] or power.follow(vm_state, seen) == "nothing"
        assert (follow == "nothing") == fits
    if follow == "run":
        assert states.after("power_restore", vm_state, states.DONE) == states.ACTIVE


@pytest.mark.parametrize(
    ("vm_state", "task", "status"),
    [
        ("active", "rebooting", "REBOOT"),
        ("active", "reboot_started", "REBOOT"),
        ("active", "rebooting_hard", "HARD_REBOOT"),
        ("active", "reboot_started_hard", "HARD_REBOOT"),
        ("stopped", "rebooting_hard", "SHUTOFF"),
        ("active", "rebuilding", "REBUILD"),
        ("stopped", "rebuild_spawning", "REBUILD"),
        ("error", "rebuilding", "REBUILD"),
        ("paused", "unpausing", "PAUSED"),
        ("active", "image_uploading", "ACTIVE"),
        ("soft-delete", "restoring", "SOFT_DELETED"),
    ],
)
def test_the_status_says_what_is_being_done(vm_state: str, task: str, status: str) -> None:
    assert states.status(vm_state, task) == status


def test_a_wrong_state_is_refused_with_the_right_ones_named() -> None:
    with pytest.raises(errors.Conflict, match="vm_state is active; it must be shelved"):
        states.require_start("shelve_offload", states.ACTIVE, None)


@pytest.mark.parametrize(
    ("vm_state", "status"),
    [
        ("active", "ACTIVE"),
        ("building", "BUILD"),
        ("stopped", "SHUTOFF"),
        ("shelved_offloaded", "SHELVED_OFFLOADED"),
    ],
)
def test_the_status_is_the_one_that_clients_know(vm_state: str, status: str) -> None:
    assert states.status(vm_state, None) == status

"""The transition table says all there is to say about what follows what."""

from __future__ import annotations

import pytest

from pinfold.model import errors, states


def test_every_state_and_kind_of_the_table_is_declared() -> None:
    for line in states.TRANSITIONS:
        assert {line.before, line.after} <= states.VM_STATES.keys()
        assert line.kind in states.KINDS
        assert line.why


def test_no_line_stands_twice() -> None:
    keys = [(line.kind, line.before, line.outcome) for line in states.TRANSITIONS]
    assert len(keys) == len(set(keys))


def test_every_operation_can_end_well_and_fail_from_each_state_it_may_start_in() -> None:
    for kind in states.KINDS:
        for vm_state in states.VM_STATES:
            if not states.may_start(kind, vm_state):
                continue
            outcomes = {
                line.outcome for line in states.TRANSITIONS if (line.kind, line.before) == (kind, vm_state)
            }
            assert outcomes & {states.DONE, states.OFFLOADED, states.RECORDED}
            # a delete is never undone
            assert states.FAILED in outcomes or "delete" in kind


def test_only_a_delete_leads_to_deleted_and_it_may_start_anywhere_else() -> None:
    for line in states.TRANSITIONS:
        assert (line.after == states.DELETED) == (line.kind in ("delete", "force_delete"))
    assert all(states.may_start("delete", state) for state in states.VM_STATES if state != states.DELETED)


def test_a_server_that_is_being_built_always_shows_a_task() -> None:
    assert [step.shows for step in states.KINDS["create"].steps] == ["scheduling", "spawning", "spawning"]


def test_an_open_operation_is_only_taken_over_by_a_delete() -> None:
    for kind, declared in states.KINDS.items():
        vm_state = next(state for state in states.VM_STATES if states.may_start(kind, state))
        if declared.takes_over:
            states.require_start(kind, vm_state, "shelve")
        else:
            with pytest.raises(errors.Conflict, match="operation shelve is under way"):
                states.require_start(kind, vm_state, "shelve")


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

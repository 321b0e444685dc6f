"""What every driver promises, whatever runs the guests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from pinfold.virt.driver import (
    PAUSED,
    RUNNING,
    SHUTDOWN,
    SUSPENDED,
    Driver,
    DriverError,
    Guest,
    GuestNotFound,
)
from tests.virt.conftest import Hypervisor, spec

ABSENT = "11111111-2222-3333-4444-555555555555"


def pieces(content: bytes, size: int = 30_000) -> Iterator[bytes]:
    return (content[start : start + size] for start in range(0, len(content), size))


def spawn(
    driver: Driver,
    hypervisor: Hypervisor,
    instance: str | None = None,
    *,
    pins: Sequence[int] = (),
    disk_gb: int = 1,
) -> str:
    """A running guest on node ``a``; its instance."""
    guest = spec(instance, pins=pins, disk_gb=disk_gb)
    driver.spawn(guest, pieces(hypervisor.image()))
    return guest.instance


def call(driver: Driver, name: str, instance: str) -> int:
    return int(getattr(driver, name)("a", instance))


def disk(driver: Driver, instance: str) -> bytes:
    return b"".join(driver.snapshot("a", instance))


def state(driver: Driver, instance: str) -> int:
    return next(guest.power_state for guest in driver.list("a") if guest.instance == instance)


def test_a_hypervisor_names_its_nodes_and_describes_each_machine(driver: Driver) -> None:
    assert driver.nodes() == ("a", "b")
    machine = driver.inventory("b")
    assert machine.node == "b"
    for cell in machine.cells:
        assert frozenset().union(*cell.siblings) == cell.cpus
        assert cell.memory_mb > 0


def test_a_spawned_guest_runs_and_is_listed_on_its_node_alone(driver: Driver, hypervisor: Hypervisor) -> None:
    guest = spec(pins=[1, 2])
    driver.spawn(guest, pieces(hypervisor.image()))
    assert driver.list("a") == (Guest(guest.instance, "a", RUNNING, guest.name),)
    assert driver.list("b") == ()


def test_a_guest_without_pins_floats(driver: Driver, hypervisor: Hypervisor) -> None:
    assert state(driver, spawn(driver, hypervisor)) == RUNNING


def test_a_spawn_that_is_repeated_replaces_the_guest(driver: Driver, hypervisor: Hypervisor) -> None:
    instance = spawn(driver, hypervisor, pins=[1])
    hypervisor.write_disk(instance, 0, b"of the first")
    spawn(driver, hypervisor, instance, pins=[1])
    assert [guest.instance for guest in driver.list("a")] == [instance]
    assert not disk(driver, instance).startswith(b"of the first")


@pytest.mark.parametrize("power_on", [True, False])
def test_a_rebuilt_guest_has_the_disk_and_the_place_that_it_is_given(
    driver: Driver, hypervisor: Hypervisor, power_on: bool
) -> None:
    instance = spawn(driver, hypervisor, pins=[1])
    hypervisor.write_disk(instance, 0, b"of the first")
    for _ in range(2):
        guest = spec(instance, pins=[2])
        ends = driver.rebuild(guest, pieces(hypervisor.image()), power_on=power_on)
        assert ends == state(driver, instance) == (RUNNING if power_on else SHUTDOWN)
        assert disk(driver, instance).startswith(hypervisor.image())
    assert state(driver, spawn(driver, hypervisor, pins=[1])) == RUNNING


def test_a_guest_that_is_not_there_is_made_by_a_rebuild(driver: Driver, hypervisor: Hypervisor) -> None:
    """The rebuild before it was cut short."""
    guest = spec(pins=[1])
    driver.rebuild(guest, pieces(hypervisor.image()))
    assert state(driver, guest.instance) == RUNNING


def test_a_rebuild_whose_image_breaks_off_fails(driver: Driver, hypervisor: Hypervisor) -> None:
    instance = spawn(driver, hypervisor, pins=[1])

    def broken() -> Iterator[bytes]:
        yield b"a piece"
        raise ConnectionError("the store is gone")

    with pytest.raises((DriverError, ConnectionError)):
        driver.rebuild(spec(instance, pins=[1]), broken())
    driver.rebuild(spec(instance, pins=[1]), pieces(hypervisor.image()))
    assert disk(driver, instance).startswith(hypervisor.image())


def test_a_destroyed_guest_is_gone_and_may_be_destroyed_again(driver: Driver, hypervisor: Hypervisor) -> None:
    instance = spawn(driver, hypervisor)
    driver.destroy("a", instance)
    driver.destroy("a", instance)
    assert driver.list("a") == ()
    with pytest.raises(GuestNotFound):
        disk(driver, instance)


def test_destroying_one_guest_leaves_the_others(driver: Driver, hypervisor: Hypervisor) -> None:
    kept, gone = spawn(driver, hypervisor, pins=[1]), spawn(driver, hypervisor, pins=[2])
    driver.destroy("a", gone)
    assert [guest.instance for guest in driver.list("a")] == [kept]


def test_the_cpus_of_a_destroyed_guest_serve_the_next_one(driver: Driver, hypervisor: Hypervisor) -> None:
    driver.destroy("a", spawn(driver, hypervisor, pins=[1, 2]))
    assert state(driver, spawn(driver, hypervisor, pins=[1, 2])) == RUNNING


def test_a_disk_starts_with_the_image(driver: Driver, hypervisor: Hypervisor) -> None:
    assert disk(driver, spawn(driver, hypervisor)).startswith(hypervisor.image())


def test_what_was_written_before_a_shelve_is_there_after_the_unshelve(
    driver: Driver, hypervisor: Hypervisor
) -> None:
    instance = spawn(driver, hypervisor, pins=[1])
    hypervisor.write_disk(instance, 70_000, b"precious")
    driver.power_off("a", instance)
    shelved = disk(driver, instance)
    driver.destroy("a", instance)
    driver.spawn(spec(instance, pins=[2]), pieces(shelved))
    assert disk(driver, instance) == shelved
    assert shelved[70_000:70_008] == b"precious"


def test_a_disk_may_be_as_large_as_its_image(driver: Driver, hypervisor: Hypervisor) -> None:
    assert disk(driver, spawn(driver, hypervisor, disk_gb=0)) == hypervisor.image()


def test_an_image_that_breaks_off_leaves_no_guest(driver: Driver) -> None:
    def broken() -> Iterator[bytes]:
        yield b"the first piece"
        raise ConnectionResetError("the store went away")

    with pytest.raises((DriverError, ConnectionResetError)):
        driver.spawn(spec(), broken())
    assert driver.list("a") == ()


@pytest.mark.parametrize(
    ("before", "name", "after"),
    [
        ([], "power_off", SHUTDOWN),
        (["pause"], "power_off", SHUTDOWN),
        (["suspend"], "power_off", SHUTDOWN),
        (["power_off"], "power_on", RUNNING),
        (["suspend"], "power_on", RUNNING),
        ([], "reboot", RUNNING),
        ([], "pause", PAUSED),
        (["pause"], "unpause", RUNNING),
        ([], "suspend", SUSPENDED),
        (["pause"], "suspend", SUSPENDED),
        (["suspend"], "resume", RUNNING),
    ],
)
def test_a_change_of_power_ends_where_it_says_and_may_be_repeated(
    driver: Driver, hypervisor: Hypervisor, before: list[str], name: str, after: int
) -> None:
    instance = spawn(driver, hypervisor)
    for earlier in before:
        call(driver, earlier, instance)
    assert [call(driver, name, instance) for _ in range(2)] == [after, after]
    assert state(driver, instance) == after


@pytest.mark.parametrize(
    ("before", "name"),
    [
        ("power_off", "reboot"),
        ("power_off", "pause"),
        ("power_off", "suspend"),
        ("power_off", "resume"),
        ("suspend", "pause"),
        ("suspend", "unpause"),
        ("pause", "resume"),
        ("pause", "reboot"),
    ],
)
def test_a_change_of_power_that_the_guest_cannot_make_changes_nothing(
    driver: Driver, hypervisor: Hypervisor, before: str, name: str
) -> None:
    instance = spawn(driver, hypervisor)
    there = call(driver, before, instance)
    with pytest.raises(DriverError):
        call(driver, name, instance)
    assert state(driver, instance) == there


@pytest.mark.parametrize("before", ["power_off", "power_on", "pause", "suspend"])
def test_a_hard_reboot_runs_any_guest(driver: Driver, hypervisor: Hypervisor, before: str) -> None:
    instance = spawn(driver, hypervisor)
    call(driver, before, instance)
    assert driver.reboot("a", instance, hard=True) == RUNNING == state(driver, instance)


@pytest.mark.parametrize("name", ["power_on", "power_off", "reboot", "pause", "unpause", "suspend", "resume"])
def test_a_guest_that_is_not_there_is_named_in_the_refusal(driver: Driver, name: str) -> None:
    with pytest.raises(GuestNotFound, match=ABSENT):
        call(driver, name, ABSENT)


def test_no_snapshot_or_console_of_a_guest_that_is_not_there(driver: Driver) -> None:
    with pytest.raises(GuestNotFound):
        disk(driver, ABSENT)
    with pytest.raises(GuestNotFound):
        driver.console_log("a", ABSENT)


def test_the_console_keeps_what_was_printed_and_shows_as_many_lines_as_asked(
    driver: Driver, hypervisor: Hypervisor
) -> None:
    instance = spawn(driver, hypervisor)
    driver.reboot("a", instance, hard=True)
    whole = driver.console_log("a", instance)
    assert whole.lower().count("boot") >= 2
    assert driver.console_log("a", instance, 1) == whole.splitlines(keepends=True)[-1]
    assert driver.console_log("a", instance, 0) == ""


def test_guests_outlive_the_driver_that_started_them(driver: Driver, hypervisor: Hypervisor) -> None:
    running, stopped = spawn(driver, hypervisor, pins=[1]), spawn(driver, hypervisor, pins=[2])
    driver.power_off("a", stopped)
    again = hypervisor.driver()
    assert again.list("a") == driver.list("a")
    assert (state(again, running), state(again, stopped)) == (RUNNING, SHUTDOWN)


def test_what_one_driver_changes_another_sees(driver: Driver, hypervisor: Hypervisor) -> None:
    other = hypervisor.driver()
    instance = spawn(driver, hypervisor)
    assert state(driver, instance) == state(other, instance) == RUNNING
    other.power_off("a", instance)
    assert state(driver, instance) == SHUTDOWN
    other.destroy("a", instance)
    assert driver.list("a") == ()


def moved(driver: Driver, hypervisor: Hypervisor, instance: str | None = None, *, same_node: bool) -> str:
    """A guest that has come to node ``a`` with the disk of the image; its instance."""
    guest = spec(instance, pins=[1])
    driver.finish_migration(guest, pieces(hypervisor.image()), power_on=True, same_node=same_node)
    return guest.instance


def test_a_guest_that_moves_on_its_node_can_go_back_however_often_its_arrival_is_repeated(
    driver: Driver, hypervisor: Hypervisor
) -> None:
    instance = spawn(driver, hypervisor, pins=[1])
    hypervisor.write_disk(instance, 0, b"before the move")
    driver.power_off("a", instance)
    for _ in range(2):
        moved(driver, hypervisor, instance, same_node=True)
        assert state(driver, instance) == RUNNING
    assert driver.revert_migration("a", instance) == SHUTDOWN
    assert disk(driver, instance).startswith(b"before the move")


def test_an_arrival_from_another_node_that_is_repeated_leaves_nothing_to_go_back_to(
    driver: Driver, hypervisor: Hypervisor
) -> None:
    """R6: what a worker had made before it died is no guest's past."""
    instance = moved(driver, hypervisor, same_node=False)
    moved(driver, hypervisor, instance, same_node=False)
    hypervisor.write_disk(instance, 0, b"since the move")
    driver.revert_migration("a", instance)
    assert disk(driver, instance).startswith(b"since the move")
    assert [guest.instance for guest in driver.list("a")] == [instance]

"""The fake hypervisor: what it refuses, what it keeps on disk, and that no kill tears it."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinfold.model import errors
from pinfold.model.host import Hypervisor
from pinfold.model.numa import HostPages, PlacedCell, Placement
from pinfold.runtime import RealRuntime
from pinfold.virt.driver import SHUTDOWN, DriverError, GuestSpec, MachineCell, Source
from pinfold.virt.fake import FakeDriver
from pinfold.virt.guests import CONSOLE_KEPT, guest_folder
from pinfold.virt.witness import Refused
from tests.virt.conftest import pinned, spec

IMAGE = b"tiny" * 1000


@pytest.fixture
def driver(tmp_path: Path) -> FakeDriver:
    return opened(tmp_path)


def opened(root: Path, memory_ratio: float = 1.0) -> FakeDriver:
    state = str(root / "host-1")
    return FakeDriver(RealRuntime(), "host-1", ["a", "b"], state, memory_ratio=memory_ratio)


def spawn(driver: FakeDriver, guest: GuestSpec, image: bytes = IMAGE) -> None:
    driver.spawn(guest, iter([image]))


def placed(*cells: PlacedCell) -> Placement:
    return Placement(cells)


def test_a_cpu_that_another_guest_runs_on_is_refused_by_name(driver: FakeDriver) -> None:
    spawn(driver, spec("first", pins=[1, 2]))
    with pytest.raises(Refused, match="CPUs 2 of a, asked for by guest second, are run by guest first"):
        spawn(driver, spec("second", pins=[2, 3]))
    assert [guest.instance for guest in driver.list("a")] == ["first"]


def test_a_guest_that_is_off_keeps_its_cpus(driver: FakeDriver) -> None:
    spawn(driver, spec("first", pins=[1]))
    driver.power_off("a", "first")
    with pytest.raises(Refused):
        spawn(driver, spec("second", pins=[1]))


def test_the_same_cpus_of_another_node_are_free(driver: FakeDriver) -> None:
    spawn(driver, spec("first", pins=[1]))
    spawn(driver, spec("second", pins=[1], node="b"))
    assert len(driver.list("b")) == 1


def test_a_guest_may_be_replaced_on_its_own_cpus(driver: FakeDriver) -> None:
    spawn(driver, spec("first", pins=[1, 2]))
    spawn(driver, spec("first", pins=[2, 3]))
    spawn(driver, spec("second", pins=[1]))


@pytest.mark.parametrize(
    ("placement", "why"),
    [
        (pinned(99), "CPUs 99 .* not in cell 0"),
        (pinned(4), "CPUs 4 .* not in cell 0"),
        (pinned(1, cell=7), "no NUMA cell 7"),
        (placed(PlacedCell(0, 0, frozenset(), {0: 1, 1: 1}, 64)), "CPUs 1 .* twice"),
        (placed(*pinned(1).cells, *pinned(1).cells), "CPUs 1 .* twice"),
        (placed(PlacedCell(0, 0, frozenset(), {0: 1}, 64, reserved=frozenset({1}))), "CPUs 1 .* twice"),
        (placed(PlacedCell(0, 0, frozenset(), {0: 1}, 64, reserved=frozenset({16}))), "CPUs 16 "),
    ],
)
def test_pins_that_the_machine_cannot_have_are_refused(
    driver: FakeDriver, placement: Placement, why: str
) -> None:
    with pytest.raises(Refused, match=why):
        spawn(driver, spec("x", placement=placement))
    assert driver.list("a") == ()


def test_emulator_cpus_and_held_siblings_are_taken_too(driver: FakeDriver) -> None:
    cell = PlacedCell(0, 0, frozenset(), {0: 1}, 64, reserved=frozenset({2}), held=frozenset({9}))
    spawn(driver, spec("first", placement=placed(cell)))
    for cpu in (2, 9):
        with pytest.raises(Refused, match=f"CPUs {cpu} "):
            spawn(driver, spec("second", pins=[cpu]))


def test_memory_of_a_cell_is_refused_when_it_is_used_up(driver: FakeDriver) -> None:
    spawn(driver, spec("first", pins=[1], memory_mb=16000))
    with pytest.raises(Refused, match="Cell 0 of a has 384 MB free, and guest second needs 512"):
        spawn(driver, spec("second", pins=[2], memory_mb=512))
    spawn(driver, spec("second", placement=pinned(5, cell=1, memory_mb=512), memory_mb=512))


def test_pages_of_a_cell_are_refused_when_they_are_used_up(driver: FakeDriver) -> None:
    def huge(cpu: int, pages: int) -> Placement:
        cell = PlacedCell(0, 0, frozenset(), {0: cpu}, 2 * pages, page_size_kb=2048, pages=pages)
        return placed(cell)

    spawn(driver, spec("first", placement=huge(1, 1000)))
    with pytest.raises(Refused, match="24 pages of 2048 KiB free"):
        spawn(driver, spec("second", placement=huge(2, 25)))
    spawn(driver, spec("second", placement=huge(2, 24)))


def test_memory_of_the_whole_node_counts_for_floating_guests(driver: FakeDriver) -> None:
    spawn(driver, spec("first", memory_mb=32000))
    with pytest.raises(Refused, match="768 MB free"):
        spawn(driver, spec("second", memory_mb=769))
    spawn(driver, spec("second", memory_mb=768))


def test_a_configuration_that_overcommits_memory_is_obeyed(tmp_path: Path) -> None:
    driver = opened(tmp_path, memory_ratio=2)
    for name in ("first", "second"):
        spawn(driver, spec(name, memory_mb=32768))
    with pytest.raises(Refused):
        spawn(driver, spec("third", memory_mb=1))


def test_of_two_spawns_at_once_onto_one_cpu_one_is_refused(driver: FakeDriver) -> None:
    def attempt(number: int) -> bool:
        try:
            spawn(driver, spec(f"guest-{number}", pins=[1 + number % 2]))
            return True
        except Refused:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(40))) == 2
    assert len(driver.list("a")) == 2


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.sets(st.sampled_from([0, 1, 2, 3]), max_size=3)), max_size=12)
)
def test_no_cpu_is_ever_run_by_two_guests(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, set[int]]]
) -> None:
    driver = opened(tmp_path_factory.mktemp("hypervisor"))
    held: dict[str, set[int]] = {}
    for number, pins in steps:
        name = f"guest-{number}"
        taken = set().union(*(held[other] for other in held if other != name))
        if not pins:
            driver.destroy("a", name)
            held.pop(name, None)
        elif pins & taken:
            with pytest.raises(Refused):
                spawn(driver, spec(name, pins=sorted(pins)))
        else:
            spawn(driver, spec(name, pins=sorted(pins)))
            held[name] = pins
        assert {guest.instance for guest in driver.list("a")} == held.keys()


@pytest.mark.parametrize("cpu", ["fake", ""], ids=["the same", "a worker of another release does not tell"])
def test_a_guest_may_come_live_from_the_same_cpu(driver: FakeDriver, cpu: str) -> None:
    driver.check_live_migration(spec("a"), Hypervisor("fake", cpu=cpu))


@pytest.mark.parametrize("there", [Hypervisor("fake", cpu="other"), Hypervisor("QEMU", cpu="fake")])
def test_a_guest_may_not_come_live_from_another_cpu_or_hypervisor(
    driver: FakeDriver, there: Hypervisor
) -> None:
    with pytest.raises(DriverError, match="cannot go on with guest a"):
        driver.check_live_migration(spec("a"), there)


def test_a_disk_is_sparse_and_its_snapshot_leaves_out_the_empty_end(
    tmp_path: Path, driver: FakeDriver
) -> None:
    spawn(driver, spec("x", disk_gb=20))
    status = os.stat(Path(guest_folder(str(tmp_path / "host-1"), "a", "x")) / "disk")
    assert status.st_size == 20 * 1024**3
    assert status.st_blocks * 512 < 100_000
    assert len(b"".join(driver.snapshot("a", "x"))) < 100_000


def test_an_image_larger_than_the_disk_is_refused(driver: FakeDriver) -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield bytes(64 * 1024**2)

    with pytest.raises(DriverError, match="more than 1 GB"):
        driver.spawn(spec("x", disk_gb=1), endless())
    assert driver.list("a") == ()


def test_an_empty_disk_has_a_snapshot_with_data(driver: FakeDriver) -> None:
    spawn(driver, spec("x"), bytes(1000))
    assert b"".join(driver.snapshot("a", "x")).strip(b"\0") == b""
    assert b"".join(driver.snapshot("a", "x"))


def test_a_failed_replacement_leaves_the_guest_that_was_there(driver: FakeDriver) -> None:
    def broken() -> Iterator[bytes]:
        yield b"new"
        raise errors.Unavailable("the store went away")

    spawn(driver, spec("x", pins=[1]))
    with pytest.raises(errors.Unavailable):
        driver.spawn(spec("x", pins=[2]), broken())
    assert b"".join(driver.snapshot("a", "x")).startswith(IMAGE)


def test_the_console_shows_where_the_guest_runs_and_what_tests_wrote_to_it(
    tmp_path: Path, driver: FakeDriver
) -> None:
    spawn(driver, spec("x", pins=[1, 2]))
    with open(Path(guest_folder(str(tmp_path / "host-1"), "a", "x")) / "console.log", "a") as console:
        console.write("login:\n")
    assert "2 vCPUs on CPUs 1-2 of a\nlogin:\n" in driver.console_log("a", "x")


def test_the_console_keeps_its_last_part(tmp_path: Path, driver: FakeDriver) -> None:
    spawn(driver, spec("x"))
    with open(Path(guest_folder(str(tmp_path / "host-1"), "a", "x")) / "console.log", "a") as console:
        console.writelines(f"line {number}\n" for number in range(20_000))
    driver.reboot("a", "x")
    log = driver.console_log("a", "x")
    assert len(log) <= CONSOLE_KEPT
    assert "line 19999\n" in log
    assert log.endswith("shared CPUs of a\n")


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "../../etc", "nul\0"])
def test_a_name_that_is_no_folder_is_refused(driver: FakeDriver, name: str) -> None:
    with pytest.raises(DriverError):
        spawn(driver, GuestSpec(name, "n", "a", 1, 64, 1))
    with pytest.raises(DriverError):
        driver.destroy("a", name)


def test_a_node_that_it_does_not_have_is_refused(driver: FakeDriver) -> None:
    with pytest.raises(DriverError, match="no node c; it has a, b"):
        driver.list("c")


def test_a_state_path_that_cannot_be_used_is_said_with_its_option(tmp_path: Path) -> None:
    (tmp_path / "host-1").write_text("a file")
    with pytest.raises(errors.ConfigurationError, match=r"\[fake\] state_path"):
        opened(tmp_path)


def test_a_guest_record_that_cannot_be_read_is_no_absence(tmp_path: Path, driver: FakeDriver) -> None:
    spawn(driver, spec("x"))
    (Path(guest_folder(str(tmp_path / "host-1"), "a", "x")) / "guest.json").write_text("{")
    with pytest.raises(DriverError, match=r"guest\.json"):
        driver.list("a")


# --- shared storage --------------------------------------------------------------------------


def beside(root: Path, name: str, *, shared: bool) -> FakeDriver:
    return FakeDriver(RealRuntime(), name, [name], str(root / name), shared_storage=shared)


def made_at(root: Path, name: str, *, shared: bool = True) -> tuple[FakeDriver, GuestSpec]:
    """A host with a guest that has written to its disk, and is off now."""
    host, guest = beside(root, name, shared=shared), spec(pins=[1])
    guest = msgspec.structs.replace(guest, node=name)
    spawn(host, guest)
    with open(disk_of(root, name, guest), "r+b") as disk:
        disk.write(b"written")
    host.power_off(name, guest.instance)
    return host, guest


def disk_of(root: Path, name: str, guest: GuestSpec) -> Path:
    return Path(guest_folder(str(root / name), name, guest.instance)) / "disk"


def test_a_disk_on_shared_storage_is_that_of_both_guests_until_both_are_gone(tmp_path: Path) -> None:
    one, guest = made_at(tmp_path, "one")
    two, source = beside(tmp_path, "two", shared=True), Source("one", "one")
    assert two.shares_disk("two", guest.instance, source)
    for _ in range(2):
        two.spawn_on_disk(msgspec.structs.replace(guest, node="two"), source, power_on=True)
    disk = disk_of(tmp_path, "two", guest)
    assert disk.open("rb").read(7) == b"written"
    one.destroy("one", guest.instance)
    assert disk.open("rb").read(7) == b"written"
    assert not two.shares_disk("two", guest.instance, source)
    two.destroy("two", guest.instance)
    assert not disk.exists()


def test_a_guest_that_is_taken_back_leaves_the_disk_to_the_other(tmp_path: Path) -> None:
    _, guest = made_at(tmp_path, "one")
    two, source = beside(tmp_path, "two", shared=True), Source("one", "one")
    two.spawn_on_disk(msgspec.structs.replace(guest, node="two"), source, power_on=False)
    assert [found.power_state for found in two.list("two")] == [SHUTDOWN]
    two.destroy("two", guest.instance)
    assert disk_of(tmp_path, "one", guest).open("rb").read(7) == b"written"


@pytest.mark.parametrize(("one_shares", "two_shares"), [(True, False), (False, True), (False, False)])
def test_a_disk_is_shared_only_where_both_hosts_share(
    tmp_path: Path, one_shares: bool, two_shares: bool
) -> None:
    _, guest = made_at(tmp_path, "one", shared=one_shares)
    two, source = beside(tmp_path, "two", shared=two_shares), Source("one", "one")
    assert not two.shares_disk("two", guest.instance, source)
    assert not two.shares_disk("two", guest.instance, Source("nowhere", "nowhere"))
    if not one_shares:
        with pytest.raises(DriverError, match="cannot be reached"):
            two.spawn_on_disk(msgspec.structs.replace(guest, node="two"), source, power_on=True)
        assert two.list("two") == ()


def test_a_machine_of_another_shape_is_reported_and_filled(tmp_path: Path) -> None:
    cell = MachineCell(3, frozenset({40, 41}), (frozenset({40, 41}),), 1024, (HostPages(4, 262144),))
    driver = FakeDriver(RealRuntime(), "h", ["n"], str(tmp_path / "h"), topology=[cell], disk_gb=7)
    assert driver.inventory("n").cells == (cell,)
    assert driver.inventory("n").disk_gb == 7
    spawn(driver, spec("x", node="n", placement=pinned(40, cell=3)))


# --- kill -9 -------------------------------------------------------------------------------------------------

CONTENTS = (b"odd " * 20_000, b"even" * 20_000)


def replace_for_ever(root: Path) -> None:
    driver = opened(root)
    for number in range(1_000_000):
        spawn(driver, spec("x", pins=[1 + number % 2]), CONTENTS[number % 2])


def spawn_and_destroy_for_ever(root: Path) -> None:
    driver = opened(root)
    for number in range(1_000_000):
        spawn(driver, spec("x", pins=[1 + number % 2]), CONTENTS[number % 2])
        driver.power_off("a", "x")
        driver.destroy("a", "x")


def killed_after(seconds: float, work: Callable[[Path], None], root: Path) -> None:
    process = multiprocessing.get_context("fork").Process(target=work, args=(root,), daemon=True)
    process.start()
    time.sleep(seconds)
    process.kill()
    process.join()


def leftovers(root: Path) -> list[str]:
    node = root / "host-1" / "a"
    return [*os.listdir(node / "building"), *os.listdir(node / "replacing")]


def assert_whole(driver: FakeDriver) -> None:
    """Guest x has one of the contents, and a spawn on its CPU is refused."""
    content = CONTENTS.index(b"".join(driver.snapshot("a", "x"))[: len(CONTENTS[0])])
    with pytest.raises(Refused):
        spawn(driver, spec("y", pins=[1 + content]))
    spawn(driver, spec("y", pins=[2 - content]))
    driver.destroy("a", "y")


@pytest.mark.parametrize("work", [replace_for_ever, spawn_and_destroy_for_ever])
def test_a_kill_at_any_instant_leaves_the_guest_as_before_or_as_after(
    tmp_path: Path, work: Callable[[Path], None]
) -> None:
    moments = random.Random(1)
    spawn(opened(tmp_path), spec("kept", pins=[3]))
    torn = 0
    for _ in range(40):
        killed_after(moments.uniform(0.002, 0.02), work, tmp_path)
        torn += bool(leftovers(tmp_path))
        driver = opened(tmp_path)
        assert leftovers(tmp_path) == []
        instances = [guest.instance for guest in driver.list("a")]
        assert instances in (["kept"], ["kept", "x"])
        if "x" in instances:
            assert_whole(driver)
    assert torn  # else no kill came in the middle of anything


def test_a_replaced_guest_is_never_absent_whatever_the_kill(tmp_path: Path) -> None:
    moments = random.Random(2)
    spawn(opened(tmp_path), spec("x", pins=[1]), CONTENTS[0])
    for _ in range(40):
        killed_after(moments.uniform(0.002, 0.02), replace_for_ever, tmp_path)
        assert_whole(opened(tmp_path))


def test_a_replacement_that_was_cut_short_is_finished_when_the_state_is_opened(tmp_path: Path) -> None:
    spawn(opened(tmp_path), spec("x", pins=[2], disk_gb=0), CONTENTS[1])
    node = tmp_path / "host-1" / "a"
    os.rename(node / "guests" / "x", node / "replacing" / "x")
    assert_whole(opened(tmp_path))
    os.rename(node / "guests" / "x", node / "replacing" / "x")
    shutil.copytree(node / "replacing" / "x", node / "guests" / "x")
    (node / "guests" / "x" / "disk").write_bytes(CONTENTS[0])
    driver = opened(tmp_path)
    assert_whole(driver)
    assert b"".join(driver.snapshot("a", "x")).startswith(CONTENTS[1])
    assert leftovers(tmp_path) == []


def test_a_replacement_that_another_driver_left_unfinished_is_finished_by_any_call(
    tmp_path: Path, driver: FakeDriver
) -> None:
    spawn(driver, spec("x", pins=[1]))
    node = tmp_path / "host-1" / "a"
    os.rename(node / "guests" / "x", node / "replacing" / "x")
    assert [guest.instance for guest in driver.list("a")] == ["x"]


def test_opening_a_state_again_leaves_a_spawn_that_is_under_way_alone(
    tmp_path: Path, driver: FakeDriver
) -> None:
    def image() -> Iterator[bytes]:
        yield IMAGE
        assert opened(tmp_path).list("a") == ()

    driver.spawn(spec("x"), image())
    assert [guest.instance for guest in opened(tmp_path).list("a")] == ["x"]

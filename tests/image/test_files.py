"""The file store: shared by processes, torn by no kill, and hidden by no broken record."""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from pinfold.image.files import FileStore
from pinfold.image.store import ImageNotFound
from pinfold.model import errors
from tests.image.conftest import RUNTIME, record

CONTENTS = (b"odd " * 50_000, b"even" * 50_000)


def opened(path: Path) -> FileStore:
    return FileStore(RUNTIME, str(path))


def stored(store: FileStore, data: bytes = b"data") -> str:
    return store.upload(store.create(record()).id, [data]).id


def content(path: Path) -> dict[str, list[str]]:
    return {name: sorted(os.listdir(path / name)) for name in ("records", "data", "incoming")}


def test_f119_one_broken_record_does_not_hide_the_others(
    path: Path, files: FileStore, caplog: pytest.LogCaptureFixture
) -> None:
    good, broken = stored(files), stored(files)
    (path / "records" / f"{broken}.json").write_text('{"image": {"id": 7')
    with caplog.at_level(logging.WARNING):
        assert [image.id for image in files.list()] == [good]
    assert broken in caplog.text
    with pytest.raises(errors.Unavailable, match=broken):
        files.get(broken)


def test_the_data_of_a_broken_record_is_kept_for_whoever_mends_it(path: Path, files: FileStore) -> None:
    image = stored(files)
    file = path / "records" / f"{image}.json"
    good = file.read_bytes()
    file.write_text("{")
    opened(path)
    file.write_bytes(good)
    assert b"".join(opened(path).download(image)) == b"data"


def test_f093_data_that_is_gone_is_not_found_though_the_record_is_there(path: Path, files: FileStore) -> None:
    image = stored(files)
    for name in os.listdir(path / "data"):
        os.unlink(path / "data" / name)
    with pytest.raises(ImageNotFound, match=r"data of image .* is gone"):
        files.download(image)


def test_a_folder_that_is_not_mounted_makes_no_image_gone_for_good(path: Path, files: FileStore) -> None:
    image = stored(files)
    shutil.move(path, path.with_name("elsewhere"))
    for act in (
        lambda: files.get(image),
        lambda: files.download(image),
        files.list,
        lambda: files.delete(image),
    ):
        with pytest.raises(errors.Unavailable, match=str(path)):
            act()
    shutil.move(path.with_name("elsewhere"), path)
    assert b"".join(files.download(image)) == b"data"


def test_a_folder_that_cannot_be_used_is_said_with_its_option(path: Path) -> None:
    path.write_text("a file")
    with pytest.raises(errors.ConfigurationError, match=r"\[image\] path"):
        opened(path)


def test_an_upload_may_replace_the_data_and_a_download_under_way_keeps_the_old(files: FileStore) -> None:
    image = stored(files, CONTENTS[0])
    data = files.download(image)
    files.upload(image, [CONTENTS[1]])
    assert b"".join(data) == CONTENTS[0]
    assert b"".join(files.download(image)) == CONTENTS[1]


def test_an_active_image_stays_so_while_and_although_a_new_upload_fails(files: FileStore) -> None:
    def broken() -> Iterator[bytes]:
        yield b"new"
        assert files.get(image).status == "active"
        raise errors.Unavailable("the source failed")

    image = stored(files)
    before = files.get(image)
    with pytest.raises(errors.Unavailable):
        files.upload(image, broken())
    assert files.get(image) == before
    assert b"".join(files.download(image)) == b"data"


def test_nothing_is_left_of_what_was_deleted_or_failed(path: Path, files: FileStore) -> None:
    def broken() -> Iterator[bytes]:
        yield b"new"
        raise errors.Unavailable("the source failed")

    files.delete(stored(files))
    image = files.create(record()).id
    with pytest.raises(errors.Unavailable):
        files.upload(image, broken())
    files.delete(image)
    assert content(path) == {"records": [], "data": [], "incoming": []}


def test_data_is_stored_sparsely(path: Path, files: FileStore) -> None:
    files.upload(files.create(record()).id, [bytes(1024**2)] * 100)
    (name,) = os.listdir(path / "data")
    status = os.stat(path / "data" / name)
    assert status.st_size == 100 * 1024**2
    assert status.st_blocks == 0


def test_an_update_of_what_no_image_has_changes_nothing(files: FileStore) -> None:
    image = stored(files)
    before = files.get(image)
    for changes in ({"colour": "red"}, {"min_ram": "much"}, {"id": "other"}, {"properties": {"a": 1}}):
        with pytest.raises(errors.InvalidRequest):
            files.update(image, changes)
    assert files.get(image) == before


@pytest.mark.parametrize("image", ["", ".", "../x", "a/b", "x" * 101, "a b", "nul\0"])
def test_an_id_that_is_no_file_name_is_refused(files: FileStore, image: str) -> None:
    with pytest.raises(errors.InvalidRequest):
        files.create(msgspec.structs.replace(record(), id=image))


# --- kill -9 -------------------------------------------------------------------------------------------------


def upload_for_ever(path: Path) -> None:
    store = opened(path)
    for number in range(1_000_000):
        store.upload("x", [CONTENTS[number % 2]])


def create_and_delete_for_ever(path: Path) -> None:
    store = opened(path)
    for number in range(1_000_000):
        store.delete("x")
        store.create(record("x"))
        store.upload("x", [CONTENTS[number % 2][:100_000], CONTENTS[number % 2][100_000:]])


def killed_after(seconds: float, work: Callable[[Path], None], path: Path) -> None:
    context = multiprocessing.get_context("fork")
    at_work = context.Event()

    def begin() -> None:
        at_work.set()
        work(path)

    process = context.Process(target=begin, daemon=True)
    process.start()
    assert at_work.wait(30)
    time.sleep(seconds)
    process.kill()
    process.join()


@pytest.mark.parametrize("work", [upload_for_ever, create_and_delete_for_ever])
def test_a_kill_at_any_instant_leaves_whole_images_and_nothing_else(
    path: Path, work: Callable[[Path], None]
) -> None:
    moments = random.Random(3)
    store = opened(path)
    kept = stored(store)
    store.upload(store.create(record("x")).id, [CONTENTS[1]])
    torn = rounds = 0
    deadline = time.monotonic() + 60
    while rounds < 40 or (not torn and time.monotonic() < deadline):
        rounds += 1
        killed_after(moments.uniform(0.002, 0.02), work, path)
        torn += bool(os.listdir(path / "incoming"))
        store = opened(path)
        images = {image.id: image for image in store.list()}
        active = [image for image in images if images[image].status == "active"]
        assert kept in active
        assert [image.status for image in images.values() if image.id not in active] in ([], ["queued"])
        for image in active:
            assert b"".join(store.download(image)) in (b"data", *CONTENTS)
        after = content(path)
        assert after["incoming"] == []
        assert len(after["data"]) == len(active)
        if work is upload_for_ever:
            assert "x" in active
    assert torn  # else no kill came in the middle of anything


def test_opening_the_folder_again_leaves_an_upload_that_is_under_way_alone(
    path: Path, files: FileStore
) -> None:
    def data() -> Iterator[bytes]:
        yield b"first"
        assert opened(path).get(image).status == "saving"
        yield b"second"

    image = files.create(record()).id
    files.upload(image, data())
    assert b"".join(opened(path).download(image)) == b"firstsecond"


def update_many(path: Path, name: str) -> None:
    store = opened(path)
    for number in range(60):
        image = store.get("x")
        store.update("x", {"name": f"{name}-{number}"})
        assert image.properties == {"kept": "yes"}


def test_processes_that_update_one_record_at_once_never_tear_it(path: Path, files: FileStore) -> None:
    files.create(record("x", properties={"kept": "yes"}))
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=update_many, args=(path, name)) for name in "abc"]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert files.get("x").name[1:] == "-59"


@pytest.mark.parametrize("sync", [True, False])
def test_images_are_the_same_whether_they_outlast_a_power_cut_or_not(path: Path, sync: bool) -> None:
    store = FileStore(RUNTIME, str(path), sync=sync)
    assert b"".join(store.download(stored(store))) == b"data"

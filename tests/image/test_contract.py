"""What every image store promises."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from devstack.progress import wait_for
from pinfold.image.store import Image, ImageNotFound, Store
from pinfold.model import errors
from tests.image.conftest import Open, record

DATA = bytes(range(256)) * 20_000  # 5 MB


def pieces(data: bytes = DATA, size: int = 300_000) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def stored(store: Store, data: bytes = DATA, **fields: Any) -> Image:
    return store.upload(store.create(record(**fields)).id, pieces(data))


def awaited(opened: Open, image: Image, status: str) -> None:
    wait_for(f"image {status}", lambda: opened().get(image.id).status == status, 20, every=0.02)


def test_a_new_image_is_queued_and_has_no_data(store: Store) -> None:
    image = store.create(record(name="new"))
    assert store.get(image.id) == image
    assert (image.status, image.size, image.checksum) == ("queued", None, None)
    with pytest.raises(ImageNotFound):
        store.download(image.id)


def test_a_record_keeps_all_its_fields(store: Store) -> None:
    made = record(
        name="Ubuntu \N{SNOWMAN}",
        owner="project",
        visibility="public",
        min_ram=64,
        min_disk=1,
        disk_format="qcow2",
        tags=("a", "b"),
        properties={"hw_cpu_policy": "dedicated", "os/odd~key": "x"},
    )
    image = store.create(made)
    for field in ("id", "name", "owner", "visibility", "min_ram", "min_disk", "disk_format", "properties"):
        assert getattr(image, field) == getattr(made, field)
    assert sorted(image.tags) == ["a", "b"]


def test_an_id_that_is_taken_is_a_conflict(store: Store) -> None:
    image = stored(store)
    with pytest.raises(errors.Conflict):
        store.create(record(image.id, name="another"))
    assert store.get(image.id) == image


def test_an_uploaded_image_is_active_with_its_size_and_checksum(store: Store) -> None:
    image = stored(store)
    assert image == store.get(image.id)
    assert (image.status, image.size) == ("active", len(DATA))
    assert image.checksum == hashlib.md5(DATA).hexdigest()
    assert b"".join(store.download(image.id)) == DATA


def test_data_with_long_runs_of_zeros_comes_back_whole(store: Store) -> None:
    data = bytes(300_000) + b"middle" + bytes(300_001)
    assert b"".join(store.download(stored(store, data).id)) == data


def test_an_upload_may_be_repeated(store: Store) -> None:
    image = stored(store)
    again = store.upload(image.id, pieces())
    assert (again.status, again.size, again.checksum) == ("active", image.size, image.checksum)
    assert b"".join(store.download(image.id)) == DATA


def test_an_image_is_saving_while_it_is_uploaded(store: Store, opened: Open) -> None:
    image = store.create(record())
    seen = []

    def slow() -> Iterator[bytes]:
        yield b"x" * 100_000
        awaited(opened, image, "saving")
        seen.append("saving")
        yield b"y"

    assert store.upload(image.id, slow()).status == "active"
    assert seen == ["saving"]


def test_an_upload_whose_source_fails_leaves_the_image_queued(store: Store, opened: Open) -> None:
    image = store.create(record())

    def broken() -> Iterator[bytes]:
        yield b"x" * 100_000
        raise errors.AccountingError("the hypervisor failed")

    with pytest.raises(errors.AccountingError, match="the hypervisor failed"):
        store.upload(image.id, broken())
    awaited(opened, image, "queued")
    with pytest.raises(ImageNotFound):
        store.download(image.id)
    assert store.upload(image.id, pieces()).status == "active"


def test_f092_an_image_deleted_while_it_is_uploaded_stays_deleted(store: Store, opened: Open) -> None:
    image = store.create(record())

    def deleted() -> Iterator[bytes]:
        yield b"x" * 100_000
        awaited(opened, image, "saving")
        opened().delete(image.id)
        yield b"y"

    with pytest.raises(ImageNotFound):
        store.upload(image.id, deleted())
    assert store.list() == []


def test_f093_an_image_that_is_gone_is_not_found_by_anything(store: Store) -> None:
    image = stored(store)
    store.delete(image.id)
    for act in (
        lambda: store.get(image.id),
        lambda: store.download(image.id),
        lambda: store.update(image.id, {"name": "x"}),
        lambda: store.upload(image.id, pieces()),
    ):
        with pytest.raises(ImageNotFound, match=image.id):
            act()


@pytest.mark.parametrize("image", ["None", "no-such", "../../etc/passwd", "a/b", "", ".", "\N{SNOWMAN}"])
def test_f093_an_id_that_never_was_is_not_found(store: Store, image: str) -> None:
    with pytest.raises((ImageNotFound, errors.InvalidRequest)):
        store.get(image)
    with pytest.raises((ImageNotFound, errors.InvalidRequest)):
        store.download(image)


def test_f067_deleting_takes_the_image_off_the_list_and_may_be_repeated(store: Store) -> None:
    kept, gone = stored(store), stored(store, b"gone")
    store.delete(gone.id)
    store.delete(gone.id)
    assert [image.id for image in store.list()] == [kept.id]


def test_f067_a_protected_image_is_not_deleted(store: Store) -> None:
    image = store.create(record(protected=True))
    with pytest.raises(errors.Forbidden):
        store.delete(image.id)
    store.update(image.id, {"protected": False})
    store.delete(image.id)
    assert store.list() == []


def test_the_list_has_the_newest_first(store: Store) -> None:
    made = [store.create(record(name=str(number))).id for number in range(5)]
    assert [image.id for image in store.list()] == made[::-1]


def test_an_update_sets_fields_and_the_properties_as_a_whole(store: Store) -> None:
    image = stored(store, properties={"kept": "1", "changed": "1", "dropped": "1"})
    changed = store.update(
        image.id, {"name": "other", "properties": {"kept": "1", "changed": "2", "added": "3"}}
    )
    assert changed == store.get(image.id)
    assert changed.name == "other"
    assert changed.properties == {"kept": "1", "changed": "2", "added": "3"}
    assert (changed.size, changed.status, changed.created_at) == (image.size, "active", image.created_at)


def test_what_one_process_does_another_sees(store: Store, opened: Open) -> None:
    other = opened()
    image = stored(store)
    assert store.get(image.id) == other.get(image.id)
    other.update(image.id, {"name": "renamed"})
    assert store.get(image.id).name == "renamed"
    other.delete(image.id)
    with pytest.raises(ImageNotFound):
        store.get(image.id)


def test_many_uploads_and_downloads_at_once_do_not_mix(opened: Open) -> None:
    def round_trip(number: int) -> bool:
        store, data = opened(), bytes([number]) * 200_000
        return b"".join(store.download(stored(store, data).id)) == data

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(round_trip, range(1, 13)))


def test_a_download_that_is_begun_ends_although_the_image_is_deleted(store: Store, opened: Open) -> None:
    image = stored(store, bytes(range(256)) * 5)
    data = store.download(image.id)
    first = next(data)
    opened().delete(image.id)
    assert first + b"".join(data) == bytes(range(256)) * 5


def test_of_many_that_create_one_id_at_once_one_succeeds(opened: Open) -> None:
    start, made = threading.Barrier(4), record()

    def create(_: int) -> bool:
        store = opened()
        start.wait(10)
        try:
            store.create(made)
            return True
        except errors.Conflict:
            return False

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(create, range(4))) == 1

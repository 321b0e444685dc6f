"""The Glance store: what it sends, what it tries again, and what it makes of refusals."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from keystoneauth1 import session, token_endpoint

from pinfold.image.files import FileStore
from pinfold.image.glance import GlanceStore
from pinfold.image.store import ImageNotFound
from pinfold.image.v2 import from_v2, to_v2
from pinfold.model import errors
from pinfold.runtime import RealRuntime
from tests.image.conftest import RUNTIME, connected, record
from tests.image.server import Gate, ImageApi, served
from tests.servers import free_ports


def stored(store: GlanceStore | FileStore, data: bytes = b"data") -> str:
    return store.upload(store.create(record()).id, [data]).id


def test_the_token_is_sent(api: ImageApi, glance: GlanceStore) -> None:
    glance.list()
    assert api.tokens == {"admin:admin:admin"}


@pytest.mark.parametrize("suffix", ["", "/", "/v2", "/v2/"])
def test_the_endpoint_may_have_a_version_or_not(api: ImageApi, endpoint: str, suffix: str) -> None:
    connected(endpoint + suffix).list()
    assert api.seen == ["GET /image/v2/images?limit=500"]


def test_a_long_list_is_read_page_by_page(api: ImageApi, files: FileStore, glance: GlanceStore) -> None:
    made = [files.create(record()).id for _ in range(7)]
    api.page = 3
    assert [image.id for image in glance.list()] == made[::-1]
    assert len(api.seen) == 3


def test_f119_an_image_that_cannot_be_understood_is_left_out_of_the_list(
    api: ImageApi, glance: GlanceStore, caplog: pytest.LogCaptureFixture
) -> None:
    image = stored(glance)
    api.extra.append({"id": "strange", "size": "huge"})
    with caplog.at_level(logging.WARNING):
        assert [image.id for image in glance.list()] == [image]
    assert "strange" in caplog.text


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_passing_failure_is_tried_again(api: ImageApi, glance: GlanceStore, status: int) -> None:
    image = stored(glance)
    api.seen.clear()
    api.answers = [status, status]
    assert glance.get(image).id == image
    assert len(api.seen) == 3


def test_a_failure_that_does_not_pass_is_unavailable(api: ImageApi, glance: GlanceStore) -> None:
    api.answers = [503] * 10
    with pytest.raises(errors.Unavailable, match="503"):
        glance.list()
    assert len(api.seen) == 4


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, errors.InvalidRequest),
        (401, errors.Unavailable),
        (403, errors.Forbidden),
        (404, ImageNotFound),
        (410, ImageNotFound),
        (418, errors.Unavailable),
    ],
)
def test_a_refusal_is_not_tried_again(
    api: ImageApi, glance: GlanceStore, status: int, error: type[Exception]
) -> None:
    image = stored(glance)
    api.seen.clear()
    api.answers = [status]
    with pytest.raises(error, match=str(status)):
        glance.get(image)
    assert len(api.seen) == 1


def test_nobody_listening_is_unavailable() -> None:
    store = connected(f"http://127.0.0.1:{free_ports(1)[0]}")
    for act in (lambda: store.get("x"), store.list, lambda: store.upload("x", [b"data"])):
        with pytest.raises(errors.Unavailable, match="does not answer"):
            act()


def test_a_service_that_says_nothing_is_unavailable_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        endpoint = f"http://127.0.0.1:{listening.getsockname()[1]}"
        http = session.Session(auth=token_endpoint.Token(endpoint, "t"), timeout=0.1)
        with pytest.raises(errors.Unavailable):
            GlanceStore(RUNTIME, http, endpoint, attempts=2, pause=0.01).list()


def test_something_that_is_no_image_service_is_unavailable(glance: GlanceStore, api: ImageApi) -> None:
    api.answers = [200]
    with pytest.raises(errors.Unavailable, match="does not answer as an image service does"):
        glance.list()


def test_a_create_whose_answer_was_lost_succeeds(api: ImageApi, glance: GlanceStore) -> None:
    api.answers = [-503]
    image = record(name="shelved", properties={"a": "b"})
    assert glance.create(image).id == image.id
    assert len(glance.list()) == 1


def test_a_create_that_was_tried_again_does_not_take_over_somebody_elses_image(
    api: ImageApi, files: FileStore, glance: GlanceStore
) -> None:
    there = files.create(record(name="theirs"))
    api.answers = [503]
    with pytest.raises(errors.Conflict):
        glance.create(record(there.id, name="ours"))
    assert files.get(there.id).name == "theirs"


class Opening(RealRuntime):
    """Opens a server while somebody waits to try again."""

    def __init__(self, gate: Gate, stack: ExitStack) -> None:
        super().__init__()
        self._gate = gate
        self._stack = stack

    def sleep(self, seconds: float) -> None:
        self._stack.enter_context(served(self._gate))


def test_an_upload_is_tried_again_as_long_as_none_of_its_data_was_taken(
    api: ImageApi, files: FileStore
) -> None:
    late = Gate()
    late.application = api
    image = files.create(record()).id
    with ExitStack() as stack:
        http = session.Session(auth=token_endpoint.Token(late.address, "t"), timeout=20)
        store = GlanceStore(Opening(late, stack), http, late.address)
        assert store.upload(image, (piece for piece in [b"da", b"ta"])).size == 4


def test_an_upload_whose_data_was_taken_is_not_tried_again(api: ImageApi, glance: GlanceStore) -> None:
    image = glance.create(record()).id
    api.answers = [0, 503]
    sent = []

    def data() -> Iterator[bytes]:
        sent.append(1)
        yield b"data"

    with pytest.raises(errors.Unavailable):
        glance.upload(image, data())
    assert sent == [1]
    assert glance.get(image).status == "queued"


def test_an_upload_whose_answer_was_lost_may_be_repeated(api: ImageApi, glance: GlanceStore) -> None:
    image = glance.create(record()).id
    api.answers = [0, -503]
    with pytest.raises(errors.Unavailable):
        glance.upload(image, [b"data"])
    assert glance.upload(image, [b"data"]).status == "active"
    assert b"".join(glance.download(image)) == b"data"


def test_an_upload_onto_one_that_is_under_way_is_a_conflict(files: FileStore, glance: GlanceStore) -> None:
    image = files.create(record()).id

    def data() -> Iterator[bytes]:
        yield b"first"
        with pytest.raises(errors.Conflict, match="saving"):
            glance.upload(image, [b"other"])
        yield b"second"

    files.upload(image, data())
    assert b"".join(glance.download(image)) == b"firstsecond"


def test_an_upload_that_the_service_cut_short_is_no_success(api: ImageApi, glance: GlanceStore) -> None:
    image = glance.create(record()).id
    api.answers = [0, 204]
    with pytest.raises(errors.Unavailable, match=r"None bytes .* 4 were sent"):
        glance.upload(image, [b"data"])


def test_a_download_that_breaks_off_says_so(api: ImageApi, files: FileStore, glance: GlanceStore) -> None:
    image = stored(files, b"x" * 5_000_000)
    api.cut = 3_000_000
    with pytest.raises(errors.Unavailable, match="broke off"):
        b"".join(glance.download(image))


def test_f067_a_delete_whose_answer_was_lost_succeeds(api: ImageApi, glance: GlanceStore) -> None:
    image = stored(glance)
    api.answers = [-503]
    glance.delete(image)
    assert glance.list() == []


def test_a_record_survives_the_way_through_the_api() -> None:
    image = record(name="n", min_ram=1, tags=("a",), properties={"hw_cpu_policy": "dedicated"})
    there = from_v2(to_v2(image))
    assert (there.id, there.name, there.tags, there.properties) == (
        image.id,
        "n",
        ("a",),
        {"hw_cpu_policy": "dedicated"},
    )
    assert there.created_at == image.created_at.replace(microsecond=0)


def test_what_glance_leaves_empty_has_a_value() -> None:
    body = to_v2(record())
    there = from_v2({**body, "name": None, "owner": None, "os_distro": "debian", "number": 7})
    assert (there.name, there.owner, there.properties) == ("", "", {"os_distro": "debian"})

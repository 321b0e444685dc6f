"""The image store of the simulated world: in memory, with the store's contract."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from pinfold.image.store import Image, ImageNotFound
from pinfold.model import errors
from tests.simulation.faults import Faults
from tests.simulation.history import History
from tests.simulation.loop import Loop, Process


class Images:
    """What is stored: records, and the data of those that are complete."""

    def __init__(self) -> None:
        self.records: dict[str, Image] = {}
        self.data: dict[str, bytes] = {}


class SimStore:
    """``Store`` of one process."""

    def __init__(
        self,
        loop: Loop,
        process: Process,
        faults: Faults,
        history: History,
        images: Images,
        on_change: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._process = process
        self._faults = faults
        self._history = history
        self._images = images
        self._on_change = on_change

    def _before(self, call: str) -> None:
        self._loop.point(self._process, f"store.{call}")
        self._faults.store(self._process, call, "before")

    def _after(self, call: str, image: str) -> None:
        self._history.add(self._process.name, "the store has done %s of %s", call, image)
        self._on_change()
        self._loop.point(self._process, f"store.{call} returns")
        self._faults.store(self._process, call, "after")

    def get(self, image: str) -> Image:
        self._before("get")
        return self._get(image)

    def _get(self, image: str) -> Image:
        try:
            return self._images.records[image]
        except KeyError:
            raise ImageNotFound(f"There is no image {image}.") from None

    def list(self) -> list[Image]:
        self._before("list")
        return list(self._images.records.values())

    def create(self, image: Image) -> Image:
        self._before("create")
        if image.id in self._images.records:
            raise errors.Conflict(f"There is an image {image.id} already.")
        self._images.records[image.id] = image
        self._after("create", image.id)
        return image

    def update(self, image: str, changes: Mapping[str, object]) -> Image:
        self._before("update")
        self._images.records[image] = changed = msgspec.structs.replace(self._get(image), **changes)
        self._after("update", image)
        return changed

    def upload(self, image: str, data: Iterable[bytes]) -> Image:
        self._before("upload")
        self._get(image)
        content = b"".join(data)
        self._loop.sleep(self._process, self._faults.uniform(0.0, 0.2))
        active = msgspec.structs.replace(self._get(image), status="active", size=len(content))
        self._images.records[image] = active
        self._images.data[image] = content
        self._after("upload", image)
        return active

    def download(self, image: str) -> Iterator[bytes]:
        self._before("download")
        self._get(image)
        if image not in self._images.data:
            raise ImageNotFound(f"Image {image} has no data.")
        return iter([self._images.data[image]])

    def delete(self, image: str) -> None:
        self._before("delete")
        if self._images.records.pop(image, None) is not None:
            self._images.data.pop(image, None)
            self._after("delete", image)

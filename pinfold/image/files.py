"""Images in a folder, which the processes of all hosts may share::

    records/<id>.json     the record, replaced whole; it names its data
    data/<id>.<token>     the data, complete
    incoming/<id>.<token> data that is being uploaded; its uploader has it locked

A record and its data change together, because only the record says which data is the image's. What a killed
process left behind is removed by the next one that opens the folder.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import FileIO

import msgspec

from pinfold import durable
from pinfold.image.store import Image, ImageNotFound
from pinfold.model import errors
from pinfold.runtime import Runtime

LOG = logging.getLogger(__name__)

PIECE = 1024**2
"""Bytes that a download reads at once."""

_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")


class _Record(msgspec.Struct, frozen=True):
    """What stands in a record file; ``data`` is the name of the data file."""

    image: Image
    data: str | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Record).decode


class FileStore:
    """A Store. ``sync`` makes uploads outlast a power cut; without it they outlast a kill -9 only.

    Raises errors.ConfigurationError when the folder cannot be used.
    """

    def __init__(self, runtime: Runtime, path: str, *, sync: bool = False) -> None:
        self._runtime = runtime
        self._path = path
        self._sync = sync
        self._records, self._data, self._incoming = (
            os.path.join(path, name) for name in ("records", "data", "incoming")
        )
        self._known: dict[str, tuple[tuple[int, int, int], _Record]] = {}
        try:
            for folder in (self._records, self._data, self._incoming):
                os.makedirs(folder, exist_ok=True)
            self._lock = durable.FolderLock(runtime, os.path.join(path, "lock"))
            with self._lock:
                self._recover()
        except OSError as error:
            raise errors.ConfigurationError(
                f"The image folder {path} ([image] path) cannot be used: {error.strerror}."
            ) from error

    def _recover(self) -> None:
        """Uploads whose uploader is dead never were; data that its record does not name goes."""
        durable.remove_abandoned(self._incoming)
        under_way = {name.rpartition(".")[0] for name in os.listdir(self._incoming)}
        for record in [*self._all()]:
            if record.image.status == "saving" and record.image.id not in under_way:
                self._save(self._with(record, status="queued"))
        for name in os.listdir(self._data):
            if self._is_orphan(name):
                durable.remove_tree(os.path.join(self._data, name))

    def _is_orphan(self, data: str) -> bool:
        try:
            return self._get(data.rpartition(".")[0]).data != data
        except ImageNotFound:
            return True
        except errors.Unavailable:
            return False  # a broken record may be mended

    def get(self, image: str) -> Image:
        """Raises ImageNotFound."""
        return self._get(image).image

    def list(self) -> list[Image]:
        """All images whose record can be read, newest first; the others are logged."""
        with self._usable():
            images = [record.image for record in self._all()]
        images.sort(key=lambda image: (image.created_at, image.id), reverse=True)
        return images

    def create(self, image: Image) -> Image:
        """Raises errors.Conflict when the id is taken, errors.InvalidRequest when it is none."""
        if not _ID.fullmatch(image.id):
            raise errors.InvalidRequest(f"'{image.id}' cannot be the id of an image.")
        with self._usable(), self._lock:
            if os.path.exists(self._record_path(image.id)):
                raise errors.Conflict(f"There is an image {image.id} already.")
            self._save(_Record(image))
        return image

    def update(self, image: str, changes: Mapping[str, object]) -> Image:
        """Raises ImageNotFound, errors.InvalidRequest for a field or value that an image cannot have."""
        with self._usable(), self._lock:
            record = self._get(image)
            return self._save(self._with(record, **changes)).image

    def upload(self, image: str, data: Iterable[bytes]) -> Image:
        """Raises ImageNotFound, also when the image was deleted meanwhile.

        A failed upload leaves the image as it was.
        """
        with self._usable():
            path, held = self._begin(image)
            try:
                return self._receive(image, path, held, data)
            except BaseException:
                self._give_up(image, path)
                raise
            finally:
                os.close(held)

    def _begin(self, image: str) -> tuple[str, int]:
        """A file for incoming data, and the descriptor that says that its uploader lives."""
        with self._lock:
            record = self._get(image)
            if record.data is None:
                self._save(self._with(record, status="saving"))
            path = os.path.join(self._incoming, f"{image}.{self._runtime.new_id()}")
            return path, durable.hold(path)

    def _receive(self, image: str, path: str, held: int, data: Iterable[bytes]) -> Image:
        digest = hashlib.md5(usedforsecurity=False)
        size = durable.write_sparse(held, _hashed(data, digest.update))
        if self._sync:
            os.fsync(held)
        with self._lock:
            return self._commit(self._get(image), path, size, digest.hexdigest())

    def _commit(self, record: _Record, path: str, size: int, checksum: str) -> Image:
        name = os.path.basename(path)
        os.rename(path, os.path.join(self._data, name))
        if self._sync:
            durable.sync_folder(self._data)
        changed = self._with(record, status="active", size=size, checksum=checksum)
        saved = self._save(msgspec.structs.replace(changed, data=name), sync=self._sync)
        if record.data is not None:
            durable.remove_tree(os.path.join(self._data, record.data))
        return saved.image

    def _give_up(self, image: str, path: str) -> None:
        with self._lock:
            durable.remove_tree(path)
            try:
                record = self._get(image)
            except ImageNotFound:
                return
            if record.data is None and record.image.status == "saving":
                self._save(self._with(record, status="queued"))

    def download(self, image: str) -> Iterator[bytes]:
        """Raises ImageNotFound, also for an image without data, at the call."""
        with self._usable():
            for _ in range(2):
                record = self._get(image)
                if record.data is None:
                    raise ImageNotFound(f"Image {image} has no data; its status is {record.image.status}.")
                try:
                    return _pieces(open(os.path.join(self._data, record.data), "rb", buffering=0))
                except FileNotFoundError:
                    self._known.pop(image, None)  # perhaps replaced since the record was read
        raise ImageNotFound(f"The data of image {image} is gone.")

    def delete(self, image: str) -> None:
        """Raises errors.Forbidden when the image is protected."""
        with self._usable(), self._lock:
            try:
                record = self._get(image)
            except ImageNotFound:
                return
            if record.image.protected:
                raise errors.Forbidden(f"Image {image} is protected; take its protection away first.")
            os.unlink(self._record_path(image))
            self._known.pop(image, None)
            if record.data is not None:
                durable.remove_tree(os.path.join(self._data, record.data))

    @contextmanager
    def _usable(self) -> Iterator[None]:
        """What the file system refuses means that the store does not answer."""
        try:
            yield
        except OSError as error:
            raise errors.Unavailable(
                f"The image folder {self._path} cannot be used: {error.strerror}."
            ) from error

    def _record_path(self, image: str) -> str:
        return os.path.join(self._records, image + ".json")

    def _all(self) -> Iterator[_Record]:
        for name in sorted(os.listdir(self._records)):
            image, _, kind = name.rpartition(".")
            if kind != "json":
                continue
            try:
                yield self._get(image)
            except ImageNotFound:
                continue  # deleted meanwhile
            except errors.Unavailable as error:
                LOG.warning("%s The other images are shown.", error)

    def _get(self, image: str) -> _Record:
        if not _ID.fullmatch(image):
            raise ImageNotFound(f"There is no image '{image}'.")
        path = self._record_path(image)
        try:
            status = os.stat(path)
            seen = (status.st_ino, status.st_mtime_ns, status.st_size)
            known = self._known.get(image)
            if known is not None and known[0] == seen:
                return known[1]
            with open(path, "rb") as file:
                record = _decode(file.read())
        except FileNotFoundError:
            self._known.pop(image, None)
            raise self._absence(image) from None
        except (OSError, msgspec.DecodeError) as error:
            raise errors.Unavailable(f"The image record {path} cannot be read: {error}.") from error
        self._known[image] = (seen, record)
        return record

    def _absence(self, image: str) -> errors.PinfoldError:
        # A shared folder that is not mounted must not make every image gone for good.
        if os.path.isdir(self._records):
            return ImageNotFound(f"There is no image {image}.")
        return errors.Unavailable(f"The image folder {self._path} is not there; is it mounted?")

    def _save(self, record: _Record, *, sync: bool = False) -> _Record:
        durable.replace(self._record_path(record.image.id), _encode(record), sync=sync)
        self._known.pop(record.image.id, None)
        return record

    def _with(self, record: _Record, **changes: object) -> _Record:
        return msgspec.structs.replace(record, image=self._changed(record.image, changes))

    def _changed(self, image: Image, changes: Mapping[str, object]) -> Image:
        values = msgspec.to_builtins(image)
        values.update(changes, updated_at=self._runtime.now())
        if unknown := values.keys() - set(Image.__struct_fields__):
            raise errors.InvalidRequest(f"An image has no field {', '.join(sorted(unknown))}.")
        if values["id"] != image.id:
            raise errors.InvalidRequest(f"The id of image {image.id} cannot be changed.")
        try:
            return msgspec.convert(values, Image)
        except msgspec.ValidationError as error:
            raise errors.InvalidRequest(f"Image {image.id} cannot be changed so: {error}.") from error


def _hashed(data: Iterable[bytes], update: Callable[[bytes], None]) -> Iterator[bytes]:
    for piece in data:
        update(piece)
        yield piece


def _pieces(data: FileIO) -> Iterator[bytes]:
    with data:
        while piece := data.read(PIECE):
            yield piece

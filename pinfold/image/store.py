"""Where images and snapshots live: the protocol that the file store and Glance both keep."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

import msgspec

from pinfold.model import errors


class ImageNotFound(errors.NotFound):
    """No image of this id, or its data is gone: for good, not for a moment."""

    code = "image-gone"


class Image(msgspec.Struct, frozen=True):
    """An image record. ``status``: queued, saving, active, killed; sizes in bytes, ``min_ram`` in MB and
    ``min_disk`` in GB; ``properties`` are the free-form ones (``hw_cpu_policy``, ...)."""

    id: str
    name: str
    status: str
    owner: str
    visibility: str
    created_at: datetime.datetime
    updated_at: datetime.datetime
    size: int | None = None
    checksum: str | None = None
    disk_format: str | None = "raw"
    container_format: str | None = "bare"
    min_ram: int = 0
    min_disk: int = 0
    protected: bool = False
    tags: tuple[str, ...] = ()
    properties: dict[str, str] = {}


class Store(Protocol):
    """Images by id. All calls raise errors.Unavailable when the store does not answer."""

    def get(self, image: str) -> Image:
        """Raises ImageNotFound."""

    def list(self) -> list[Image]:
        """All of them, newest first."""

    def create(self, image: Image) -> Image:
        """A new record without data. Raises errors.Conflict when the id is taken."""

    def update(self, image: str, changes: Mapping[str, object]) -> Image:
        """Set fields of the record (``properties`` whole). Raises ImageNotFound."""

    def upload(self, image: str, data: Iterable[bytes]) -> Image:
        """Store the data; the image becomes active once all of it is safe. Raises ImageNotFound.

        Repeating replaces the data, or changes nothing where the data of an active image is fixed. When it
        fails, the image is as it was before, at once or soon.
        """

    def download(self, image: str) -> Iterator[bytes]:
        """The data in pieces. Raises ImageNotFound before the first piece."""

    def delete(self, image: str) -> None:
        """Record and data; nothing happens when it is not there. Raises errors.Forbidden when it is protected."""


def delete_unfinished(store: Store, image: str) -> bool:
    """Delete an image unless all of its data is there; whether it is gone. Raises as ``delete``."""
    try:
        if store.get(image).status == "active":
            return False
    except ImageNotFound:
        return True
    store.delete(image)
    return True

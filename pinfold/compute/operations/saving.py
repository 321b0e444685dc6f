"""What shelve, create_image and moves share: the guest's disk is saved as an image."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator

from pinfold.compute.operations.attempt import DRIVER_ERROR, STORE_ERROR, Attempt, Failed, Refused
from pinfold.image.store import Image
from pinfold.model import errors
from pinfold.virt import driver

LOG = logging.getLogger(__name__)


def snapshot(attempt: Attempt) -> None:
    """Save the disk as the image whose id the operation has."""
    save_as_image(attempt, attempt.tools.driver.snapshot)


def save_as_image(attempt: Attempt, read: Callable[[str, str], Iterator[bytes]]) -> None:
    """Save the disk that ``read`` gives. A store that does not answer is tried for a while."""

    def once() -> None:
        attempt.drive("saved to an image", lambda: _upload(attempt, read))

    attempt.retry(once, until=attempt.patience, transient=lambda failed: failed.code == STORE_ERROR)


def _upload(attempt: Attempt, read: Callable[[str, str], Iterator[bytes]]) -> None:
    work, store = attempt.work, attempt.tools.store
    if work.snapshot is None:
        raise Failed("The server's disk cannot be saved: the request names no image.", code=DRIVER_ERROR)
    try:
        _create_record(attempt, work.snapshot)
        disk = read(work.node, work.instance)
        try:
            store.upload(work.snapshot, _while_mine(attempt, disk))
        finally:
            _close(disk)
    except Refused:
        # whoever has taken over may have asked for its deletion before it was begun
        delete_image(attempt)
        raise
    except driver.DriverError:
        raise
    except errors.Unavailable as error:
        raise Failed("The image store does not answer.", code=STORE_ERROR, details=error.message) from error
    except errors.PinfoldError as error:
        raise Failed(
            f"The server's image {work.snapshot} could not be stored.",
            code="image-refused",
            details=error.message,
        ) from error


def _while_mine(attempt: Attempt, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """A copy ends when its operation is somebody else's, by a delete for one."""
    for piece in pieces:
        attempt.require_mine()
        yield piece


def _create_record(attempt: Attempt, image: str) -> None:
    work = attempt.work
    now = attempt.tools.runtime.now()
    record = Image(
        id=image,
        name=work.snapshot_name or f"{work.name}-shelved",
        status="queued",
        owner=work.snapshot_owner or work.project_id,
        visibility="private",
        created_at=now,
        updated_at=now,
        min_disk=work.demand.disk_gb if work.snapshot_min_disk is None else work.snapshot_min_disk,
        properties=work.snapshot_properties,
    )
    try:
        attempt.tools.store.create(record)
    except errors.Conflict:
        LOG.info("%s: image %s was begun by an earlier try", attempt, image)


def _close(pieces: Iterator[bytes]) -> None:
    """Let go of the guest's disk, also where it has not been read to its end."""
    if isinstance(pieces, Generator):
        pieces.close()


def delete_image(attempt: Attempt) -> None:
    """Remove an image that nothing refers to. The conductor sees to it too, so one try is enough."""
    image = attempt.work.snapshot
    if image is None:
        return
    try:
        attempt.tools.store.delete(image)
    except errors.PinfoldError as error:
        LOG.warning("%s: image %s could not be deleted: %s", attempt, image, error)

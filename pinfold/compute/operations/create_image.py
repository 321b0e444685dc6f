"""Create image: the guest's disk is saved as an image that a user has asked for, while it goes on."""

from __future__ import annotations

import logging

from pinfold.compute.operations import saving
from pinfold.compute.operations.attempt import Attempt, Failed
from pinfold.compute.operations.runner import Deed, Plan
from pinfold.image.store import delete_unfinished
from pinfold.model import errors
from pinfold.virt import driver

LOG = logging.getLogger(__name__)


def snapshot(attempt: Attempt) -> None:
    """Save the disk. An image that is complete counts, also where the store says afterwards that it failed."""
    try:
        saving.snapshot(attempt)
    except Failed as failed:
        if not _is_complete(attempt):
            raise
        LOG.warning("%s: the image is complete, although: %s", attempt, failed.message)


def _is_complete(attempt: Attempt) -> bool:
    try:
        return attempt.tools.store.get(attempt.work.snapshot or "").status == "active"
    except errors.PinfoldError:
        return False


def delete_image(attempt: Attempt) -> None:
    """Remove what has not become an image; a complete one is its user's, whatever became of the operation."""
    try:
        delete_unfinished(attempt.tools.store, attempt.work.snapshot or "")
    except errors.PinfoldError as error:
        LOG.warning("%s: image %s could not be deleted: %s", attempt, attempt.work.snapshot, error)


PLAN = Plan("create_image", {"snapshot": Deed(snapshot, undo=delete_image)}, driver.RUNNING)

"""Images that servers are made from: the caller may see them, they are complete, and they fit."""

from __future__ import annotations

from pinfold.api.call import Call
from pinfold.api.images import may_see_image
from pinfold.image.store import Image, ImageNotFound
from pinfold.model import errors

_GIB = 1024**3


def usable(call: Call, reference: str) -> Image:
    """The image, which the caller may see and which is active. Raises InvalidRequest."""
    try:
        image = call.deps.images.get(reference)
    except ImageNotFound:
        image = None
    if image is None or not may_see_image(call, image):
        raise errors.InvalidRequest(
            f"Invalid imageRef provided: image {reference} could not be found.", code="image-not-found"
        )
    if image.status != "active":
        raise errors.InvalidRequest(f"Image {image.id} is not active: imageRef.", code="image-not-active")
    return image


def require_fit(image: Image, memory_mb: int, root_gb: int) -> None:
    """Raise InvalidRequest when a flavor of this size is too small; a root disk of 0 GB is as large as the image."""
    if image.min_ram > memory_mb:
        raise errors.InvalidRequest(
            f"Flavor's memory is too small for requested image: min_ram is {image.min_ram} MB, the flavor has "
            f"{memory_mb} MB.",
            code="flavor-too-small",
        )
    needed = max(image.min_disk, -(-(image.size or 0) // _GIB))
    if root_gb and needed > root_gb:
        raise errors.InvalidRequest(
            f"Flavor's disk is too small for requested image: it needs {needed} GB, the flavor has "
            f"{root_gb} GB.",
            code="flavor-too-small",
        )

"""Which version of the compute API a request speaks: ``2.<minor>``."""

from __future__ import annotations

import re

from pinfold.api.faults import NotAcceptable
from pinfold.model import errors

MIN_MINOR, MAX_MINOR = 1, 104
MIN_VERSION, MAX_VERSION = f"2.{MIN_MINOR}", f"2.{MAX_MINOR}"

HEADER = "OpenStack-API-Version"
OLD_HEADER = "X-OpenStack-Nova-API-Version"
_FORM = re.compile(r"([1-9]\d{0,8})\.([1-9]\d{0,8}|0)", re.ASCII)


def negotiate(header: str | None, old_header: str | None) -> int:
    """The minor version asked for by the two headers; the new one wins, other services in it are ignored.

    Raises InvalidRequest for what is no version, NotAcceptable for one that is not spoken here.
    """
    wanted = _for_compute(header) or old_header
    if wanted is None:
        return MIN_MINOR
    wanted = wanted.strip()
    if wanted == "latest":
        return MAX_MINOR
    form = _FORM.fullmatch(wanted)
    if form is None:
        raise errors.InvalidRequest(
            f"API Version String {wanted[:40]!r} is of invalid format. Must be of format MajorNum.MinorNum.",
            code="invalid-microversion",
        )
    major, minor = int(form[1]), int(form[2])
    if major != 2 or not MIN_MINOR <= minor <= MAX_MINOR:
        raise NotAcceptable(
            f"Version {wanted} is not supported by the API. Minimum is {MIN_VERSION} and maximum is {MAX_VERSION}.",
            code="microversion-not-supported",
        )
    return minor


def _for_compute(header: str | None) -> str | None:
    for part in (header or "").split(","):
        service, _, version = part.strip().partition(" ")
        if service.lower() == "compute":
            return version
    return None

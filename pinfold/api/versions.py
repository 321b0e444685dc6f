"""Version documents of the compute API."""

from __future__ import annotations

from typing import Any

from pinfold.api.call import Call
from pinfold.api.microversions import MAX_VERSION, MIN_VERSION

_UPDATED = "2013-07-23T11:33:21Z"


def _version(call: Call) -> dict[str, Any]:
    return {
        "id": "v2.1",
        "status": "CURRENT",
        "version": MAX_VERSION,
        "min_version": MIN_VERSION,
        "updated": _UPDATED,
        "links": [{"rel": "self", "href": f"{call.base}/v2.1/"}],
    }


def root(call: Call) -> dict[str, Any]:
    """All versions (the old one is named because clients look for it, and is not served)."""
    old = {
        "id": "v2.0",
        "status": "DEPRECATED",
        "version": "",
        "min_version": "",
        "updated": "2011-01-21T11:33:21Z",
        "links": [{"rel": "self", "href": f"{call.base}/v2/"}],
    }
    return {"versions": [old, _version(call)]}


def v21(call: Call) -> dict[str, Any]:
    """The one that is served."""
    shown = _version(call)
    shown["links"].append({"rel": "describedby", "type": "text/html", "href": "http://docs.openstack.org/"})
    media = {"base": "application/json", "type": "application/vnd.openstack.compute+json;version=2.1"}
    return {"version": shown | {"media-types": [media]}}

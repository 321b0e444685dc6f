"""The few replies of an identity service that clients ask for, with ``noauth`` only.

Here a project is whatever callers say their project is: its name is its id.
"""

from __future__ import annotations

from typing import Any

from pinfold.api import query as queries
from pinfold.api.call import Call, Reply
from pinfold.model import errors


def versions(call: Call) -> Reply:
    """All versions; clients expect 300 here."""
    return Reply({"versions": {"values": [_version(call)]}}, status=300)


def v3(call: Call) -> dict[str, Any]:
    """The only version."""
    return {"version": _version(call)}


def _version(call: Call) -> dict[str, Any]:
    return {
        "id": "v3.14",
        "status": "stable",
        "updated": "2020-04-07T00:00:00Z",
        "links": [{"rel": "self", "href": f"{call.base}/identity/v3/"}],
        "media-types": [
            {"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"},
        ],
    }


def projects(call: Call) -> dict[str, Any]:
    """The project of the name that is asked for; without a name, the caller's."""
    name = queries.last(call.query, "name") or queries.last(call.query, "id") or call.project
    _check(name)
    links = {"self": f"{call.base}/identity/v3/projects", "previous": None, "next": None}
    return {"projects": [_project(call, name)], "links": links}


def project(call: Call, project: str) -> dict[str, Any]:
    """One project."""
    _check(project)
    return {"project": _project(call, project)}


def _check(name: str) -> None:
    if len(name) > 255 or not name.isprintable():
        raise errors.NotFound(f"Could not find project: {name[:100]!r}.", code="project-not-found")


def _project(call: Call, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "name": name,
        "domain_id": "default",
        "description": "",
        "enabled": True,
        "parent_id": "default",
        "is_domain": False,
        "tags": [],
        "options": {},
        "links": {"self": f"{call.base}/identity/v3/projects/{name}"},
    }

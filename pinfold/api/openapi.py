"""``/openapi.json``: the table of routes and the schemas of bodies, as OpenAPI 3.1."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from pinfold.api import schemas
from pinfold.api.call import Call
from pinfold.api.microversions import HEADER, MAX_VERSION, MIN_VERSION
from pinfold.api.route import Route

Document = dict[str, Any]

_TEXTS = {
    400: "What was asked for can never be; the message names the field.",
    401: "Nobody knows who the caller is.",
    403: "The caller may not.",
    404: "There is no such thing, or the caller may not see it.",
    406: "The microversion is not spoken here.",
    409: "It is in a state that does not allow it, or another request was first.",
    410: "The compute API has given it up.",
    413: "The body is too large.",
    415: "The body is of a type that is not understood.",
    501: "This cloud does not have it.",
    503: "The database or the broker does not answer.",
    504: "A host that was asked has not answered in time.",
}


def document(call: Call) -> Document:
    """The document, with this service's address."""
    return _document() | {"servers": [{"url": call.base}]}


@lru_cache(maxsize=1)
def _document() -> Document:
    from pinfold.api.app import ROUTES  # the table imports this module

    paths: Document = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Pinfold",
            "version": MAX_VERSION,
            "description": "The OpenStack compute API with dedicated CPUs, the part of the image API that "
            "it needs, and Pinfold's own view of nodes and operations.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {"token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"}},
        },
    }


_ERROR: Document = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": {
        "anyOf": [
            {
                "type": "object",
                "required": ["code", "message"],
                "properties": {"code": {"type": "integer"}, "message": {"type": "string"}},
            },
            {"type": "string"},
        ]
    },
}


def _operation(route: Route) -> Document:
    words = (route.handler.__doc__ or "").strip().splitlines()
    made: Document = {
        "operationId": route.method.lower() + re.sub(r"\W+", "_", route.path).rstrip("_"),
        "summary": words[0] if words else "",
        "tags": [route.handler.__module__.rpartition(".")[2].partition("_")[0]],
        "parameters": _parameters(route),
        "responses": _responses(route),
    }
    if route.body is not None:
        made["requestBody"] = _request_body(route)
    if route.rule:
        made["x-policy"] = route.rule
    if not route.public:
        made["security"] = [{"token": []}, {}]
    if route.since > 1:
        made["x-min-microversion"] = f"2.{route.since}"
    return made


def _parameters(route: Route) -> list[Document]:
    text: Document = {"type": "string"}
    found: list[Document] = [
        {"name": name, "in": "path", "required": True, "schema": text | {"minLength": 1}}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    if route.path.startswith("/v2.1/"):
        versions = f"compute {MIN_VERSION} to compute {MAX_VERSION}, or compute latest"
        schema = text | {"pattern": r"^compute (2\.[1-9][0-9]{0,2}|latest)$"}
        found.append({"name": HEADER, "in": "header", "description": versions, "schema": schema})
    return found + [{"name": name, "in": "query", "schema": schema} for name, schema in _query(route).items()]


def _query(route: Route) -> Document:
    from pinfold.api import flavors, images, server_lists

    text: Document = {"type": "string"}
    number: Document = {"type": "integer", "minimum": 0}
    if route.handler in (server_lists.index, server_lists.detail):
        return {name: number if name == "limit" else text for name in server_lists.KNOWN}
    if route.handler in (flavors.index, flavors.detail):
        return {
            name: number if name in ("limit", "minRam", "minDisk") else text
            for name in flavors.LIST_PARAMETERS
        }
    if route.handler is images.index:
        return {name: number if name == "limit" else text for name in images.LIST_PARAMETERS}
    if route.path == "/pinfold/v1/operations":
        return {"server": text, "limit": number}
    return {name: number if name in ("limit", "offset") else text for name in route.query}


def _request_body(route: Route) -> Document:
    assert route.body is not None
    versions = [
        {"min": f"2.{since}", "max": f"2.{until}", "schema": published(schema)}
        for since, until, schema in route.body.versions()
    ]
    found = _actions() if route.body is schemas.ACTION else [version["schema"] for version in versions]
    schema = found[0] if len(found) == 1 else {"anyOf": found}
    content = {media: {"schema": schema} for media in route.media}
    made: Document = {"required": True, "content": content}
    return made if len(versions) == 1 else made | {"x-microversions": versions}


def _action_codes() -> list[int]:
    from pinfold.api import server_actions

    return sorted({action.status for action in server_actions.ACTIONS.values()} - {202})


def published(schema: Any) -> Any:
    """A schema in which regular expressions are what JSON Schema says they are: Python's end of a text, ``\\Z``, is
    ``$`` there."""
    if isinstance(schema, dict):
        return {
            key.replace(r"\Z", "$"): value.replace(r"\Z", "$") if key == "pattern" else published(value)
            for key, value in schema.items()
        }
    return [published(item) for item in schema] if isinstance(schema, list) else schema


def _actions() -> list[Document]:
    """Every action of a server, at every version."""
    from pinfold.api import server_actions

    return [
        {
            "type": "object",
            "properties": {name: published(schema)},
            "required": [name],
            "additionalProperties": False,
        }
        for name, action in server_actions.ACTIONS.items()
        for _since, _until, schema in action.body.versions()
    ]


def _responses(route: Route) -> Document:
    shown: Document = {
        str(route.status): {"description": "Done." if route.status < 202 else "Accepted, or done."}
    }
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    codes = [503] if route.public else [400, 401, 403, 404, 406, 409, 503]
    if route.body is not None or route.method == "PUT":
        codes += [413, 415]
    if route.path.endswith(("/action", "/import")):
        codes.append(501)
    shown |= {str(code): {"description": "Done, at some microversions."} for code in route.also if code < 400}
    if route.body is schemas.ACTION:
        shown |= {str(code): {"description": "Done, by some actions."} for code in _action_codes()}
    codes += [code for code in route.also if code >= 400]
    for code in sorted(codes):
        shown[str(code)] = {"description": _TEXTS[code], "content": error}
    if route.handler.__name__ == "download":
        shown["204"] = {"description": "It has no data yet."}
    return shown

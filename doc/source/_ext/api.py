"""The API reference: routes, bodies, actions and policy rules, from the tables that serve them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from doc.source._ext import rst
from pinfold.api import app, microversions, openapi, policies, server_actions
from pinfold.api.call import Call
from pinfold.api.route import Route
from pinfold.api.schemas import Body

Schema = dict[str, Any]
_PREFIXES = {"v2.1": "", "image": "image: ", "identity": "identity: ", "pinfold": "pinfold: "}
_LONGEST_LIST = 8


def document() -> Schema:
    """What ``/openapi.json`` answers."""
    return openapi.document(cast(Call, SimpleNamespace(base="http://127.0.0.1:8774")))


def _noun(path: str) -> str:
    """The heading under which a route stands."""
    parts = path.strip("/").split("/")
    if parts[0] not in _PREFIXES or len(parts) == 1:
        return {"image": "image: images", "identity": "identity: projects"}.get(
            parts[0], "the service itself"
        )
    noun = parts[2] if parts[0] in ("image", "identity", "pinfold") and len(parts) > 2 else parts[1]
    noun = {"v2": "images", "v3": "projects", "schemas": "images", "info": "images"}.get(noun, noun)
    return _PREFIXES[parts[0]] + noun


def routes() -> list[str]:
    """All routes, by noun; after each noun the bodies that its routes take."""
    nouns: dict[str, list[Route]] = {}
    for route in app.ROUTES:
        nouns.setdefault(_noun(route.path), []).append(route)
    lines: list[str] = []
    for noun, found in nouns.items():
        lines += rst.title(noun[:1].upper() + noun[1:], "~")
        lines += _route_table(found)
        for route in found:
            if route.body is not None and route.body.name != "server_action":
                lines += [f"Body of {rst.literal(f'{route.method} {route.path}')}:", ""]
                lines += body_table(route.body)
    return lines


def _route_table(found: list[Route]) -> list[str]:
    described = document()["paths"]
    rows = []
    for route in found:
        shown = described[route.path][route.method.lower()]
        since = "" if route.since == 1 and route.until == microversions.MAX_MINOR else _versions(route)
        rule = "nobody is asked" if route.public else rst.literal(route.rule) or "that of the action"
        rows.append(
            (
                rst.literal(f"{route.method} {route.path}"),
                rst.escaped(shown["summary"]) + since,
                rule,
                str(route.status),
            )
        )
    return rst.table(("Request", "What it does", "Policy rule", "Success"), rows, (34, 34, 22, 10))


def _versions(route: Route) -> str:
    until = "" if route.until == microversions.MAX_MINOR else f" to 2.{route.until}"
    return f" (from 2.{route.since}{until})"


def body_table(body: Body) -> list[str]:
    """The fields of a body, each with the microversions at which it may be sent."""
    seen: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for since, until, schema in body.versions():
        for field, kind in _fields(schema):
            spans = seen.setdefault((field, kind), [])
            if spans and spans[-1][1] == since - 1:
                spans[-1] = (spans[-1][0], until)
            else:
                spans.append((since, until))
    rows = [
        (rst.literal(field), rst.escaped(kind), ", ".join(_span(span) for span in spans))
        for (field, kind), spans in seen.items()
    ]
    if not rows:
        return ["Any JSON value.", ""]
    return rst.table(("Field", "What it may be", "Microversions"), rows, (36, 46, 18))


def _span(span: tuple[int, int]) -> str:
    since, until = span
    if until == microversions.MAX_MINOR:
        return "all" if since == 1 else f"from 2.{since}"
    return f"2.{since} to 2.{until}"


def _fields(schema: Schema, path: str = "", *, required: bool = True) -> Iterator[tuple[str, str]]:
    """(path, kind) of a schema and of what is in it."""
    branches = [branch for branch in schema.get("anyOf", ()) if "properties" in branch]
    if path and not branches and not schema.get("properties"):
        yield path, _kind(schema) + ("" if required else ", optional")
    for branch in branches or [schema]:
        for name, inner in branch.get("properties", {}).items():
            must = name in branch.get("required", ())
            yield from _fields(inner, f"{path}.{name}" if path else name, required=must)
    items = schema.get("items", {})
    if isinstance(items, dict) and items.get("properties"):
        yield from _fields(items, f"{path}[]")


def _kind(schema: Schema) -> str:
    """A schema in a few words."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(branch) for branch in schema["anyOf"]))
    if "enum" in schema:
        return _choice(schema["enum"])
    if "const" in schema:
        return f"{schema['const']!r}"
    kinds = schema.get("type", "anything")
    text = " or ".join(kinds) if isinstance(kinds, list) else str(kinds)
    if schema.get("format") and schema["format"] not in ("name", "text"):
        text += f" ({schema['format']})"
    return text + _size(schema)


def _choice(values: list[Any]) -> str:
    if True in values and False in values:
        return "a boolean, or a word for one"
    shown = [repr(value) for value in values[:_LONGEST_LIST]]
    return "one of " + ", ".join(shown) + (", ..." if len(values) > _LONGEST_LIST else "")


def _size(schema: Schema) -> str:
    if "maxLength" in schema:
        return f", {schema.get('minLength', 0)} to {schema['maxLength']} characters"
    if "maxItems" in schema:
        return f", at most {schema['maxItems']} items"
    if "maxProperties" in schema:
        return f", at most {schema['maxProperties']} items"
    return ""


def actions() -> list[str]:
    """The actions that are there."""
    rows = []
    for name, action in server_actions.ACTIONS.items():
        fields = [field for _since, _until, schema in action.body.versions() for field, _ in _fields(schema)]
        takes = rst.literals(dict.fromkeys(fields)) or "any value"
        rows.append((rst.literal(name), rst.literal(action.rule), takes, str(action.status)))
    return rst.table(("Action", "Policy rule", "Fields", "Success"), rows, (24, 34, 30, 12))


def actions_not_built() -> list[str]:
    """Those of the compute API that are not there: 501, or 404 where the API does not have them either."""
    rows = [
        (rst.literal(name), "all" if span == (1, microversions.MAX_MINOR) else f"2.{span[0]} to 2.{span[1]}")
        for name, span in sorted(server_actions.NOT_BUILT.items())
    ]
    return rst.table(("Action", "501 at microversions (404 at others)"), rows, (40, 60))


def policy_rules() -> list[str]:
    """All rules with their defaults."""
    rows = [
        (rst.literal(rule.name), rst.literal(rule.check_str), rst.escaped(rule.description or ""))
        for rule in policies.list_rules()
    ]
    return rst.table(("Rule", "Default", "What it allows"), rows, (38, 30, 32))

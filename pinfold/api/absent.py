"""What the compute API has and this cloud has not: one table, with the answer to each.

The answers are those of a Nova whose neighbour services are absent, or that has given the thing up: 410 for what the
API dropped long ago, 501 for what needs a service that is not here, 404 for one of many of which there are none, and
an empty list where a server has none of a thing. Nothing here reads or writes anything but the server that is named.
"""

# ruff: noqa: E501 - the lines of the table are long so that it is one

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pinfold.api import servers
from pinfold.api.bodies import read_json
from pinfold.api.call import Call, Reply
from pinfold.api.faults import Gone, NotBuilt
from pinfold.api.microversions import MAX_MINOR
from pinfold.api.route import Route
from pinfold.model import errors

SERVER = "/v2.1/servers/{server}"
Answer = Callable[[Call], Any]

VOLUMES = "volumes"
NETWORKS = "networks"
SECURITY_GROUPS = "security groups"
FLOATING_IPS = "floating addresses"


def _not_here(what: str) -> Answer:
    def answer(call: Call) -> Any:
        raise NotBuilt(f"This cloud has no {what}.")

    return answer


def _gone(call: Call) -> Any:
    raise Gone("This resource is no longer available. No forwarding address is given.")


def _none_of(what: str) -> Answer:
    def answer(call: Call) -> Any:
        raise errors.NotFound(f"There is no such {what}.", code="not-found")

    return answer


def _value(value: Any, status: int = 200) -> Answer:
    return lambda call: Reply(value, status=status)


def _console(call: Call) -> Any:
    body = read_json(call.req, call.deps.settings.max_request_body_size)
    wanted = body.get("remote_console") if isinstance(body, dict) else None
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    raise errors.InvalidRequest(f"Unavailable console type {str(kind)[:50]}.", code="no-console")


def _of_server(answer: Answer) -> Callable[..., Any]:
    """The answer, once it is sure that the caller may ask it of this server."""

    def handler(call: Call, server: str, **more: str) -> Any:
        servers.found(call, server)
        return answer(call)

    return handler


def _of_cloud(answer: Answer) -> Callable[..., Any]:
    def handler(call: Call, **more: str) -> Any:
        call.authorize(call.project)
        return answer(call)

    return handler


# (methods, path, policy rule, answer, what the documentation says, until which microversion)
# fmt: off
_TABLE: tuple[tuple[str, str, str, Answer, str, int], ...] = (
    ("GET POST",       "/v2.1/os-volumes",                    "os-volumes:list",         _not_here(VOLUMES), "There are no volumes: 501.", 35),
    ("GET",            "/v2.1/os-volumes/detail",             "os-volumes:list",         _not_here(VOLUMES), "There are no volumes: 501.", 35),
    ("GET DELETE",     "/v2.1/os-volumes/{id}",               "os-volumes:list",         _not_here(VOLUMES), "There are no volumes: 501.", 35),
    ("GET POST",       "/v2.1/os-volumes_boot",               "os-volumes:list",         _not_here(VOLUMES), "There are no volumes to boot from: 501.", 35),
    ("GET POST",       "/v2.1/os-snapshots",                  "os-volumes:list",         _not_here(VOLUMES), "There are no volumes: 501.", 35),
    ("GET",            "/v2.1/os-snapshots/detail",           "os-volumes:list",         _not_here(VOLUMES), "There are no volumes: 501.", 35),
    ("GET DELETE",     "/v2.1/os-snapshots/{id}",             "os-volumes:list",         _not_here(VOLUMES), "There are no volumes: 501.", 35),
    ("POST",           "/v2.1/os-assisted-volume-snapshots",  "os-volumes:list",         _not_here(VOLUMES), "There are no volumes: 501.", MAX_MINOR),
    ("DELETE",         "/v2.1/os-assisted-volume-snapshots/{id}", "os-volumes:list",     _not_here(VOLUMES), "There are no volumes: 501.", MAX_MINOR),
    ("GET",            "/v2.1/os-networks",                   "os-networks:list",        _not_here(NETWORKS), "There are no networks: 501.", 35),
    ("POST",           "/v2.1/os-networks",                   "os-networks:list",        _gone,              "The API has given it up: 410.", MAX_MINOR),
    ("POST",           "/v2.1/os-networks/add",               "os-networks:list",        _gone,              "The API has given it up: 410.", MAX_MINOR),
    ("GET",            "/v2.1/os-networks/{id}",              "os-networks:list",        _not_here(NETWORKS), "There are no networks: 501.", 35),
    ("DELETE",         "/v2.1/os-networks/{id}",              "os-networks:list",        _gone,              "The API has given it up: 410.", MAX_MINOR),
    ("POST",           "/v2.1/os-networks/{id}/action",       "os-networks:list",        _gone,              "The API has given it up: 410.", MAX_MINOR),
    ("GET",            "/v2.1/os-tenant-networks",            "os-networks:list",        _not_here(NETWORKS), "There are no networks: 501.", 35),
    ("POST",           "/v2.1/os-tenant-networks",            "os-networks:list",        _gone,              "The API has given it up: 410.", MAX_MINOR),
    ("GET",            "/v2.1/os-tenant-networks/{id}",       "os-networks:list",        _not_here(NETWORKS), "There are no networks: 501.", 35),
    ("DELETE",         "/v2.1/os-tenant-networks/{id}",       "os-networks:list",        _gone,              "The API has given it up: 410.", MAX_MINOR),
    ("GET POST",       "/v2.1/os-security-groups",            "os-security-groups:list", _not_here(SECURITY_GROUPS), "There are no security groups: 501.", 35),
    ("GET PUT DELETE", "/v2.1/os-security-groups/{id}",       "os-security-groups:list", _not_here(SECURITY_GROUPS), "There are no security groups: 501.", 35),
    ("POST",           "/v2.1/os-security-group-rules",       "os-security-groups:list", _not_here(SECURITY_GROUPS), "There are no security groups: 501.", 35),
    ("DELETE",         "/v2.1/os-security-group-rules/{id}",  "os-security-groups:list", _not_here(SECURITY_GROUPS), "There are no security groups: 501.", 35),
    ("GET POST",       "/v2.1/os-floating-ips",               "os-floating-ips:list",    _not_here(FLOATING_IPS), "There are no floating addresses: 501.", 35),
    ("GET DELETE",     "/v2.1/os-floating-ips/{id}",          "os-floating-ips:list",    _not_here(FLOATING_IPS), "There are no floating addresses: 501.", 35),
    ("GET",            "/v2.1/os-floating-ip-pools",          "os-floating-ips:list",    _not_here(FLOATING_IPS), "There are no floating addresses: 501.", 35),
    ("GET POST",       "/v2.1/os-baremetal-nodes",            "os-baremetal-nodes",      _not_here("bare metal"), "There is no bare metal: 501.", 35),
    ("GET DELETE",     "/v2.1/os-baremetal-nodes/{id}",       "os-baremetal-nodes",      _not_here("bare metal"), "There is no bare metal: 501.", 35),
    ("POST",           "/v2.1/os-server-external-events",     "os-server-external-events:create", _not_here("services that send events"), "No other service sends events: 501.", MAX_MINOR),
    ("GET",            "/v2.1/os-instance_usage_audit_log",   "os-instance-usage-audit-log:list", _not_here("usage audits"), "There are no usage audits; see os-simple-tenant-usage: 501.", MAX_MINOR),
    ("GET",            "/v2.1/os-instance_usage_audit_log/{id}", "os-instance-usage-audit-log:list", _not_here("usage audits"), "There are no usage audits; see os-simple-tenant-usage: 501.", MAX_MINOR),
    ("GET",            "/v2.1/os-console-auth-tokens/{id}",   "os-console-auth-tokens",  _none_of("token"),  "There are no consoles, so no token is known: 404.", MAX_MINOR),
    ("GET POST",       "/v2.1/os-agents",                     "pinfold:gone",            _gone,              "The API has given it up: 410.", MAX_MINOR),
    ("PUT DELETE",     "/v2.1/os-agents/{id}",                "pinfold:gone",            _gone,              "The API has given it up: 410.", MAX_MINOR),
    ("GET POST",       "/v2.1/os-cells",                      "pinfold:gone",            _gone,              "The API has given it up: 410.", MAX_MINOR),
    ("GET PUT DELETE", "/v2.1/os-cells/{id}",                 "pinfold:gone",            _gone,              "The API has given it up: 410.", MAX_MINOR),
    ("POST",           "/v2.1/os-certificates",               "pinfold:gone",            _gone,              "The API has given it up: 410.", MAX_MINOR),
    ("GET",            "/v2.1/os-certificates/{id}",          "pinfold:gone",            _gone,              "The API has given it up: 410.", MAX_MINOR),
    ("GET POST",       "/v2.1/os-cloudpipe",                  "pinfold:gone",            _gone,              "The API has given it up: 410.", MAX_MINOR),
    ("PUT",            "/v2.1/os-cloudpipe/{id}",             "pinfold:gone",            _gone,              "The API has given it up: 410.", MAX_MINOR),
    ("GET",            "/v2.1/os-fixed-ips/{id}",             "pinfold:gone",            _gone,              "The API has given it up: 410.", MAX_MINOR),
    ("POST",           "/v2.1/os-fixed-ips/{id}/action",      "pinfold:gone",            _gone,              "The API has given it up: 410.", MAX_MINOR),
    ("GET",            "/v2.1/os-floating-ip-dns",            "pinfold:gone",            _gone,              "The API has given it up: 410.", MAX_MINOR),
    ("PUT DELETE",     "/v2.1/os-floating-ip-dns/{id}",       "pinfold:gone",            _gone,              "The API has given it up: 410.", MAX_MINOR),
    ("GET POST",       "/v2.1/os-floating-ips-bulk",          "pinfold:gone",            _gone,              "The API has given it up: 410.", MAX_MINOR),
    ("GET PUT",        "/v2.1/os-floating-ips-bulk/{id}",     "pinfold:gone",            _gone,              "The API has given it up: 410.", MAX_MINOR),
    ("GET",            "/v2.1/os-fping",                      "pinfold:gone",            _gone,              "The API has given it up: 410.", MAX_MINOR),
    ("GET",            "/v2.1/os-fping/{id}",                 "pinfold:gone",            _gone,              "The API has given it up: 410.", MAX_MINOR),
    ("GET POST",       "/v2.1/os-security-group-default-rules", "pinfold:gone",          _gone,              "The API has given it up: 410.", MAX_MINOR),
    ("GET DELETE",     "/v2.1/os-security-group-default-rules/{id}", "pinfold:gone",     _gone,              "The API has given it up: 410.", MAX_MINOR),
    ("GET",            SERVER + "/os-virtual-interfaces",     "servers:show",            _gone,              "The API has given it up: 410.", 43),
    ("GET POST",       SERVER + "/consoles",                  "servers:show",            _gone,              "The API has given it up: 410.", MAX_MINOR),
    ("GET DELETE",     SERVER + "/consoles/{id}",             "servers:show",            _gone,              "The API has given it up: 410.", MAX_MINOR),
    ("GET",            SERVER + "/ips",                       "ips:index",               _value({"addresses": {}}), "A server has no addresses: an empty list.", MAX_MINOR),
    ("GET",            SERVER + "/ips/{id}",                  "ips:index",               _none_of("network of this server"), "A server is in no network: 404.", MAX_MINOR),
    ("GET",            SERVER + "/os-interface",              "os-attach-interfaces:list", _value({"interfaceAttachments": []}), "A server has no ports: an empty list.", MAX_MINOR),
    ("POST",           SERVER + "/os-interface",              "os-attach-interfaces:create", _not_here(NETWORKS), "There are no ports to attach: 501.", MAX_MINOR),
    ("GET DELETE",     SERVER + "/os-interface/{id}",         "os-attach-interfaces:list", _none_of("port of this server"), "A server has no ports: 404.", MAX_MINOR),
    ("GET",            SERVER + "/os-volume_attachments",     "os-volumes-attachments:index", _value({"volumeAttachments": []}), "A server has no volumes: an empty list.", MAX_MINOR),
    ("POST",           SERVER + "/os-volume_attachments",     "os-volumes-attachments:create", _not_here(VOLUMES), "There are no volumes to attach: 501.", MAX_MINOR),
    ("GET PUT DELETE", SERVER + "/os-volume_attachments/{id}", "os-volumes-attachments:index", _none_of("volume of this server"), "A server has no volumes: 404.", MAX_MINOR),
    ("GET",            SERVER + "/os-security-groups",        "os-security-groups:list", _value({"security_groups": []}), "A server has no security groups: an empty list.", MAX_MINOR),
    ("GET",            SERVER + "/os-server-password",        "os-server-password:show", _value({"password": ""}), "No guest has told a password: an empty one.", MAX_MINOR),
    ("DELETE",         SERVER + "/os-server-password",        "os-server-password:clear", _value(None, 204), "No guest has told a password, so there is nothing to clear: 204.", MAX_MINOR),
    ("GET",            SERVER + "/diagnostics",               "os-server-diagnostics",   _not_here("diagnostics of servers"), "No hypervisor here tells: 501.", MAX_MINOR),
    ("POST",           SERVER + "/remote-consoles",           "os-remote-consoles",      _console,           "There are no graphical or serial consoles: 400.", MAX_MINOR),
    ("GET POST",       SERVER + "/shares",                    "servers:show",            _not_here("shares"), "There are no shares: 501.", MAX_MINOR),
    ("GET DELETE",     SERVER + "/shares/{id}",               "servers:show",            _not_here("shares"), "There are no shares: 501.", MAX_MINOR),
)
# fmt: on
_SINCE = {SERVER + "/remote-consoles": 6, SERVER + "/shares": 97, SERVER + "/shares/{id}": 97}


def _routes() -> tuple[Route, ...]:
    made = []
    for methods, path, rule, answer, text, until in _TABLE:
        for method in methods.split():
            handler = _of_server(answer) if path.startswith(SERVER) else _of_cloud(answer)
            words = re.sub(r"[^a-z]+", "_", path.removeprefix("/v2.1/").lower()).strip("_")
            handler.__name__ = f"{method.lower()}_{words}"
            handler.__doc__ = text
            made.append(
                Route(
                    method, path, handler, rule, since=_SINCE.get(path, 1), until=until, also=(204, 410, 501)
                )
            )
    return tuple(made)


ROUTES = _routes()

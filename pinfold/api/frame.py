"""Around every handler: request ids, authentication, microversions, bodies in and out."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

import falcon
import msgspec

from pinfold.api import bodies, microversions
from pinfold.api.auth import Authenticate
from pinfold.api.call import Call, Reply
from pinfold.api.deps import Deps
from pinfold.api.policies import Policies
from pinfold.api.route import Route
from pinfold.model import errors
from pinfold.rpcapi.context import Context, stand_in_logs

LOG = logging.getLogger(__name__)

COMPUTE = "/v2.1"
# the version document at the address of a project, which clients read before they have a token
_OF_PROJECT = re.compile(COMPUTE + "/[0-9a-f]{32}|" + COMPUTE + "/[0-9a-f-]{36}")
_encode = msgspec.json.Encoder().encode
_VARY = f"{microversions.HEADER}, {microversions.OLD_HEADER}"
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


class Frame:
    """Falcon middleware: makes the ``Call`` before routing, and adds the headers of every answer."""

    def __init__(
        self, deps: Deps, policies: Policies, authenticate: Authenticate, routes: Sequence[Route]
    ) -> None:
        self._deps = deps
        self._policies = policies
        self._authenticate = authenticate
        self._public = frozenset(route.path for route in routes if route.public)
        self._nouns = frozenset(
            route.path.split("/")[2] for route in routes if route.path.startswith(COMPUTE + "/")
        )

    def process_request(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Who asks, and at which microversion. Raises Unauthorized, InvalidRequest, NotAcceptable."""
        request_id = f"req-{self._deps.runtime.new_id()}"
        req.context.request_id = request_id
        req.context.began = self._deps.runtime.monotonic()
        req.context.minor = None
        resp.set_header("x-openstack-request-id", request_id)
        if _OF_PROJECT.fullmatch(req.path):
            req.path = COMPUTE
        # First without a name, for the lines of those who are refused, and in place of the thread's last request.
        context = Context(request_id)
        stand_in_logs(context)
        if req.path not in self._public:
            context = self._authenticate(req, request_id)
            stand_in_logs(context)
        minor = microversions.MIN_MINOR
        if req.path.startswith(COMPUTE) and (req.path[len(COMPUTE) :] or "/")[0] == "/":
            resp.set_header("x-compute-request-id", request_id)
            minor = microversions.negotiate(
                req.get_header(microversions.HEADER), req.get_header(microversions.OLD_HEADER)
            )
            req.context.minor = minor
            self._strip_project(req, context)
        req.context.call = Call(req, self._deps, self._policies, context, minor)

    def _strip_project(self, req: falcon.Request, context: Context) -> None:
        """``/v2.1/{project}/servers`` is ``/v2.1/servers``. Raises InvalidRequest for somebody else's project."""
        project, _, rest = req.path[len(COMPUTE) + 1 :].partition("/")
        if not project or project in self._nouns:
            return
        if not rest and project == context.project_id:
            req.path = COMPUTE
        elif rest.partition("/")[0] in self._nouns:
            if project != context.project_id:
                raise errors.InvalidRequest(
                    f"Malformed request URL: URL's project_id '{project[:100]}' doesn't match Context's project_id "
                    f"'{context.project_id}'",
                    code="project-mismatch",
                )
            req.path = f"{COMPUTE}/{rest}"

    def process_response(
        self, req: falcon.Request, resp: falcon.Response, resource: object, req_succeeded: bool
    ) -> None:
        """The version that was spoken, on every answer of the compute API; a line in the log."""
        minor = req.context.minor
        if minor is not None:
            resp.set_headers(
                (
                    (microversions.HEADER, f"compute 2.{minor}"),
                    (microversions.OLD_HEADER, f"2.{minor}"),
                    ("Vary", _VARY),
                )
            )
        level = logging.DEBUG if req.method == "GET" else logging.INFO
        LOG.log(level, '"%s %s" status: %s', req.method, req.path, resp.status)
        seconds = self._deps.runtime.monotonic() - req.context.began
        # the route, not the path: a series for each server would never end
        method = req.method if req.method in _METHODS else "other"
        labels = method, req.uri_template or "", str(resp.status_code)
        self._deps.metrics.requests.labels(*labels).observe(seconds)


def responder(route: Route) -> Callable[..., None]:
    """What Falcon calls for a route."""

    def respond(req: falcon.Request, resp: falcon.Response, **parameters: str) -> None:
        call: Call = req.context.call
        if not route.since <= call.minor <= route.until:
            raise errors.NotFound("The resource could not be found.", code="not-at-this-microversion")
        call.policy = route.rule
        if route.body is not None:
            call.body = bodies.read_json(req, call.deps.settings.max_request_body_size, route.media)
            route.body.check(call.body, call.minor)
        answer(resp, route.status, route.handler(call, **parameters))

    return respond


def answer(resp: falcon.Response, status: int, made: Any) -> None:
    """Make the response from what a handler returned."""
    reply = made if isinstance(made, Reply) else Reply(made)
    resp.status = reply.status or status
    if reply.body is not None:
        resp.data = _encode(reply.body)
        resp.content_type = "application/json"
    if reply.stream is not None:
        resp.stream = reply.stream
    if reply.content_type:
        resp.content_type = reply.content_type
    for name, value in reply.headers.items():
        resp.set_header(name, value)

"""One request as handlers see it: who asks, at which microversion, for what."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import falcon
import msgspec

from pinfold.api import query as queries
from pinfold.api.deps import Deps
from pinfold.api.policies import Policies
from pinfold.db.operations import Requester
from pinfold.model import errors
from pinfold.rpcapi.context import Context

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)


def is_uuid(text: str) -> bool:
    """Whether it is a UUID in its canonical text form (what ids are in the book)."""
    return _UUID.fullmatch(text) is not None


def as_uuid(text: str) -> str | None:
    """The canonical form of a UUID as clients may write it (upper case, without dashes), or None."""
    plain = text.lower().replace("-", "")
    if len(plain) != 32 or not re.fullmatch(r"[0-9a-f]{32}", plain):
        return None
    return f"{plain[:8]}-{plain[8:12]}-{plain[12:16]}-{plain[16:20]}-{plain[20:]}"


class Reply(msgspec.Struct, frozen=True):
    """An answer, where a plain body with the route's status is not enough."""

    body: Any = None
    status: int | None = None
    headers: Mapping[str, str] = {}
    stream: Iterable[bytes] | None = None
    content_type: str | None = None


class Call:
    """A request: ``body`` is the decoded and validated JSON body, None if the route takes none."""

    __slots__ = ("_base", "_query", "body", "context", "deps", "minor", "policies", "policy", "req")

    def __init__(
        self, req: falcon.Request, deps: Deps, policies: Policies, context: Context, minor: int
    ) -> None:
        self.req = req
        self.deps = deps
        self.policies = policies
        self.context = context
        self.minor = minor
        self.policy = ""
        self.body: Any = None
        self._base: str | None = None
        self._query: queries.Query | None = None

    @property
    def project(self) -> str:
        """The caller's project."""
        return self.context.project_id or ""

    @property
    def user(self) -> str:
        """The caller."""
        return self.context.user_id or ""

    @property
    def requester(self) -> Requester:
        """Who asks, for the book."""
        return Requester(self.context.request_id, self.project, self.user)

    @property
    def query(self) -> queries.Query:
        """The query string's parameters."""
        if self._query is None:
            self._query = queries.parse(self.req.query_string)
        return self._query

    @property
    def base(self) -> str:
        """``http://host:port`` as the client sees this service, for links."""
        if self._base is None:
            prefix = self.deps.settings.compute_link_prefix
            self._base = prefix.rstrip("/") if prefix else self.req.prefix
        return self._base

    @property
    def is_admin(self) -> bool:
        """Whether the caller acts for the whole cloud."""
        return self.allows("context_is_admin")

    @property
    def sees_project(self) -> str | None:
        """The only project whose things the caller can see, or None for all."""
        return None if self.is_admin else self.project

    def allows(self, rule: str, project: str | None = None, user: str | None = None) -> bool:
        """Whether the caller may do ``rule`` to something of ``project`` (their own when not given)."""
        return self.policies.allows(rule, self.context, project, user)

    def require(self, rule: str, project: str | None = None, user: str | None = None) -> None:
        """Raise errors.Forbidden unless the caller may."""
        self.policies.require(rule, self.context, project, user)

    def authorize(self, project: str, user: str | None = None) -> None:
        """Raise errors.Forbidden unless the caller may do this route's rule to something of ``project``."""
        self.require(self.policy, project, user)

    def new_id(self) -> str:
        """A new UUID."""
        return self.deps.runtime.new_id()


def server_not_found(server: str) -> errors.NotFound:
    """Nova's words for it."""
    return errors.NotFound(f"Instance {server[:100]} could not be found.", code="server-not-found")

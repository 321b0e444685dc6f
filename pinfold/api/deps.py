"""What the API is given: one record, no globals."""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec
from prometheus_client import CollectorRegistry

from pinfold.db.session import Book
from pinfold.image.store import Store
from pinfold.metrics import ApiMetrics
from pinfold.model import errors
from pinfold.model.quotas import DEFAULTS
from pinfold.model.work import Bell, Times, Work
from pinfold.rpcapi.clients import ComputeClient, ConductorClient
from pinfold.rpcapi.context import Context, stand_in_logs
from pinfold.rpcapi.messages import Control
from pinfold.runtime import Runtime

LOG = logging.getLogger(__name__)


class Settings(msgspec.Struct, frozen=True):
    """The values of ``[api]`` that requests depend on; ``conf.api`` says what each means. ``quotas`` are limits by
    name, where a project has none of its own."""

    auth_strategy: str = "noauth"
    max_limit: int = 1000
    max_request_body_size: int = 114688
    max_image_size: int = 1024**4
    max_servers_per_request: int = 100
    enable_instance_password: bool = True
    password_length: int = 12
    compute_link_prefix: str | None = None
    default_zone: str = "nova"
    internal_zone: str = "internal"
    quotas: dict[str, int] = msgspec.field(default_factory=DEFAULTS.copy)


class Deps(msgspec.Struct, frozen=True):
    """What handlers work with. ``broker_answers`` is the transport's ``ping``."""

    book: Book
    conductor: ConductorClient
    compute: ComputeClient
    images: Store
    runtime: Runtime
    broker_answers: Callable[[], bool]
    times: Times = Times()
    settings: Settings = Settings()
    registry: CollectorRegistry = msgspec.field(default_factory=CollectorRegistry)
    metrics: ApiMetrics = msgspec.field(default_factory=ApiMetrics)

    def ring(self, bell: Bell, context: Context) -> None:
        """Tell conductors and workers of what has been committed.

        Nothing is raised: the operation is in the book, and a sweeper rings again. From here on, the log lines of
        the request name the operation.
        """
        for operation in (*bell.run, *(work.operation for work in bell.work)):
            stand_in_logs(context, operation)
        for operation in bell.run:
            self._ring(f"a conductor for operation {operation}", self._run, operation, context)
        for work in bell.work:
            self._ring(f"{work.host} for operation {work.operation}", self._perform, work, context)

    def tell(self, host: str, wish: Control, context: Context) -> None:
        """Tell a worker what is wished of what it does. Nothing is raised: it is a wish."""
        self._ring(f"{host} for operation {wish.operation}", self._control, (host, wish), context)

    def _control(self, what: tuple[str, Control], context: Context) -> None:
        self.compute.with_context(context).control(*what)

    def _run(self, operation: str, context: Context) -> None:
        self.conductor.with_context(context).run(operation)

    def _perform(self, work: Work, context: Context) -> None:
        self.compute.with_context(context).perform(work.host, work)

    def _ring(self, whom: str, how: Callable[..., None], what: object, context: Context) -> None:
        try:
            how(what, context)
        except errors.PinfoldError as error:
            LOG.warning("Could not ring %s: %s A sweeper will.", whom, error)

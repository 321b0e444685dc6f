"""The API's process."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg
from prometheus_client import CollectorRegistry

from pinfold.api import auth
from pinfold.api.app import make_app
from pinfold.api.deps import Deps, Settings
from pinfold.api.health import BookCollector
from pinfold.api.service import ApiService, Listen
from pinfold.cmd.assembly import book, broker
from pinfold.cmd.service import OnEnd, Program, Service
from pinfold.conf import api, image, operations, quota
from pinfold.db.session import Book
from pinfold.image.build import store_from
from pinfold.metrics import ApiMetrics
from pinfold.rpcapi import wire
from pinfold.rpcapi.clients import ComputeClient, ConductorClient
from pinfold.rpcapi.context import Context
from pinfold.runtime import Runtime


def settings_from(conf: cfg.ConfigOpts) -> Settings:
    """The options that requests depend on, as a record."""
    group = conf.api
    return Settings(
        auth_strategy=group.auth_strategy,
        max_limit=group.max_limit,
        max_request_body_size=group.max_request_body_size,
        max_image_size=group.max_image_size,
        max_servers_per_request=group.max_servers_per_request,
        enable_instance_password=group.enable_instance_password,
        password_length=group.password_length,
        compute_link_prefix=group.compute_link_prefix,
        default_zone=conf.default_availability_zone,
        internal_zone=conf.internal_service_availability_zone,
        quotas=quota.limits(conf),
    )


def listen_from(conf: cfg.ConfigOpts) -> Listen:
    """Where to listen, as a record. Raises errors.ConfigurationError."""
    group = conf.api
    auth.check_bind(group.auth_strategy, group.host)
    return Listen(
        service=conf.host,
        host=group.host,
        port=group.port,
        threads=group.threads,
        backlog=group.backlog,
        connection_limit=group.connection_limit,
        stop_wait=group.stop_wait,
        heartbeat=group.heartbeat,
    )


def deps_from(
    conf: cfg.ConfigOpts, runtime: Runtime, transport: wire.Transport, book: Book, registry: CollectorRegistry
) -> Deps:
    """What the API works with. Raises errors.ConfigurationError."""
    context = Context(request_id="req-api")
    times = operations.times(conf)
    deps = Deps(
        book=book,
        conductor=ConductorClient(transport, context, pin=conf.upgrade_levels.conductor),
        compute=ComputeClient(transport, context, pin=conf.upgrade_levels.compute),
        images=store_from(conf, runtime),
        runtime=runtime,
        broker_answers=transport.ping,
        times=times,
        settings=settings_from(conf),
        registry=registry,
        metrics=ApiMetrics(registry),
    )
    registry.register(BookCollector(book, times.service_down, runtime))
    return deps


def application_from(conf: cfg.ConfigOpts, deps: Deps) -> Any:
    """The WSGI application, behind keystonemiddleware if that is asked for. Raises errors.ConfigurationError."""
    app = make_app(deps, conf)
    if deps.settings.auth_strategy != "keystone":
        return app
    from keystonemiddleware import auth_token

    # a request without a good token goes on, so that version documents can be read without one
    return auth_token.AuthProtocol(app, {"oslo_config_config": conf, "delay_auth_decision": True})


def build(
    conf: cfg.ConfigOpts, runtime: Runtime, transport: wire.Transport, book: Book, registry: CollectorRegistry
) -> ApiService:
    """The API as the configuration has it. Raises errors.ConfigurationError."""
    listen = listen_from(conf)
    deps = deps_from(conf, runtime, transport, book, registry)
    return ApiService(application_from(conf, deps), deps, listen)


def _build(conf: cfg.ConfigOpts, runtime: Runtime, on_end: OnEnd) -> list[Service]:
    the_book = book.book_from(conf, runtime)
    return [build(conf, runtime, broker.connect(conf, runtime), the_book, CollectorRegistry())]


PROGRAM = Program((book.register, api.register, image.register, operations.register, broker.register), _build)

"""The image store that the configuration asks for."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from oslo_config import cfg

from pinfold.image.files import FileStore
from pinfold.image.store import Store
from pinfold.model import errors
from pinfold.runtime import Runtime

LOG = logging.getLogger(__name__)


def store_from(conf: cfg.ConfigOpts, runtime: Runtime) -> Store:
    """The store. Options are those of ``pinfold.conf.image``.

    Raises errors.ConfigurationError when it cannot be used with them.
    """
    if conf.image.store == "files":
        return FileStore(runtime, conf.image.path, sync=conf.image.sync)
    return _glance(conf, runtime)


def _glance(conf: cfg.ConfigOpts, runtime: Runtime) -> Store:
    # keystoneauth1 costs 9 MB and 0.15 s; those who keep files need not pay.
    from keystoneauth1 import session

    from pinfold.image.glance import GlanceStore

    settings = conf.image
    http = session.Session(
        auth=_auth(conf),
        verify=(settings.cafile or True) if not settings.insecure else False,
        timeout=settings.request_timeout,
    )
    where = {"service_type": "image", "interface": settings.interface, "region_name": settings.region_name}
    if not settings.endpoint:
        _look_up(http, where)
    return GlanceStore(
        runtime,
        http,
        settings.endpoint,
        catalog=where,
        attempts=settings.attempts,
        pause=settings.retry_pause,
    )


def _look_up(http: Any, where: Mapping[str, Any]) -> None:
    """A wrong configuration is said at the start; Keystone may well come up after us."""
    from pinfold.image.glance import catalogued

    try:
        catalogued(http, where)
    except errors.Unavailable as error:
        LOG.warning("%s The image service is looked up again when it is needed.", error)


def _auth(conf: cfg.ConfigOpts) -> Any:
    from keystoneauth1 import exceptions, loading, noauth, token_endpoint

    loading.register_auth_conf_options(conf, "image")
    kind = conf.image.auth_type
    if kind in (None, "none"):
        if not conf.image.endpoint:
            raise errors.ConfigurationError(
                "[image] store is glance: without Keystone (auth_type), [image] endpoint must be set."
            )
        token = conf.image.token
        return token_endpoint.Token(conf.image.endpoint, token) if token else noauth.NoAuth()
    try:
        return loading.load_auth_from_conf_options(conf, "image")
    except exceptions.ClientException as error:
        raise errors.ConfigurationError(f"[image] auth_type {kind} cannot be used: {error}.") from error

"""The image store that the configuration asks for."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

from pinfold.image.files import FileStore
from pinfold.image.store import Store
from pinfold.model import errors
from pinfold.runtime import Runtime


def store_from(conf: cfg.ConfigOpts, runtime: Runtime) -> Store:
    """The store. Options are those of ``pinfold.conf.image``.

    Raises errors.ConfigurationError when it cannot be used with them, errors.Unavailable when Keystone, which
    has to tell where the image service is, does not answer.
    """
    if conf.image.store == "files":
        return FileStore(runtime, conf.image.path, sync=conf.image.sync)
    return _glance(conf, runtime)


def keystone_options(auth_type: str = "password") -> list[cfg.Opt]:
    """The options that keystoneauth1 adds to ``[image]``, for a sample file."""
    from keystoneauth1 import loading

    return [*loading.get_auth_common_conf_options(), *loading.get_auth_plugin_conf_options(auth_type)]


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
    endpoint = settings.endpoint or _cataloged(conf, http)
    return GlanceStore(runtime, http, endpoint, attempts=settings.attempts, pause=settings.retry_pause)


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


def _cataloged(conf: cfg.ConfigOpts, http: Any) -> str:
    from keystoneauth1 import exceptions

    where = {
        "service_type": "image",
        "interface": conf.image.interface,
        "region_name": conf.image.region_name,
    }
    try:
        endpoint = http.get_endpoint(**where)
    except exceptions.ClientException as error:
        raise errors.Unavailable(f"Keystone does not tell where the image service is: {error}.") from error
    if endpoint is None:
        raise errors.ConfigurationError(
            f"Keystone's catalog has no image service with {where}; set [image] endpoint."
        )
    return str(endpoint)

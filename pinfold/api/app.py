"""The whole HTTP surface: every route is a line of ``ROUTES``."""

# ruff: noqa: E501 - the lines of the table are long so that it is one

from __future__ import annotations

import falcon
from oslo_config import cfg

from pinfold.api import (
    auth,
    faults,
    flavors,
    health,
    identity,
    image_patch,
    images,
    metadata,
    nodes,
    openapi,
    operations,
    schemas,
    server_actions,
    server_create,
    server_lists,
    servers,
    versions,
)
from pinfold.api.deps import Deps
from pinfold.api.frame import Frame, responder
from pinfold.api.policies import Policies
from pinfold.api.route import Route

V = "/v2.1"
SERVER = "/v2.1/servers/{server}"
META = "/v2.1/servers/{server}/metadata"
FLAVOR = "/v2.1/flavors/{flavor}"
SPECS = "/v2.1/flavors/{flavor}/os-extra_specs"
IMAGES = "/image/v2/images"
IMAGE = "/image/v2/images/{image}"
TAG = "/image/v2/images/{image}/tags/{tag}"
PATCH = image_patch.MEDIA_TYPES

# fmt: off
ROUTES: tuple[Route, ...] = (
    Route("GET",    "/",                          versions.root,            public=True),
    Route("GET",    V,                            versions.v21,             public=True),
    Route("GET",    V + "/servers",               server_lists.index,       "servers:index"),
    Route("POST",   V + "/servers",               server_create.create,     "servers:create", 202, schemas.SERVER_CREATE),
    Route("GET",    V + "/servers/detail",        server_lists.detail,      "servers:detail"),
    Route("GET",    SERVER,                       servers.show,             "servers:show"),
    Route("PUT",    SERVER,                       servers.update,           "servers:update", 200, schemas.SERVER_UPDATE),
    Route("DELETE", SERVER,                       servers.delete,           "servers:delete", 204),
    Route("POST",   SERVER + "/action",           server_actions.act,       "", 202, schemas.ACTION),
    Route("GET",    META,                         metadata.index,           "server-metadata:index"),
    Route("POST",   META,                         metadata.add,             "server-metadata:create", 200, schemas.METADATA_BODY),
    Route("PUT",    META,                         metadata.replace,         "server-metadata:update_all", 200, schemas.METADATA_BODY),
    Route("GET",    META + "/{key}",              metadata.show,            "server-metadata:show"),
    Route("PUT",    META + "/{key}",              metadata.set_one,         "server-metadata:update", 200, schemas.META_BODY),
    Route("DELETE", META + "/{key}",              metadata.remove,          "server-metadata:delete", 204),
    Route("GET",    V + "/flavors",               flavors.index,            "flavors"),
    Route("POST",   V + "/flavors",               flavors.create,           "os-flavor-manage:create", 200, schemas.FLAVOR_CREATE),
    Route("GET",    V + "/flavors/detail",        flavors.detail,           "flavors"),
    Route("GET",    FLAVOR,                       flavors.show,             "flavors"),
    Route("PUT",    FLAVOR,                       flavors.update,           "os-flavor-manage:update", 200, schemas.FLAVOR_UPDATE, since=55),
    Route("DELETE", FLAVOR,                       flavors.delete,           "os-flavor-manage:delete", 202),
    Route("GET",    SPECS,                        flavors.specs,            "os-flavor-extra-specs:index"),
    Route("POST",   SPECS,                        flavors.add_specs,        "os-flavor-extra-specs:create", 200, schemas.EXTRA_SPECS),
    Route("GET",    SPECS + "/{key}",             flavors.spec,             "os-flavor-extra-specs:show"),
    Route("PUT",    SPECS + "/{key}",             flavors.set_spec,         "os-flavor-extra-specs:update", 200, schemas.EXTRA_SPEC),
    Route("DELETE", SPECS + "/{key}",             flavors.remove_spec,      "os-flavor-extra-specs:delete"),
    Route("GET",    "/image",                     images.versions,          status=300, public=True),
    Route("GET",    "/image/v2",                  images.versions,          status=300, public=True),
    Route("GET",    "/image/v2/schemas/image",    images.schema,            "image:get_images"),
    Route("GET",    "/image/v2/schemas/images",   images.schema_of_list,    "image:get_images"),
    Route("GET",    "/image/v2/info/stores",      images.no_stores,         "image:get_images"),
    Route("GET",    "/image/v2/info/import",      images.import_methods,    "image:get_images"),
    Route("GET",    IMAGES,                       images.index,             "image:get_images"),
    Route("POST",   IMAGES,                       images.create,            "image:add_image", 201, schemas.IMAGE_CREATE),
    Route("GET",    IMAGE,                        images.show,              "image:get_images"),
    Route("PATCH",  IMAGE,                        images.patch,             "image:modify_image", 200, schemas.IMAGE_PATCH, media=PATCH),
    Route("DELETE", IMAGE,                        images.delete,            "image:delete_image", 204),
    Route("GET",    IMAGE + "/file",              images.download,          "image:get_images"),
    Route("PUT",    IMAGE + "/file",              images.upload,            "image:modify_image", 204),
    Route("POST",   IMAGE + "/import",            images.import_image,      "image:modify_image", 202),
    Route("PUT",    TAG,                          images.add_tag,           "image:modify_image", 204),
    Route("DELETE", TAG,                          images.remove_tag,        "image:modify_image", 204),
    Route("GET",    "/identity",                  identity.versions,        status=300, public=True),
    Route("GET",    "/identity/v3",               identity.v3,              public=True),
    Route("GET",    "/identity/v3/projects",      identity.projects,        "identity:projects"),
    Route("GET",    "/identity/v3/projects/{project}", identity.project,    "identity:projects"),
    Route("GET",    "/pinfold/v1/nodes",          nodes.index,              "pinfold:nodes"),
    Route("GET",    "/pinfold/v1/nodes/{node}",   nodes.show,               "pinfold:nodes"),
    Route("GET",    "/pinfold/v1/operations",     operations.index,         "pinfold:operations"),
    Route("GET",    "/pinfold/v1/operations/{operation}", operations.show,  "pinfold:operations"),
    Route("GET",    "/healthz",                   health.healthz,           public=True),
    Route("GET",    "/metrics",                   health.metrics,           public=True),
    Route("GET",    "/openapi.json",              openapi.document,         public=True),
)
# fmt: on


def make_app(deps: Deps, conf: cfg.ConfigOpts) -> falcon.App[falcon.Request, falcon.Response]:
    """The WSGI application; ``conf`` is for ``[oslo_policy]`` only. Raises errors.ConfigurationError."""
    policies = Policies(conf)
    # a SIGHUP reads the configuration again, and then the policy files
    conf.register_mutate_hook(lambda conf, changed: policies.reload())
    routes = [route for route in ROUTES if _served(route, deps)]
    frame = Frame(deps, policies, auth.STRATEGIES[deps.settings.auth_strategy], routes)
    app = falcon.App(middleware=[frame])
    app.req_options.strip_url_path_trailing_slash = True
    for kind in (Exception, falcon.HTTPError, falcon.HTTPStatus):
        app.add_error_handler(kind, faults.handle)
    for path in dict.fromkeys(route.path for route in routes):
        resource = _Resource()
        for route in routes:
            if route.path == path:
                setattr(resource, f"on_{route.method.lower()}", responder(route))
        app.add_route(path, resource)
    return app


class _Resource:
    """What Falcon routes to: a responder for each method of a path, set by ``make_app``."""


def _served(route: Route, deps: Deps) -> bool:
    """With Keystone there is a real identity service."""
    return deps.settings.auth_strategy == "noauth" or not route.path.startswith("/identity")

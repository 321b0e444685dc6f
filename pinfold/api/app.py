"""The whole HTTP surface: every route is a line of ``ROUTES``."""

# ruff: noqa: E501 - the lines of the table are long so that it is one

from __future__ import annotations

import falcon
from oslo_config import cfg

from pinfold.api import (
    absent,
    aggregates,
    auth,
    extensions,
    faults,
    flavor_access,
    flavors,
    health,
    hosts,
    hypervisors,
    identity,
    image_patch,
    image_proxy,
    images,
    instance_actions,
    keypairs,
    limits,
    metadata,
    migrations,
    nodes,
    openapi,
    operations,
    quota_classes,
    quota_sets,
    schemas,
    schemas_actions,
    server_actions,
    server_create,
    server_groups,
    server_lists,
    servers,
    services,
    tags,
    topology,
    usage,
    versions,
    zones,
)
from pinfold.api import schemas_around as around
from pinfold.api.deps import Deps
from pinfold.api.frame import Frame, responder
from pinfold.api.policies import Policies
from pinfold.api.route import Route

V = "/v2.1"
SERVER = "/v2.1/servers/{server}"
META = "/v2.1/servers/{server}/metadata"
TAGS = "/v2.1/servers/{server}/tags"
FLAVOR = "/v2.1/flavors/{flavor}"
SPECS = "/v2.1/flavors/{flavor}/os-extra_specs"
KEYPAIRS = "/v2.1/os-keypairs"
GROUPS = "/v2.1/os-server-groups"
SERVICES = "/v2.1/os-services"
NODES = "/v2.1/os-hypervisors"
HOSTS = "/v2.1/os-hosts"
AGGREGATES = "/v2.1/os-aggregates"
QUOTAS = "/v2.1/os-quota-sets/{project}"
CLASSES = "/v2.1/os-quota-class-sets/{quota_class}"
USAGE = "/v2.1/os-simple-tenant-usage"
MOVES = "/v2.1/servers/{server}/migrations"
DONE = "/v2.1/servers/{server}/os-instance-actions"
OLD_IMAGES = "/v2.1/images"
OLD_META = "/v2.1/images/{image}/metadata"
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
    Route("GET",    TAGS,                         tags.index,               "os-server-tags:index", since=26),
    Route("PUT",    TAGS,                         tags.replace,             "os-server-tags:update_all", 200, schemas_actions.TAGS_BODY, since=26),
    Route("DELETE", TAGS,                         tags.clear,               "os-server-tags:delete_all", 204, since=26),
    Route("GET",    TAGS + "/{tag}",              tags.show,                "os-server-tags:show", 204, since=26),
    Route("PUT",    TAGS + "/{tag}",              tags.add,                 "os-server-tags:update", 201, also=(204,), since=26),
    Route("DELETE", TAGS + "/{tag}",              tags.remove,              "os-server-tags:delete", 204, since=26),
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
    Route("GET",    FLAVOR + "/os-flavor-access", flavor_access.index,      "os-flavor-access"),
    Route("POST",   FLAVOR + "/action",           flavor_access.act,        "os-flavor-access:add_tenant_access", 200, around.FLAVOR_ACTION),
    Route("GET",    SERVER + "/topology",         topology.show,            "compute:server:topology:index", since=78),
    Route("GET",    DONE,                         instance_actions.index,   "os-instance-actions:list", query=instance_actions.LIST_PARAMETERS),
    Route("GET",    DONE + "/{request}",          instance_actions.show,    "os-instance-actions:show"),
    Route("GET",    MOVES,                        migrations.of_server,     "servers:migrations:index", since=23),
    Route("GET",    MOVES + "/{migration}",       migrations.show,          "servers:migrations:show", since=23),
    Route("DELETE", MOVES + "/{migration}",       migrations.abort,         "servers:migrations:delete", 202, since=24),
    Route("POST",   MOVES + "/{migration}/action", migrations.force,        "servers:migrations:force_complete", 202, since=22),
    Route("GET",    V + "/os-migrations",         migrations.index,         "os-migrations:index", query=migrations.LIST_PARAMETERS),
    Route("GET",    KEYPAIRS,                     keypairs.index,           "os-keypairs:index", query=keypairs.LIST_PARAMETERS),
    Route("POST",   KEYPAIRS,                     keypairs.create,          "os-keypairs:create", 201, around.KEYPAIR_CREATE, also=(200,)),
    Route("GET",    KEYPAIRS + "/{keypair}",      keypairs.show,            "os-keypairs:show", query=keypairs.ONE_PARAMETERS),
    Route("DELETE", KEYPAIRS + "/{keypair}",      keypairs.delete,          "os-keypairs:delete", 204, also=(202,), query=keypairs.ONE_PARAMETERS),
    Route("GET",    GROUPS,                       server_groups.index,      "os-server-groups:index", query=server_groups.LIST_PARAMETERS),
    Route("POST",   GROUPS,                       server_groups.create,     "os-server-groups:create", 200, around.SERVER_GROUP_CREATE),
    Route("GET",    GROUPS + "/{group}",          server_groups.show,       "os-server-groups:show"),
    Route("DELETE", GROUPS + "/{group}",          server_groups.delete,     "os-server-groups:delete", 204),
    Route("GET",    SERVICES,                     services.index,           "os-services:list", query=services.LIST_PARAMETERS),
    Route("PUT",    SERVICES + "/{service}",      services.update,          "os-services:update", 200, around.SERVICE_UPDATE),
    Route("DELETE", SERVICES + "/{service}",      services.delete,          "os-services:delete", 204),
    Route("GET",    NODES,                        hypervisors.index,        "os-hypervisors:list", query=hypervisors.LIST_PARAMETERS),
    Route("GET",    NODES + "/detail",            hypervisors.detail,       "os-hypervisors:list-detail", query=hypervisors.LIST_PARAMETERS),
    Route("GET",    NODES + "/statistics",        hypervisors.statistics,   "os-hypervisors:statistics", until=87),
    Route("GET",    NODES + "/{hypervisor}",      hypervisors.show,         "os-hypervisors:show", query=hypervisors.SHOW_PARAMETERS),
    Route("GET",    NODES + "/{hypervisor}/uptime", hypervisors.uptime,     "os-hypervisors:uptime", until=87, also=(501,)),
    Route("GET",    NODES + "/{hypervisor}/search", hypervisors.search,     "os-hypervisors:search", until=52),
    Route("GET",    NODES + "/{hypervisor}/servers", hypervisors.servers,   "os-hypervisors:servers", until=52),
    Route("GET",    HOSTS,                        hosts.index,              "os-hosts:list", until=42, query=hosts.LIST_PARAMETERS),
    Route("GET",    HOSTS + "/{host}",            hosts.show,               "os-hosts:show", until=42),
    Route("PUT",    HOSTS + "/{host}",            hosts.update,             "os-hosts:update", 200, around.HOST_UPDATE, until=42, also=(501,)),
    Route("GET",    HOSTS + "/{host}/startup",    hosts.startup,            "os-hosts:start", until=42, also=(501,)),
    Route("GET",    HOSTS + "/{host}/shutdown",   hosts.shutdown,           "os-hosts:shutdown", until=42, also=(501,)),
    Route("GET",    HOSTS + "/{host}/reboot",     hosts.reboot,             "os-hosts:reboot", until=42, also=(501,)),
    Route("GET",    AGGREGATES,                   aggregates.index,         "os-aggregates:index"),
    Route("POST",   AGGREGATES,                   aggregates.create,        "os-aggregates:create", 200, around.AGGREGATE_CREATE),
    Route("GET",    AGGREGATES + "/{aggregate}",  aggregates.show,          "os-aggregates:show"),
    Route("PUT",    AGGREGATES + "/{aggregate}",  aggregates.update,        "os-aggregates:update", 200, around.AGGREGATE_UPDATE),
    Route("DELETE", AGGREGATES + "/{aggregate}",  aggregates.delete,        "os-aggregates:delete"),
    Route("POST",   AGGREGATES + "/{aggregate}/action", aggregates.act,     "os-aggregates:add_host", 200, around.AGGREGATE_ACTION),
    Route("POST",   AGGREGATES + "/{aggregate}/images", aggregates.cache_images, "compute:aggregates:images", 202, schemas.ANYTHING, since=81, also=(501,)),
    Route("GET",    V + "/os-availability-zone",  zones.index,              "os-availability-zone:list"),
    Route("GET",    V + "/os-availability-zone/detail", zones.detail,       "os-availability-zone:detail"),
    Route("GET",    QUOTAS,                       quota_sets.show,          "os-quota-sets:show", query=quota_sets.USER_PARAMETERS),
    Route("GET",    QUOTAS + "/detail",           quota_sets.detail,        "os-quota-sets:detail", query=quota_sets.USER_PARAMETERS),
    Route("GET",    QUOTAS + "/defaults",         quota_sets.defaults,      "os-quota-sets:defaults"),
    Route("PUT",    QUOTAS,                       quota_sets.update,        "os-quota-sets:update", 200, around.QUOTA_SET_UPDATE, query=quota_sets.USER_PARAMETERS),
    Route("DELETE", QUOTAS,                       quota_sets.delete,        "os-quota-sets:delete", 202, query=quota_sets.USER_PARAMETERS),
    Route("GET",    CLASSES,                      quota_classes.show,       "os-quota-class-sets:show"),
    Route("PUT",    CLASSES,                      quota_classes.update,     "os-quota-class-sets:update", 200, around.QUOTA_CLASS_UPDATE),
    Route("GET",    V + "/limits",                limits.index,             "limits", query=limits.PARAMETERS),
    Route("GET",    USAGE,                        usage.index,              "os-simple-tenant-usage:list", query=usage.LIST_PARAMETERS),
    Route("GET",    USAGE + "/{project}",         usage.show,               "os-simple-tenant-usage:show", query=usage.SHOW_PARAMETERS),
    Route("GET",    V + "/extensions",            extensions.index,         "extensions"),
    Route("GET",    V + "/extensions/{alias}",    extensions.show,          "extensions"),
    Route("GET",    OLD_IMAGES,                   image_proxy.index,        "image:get_images", until=35, query=image_proxy.LIST_PARAMETERS),
    Route("GET",    OLD_IMAGES + "/detail",       image_proxy.detail,       "image:get_images", until=35, query=image_proxy.LIST_PARAMETERS),
    Route("GET",    OLD_IMAGES + "/{image}",      image_proxy.show,         "image:get_images", until=35),
    Route("DELETE", OLD_IMAGES + "/{image}",      image_proxy.delete,       "image:delete_image", 204, until=35),
    Route("GET",    OLD_META,                     image_proxy.metadata,     "image:get_images", until=38),
    Route("POST",   OLD_META,                     image_proxy.add_metadata, "image:modify_image", 200, schemas.METADATA_BODY, until=38),
    Route("PUT",    OLD_META,                     image_proxy.replace_metadata, "image:modify_image", 200, schemas.METADATA_BODY, until=38),
    Route("GET",    OLD_META + "/{key}",          image_proxy.metadata_item, "image:get_images", until=38),
    Route("PUT",    OLD_META + "/{key}",          image_proxy.set_metadata_item, "image:modify_image", 200, schemas.META_BODY, until=38),
    Route("DELETE", OLD_META + "/{key}",          image_proxy.remove_metadata_item, "image:modify_image", 204, until=38),
    *absent.ROUTES,
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

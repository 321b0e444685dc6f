"""Options of the image store: ``[image]``.

With ``store = glance`` and Keystone, the options of keystoneauth1 (``auth_type``, ``auth_url``, ``username``,
...) stand in the same group; ``pinfold.image.build`` registers them when they are needed.
"""

from __future__ import annotations

from oslo_config import cfg

OPTIONS: dict[str, list[cfg.Opt]] = {
    "image": [
        cfg.StrOpt(
            "store",
            default="files",
            choices=[("files", "a folder of ours"), ("glance", "an Image API v2 server")],
            help="Where images and the snapshots of shelved servers live. Change it to glance when the cloud "
            "has an image service. Set it equal on all services; images do not move from one store to the "
            "other.",
        ),
        cfg.StrOpt(
            "path",
            default="/var/lib/pinfold/images",
            help="Folder of the files store; it is created when it is not there. Set it to a folder on a large "
            "disk, equal on all services; when they run on several machines, it must be one folder that all of "
            "them share, on a file system whose locks work between machines.",
        ),
        cfg.BoolOpt(
            "sync",
            default=True,
            help="Whether the files store waits until an image is on the disk before the image counts as "
            "stored. The guest of a shelved server is destroyed after that, so turn it off only where a "
            "power cut may lose images, such as in tests.",
        ),
        cfg.URIOpt(
            "endpoint",
            schemes=["http", "https"],
            help="Root of the image service, with or without /v2, such as http://controller:9292. Set it "
            "when there is no Keystone, or to override what its catalog says.",
        ),
        cfg.StrOpt(
            "token",
            secret=True,
            help="Sent as X-Auth-Token when auth_type is unset or none. Set it for an image service that "
            "takes a fixed token, such as another Pinfold without Keystone (USER:PROJECT:ROLE).",
        ),
        cfg.StrOpt(
            "region_name",
            help="Region whose image service is used. Set it when Keystone's catalog has several regions.",
        ),
        cfg.StrOpt(
            "interface",
            default="internal",
            choices=["internal", "public", "admin"],
            help="Which of the image service's endpoints in Keystone's catalog is used. Change it to public "
            "when this host does not reach the internal network.",
        ),
        cfg.FloatOpt(
            "request_timeout",
            default=60.0,
            min=0.1,
            help="Seconds without any answer or data after which a request to the image service fails. "
            "Raise it when the service needs long to store a large image's last part.",
        ),
        cfg.IntOpt(
            "attempts",
            default=4,
            min=1,
            help="How often a request to the image service is tried when there is no answer or the answer "
            "is 429 or 5xx. Raise it when the service is restarted often; operations look again anyway.",
        ),
        cfg.FloatOpt(
            "retry_pause",
            default=0.2,
            min=0.0,
            help="Seconds before the second try, doubled before each one after. Raise it together with "
            "attempts to bridge longer outages.",
        ),
        cfg.StrOpt(
            "cafile",
            help="PEM file with the certificate authorities of an https image service. Set it when the "
            "system's own do not know the service's certificate.",
        ),
        cfg.BoolOpt(
            "insecure",
            default=False,
            help="Whether the certificate of an https image service is left unchecked. Never set it in a "
            "cloud that others use.",
        ),
    ],
}


def register(conf: cfg.ConfigOpts) -> None:
    """Make the options known to ``conf``."""
    for group, options in OPTIONS.items():
        conf.register_opts(options, group=group)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """For the generator of sample files."""
    return list(OPTIONS.items())

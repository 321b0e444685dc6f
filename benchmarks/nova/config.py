"""Nova's configuration files, as its documentation has them for a small cloud without networks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from devstack import mariadb
from devstack.layout import Layout

DATABASES = ("nova_api", "nova_cell0", "nova_cell1", "placement")
_FILTERS = (
    "ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter,ServerGroupAntiAffinityFilter,"
    "ServerGroupAffinityFilter,NUMATopologyFilter"
)


def transport_url(ports: Mapping[str, int], password: str) -> str:
    """Of the private broker."""
    return f"rabbit://nova:{password}@127.0.0.1:{ports['broker']}/"


def write(layout: Layout, venv: Path, ports: Mapping[str, int], password: str, hosts: list[str]) -> None:
    """One file for all services, one with the databases, one for each compute; and those of the WSGI applications."""
    root = layout.root
    server = mariadb.USER + ":" + password + f"@127.0.0.1:{ports['database']}"

    def database(name: str) -> str:
        return f"connection = mysql+pymysql://{server}/{name}?charset=utf8mb4\nmax_pool_size = 20\n"

    def neighbour(port: str) -> str:
        url = f"http://127.0.0.1:{ports[port]}"
        return f"auth_type = admin_token\ntoken = admin:admin\nendpoint = {url}\nendpoint_override = {url}\n"

    layout.config("common").write_text(
        f"""[DEFAULT]
transport_url = {transport_url(ports, password)}
state_path = {root}
log_dir = {layout.log}
compute_driver = pinned_fake.PinnedFakeDriver
shelved_offload_time = 0
my_ip = 127.0.0.1
use_stderr = false

[quota]
instances = -1
cores = -1
ram = -1

[filter_scheduler]
enabled_filters = {_FILTERS}

[scheduler]
workers = 2

[conductor]
workers = 2

[glance]
endpoint_override = http://127.0.0.1:{ports["neighbours"]}

[neutron]
{neighbour("neighbours")}
[placement]
{neighbour("placement")}
[service_user]
send_service_user_token = false

[vnc]
enabled = false

[oslo_concurrency]
lock_path = {root}/lock

[oslo_messaging_notifications]
driver = noop

[oslo_messaging_rabbit]
rabbit_quorum_queue = false
"""
    )
    layout.config("databases").write_text(
        f"[database]\n{database('nova_cell1')}\n[api_database]\n{database('nova_api')}"
    )
    for host in hosts:
        folder = root / host
        layout.config(host).write_text(
            f"[DEFAULT]\nhost = {host}\nstate_path = {folder}\ninstances_path = {folder}/instances\n\n"
            f"[oslo_concurrency]\nlock_path = {folder}/lock\n"
        )
    layout.config("placement").write_text(
        f"[DEFAULT]\nlog_file = {layout.log_file('placement-own')}\n\n[api]\nauth_strategy = noauth2\n\n"
        f"[placement_database]\n{database('placement')}"
    )
    paste = (venv / "etc" / "nova" / "api-paste.ini").read_text()
    paste = paste.replace(" authtoken keystonecontext ", " benchnoauth keystonecontext ")
    paste += "\n[filter:benchnoauth]\npaste.filter_factory = bench_noauth:factory\n"
    (layout.etc / "api-paste.ini").write_text(paste)

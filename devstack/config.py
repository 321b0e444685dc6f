"""The configuration files: one per process, each with only what that process may know."""

from __future__ import annotations

from pathlib import Path

from devstack import rabbit, topology
from devstack.databases import KINDS
from devstack.layout import Layout, Options, StackError, State

Sections = dict[str, dict[str, str]]

_DRIVERS = {"postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg", "mysql": "mysql+pymysql"}
SHARED_RATIO = "4.0"


def database_url(given: str) -> str:
    """A database URL with the driver that is installed: ``mysql://...`` becomes ``mysql+pymysql://...``."""
    scheme, mark, rest = given.partition("://")
    if not mark or scheme.split("+")[0] not in (*_DRIVERS, "sqlite"):
        raise StackError(f"--database-url: expected postgresql://, mysql:// or sqlite:///, not {given!r}")
    return f"{_DRIVERS.get(scheme, scheme)}://{rest}"


def account(name: str) -> str:
    """The broker account of a service process: its own, but one for all conductors."""
    return "conductor" if name.startswith("conductor-") else name


def _transport(state: State, name: str) -> dict[str, str]:
    if state.options.transport_url:
        return {"transport_url": state.options.transport_url}
    brokers = [record for server, record in state.servers.items() if server.startswith(rabbit.NAME)]
    if brokers:
        user = account(name)
        return {"transport_url": rabbit.url(brokers, user, state.accounts[user])}
    return {}


def _database(layout: Layout, state: State) -> dict[str, str]:
    if state.options.database_url:
        return {"connection": database_url(state.options.database_url)}
    for name, kind in KINDS.items():
        if name in state.servers:
            return {"connection": kind.url(state.servers[name])}
    return {"connection": f"sqlite:///{layout.root / 'pinfold.db'}"}


def _compute(layout: Layout, options: Options, host: str) -> Sections:
    shared, dedicated = topology.partition(str(layout.topology) if options.topology else None)
    sections = {
        "compute": {
            "driver": options.driver,
            "nodes": host,
            "cpu_shared_set": shared,
            "cpu_dedicated_set": dedicated,
            "cpu_allocation_ratio": SHARED_RATIO,
            "memory_allocation_ratio": "1.0",
            "disk_allocation_ratio": "1.0",
            "state_path": str(layout.root / "compute" / ("" if "," in host else host)),
        },
        "fake": {"state_path": str(layout.hypervisor), "fault_file": str(layout.faults)},
    }
    if options.topology:
        sections["fake"]["topology"] = str(layout.topology)
    return sections


def sections(layout: Layout, state: State, name: str) -> Sections:
    """What stands in the file of process ``name``."""
    files = {"pid_file": str(layout.pid_file(name)), "log_file": str(layout.log_file(name))}
    made: Sections = {"DEFAULT": {"host": name, **files, **_transport(state, name)}}
    made["image"] = {"store": "files", "path": str(layout.images)}
    if name.startswith("compute-"):
        host = name.removeprefix("compute-")
        made["DEFAULT"]["host"] = host
        made |= _compute(layout, state.options, host)
    else:
        made["database"] = _database(layout, state)
    if name in ("api", "all-in-one"):
        made["api"] = {"host": "127.0.0.1", "port": str(state.options.port), "auth_strategy": "noauth"}
        # the usual limits of a project are those of a public cloud; here one person tries things
        made["quota"] = {"instances": "1000", "cores": "4000", "ram": "4194304"}
    if name == "all-in-one":
        made |= _compute(layout, state.options, ",".join(state.options.host_names))
    _settings(made, state.options.settings)
    return made


def _settings(made: Sections, settings: tuple[str, ...]) -> None:
    for setting in settings:
        key, mark, value = setting.partition("=")
        section, dot, option = key.partition(".")
        if not (mark and dot and section and option):
            raise StackError(f"--set {setting}: expected SECTION.OPTION=VALUE")
        made.setdefault(section, {})[option] = value


def render(made: Sections) -> str:
    blocks = []
    for section, options in made.items():
        lines = [f"[{section}]", *(f"{key} = {value}" for key, value in options.items())]
        blocks.append("\n".join(lines) + "\n")
    return "# Written by stack.sh, which writes it anew at each start but --resume.\n" + "\n".join(blocks)


def write(layout: Layout, state: State) -> None:
    """Write every process's file; remove those of processes that are no more."""
    wanted = {layout.config(name) for name in state.options.services}
    for stale in set(layout.etc.glob("*.conf")) - wanted:
        stale.unlink()
    for name in state.options.services:
        path: Path = layout.config(name)
        path.touch(mode=0o600)
        path.write_text(render(sections(layout, state, name)))


def write_clients(layout: Layout, options: Options, binaries: Path) -> None:
    """What ``openstack`` needs: an admin and an ordinary project, and how to choose."""
    base = f"http://127.0.0.1:{options.port}"
    endpoints = (
        f"    compute_endpoint_override: {base}/v2.1\n"
        f"    image_endpoint_override: {base}/image\n"
        f"    identity_endpoint_override: {base}/identity/v3\n"
    )
    layout.clouds.write_text(
        "clouds:\n"
        "  pinfold:\n    auth_type: none\n" + endpoints + "  pinfold-demo:\n    auth_type: admin_token\n"
        f"    auth:\n      endpoint: {base}\n      token: demo:demo:member\n" + endpoints
    )
    layout.openrc.write_text(
        "# . this file\n"
        f'export PATH="{binaries}:$PATH"\n'
        f'export OS_CLIENT_CONFIG_FILE="{layout.clouds}"\n'
        "export OS_CLOUD=pinfold\n"
    )

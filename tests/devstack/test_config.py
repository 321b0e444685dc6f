"""The configuration files that stack.sh writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from devstack import config, postgres, rabbit, topology
from devstack.layout import Layout, Options, StackError, State

BROKER = {"port": 5999, "distribution": 1, "mapper": 2}
DATABASE = {"home": "/nowhere", "port": 5998, "password": "db-secret"}


def multi(**options: object) -> State:
    state = State(Options(multi=True, **options))  # type: ignore[arg-type]  # what msgspec would check
    if state.options.transport_url is None:
        state.servers[rabbit.NAME] = BROKER
    if state.options.database_url is None:
        state.servers[postgres.NAME] = DATABASE
    state.accounts = {config.account(name): f"{name}-secret" for name in state.options.services}
    return state


def test_services_are_one_process_or_one_per_service() -> None:
    assert Options().services == ["all-in-one"]
    assert Options(multi=True, hosts=2, conductors=1).services == [
        "conductor-1",
        "compute-host-1",
        "compute-host-2",
        "api",
    ]


def test_a_worker_knows_no_database_and_only_its_own_account(tmp_path: Path) -> None:
    made = config.sections(Layout(tmp_path), multi(), "compute-host-2")
    assert "database" not in made
    assert "api" not in made
    assert made["DEFAULT"]["host"] == "host-2"
    assert made["DEFAULT"]["transport_url"] == "rabbit://compute-host-2:compute-host-2-secret@127.0.0.1:5999/"


def test_of_a_cluster_every_service_knows_all_brokers(tmp_path: Path) -> None:
    state = multi()
    state.servers["rabbitmq-2"] = {**BROKER, "port": 6000, "number": 2}
    made = config.sections(Layout(tmp_path), state, "api")
    expected = "rabbit://api:api-secret@127.0.0.1:5999,api:api-secret@127.0.0.1:6000/"
    assert made["DEFAULT"]["transport_url"] == expected


def test_a_private_mariadb_is_used_as_a_private_postgresql(tmp_path: Path) -> None:
    state = multi(database="mariadb")
    state.servers["mariadb"] = state.servers.pop("postgresql")
    made = config.sections(Layout(tmp_path), state, "api")
    assert made["database"]["connection"] == "mysql+pymysql://pinfold:db-secret@127.0.0.1:5998/pinfold"


def test_conductors_share_an_account_and_differ_in_name(tmp_path: Path) -> None:
    first, second = (config.sections(Layout(tmp_path), multi(), f"conductor-{number}") for number in (1, 2))
    assert first["DEFAULT"]["transport_url"] == second["DEFAULT"]["transport_url"]
    assert first["DEFAULT"]["host"] != second["DEFAULT"]["host"]
    assert first["DEFAULT"]["pid_file"] != second["DEFAULT"]["pid_file"]


def test_the_all_in_one_needs_no_broker_and_no_server(tmp_path: Path) -> None:
    made = config.sections(Layout(tmp_path), State(Options()), "all-in-one")
    assert "transport_url" not in made["DEFAULT"]
    assert made["database"]["connection"] == f"sqlite:///{tmp_path}/pinfold.db"
    assert made["compute"]["cpu_shared_set"] == "0,8"
    assert made["compute"]["cpu_dedicated_set"] == "1-7,9-15"


def test_given_urls_are_used_by_every_service(tmp_path: Path) -> None:
    state = multi(transport_url="rabbit://me@there/", database_url="mysql://me@there/pinfold")
    for name in state.options.services:
        made = config.sections(Layout(tmp_path), state, name)
        assert made["DEFAULT"]["transport_url"] == "rabbit://me@there/"
    assert made["database"]["connection"] == "mysql+pymysql://me@there/pinfold"


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("postgresql://u@h/d", "postgresql+psycopg://u@h/d"),
        ("postgresql+psycopg://u@h/d", "postgresql+psycopg://u@h/d"),
        ("sqlite:////a/b.db", "sqlite:////a/b.db"),
    ],
)
def test_a_database_url_gets_the_driver_that_is_installed(given: str, used: str) -> None:
    assert config.database_url(given) == used


@pytest.mark.parametrize("given", ["oracle://u@h/d", "nothing", "://"])
def test_another_database_is_refused(given: str) -> None:
    with pytest.raises(StackError, match="--database-url"):
        config.database_url(given)


def test_settings_reach_every_file(tmp_path: Path) -> None:
    state = multi(settings=("compute.a=1", "new.b=x=y"))
    for name in state.options.services:
        made = config.sections(Layout(tmp_path), state, name)
        assert made["compute"]["a"] == "1"
        assert made["new"]["b"] == "x=y"


@pytest.mark.parametrize("setting", ["a=1", "a.b", ".b=1", "a.=1"])
def test_a_setting_of_another_form_is_refused(tmp_path: Path, setting: str) -> None:
    with pytest.raises(StackError, match="SECTION"):
        config.sections(Layout(tmp_path), State(Options(settings=(setting,))), "all-in-one")


def test_files_are_private_and_those_of_former_processes_go(tmp_path: Path) -> None:
    layout, state = Layout(tmp_path), multi(hosts=1)
    layout.make()
    layout.config("compute-host-9").write_text("")
    config.write(layout, state)
    assert sorted(file.stem for file in layout.etc.iterdir()) == sorted(state.options.services)
    assert all(file.stat().st_mode & 0o077 == 0 for file in layout.etc.iterdir())


def test_a_topology_divides_the_cpus_as_it_proposes(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.make()
    text = json.dumps(topology.big_cells(128))
    layout.topology.write_text(text)
    made = config.sections(layout, State(Options(topology=text)), "all-in-one")
    assert made["compute"]["cpu_shared_set"] == "0-1,66-67"
    assert made["compute"]["cpu_dedicated_set"] == "2-65,68-131"
    assert made["fake"]["topology"] == str(layout.topology)


def test_a_stopped_cloud_keeps_its_data_when_hosts_are_added() -> None:
    assert Options(hosts=5, port=1).keeps_data_of(Options(hosts=3))
    assert not Options(hosts=2).keeps_data_of(Options(hosts=3))
    assert not Options(multi=True).keeps_data_of(Options())

"""Every option tells when to change it, and typos are told from options."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest
from oslo_config import cfg

from pinfold.conf import files, opts, rpc, service
from pinfold.conf.files import Entry

WHEN = re.compile(r"\b(chang(e|ing)|raise|lower|set|turn)\b", re.IGNORECASE)
PROCESSES = {
    "api": opts.api,
    "conductor": opts.conductor,
    "compute": opts.compute,
    "all-in-one": opts.all_in_one,
}
ALL = sorted(
    {
        (group, option.dest): option
        for listed in PROCESSES.values()
        for group, found in listed()
        for option in found
    }.items()
)


@pytest.mark.parametrize(("key", "option"), ALL, ids=[f"{group}.{name}" for (group, name), _ in ALL])
def test_every_option_has_help_that_says_when_to_change_it(key: tuple[str, str], option: cfg.Opt) -> None:
    assert option.help
    assert option.help.strip().endswith(".")
    assert WHEN.search(option.help), option.help


def test_there_are_as_many_options_as_one_would_think() -> None:
    assert len(ALL) > 80


@pytest.mark.parametrize("listed", PROCESSES.values(), ids=PROCESSES)
def test_no_group_stands_twice_in_a_listing(listed: object) -> None:
    assert callable(listed)
    groups = [group for group, _ in listed()]
    assert len(groups) == len(set(groups))


def test_options_of_libraries_are_known_by_all_their_names() -> None:
    known = opts.known()
    for group, name in [
        ("DEFAULT", "transport_url"),
        ("DEFAULT", "use_json"),
        ("DEFAULT", "logfile"),
        ("DEFAULT", "graceful_shutdown_timeout"),
        ("oslo_messaging_rabbit", "ssl_ca_file"),
        ("oslo_concurrency", "lock_path"),
        ("oslo_policy", "policy_file"),
        ("keystone_authtoken", "www_authenticate_uri"),
        ("keystone_authtoken", "auth_url"),
        ("image", "user_domain_name"),
    ]:
        assert (group, name) in known


def conf_of(folder: Path, text: str) -> cfg.ConfigOpts:
    path = folder / "a.conf"
    path.write_text(text)
    conf = cfg.ConfigOpts()
    for group, found in opts.compute():
        conf.register_opts(found, group=None if group == "DEFAULT" else group)
    conf(["--config-file", str(path)], project="pinfold")
    return conf


def test_what_another_process_or_a_library_reads_is_not_unknown(tmp_path: Path) -> None:
    conf = conf_of(
        tmp_path,
        "[DEFAULT]\nhost = a\ndebug = true\nshelved_offload_time = 3\n[api]\nport = 1\n"
        "[keystone_authtoken]\npassword = x\n",
    )
    assert list(files.unknown(conf, files.read_all(conf))) == []


def test_a_typo_is_unknown_once_however_often_it_stands(tmp_path: Path) -> None:
    conf = conf_of(
        tmp_path, "[compute]\ncpu_dedicated_sets = 1\ncpu_dedicated_sets = 2\n[DEFAULT]\nhots = a\n"
    )
    found = list(files.unknown(conf, files.read_all(conf)))
    assert [entry.option for entry in found] == ["[compute] cpu_dedicated_sets", "[DEFAULT] hots"]
    assert files.meant(found[0]) == "Did you mean cpu_dedicated_set?"
    assert files.meant(found[1]) == "Did you mean host?"


def test_an_option_in_the_wrong_group_is_told_where_it_belongs() -> None:
    assert files.meant(Entry("f", "api", "cpu_dedicated_set", "1")) == "It belongs to group [compute]."
    assert files.meant(Entry("f", "api", "zzzzzzzz", "1")) == ""


def test_a_folder_of_files_is_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b.conf", "a.conf", "c.txt"):
        (tmp_path / name).write_text(f"[DEFAULT]\nhost = {name[0]}\n")
    conf = cfg.ConfigOpts()
    conf(["--config-dir", str(tmp_path)], project="pinfold")
    assert [Path(entry.path).name for entry in files.read_all(conf)] == ["a.conf", "b.conf"]


@pytest.mark.parametrize("name", PROCESSES)
def test_the_listing_of_a_process_is_what_it_registers(name: str) -> None:
    conf = cfg.ConfigOpts()
    service.register(conf)
    rpc.register(conf)
    for register in import_module(f"pinfold.cmd.assembly.{name.replace('-', '_')}").PROGRAM.registers:
        register(conf)
    listed = {(group, option.dest) for group, found in PROCESSES[name]() for option in found}
    assert {key for key in listed if not files.registered(conf, *key)} == set()
    ours = opts.ours() - {"DEFAULT"} | {"database"}
    read = {(group, option) for group in ours if group in conf for option in conf[group]}
    assert read == {key for key in listed if key[0] != "DEFAULT"}

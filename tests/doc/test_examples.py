"""Examples of the pages do what the pages say."""

from __future__ import annotations

import configparser
import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from doc.source._ext import absent, options
from doc.source._ext.absent import Absent
from pinfold.compute.partition import node_report
from pinfold.compute.settings import Partition
from pinfold.model import host
from pinfold.model.host import ClaimView
from pinfold.model.request import demand_for
from pinfold.virt.driver import Inventory
from pinfold.virt.topology import default_machine
from tests.books import new_book, sqlite_url
from tests.doc.pages import ROOT, SOURCE, pages
from tests.http.cloud import Cloud

_LIBRARIES = {"database", "oslo_concurrency", "keystone_authtoken"}
_LIBRARY_OPTIONS = {"transport_url", "log_file"}


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page, without their indentation."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(rf"^\.\. code-block:: {language}\n\n((?:   .*\n|\n)+)", text, re.MULTILINE)
    return ["\n".join(line[3:] for line in block.splitlines()) for block in found]


# --- files and programs -----------------------------------------------------------------------------


def test_the_accounts_are_printed_as_the_page_says() -> None:
    (program,) = blocks(SOURCE / "many-hosts.rst", "python")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "many-hosts.rst", "exec"), {})
    lines = printed.getvalue().splitlines()
    assert len([line for line in lines if "set_permissions -p pinfold compute-host-1 " in line]) == 1
    assert all(line.startswith("rabbitmqctl ") for line in lines)


def test_the_files_of_the_page_have_options_that_exist() -> None:
    known = {(group, option.dest) for group, found in options.groups().items() for option in found}
    files = blocks(SOURCE / "many-hosts.rst", "ini")
    assert len(files) == 2
    for text in files:
        parser = configparser.RawConfigParser(default_section="")
        parser.read_string(text)
        for group in parser.sections():
            for name in parser[group]:
                if group not in _LIBRARIES and name not in _LIBRARY_OPTIONS:
                    assert (group, name) in known


# --- the drawing of a node's pins -------------------------------------------------------------------


def grid(servers: dict[str, int]) -> list[str]:
    """The CPUs of a host of the default cloud, a row for each thread: who holds them."""
    machine = default_machine()
    partition = Partition(cpu_shared_set="0,8", cpu_dedicated_set="1-7,9-15")
    report = node_report(Inventory("host-1", machine.cells, 500), partition)
    usage = host.usage_of(report, ())
    shown = {cpu: "~" for cell in report.topology.cells for cpu in cell.shared}
    for name, vcpus in servers.items():
        demand = demand_for(
            vcpus=vcpus,
            memory_mb=512,
            disk_gb=1,
            extra_specs={"hw:cpu_policy": "dedicated"},
            image_properties={},
        )
        place = host.place(report, usage, demand)
        assert place is not None
        assert place.placement is not None
        claim = ClaimView(name, name, "current", 512, 1, demand.shared_vcpus, place.placement)
        usage = host.add(report, usage, claim)
        for cell in usage.cells:
            for cpu in cell.pinned:
                shown.setdefault(cpu, name)
    return [" ".join(shown.get(cpu, "·") for cpu in range(first, first + 8)) for first in (0, 8)]


def test_the_readme_draws_what_the_fit_does() -> None:
    readme = (ROOT / "README.rst").read_text(encoding="utf-8")
    rows = re.findall(r"CPU +\d+ - +\d+ ((?:\|[ |~·ab]+\|))", readme)
    drawn = [" ".join(re.findall(r"[~·ab]", row)) for row in rows]
    before, after = grid({"a": 8, "b": 2}), grid({"b": 2})
    # b alone would be elsewhere: it stays where it was
    freed = [row.replace("a", "·") for row in before]
    assert drawn == [before[0], freed[0], before[1], freed[1]]
    assert sum(row.count("b") for row in after) == 2


# --- what there is not ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Cloud:
    """A cloud with a server."""
    folder = tmp_path_factory.mktemp("cloud")
    url = sqlite_url(folder)
    return Cloud(url, new_book(url), folder).stock()


@pytest.fixture(scope="module")
def server(cloud: Cloud) -> str:
    """A server that runs."""
    return cloud.boot()


@pytest.mark.parametrize("entry", absent.listed(), ids=lambda entry: entry.what)
def test_what_there_is_not_is_answered_as_the_page_says(cloud: Cloud, server: str, entry: Absent) -> None:
    path = entry.path.replace("{server}", server).replace("{image}", cloud.tiny)
    body: Any = entry.body
    if entry.server is not None:
        body = cloud.body(**entry.server)
    answer = cloud.admin.request(entry.method, path, **({} if body is None else {"json": body}))
    # If it is there by now, take it out of doc/source/absent.json.
    assert (answer.status_code, answer.headers.get("X-Pinfold-Error")) == (entry.status, entry.code)
    assert entry.says in answer.text
    if entry.server is not None:
        assert next(iter(entry.server)) in answer.text


def test_no_page_is_forgotten() -> None:
    assert len(pages()) > 10

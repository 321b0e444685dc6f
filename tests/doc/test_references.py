"""What the pages name is there: files, functions, tests, commands, options."""

from __future__ import annotations

import ast
import configparser
import re
import shlex
from functools import lru_cache
from pathlib import Path

import pytest

from devstack.__main__ import TRY
from doc.source._ext import options
from pinfold.cmd.manage.main import _parser
from tests.doc.pages import ROOT, console_lines, literals, pages

_PATH = re.compile(r"^(?:\./)?((?:pinfold|tests|doc|devstack|benchmarks|releasenotes)/[\w./-]*|[\w-]+\.sh)$")
_TEST = re.compile(r"\b(tests/[\w/]+\.py)::(test_\w+)")
_SYMBOL = re.compile(r"``(\w+)``(?: and ``(\w+)``)? (?:of|in)\s+``(pinfold/[\w/]+\.py)``")
_OPTION = re.compile(r"^\[(\w+)\] (\w+)")
_LIBRARIES = {"database", "oslo_concurrency", "oslo_messaging_rabbit", "oslo_policy", "keystone_authtoken"}
_LIBRARY_OPTIONS = {"transport_url", "log_file", "debug", "graceful_shutdown_timeout"}


@lru_cache
def names(path: Path) -> frozenset[str]:
    """Every name that a module defines, at whatever depth."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.update(target.id for target in targets if isinstance(target, ast.Name))
    return frozenset(found)


def test_every_file_that_is_named_exists() -> None:
    named = [(page, found[1]) for page, text in literals() if (found := _PATH.match(text))]
    assert len(named) > 80
    assert [(page, path) for page, path in named if not (ROOT / path).exists()] == []


def test_every_function_that_is_named_with_its_file_is_in_it() -> None:
    found = [
        (page.name, name, file)
        for page in pages()
        for first, second, file in _SYMBOL.findall(page.read_text(encoding="utf-8"))
        for name in (first, second)
        if name
    ]
    assert len(found) > 30
    missing = [(page, name, file) for page, name, file in found if name not in names(ROOT / file)]
    assert missing == []


def test_every_test_that_is_named_exists() -> None:
    for page in pages():
        for file, name in _TEST.findall(page.read_text(encoding="utf-8")):
            assert name in names(ROOT / file), f"{page.name}: {file}::{name}"


def test_every_command_that_is_named_exists() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    scripts = {
        line.split()[0] for line in setup["options.entry_points"]["console_scripts"].split("\n") if line
    }
    named = {text for _page, text in literals() if re.fullmatch(r"pinfold-[a-z-]+", text)}
    assert named <= scripts
    for script in ("stack.sh", "unstack.sh", "run_tests.sh"):
        assert (ROOT / script).stat().st_mode & 0o111


def test_the_first_things_to_type_are_those_that_stack_prints() -> None:
    readme = (ROOT / "README.rst").read_text(encoding="utf-8")
    shown = re.findall(r"^    \. \.stack/openrc && openstack (.*)$", readme, re.MULTILINE)
    assert tuple(shown) == TRY


def test_every_line_for_pinfold_manage_is_understood() -> None:
    lines = [command for _page, command in console_lines() if command.startswith("pinfold-manage")]
    assert len(lines) >= 3
    for line in lines:
        _parser().parse_args(shlex.split(re.split(r"[|<>]", line)[0])[1:])


@pytest.mark.parametrize(
    "line",
    ["audit --node N --json", "operation list --all", "operation list --server ID --json", "operation show ID",
     "operation retry ID", "operation unwind ID", "db version", "db upgrade", "db purge --older-than 30", "numa fit"],
)  # fmt: skip
def test_the_commands_of_the_page_on_operating_are_understood(line: str) -> None:
    _parser().parse_args(line.split())
    page = (ROOT / "doc/source/operating.rst").read_text(encoding="utf-8")
    assert f"``{' '.join(line.split()[:2] if line.split()[0] != 'audit' else ['audit'])}" in page


def test_options_that_are_named_exist() -> None:
    known = {(group, option.dest) for group, found in options.groups().items() for option in found}
    for page, text in literals():
        named = _OPTION.match(text)
        if named is None or named[1] in _LIBRARIES or named[2] in _LIBRARY_OPTIONS:
            continue
        assert (named[1], named[2]) in known, f"{page}: {text}"


def test_no_page_names_a_place_of_this_machine() -> None:
    for page in pages():
        assert "/work/" not in page.read_text(encoding="utf-8"), page.name

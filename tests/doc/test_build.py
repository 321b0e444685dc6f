"""The documentation is built without warnings, and what is drawn from the code is all there."""

from __future__ import annotations

import html

from docutils.core import publish_doctree

from doc.source._ext import api, faults, options
from pinfold.api.app import ROUTES
from pinfold.db.models import Base
from pinfold.model import states
from tests.doc.conftest import Built
from tests.doc.pages import ROOT


def test_it_is_built_without_warnings(built: Built) -> None:
    assert (built.code, built.said) == (0, "")


def test_the_readme_is_read_without_warnings() -> None:
    text = (ROOT / "README.rst").read_text(encoding="utf-8")
    publish_doctree(text, settings_overrides={"report_level": 2, "halt_level": 2})


def test_every_state_and_every_reason_is_on_the_page(built: Built) -> None:
    page = html.unescape(built.page("states"))
    for text in (*states.VM_STATES, *states.KINDS, *(line.why for line in states.TRANSITIONS)):
        assert text.replace("'", "’") in page


def test_the_picture_is_on_the_page(built: Built) -> None:
    assert ".svg" in built.page("states")


def test_every_option_is_in_the_reference(built: Built) -> None:
    page = built.page("configuration")
    for group, found in options.groups().items():
        for option in found:
            assert f'id="{group}.{option.dest}"' in page


def test_every_option_says_what_it_is_for() -> None:
    for group, found in options.groups().items():
        for option in found:
            assert option.help, f"[{group}] {option.dest}"


def test_every_route_is_in_the_reference(built: Built) -> None:
    page = built.page("api")
    for route in ROUTES:
        assert f"{route.method} {route.path}" in page.replace('</span> <span class="pre">', " ")


def test_the_reference_is_made_from_the_document_that_the_api_serves() -> None:
    paths = api.document()["paths"]
    assert sum(len(methods) for methods in paths.values()) == len(ROUTES)


def test_every_table_is_on_the_page(built: Built) -> None:
    page = built.page("architecture")
    for table in Base.metadata.tables:
        assert f">{table}<" in page


def test_every_fault_is_in_the_table_once(built: Built) -> None:
    numbers = [number for number, _title, _references in faults.catalogue()]
    assert len(set(numbers)) == len(numbers)
    page = built.page("faults")
    for number in numbers:
        assert page.count(f">{number}<") == 1

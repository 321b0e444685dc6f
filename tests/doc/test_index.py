"""How tests are found that name a fault or a rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from doc.source._ext import error_codes, rst, tests_index


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("F001, F006: twice", {"F001", "F006"}),
        ("F117-F119", {"F117", "F118", "F119"}),
        ("R3, R8 of the model", {"R3", "R8"}),
        ("R13.", {"R13"}),
        ("F1 or F0001 or R20 or PR5", set()),
    ],
)
def test_marks_are_read(text: str, found: set[str]) -> None:
    assert tests_index.marks(text) == found


def test_a_mark_belongs_to_its_test_or_to_the_one_that_follows(tmp_path: Path) -> None:
    file = tmp_path / "test_x.py"
    file.write_text(
        '"""A module."""\n'
        "# F003: before\n"
        "def test_first():\n"
        '    """F001."""\n'
        "class TestMore:\n"
        '    @mark("F002")\n'
        "    def test_second(self):\n"
        "        pass  # F001 again\n"
        "def test_f004_third():\n"
        "    pass\n"
    )
    assert tests_index.in_file(file) == {
        "F003": ["test_first"],
        "F001": ["test_first", "test_second"],
        "F002": ["test_second"],
        "F004": ["test_f004_third"],
    }


def test_every_code_has_a_status_and_words() -> None:
    codes = error_codes.codes()
    assert len(codes) > 50
    assert {"operation-open", "leftover", "no-such-url", "unexpected"} <= {code.code for code in codes}
    assert all(400 <= code.status < 600 and code.message for code in codes)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a_b *c*", "a\\_b \\*c\\*"),
        ("``a_b`` c_d", "``a_b`` c\\_d"),
        ("two\n  lines", "two lines"),
        ("one `` mark", "one \\`\\` mark"),
    ],
)
def test_text_is_escaped_but_for_code(text: str, shown: str) -> None:
    assert rst.escaped(text) == shown

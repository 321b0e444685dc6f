"""CPU lists as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.model import cpuset
from pinfold.model.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("", set()),
        (" ", set()),
        ("0-3,^1", {0, 2, 3}),
        ("^1,0-3", {0, 2, 3}),
        ("0-7,^2-5", {0, 1, 6, 7}),
        ("1,,2", {1, 2}),
        (" 1 , 2 ", {1, 2}),
        ("1 - 2,2-3", {1, 2, 3}),
        ("0-3,^9", {0, 1, 2, 3}),
        ("^1", set()),
        ("5-5", {5}),
    ],
)
def test_a_list_names_these_cpus(text: str, cpus: set[int]) -> None:
    """F110."""
    assert cpuset.parse(text) == cpus


@pytest.mark.parametrize(
    "text", ["3-1", "a", "0-", "-1", "1-2-3", "1.5", "^", "1;2", "٣", "0x1", "1 2", "+1"]
)
def test_a_list_that_is_none_is_refused_with_its_text(text: str) -> None:
    """F110."""
    with pytest.raises(InvalidRequest) as refused:
        cpuset.parse(f"0,{text}")
    assert refused.value.code == "invalid-cpu-list"
    assert f"'0,{text}'" in refused.value.message


@pytest.mark.parametrize("text", ["0-99999999", "0-65535,70000-70010", "0-999999999999"])
def test_a_list_without_end_is_refused_and_not_built(text: str) -> None:
    with pytest.raises(InvalidRequest):
        cpuset.parse(text)


def test_a_long_text_is_cut_in_the_message() -> None:
    with pytest.raises(InvalidRequest) as refused:
        cpuset.parse("x" * 10_000)
    assert len(refused.value.message) < 300


def test_gaps_and_ids_above_the_word_size_come_back_as_they_were() -> None:
    """F101."""
    cpus = {0, *range(3, 6), *range(7, 23), 25, 63, 64, 127, 128, 255, 1023, 1024, 4095}
    assert cpuset.render(cpus) == "0,3-5,7-22,25,63-64,127-128,255,1023-1024,4095"
    assert cpuset.parse(cpuset.render(cpus)) == cpus


@given(st.frozensets(st.integers(0, 5000), max_size=40))
def test_every_set_survives_being_written(cpus: frozenset[int]) -> None:
    assert cpuset.parse(cpuset.render(cpus)) == cpus


@given(st.text(alphabet="0123456789-,^ ", max_size=12))
def test_every_text_is_a_list_or_refused(text: str) -> None:
    try:
        cpus = cpuset.parse(text)
    except InvalidRequest:
        return
    assert cpuset.parse(cpuset.render(cpus)) == cpus

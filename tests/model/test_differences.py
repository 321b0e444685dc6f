"""Where book and hypervisor differ as a whole, and what is said of a difference."""

from __future__ import annotations

import pytest

from pinfold.model.differences import KINDS, Difference, mass


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


@pytest.mark.parametrize(
    ("homes", "guests", "strays", "why"),
    [
        ([], [], [], None),
        (["a"], ["a"], [], None),
        (["a"], [], [], "no guest at all, though 1 server is at home"),
        (names("a", 9), [], [], "no guest at all, though 9 servers are at home"),
        (["a", "b", "c"], ["a"], [], None),
        (names("a", 5), ["a0", "a1"], [], "3 of the 5 servers at home there have no guest"),
        (names("a", 6), ["a0", "a1", "a2"], [], None),
        ([], ["x"], ["x"], None),
        ([], ["x", "y"], ["x", "y"], None),
        ([], names("x", 3), names("x", 3), "3 of its 3 guests have no claim"),
        (names("a", 3), [*names("a", 3), *names("x", 3)], names("x", 3), None),
        (names("a", 2), [*names("a", 2), *names("x", 3)], names("x", 3), "3 of its 5 guests have no claim"),
    ],
)
def test_a_mass_difference(homes: list[str], guests: list[str], strays: list[str], why: str | None) -> None:
    found = mass(homes, guests, strays)
    assert found is None if why is None else why in (found or "")


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_its_cause_and_its_cure(kind: str) -> None:
    said = str(Difference("n1", kind, "something differs", "a"))
    assert said.startswith("server a: something differs. Cause: ")
    assert " Cure: " in said


def test_nothing_is_healed_of_which_anybody_may_need_what_would_go() -> None:
    assert {name for name, kind in KINDS.items() if kind.heals} == {
        "tracker",
        "leftover",
        "stray-guest",
        "power-state",
    }

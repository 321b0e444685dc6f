"""How much fits under limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.model import quotas

LIMITS = {"instances": 10, "cores": 20, "ram": -1}


def test_what_is_over_is_named_with_its_scope() -> None:
    with pytest.raises(quotas.OverQuota) as caught:
        quotas.require(
            "user", LIMITS, {"instances": 10, "cores": 19}, {"instances": 1, "cores": 2, "ram": 99}
        )
    assert caught.value.message == (
        "Quota exceeded for instances, cores of the user: Requested 1, 2, but already used 10 of 10, 19 of 20 "
        "instances, cores"
    )


def test_minus_one_is_without_a_limit() -> None:
    quotas.require("project", LIMITS, {"ram": 10**12}, {"ram": 10**12})


def test_a_limit_below_what_is_used_leaves_no_room() -> None:
    assert quotas.room({"instances": 3}, {"instances": 5}, {"instances": 1}, 9) == 0


amounts = st.integers(0, 50)


@given(limit=st.integers(-1, 50), used=amounts, each=st.integers(1, 9), most=amounts)
def test_room_is_the_most_that_require_lets_through(limit: int, used: int, each: int, most: int) -> None:
    room = quotas.room({"x": limit}, {"x": used}, {"x": each}, most)
    assert 0 <= room <= most
    if room:
        quotas.require("project", {"x": limit}, {"x": used}, {"x": each * room})
    if room < most:
        with pytest.raises(quotas.OverQuota):
            quotas.require("project", {"x": limit}, {"x": used}, {"x": each * (room + 1)})

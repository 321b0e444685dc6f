"""Whether messages reach a worker: what it makes of echoes that come, are late, or do not come."""

from __future__ import annotations

import pytest

from pinfold.compute.hearing import Hearing
from pinfold.runtime import RealRuntime

PATIENCE = 15.0


class Clock(RealRuntime):
    """A runtime whose clock stands where it is put."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 100.0

    def monotonic(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def hearing(clock: Clock) -> Hearing:
    return Hearing(clock, PATIENCE)


def beats(hearing: Hearing, clock: Clock, count: int, *, come: bool = False, sent: bool = True) -> int:
    """So many heartbeats, three seconds apart; the number of the last echo."""
    number = 0
    for _ in range(count):
        number = hearing.ask()
        if sent:
            hearing.sent(number, clock.time)
        if come:
            hearing.came(number)
        clock.time += 3.0
    return number


def test_while_every_echo_comes_nothing_is_missed(hearing: Hearing, clock: Clock) -> None:
    beats(hearing, clock, 100, come=True)
    assert (hearing.is_deaf, hearing.unheard) == (False, 0.0)


def test_when_none_has_come_for_too_long_the_worker_is_deaf(hearing: Hearing, clock: Clock) -> None:
    """F048."""
    seen = [(beats(hearing, clock, 1), hearing.is_deaf) for _ in range(6)]
    assert [deaf for _, deaf in seen] == [False] * 5 + [True]
    assert hearing.unheard == 18.0


def test_an_echo_that_comes_before_the_word_that_it_was_sent_counts(hearing: Hearing, clock: Clock) -> None:
    number = hearing.ask()
    hearing.came(number)
    hearing.sent(number, clock.time)
    assert hearing.unheard == 0.0


def test_what_no_conductor_has_sent_is_not_missed(hearing: Hearing, clock: Clock) -> None:
    beats(hearing, clock, 100, sent=False)
    assert (hearing.is_deaf, hearing.unheard) == (False, 0.0)


def test_an_old_echo_that_comes_late_shows_that_the_queue_is_taken_from(
    hearing: Hearing, clock: Clock
) -> None:
    first = beats(hearing, clock, 1)
    beats(hearing, clock, 10)
    hearing.came(first)
    assert (hearing.is_deaf, hearing.unheard) == (False, 0.0)


def test_a_process_that_stood_still_is_not_deaf_for_that(hearing: Hearing, clock: Clock) -> None:
    beats(hearing, clock, 1)
    clock.time += 3600.0
    assert not hearing.is_deaf
    beats(hearing, clock, 1)
    assert not hearing.is_deaf

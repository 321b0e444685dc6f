"""Every recorded command, by the real client, with the codes and fields that Nova gave; what differs is listed."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from doc.source._ext import client_differences
from tests.functional.clients import commands
from tests.functional.clients.commands import Recorded, Session
from tests.functional.clients.terminal import Outcome, Terminal
from tests.functional.harness import Cloud

COMMANDS = commands.recorded()


class Run(msgspec.Struct, frozen=True):
    """All commands, run once."""

    outcomes: dict[str, Outcome]

    def differences(self) -> set[str]:
        """All that was found."""
        found = {
            text for command in COMMANDS for text in commands.of_command(command, self.outcomes[command.name])
        }
        exchanges = [exchange for outcome in self.outcomes.values() for exchange in outcome.exchanges]
        return found | commands.of_fields(exchanges, commands.known())


def listed() -> set[str]:
    return {text for reason in client_differences.listed() for text in reason.differences}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("clients")
    cloud = Cloud(folder / "stack")
    terminal = Terminal(folder, cloud.url)
    try:
        session = Session(cloud, terminal, folder)
        yield Run({command.name: session.run(command) for command in COMMANDS})
    finally:
        terminal.close()
        cloud.close()


def test_every_command_was_recorded_once() -> None:
    names = [command.name for command in COMMANDS]
    assert len(names) == len(set(names)) > 110


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_command_does_what_it_did_in_front_of_nova(run: Run, command: Recorded) -> None:
    outcome = run.outcomes[command.name]
    unlisted = [text for text in commands.of_command(command, outcome) if text not in listed()]
    assert unlisted == [], f"{outcome.out[-2000:]}{outcome.err[-2000:]}"


def test_answers_have_the_fields_of_nova_s_and_of_their_types(run: Run) -> None:
    exchanges = [exchange for outcome in run.outcomes.values() for exchange in outcome.exchanges]
    assert sorted(commands.of_fields(exchanges, commands.known()) - listed()) == []


def test_no_difference_is_listed_that_is_none(run: Run) -> None:
    assert sorted(listed() - run.differences()) == []


def test_no_command_met_an_error_of_the_service(run: Run) -> None:
    statuses = {exchange.status for outcome in run.outcomes.values() for exchange in outcome.exchanges}
    assert not {status for status in statuses if status >= 500} - {501}


def test_every_difference_has_a_reason() -> None:
    for entry in client_differences.listed():
        assert entry.reason.endswith(".")
        assert entry.differences

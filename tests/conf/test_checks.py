"""What a service does not start with, and why: each message names the option and the cure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from oslo_config import cfg

from pinfold.conf import checks, files, opts
from pinfold.conf.checks import Problem
from pinfold.conf.opts import Listing
from pinfold.model.errors import ConfigurationError

Look = Callable[..., list[Problem]]
GOOD = "[database]\nconnection = sqlite://\n[api]\nauth_strategy = noauth\n"


@pytest.fixture
def look(tmp_path: Path) -> Look:
    """What is wrong with a file of an all-in-one, unless another process is named."""

    def of(text: str, listed: Callable[[], Listing] = opts.all_in_one) -> list[Problem]:
        path = tmp_path / "a.conf"
        path.write_text(text)
        conf = cfg.ConfigOpts()
        for group, found in listed():
            conf.register_opts(found, group=None if group == "DEFAULT" else group)
        conf(["--config-file", str(path)], project="pinfold")
        conf.register_opt(cfg.IntOpt("graceful_shutdown_timeout", default=15))
        return checks.of_process(conf, files.read_all(conf))

    return of


def test_the_defaults_with_a_database_are_fine(look: Look) -> None:
    assert look(GOOD) == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (
            "[compute]\nheartbeat = 15\n",
            "[compute] heartbeat = 15 is not below [operations] service_down_time",
        ),
        ("[operations]\nlease = 2\n", "[compute] heartbeat = 3 is not below [operations] lease = 2"),
        ("[operations]\nservice_down_time = 4\n", "[api] heartbeat = 5 is not below"),
        ("[conductor]\nheartbeat = 20\n", "[conductor] heartbeat = 20 is not below"),
        (
            "[compute]\ncpu_shared_set = 0-3\ncpu_dedicated_set = 3-5\n",
            "CPUs 3 stand in [compute] cpu_shared_set",
        ),
        ("[compute]\ncpu_dedicated_set = 3-1\n", "[compute] cpu_dedicated_set = 3-1: "),
        ("[compute]\ncpu_dedicated_set = ^1\n", "names no CPU"),
        ("[compute]\nnodes = a,b,a\n", "[compute] nodes names a more than once"),
        ("[api]\nhost = 0.0.0.0\n", "[api] host = 0.0.0.0 is not a loopback address"),
        ("[api]\nthreads = 11\n", "[database] max_pool_size = 10 is smaller than [api] threads = 11"),
        ("[image]\npath =\n", "[image] path is empty"),
        ("[api]\nport = many\n", "[api] port = many (in "),
        ("[api]\nport = 70000\n", "[api] port = 70000 (in "),
        ("[image]\nstore = swift\n", "[image] store = swift (in "),
        ("[compute]\nheartbeats = 3\n", "[compute] heartbeats (in "),
        ("[DEFAULT]\nconcurency_backend = x\n", "Did you mean concurrency_backend?"),
    ],
)
def test_what_cannot_be_names_its_option(look: Look, text: str, named: str) -> None:
    problems = look(GOOD + text)
    assert any(named in problem.text for problem in problems if problem.fatal), problems


def test_a_database_must_be_named_where_one_is_needed(look: Look) -> None:
    assert "[database] connection is not set" in look("", opts.conductor)[0].text
    assert look("", opts.compute) == []


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[compute]\nheartbeat = 9\n", "[compute] heartbeat = 9 is more than half of"),
        (
            "[api]\nstop_wait = 20\n",
            "[api] stop_wait = 20 is not below [DEFAULT] graceful_shutdown_timeout = 15",
        ),
        ("[oslo_messaging_rabbit]\nhearbeat = 3\n", "[oslo_messaging_rabbit] hearbeat (in "),
    ],
)
def test_what_is_odd_is_said_and_does_not_stop_a_service(look: Look, text: str, named: str) -> None:
    problems = look(GOOD + text)
    assert problems
    assert not any(problem.fatal for problem in problems)
    assert named in problems[0].text


def test_the_error_says_all_that_is_wrong_at_once() -> None:
    with pytest.raises(ConfigurationError) as raised:
        checks.require([Problem("One."), Problem("Two.", fatal=False), Problem("Three.")])
    assert raised.value.message == "One. Three."
    assert checks.require([Problem("Two.", fatal=False)]) == [Problem("Two.", fatal=False)]

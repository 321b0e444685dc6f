"""Log lines name the request, the operation, the user and the project: as text and as JSON."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from oslo_config import cfg
from oslo_log import formatters, log

from pinfold.conf import logs
from pinfold.rpcapi import dispatch
from pinfold.rpcapi.context import Context, leave_logs, stand_in_logs, standing

CALLER = Context("req-1", "ann", "demo", ("member",))


@pytest.fixture
def record() -> logging.LogRecord:
    return logging.LogRecord("pinfold.x", logging.INFO, "x.py", 1, "it is %s", ("so",), None)


@pytest.fixture
def conf() -> Iterator[cfg.ConfigOpts]:
    made = cfg.ConfigOpts()
    log.register_options(made)
    logs.set_defaults()
    made([], project="pinfold")
    yield made
    leave_logs()


def line(conf: cfg.ConfigOpts, record: logging.LogRecord) -> str:
    return formatters.ContextFormatter(config=conf).format(record)


def test_a_line_of_text_names_them(conf: cfg.ConfigOpts, record: logging.LogRecord) -> None:
    stand_in_logs(CALLER, "op-7")
    assert line(conf, record).endswith("INFO pinfold.x [req-1 op-7 ann demo] it is so")


def test_what_there_is_not_is_a_dash(conf: cfg.ConfigOpts, record: logging.LogRecord) -> None:
    stand_in_logs(Context("req-1"))
    assert line(conf, record).endswith("[req-1 - - -] it is so")


def test_after_a_request_lines_name_nobody(conf: cfg.ConfigOpts, record: logging.LogRecord) -> None:
    stand_in_logs(CALLER, "op-7")
    leave_logs()
    assert line(conf, record).endswith("[- - - -] it is so")
    assert standing() is None


def test_a_traceback_does_not_break_the_line(conf: cfg.ConfigOpts) -> None:
    stand_in_logs(CALLER)
    try:
        raise KeyError("a")
    except KeyError as error:
        found = (type(error), error, error.__traceback__)
    text = line(conf, logging.LogRecord("pinfold.x", logging.ERROR, "x.py", 1, "no", (), found))
    assert "[req-1 - ann demo] no" in text
    assert "Traceback" in text


def test_json_has_them_as_fields(conf: cfg.ConfigOpts, record: logging.LogRecord) -> None:
    stand_in_logs(CALLER, "op-7")
    shown = json.loads(formatters.JSONFormatter().format(record))
    assert shown["message"] == "it is so"
    named = {name: shown["context"][name] for name in ("request_id", "operation", "user_id", "project_id")}
    assert named == {"request_id": "req-1", "operation": "op-7", "user_id": "ann", "project_id": "demo"}
    assert shown["context"]["auth_token"] is None


def test_each_thread_names_its_own(conf: cfg.ConfigOpts) -> None:
    stand_in_logs(CALLER)
    seen: list[Context | None] = []
    other = threading.Thread(target=lambda: seen.append(standing()))
    other.start()
    other.join()
    assert (seen, standing()) == ([None], CALLER)


@pytest.mark.parametrize(
    ("arguments", "operation"),
    [
        ({"record": {"operation": "o1", "attempt": 1}}, "o1"),
        ({"operation": "o2"}, "o2"),
        ({"record": {"host": "n1"}}, None),
        ({"node": "n1", "host": "n1"}, None),
        ({"record": [1]}, None),
        ({"operation": 3}, None),
    ],
)
def test_a_message_names_its_operation(arguments: dict[str, object], operation: str | None) -> None:
    assert dispatch.operation_of(arguments) == operation


def test_the_options_of_oslo_log_make_a_service_log_in_json(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    conf([], project="pinfold")
    conf.set_override("use_json", True)
    conf.set_override("log_file", str(file))
    before = logging.getLogger().handlers[:], logging.getLogger().level
    try:
        log.setup(conf, "pinfold")
        stand_in_logs(CALLER, "op-7")
        log.getLogger("pinfold.test").info("a line about %s", "one")
        shown = json.loads(file.read_text().splitlines()[-1])
    finally:
        leave_logs()
        logging.getLogger().handlers[:], level = before
        logging.getLogger().setLevel(level)
    assert (shown["message"], shown["context"]["operation"]) == ("a line about one", "op-7")

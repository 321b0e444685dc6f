"""os-getConsoleOutput: asked of the server's worker by a row in the book, where the answer comes as well."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from pinfold.api.call import Call, Reply
from pinfold.api.faults import TooLate
from pinfold.api.starting import Started
from pinfold.db import reports
from pinfold.db.instances import Owned
from pinfold.model import errors
from pinfold.model.work import Bell
from pinfold.rpcapi import wire
from pinfold.rpcapi.messages import ConsoleAnswer, ConsoleRequest, ReportRequest, to_wire

_PATIENCE = 10.0
_LOOK_AGAIN = 0.05
# what no text in XML may hold: clients have always been spared it
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f]")


def output(call: Call, value: Any) -> Started:
    """The last lines that the guest wrote, or all that is kept."""
    request = call.new_id()
    lines = _lines(value.get("length"))
    asked: ReportRequest | None = None
    host = ""

    def write(session: Any, server: Owned) -> Bell:
        nonlocal asked, host
        node = reports.place_of(session, server.id, call.deps.times.service_down)
        host = node.host
        arguments = to_wire(ConsoleRequest(node.name, server.id, lines))
        asked = ReportRequest(request, "console_log", arguments)
        reports.ask(session, request, "console_log", host, arguments)
        return Bell()

    def reply() -> Reply:
        assert asked is not None
        return Reply({"output": _answer(call, host, asked)}, 200)

    return Started(write, reply)


def _lines(length: Any) -> int | None:
    number = -1 if length is None else int(length)
    return None if number < 0 else number


def _answer(call: Call, host: str, asked: ReportRequest) -> str:
    runtime, book = call.deps.runtime, call.deps.book
    give_up_at = runtime.monotonic() + _PATIENCE
    try:
        call.deps.compute.with_context(call.context).report(host, asked)
        while True:
            payload = book.read(lambda session: reports.answer(session, asked.request))
            if payload is not None or runtime.monotonic() > give_up_at:
                break
            runtime.sleep(_LOOK_AGAIN)
    except wire.Undeliverable as error:
        raise errors.Unavailable(f"Host {host} cannot be asked: {error}", code="host-silent") from error
    finally:
        book.write(lambda session: reports.drop(session, asked.request))
    if payload is None:
        raise TooLate(f"Host {host} did not tell the console of the server within {_PATIENCE:.0f} s.")
    answer = msgspec.convert(payload, ConsoleAnswer)
    if answer.error is not None:
        raise errors.Unavailable(f"The console cannot be read: {answer.error}", code="console")
    return _CONTROL.sub("", answer.output)

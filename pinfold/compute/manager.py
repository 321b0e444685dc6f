"""The RPC face of the worker, thin: registers what it is told to do, and lets a job do it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from pinfold.compute.audit import Audit
from pinfold.compute.hearing import Hearing
from pinfold.compute.jobs import Key
from pinfold.compute.operations.attempt import Tools
from pinfold.compute.operations.runner import Runner
from pinfold.model import errors
from pinfold.model.work import Work
from pinfold.rpcapi import messages
from pinfold.rpcapi.context import Context, stand_in_logs
from pinfold.rpcapi.messages import from_wire, to_wire
from pinfold.rpcapi.wire import exported

LOG = logging.getLogger(__name__)

_DELETES = ("delete", "force_delete")

# Kinds that come by the method of another kind.
_METHOD = {"force_delete": "delete"}


def _takes(kind: str, text: str) -> Callable[[Manager, Context, Any], None]:
    """The method that an operation of ``kind`` comes by."""

    def take(self: Manager, context: Context, record: Any) -> None:
        self._take(kind, context, record)

    take.__doc__, take.__name__ = text, kind
    return exported(take)


class Manager:
    """Every method is a cast. One that comes twice is dropped while the first is under way; later, the book
    refuses it."""

    def __init__(self, tools: Tools, runner: Runner, hearing: Hearing, audit: Audit) -> None:
        self._tools = tools
        self._runner = runner
        self._hearing = hearing
        self._audit = audit

    create = _takes("create", "Claim a place for a new server and spawn it.")
    unshelve = _takes("unshelve", "Claim a place for an offloaded server and spawn it.")
    unshelve_in_place = _takes("unshelve_in_place", "Start a shelved server whose guest is still here.")
    shelve = _takes("shelve", "Stop a server and save its disk as an image.")
    shelve_offload = _takes("shelve_offload", "Remove the guest of a shelved server.")
    resize = _takes("resize", "One leg of a resize.")
    migrate = _takes("migrate", "One leg of a cold migration.")
    evacuate = _takes("evacuate", "Claim a place for a server whose host is dead, and spawn it.")
    live_migrate = _takes("live_migrate", "One leg of a live migration.")
    confirm_resize = _takes("confirm_resize", "Remove the old guest of a server that was moved.")
    revert_resize = _takes(
        "revert_resize", "Remove the new guest of a server that was moved, or start the old one."
    )
    delete = _takes("delete", "Remove the guest of a server that is being deleted.")
    soft_delete = _takes(
        "soft_delete", "Stop the guest of a server that is being deleted and may be restored."
    )
    restore = _takes("restore", "Start a soft-deleted server.")
    start = _takes("start", "Start a stopped server.")
    stop = _takes("stop", "Stop a server.")
    reboot = _takes("reboot", "Have a server's system start afresh.")
    hard_reboot = _takes("hard_reboot", "Start a server afresh, whatever it does.")
    pause = _takes("pause", "Let a server stand still.")
    unpause = _takes("unpause", "Let a paused server go on.")
    suspend = _takes("suspend", "Save a server's memory and stop it.")
    resume = _takes("resume", "Let a suspended server go on.")
    power_restore = _takes("power_restore", "Start a server that a failed operation has left off.")
    power_sync = _takes("power_sync", "Stop a server whose guest is not what the book says.")
    create_image = _takes("create_image", "Save a server's disk as an image while it goes on.")
    rebuild = _takes("rebuild", "Give a server a new disk from an image.")

    @exported
    def echo(self, context: Context, record: Any) -> None:
        """What this worker asked for: messages do get here."""
        echo = from_wire(record, messages.Echo)
        if echo.incarnation == self._tools.incarnation:
            self._hearing.came(echo.number)

    @exported
    def control(self, context: Context, record: Any) -> None:
        """What is wished of a live migration under way here: to abort it, or to force it to its end."""
        wish = from_wire(record, messages.Control)
        if not self._tools.jobs.tell(wish.operation, wish.wish):
            LOG.info("Operation %s is not under way here: %s has come too late", wish.operation, wish.wish)

    @exported
    def report(self, context: Context, record: Any) -> None:
        """Tell what the tracker believes ("tracker"), having read the book again first ("reload"), what guests there
        are ("guests"), what an audit now found and did ("heal"), or what a guest wrote to its console
        ("console_log"). The answer travels to the conductor."""
        request = from_wire(record, messages.ReportRequest)
        telling = {
            "tracker": self._views,
            "reload": self._reload,
            "guests": self._guests,
            "heal": self._heal,
            "console_log": self._console,
        }
        tell = telling.get(request.kind)
        if tell is None:
            LOG.warning("A report of kind %s was asked for; there are %s", request.kind, ", ".join(telling))
            return
        self._tools.runtime.spawn(self._answer, context, request, tell, name="report")

    def _answer(
        self,
        context: Context,
        request: messages.ReportRequest,
        tell: Callable[[messages.ReportRequest], Any],
    ) -> None:
        tools = self._tools
        try:
            answer = messages.Answer(request.request, tools.settings.host, tell(request))
            conductor = tools.conductor.with_context(context)
            tools.calls.until(tools.runtime.monotonic() + tools.fence.lease, conductor.answer, answer)
        except errors.PinfoldError as error:
            LOG.warning("Report %s could not be answered: %s", request.request, error)

    def _views(self, request: messages.ReportRequest) -> Any:
        tools = self._tools
        return [to_wire(tools.tracker.current_view(node)) for node in tools.settings.nodes]

    def _console(self, request: messages.ReportRequest) -> Any:
        wanted = from_wire(request.arguments, messages.ConsoleRequest)
        try:
            output = self._tools.driver.console_log(wanted.node, wanted.instance, wanted.lines)
        except errors.PinfoldError as error:
            return to_wire(messages.ConsoleAnswer(error=error.message))
        return to_wire(messages.ConsoleAnswer(output))

    def _reload(self, request: messages.ReportRequest) -> Any:
        tools = self._tools
        for node in tools.settings.nodes:
            view = tools.calls.always(lambda name: tools.conductor.node_view(name, tools.settings.host), node)
            tools.tracker.load(view)
        return self._views(request)

    def _guests(self, request: messages.ReportRequest) -> Any:
        driver, nodes = self._tools.driver, self._tools.settings.nodes
        return [to_wire(guest) for node in nodes for guest in driver.list(node)]

    def _heal(self, request: messages.ReportRequest) -> Any:
        wanted = from_wire(request.arguments, messages.HealRequest)
        tools = self._tools
        until = tools.runtime.monotonic() + tools.fence.lease
        found = []
        for node in tools.settings.nodes:
            if node in wanted.nodes:
                for done in self._audit.look(node):
                    done.wait(max(0.0, until - tools.runtime.monotonic()))
                found += self._audit.differences[node]
        return [to_wire(difference) for difference in found]

    def _take(self, method: str, context: Context, record: Any) -> None:
        work = from_wire(record, Work)
        tools = self._tools
        if _METHOD.get(work.kind, work.kind) != method or not self._is_ours(work):
            LOG.error(
                "Operation %s (%s for node %s of host %s) came by %s to host %s; it is not done",
                work.operation,
                work.kind,
                work.node,
                work.host,
                method,
                tools.settings.host,
            )
            return
        key = Key(work.operation, work.attempt, work.node)
        if work.kind in _DELETES:
            # what it takes over may be a copy that goes on for long
            tools.jobs.refuse_others(work.instance, key)
        deadline = tools.runtime.monotonic() + work.seconds_left

        taken = tools.runtime.monotonic()

        def run() -> None:
            stand_in_logs(context, work.operation)
            self._runner.run(context, work, deadline, queued=tools.runtime.monotonic() - taken)

        if not tools.jobs.submit(work.instance, run, key=key, seconds=work.seconds_left):
            LOG.info(
                "Operation %s, attempt %d: not taken; it is under way, or the service stops", *_name(work)
            )

    def _is_ours(self, work: Work) -> bool:
        settings = self._tools.settings
        return work.host == settings.host and work.node in settings.nodes


def _name(work: Work) -> tuple[str, int]:
    return work.operation, work.attempt

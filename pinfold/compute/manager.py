"""The RPC face of the worker, thin: registers what it is told to do, and lets a job do it."""

from __future__ import annotations

import logging
from typing import Any

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

# Kinds that come by the method of another kind.
_METHOD = {"force_delete": "delete"}


class Manager:
    """Every method is a cast. One that comes twice is dropped while the first is under way; later, the book
    refuses it."""

    def __init__(self, tools: Tools, runner: Runner) -> None:
        self._tools = tools
        self._runner = runner

    @exported
    def create(self, context: Context, record: Any) -> None:
        """Claim a place for a new server and spawn it."""
        self._take("create", context, record)

    @exported
    def unshelve(self, context: Context, record: Any) -> None:
        """Claim a place for an offloaded server and spawn it."""
        self._take("unshelve", context, record)

    @exported
    def unshelve_in_place(self, context: Context, record: Any) -> None:
        """Start a shelved server whose guest is still here."""
        self._take("unshelve_in_place", context, record)

    @exported
    def shelve(self, context: Context, record: Any) -> None:
        """Stop a server and save its disk as an image."""
        self._take("shelve", context, record)

    @exported
    def shelve_offload(self, context: Context, record: Any) -> None:
        """Remove the guest of a shelved server."""
        self._take("shelve_offload", context, record)

    @exported
    def resize(self, context: Context, record: Any) -> None:
        """One leg of a resize."""
        self._take("resize", context, record)

    @exported
    def migrate(self, context: Context, record: Any) -> None:
        """One leg of a cold migration."""
        self._take("migrate", context, record)

    @exported
    def confirm_resize(self, context: Context, record: Any) -> None:
        """Remove the old guest of a server that was moved."""
        self._take("confirm_resize", context, record)

    @exported
    def revert_resize(self, context: Context, record: Any) -> None:
        """Remove the new guest of a server that was moved, or start the old one."""
        self._take("revert_resize", context, record)

    @exported
    def delete(self, context: Context, record: Any) -> None:
        """Remove the guest of a server that is being deleted."""
        self._take("delete", context, record)

    @exported
    def report(self, context: Context, record: Any) -> None:
        """Tell what the tracker believes ("tracker"), or have it read the book again first ("reload"); the
        answer travels to the conductor."""
        request = from_wire(record, messages.ReportRequest)
        if request.kind not in ("tracker", "reload"):
            LOG.warning("A report of kind %s was asked for; there are 'tracker' and 'reload'", request.kind)
            return
        self._tools.runtime.spawn(self._answer, context, request, name="report")

    def _answer(self, context: Context, request: messages.ReportRequest) -> None:
        tools = self._tools
        try:
            if request.kind == "reload":
                self._reload()
            payload = [to_wire(tools.tracker.current_view(node)) for node in tools.settings.nodes]
            answer = messages.Answer(request.request, tools.settings.host, payload)
            conductor = tools.conductor.with_context(context)
            tools.calls.until(tools.runtime.monotonic() + tools.fence.lease, conductor.answer, answer)
        except errors.PinfoldError as error:
            LOG.warning("Report %s could not be answered: %s", request.request, error)

    def _reload(self) -> None:
        tools = self._tools
        for node in tools.settings.nodes:
            view = tools.calls.always(lambda name: tools.conductor.node_view(name, tools.settings.host), node)
            tools.tracker.load(view)

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

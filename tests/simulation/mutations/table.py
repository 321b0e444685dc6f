"""The mutations: what each takes away, and a seed that shows it.

``seed`` is found by ``python -m tests.simulation --mutation NAME --seeds 0-999``. When the product's text changes,
bring ``changes`` up to date; when its behaviour does, look for another seed.
"""

from __future__ import annotations

import msgspec


class Mutation(msgspec.Struct, frozen=True):
    """``changes`` of the source text of ``module``: (old, new); ``seed``, with ``faults``: of a run that finds it."""

    name: str
    about: str
    module: str
    changes: tuple[tuple[str, str], ...]
    seed: int = 0
    faults: str = ""


_ALL = (
    # --- the five founding faults -------------------------------------------------------------
    Mutation(
        "offload-keeps-usage",
        "F002, F003: the offload changes the server's state, and its CPUs stay taken.",
        "pinfold.conductor.operations.inplace",
        (
            (
                """        if held[1].name == node:
            freed = deed.free(held)
    deed.close(states.OFFLOADED)""",
                """        if held[1].name == node:
            freed = Freed()
    deed.close(states.OFFLOADED)""",
            ),
        ),
    ),
    Mutation(
        "abort-keeps-claim",
        "F001: the spawn fails, and the server keeps its place.",
        "pinfold.conductor.operations.placing",
        (("            freed = deed.free(held)\n", "            freed = Freed()\n"),),
    ),
    Mutation(
        "unshelving-taken-for-offloaded",
        "F004, F005: the audit sees an offloaded server with a guest, and does not see that it is being unshelved.",
        "pinfold.compute.audit",
        (
            (
                """    if all(claim.role == "incoming" for claim in view.claims):
        return _NOTHING""",
                """    if all(claim.role == "incoming" for claim in view.claims):
        return Decision("destroy", "its server is offloaded") if guest is not None else _NOTHING""",
            ),
            (
                """        stray = guest is not None and not held & set(_HOLDING)""",
                """        stray = guest is not None and not held & {"current", "outgoing"}""",
            ),
        ),
    ),
    Mutation(
        "claim-forgotten-before-guest",
        "R1, F020: the sweeper frees the claim of a host that does not answer, though its guest may run.",
        "pinfold.conductor.operations.placing",
        (
            (
                "        deed.leave([held])\n        self.fail(deed, gave_up",
                "        deed.free(held)\n        self.fail(deed, gave_up",
            ),
        ),
    ),
    Mutation(
        "double-free",
        "F006, F038: a late abort of an attempt that is over frees what the server holds by then.",
        "pinfold.conductor.manager",
        (
            (
                """        if deed is None or not _is_open(deed, abort.attempt):
            return messages.Aborted(accepted=False), Bell()""",
                """        if deed is None or deed.operation.open_key is None:
            return messages.Aborted(accepted=False), Bell()""",
            ),
        ),
    ),
    # --- the rules that the model asked for ------------------------------------------------------
    Mutation(
        "R1-delete",
        "A delete frees the claim of a host that is down.",
        "pinfold.db.starts",
        (
            (
                "    operations.to_leftovers(None, down)\n",
                "    for pair in down:\n        book_claims.free(session, *pair)\n",
            ),
        ),
    ),
    Mutation(
        "R2",
        "Work on one server runs side by side on its worker.",
        "pinfold.compute.jobs",
        (
            ("if len(started) < room and job.instance not in self._running:", "if len(started) < room:"),
            (
                "                del self._running[job.instance]\n",
                "                self._running.pop(job.instance, None)\n",
            ),
        ),
    ),
    Mutation(
        "R3",
        "A finish without an answer is taken for a refusal: the guest is removed.",
        "pinfold.compute.operations.runner",
        (
            (
                """        finished = tools.calls.always(attempt.conductor.finish, record)
""",
                """        try:
            finished = tools.calls.until(tools.runtime.monotonic() + 5.0, attempt.conductor.finish, record)
        except NoAnswer:
            finished = messages.Finished(done=False, undo=True)
""",
            ),
        ),
    ),
    Mutation(
        "R4",
        "An offload that was not ended in time goes back, though its guest may be gone.",
        "pinfold.conductor.operations.shelve_offload",
        (
            (
                "        if operations.is_recorded(deed.operation):",
                "        if False and operations.is_recorded(deed.operation):",
            ),
        ),
    ),
    Mutation(
        "R5",
        "A release frees whatever claim it names.",
        "pinfold.conductor.workers",
        (
            (
                "        if row is None or row[0].role != book_claims.LEFTOVER:",
                "        if row is None:",
            ),
        ),
    ),
    Mutation(
        "R7",
        "A new cast does not raise the attempt.",
        "pinfold.conductor.operations.base",
        (("        self.operation.attempt += 1\n", "        self.operation.attempt = 1\n"),),
    ),
    Mutation(
        "R7-fence",
        "A step is accepted from any attempt.",
        "pinfold.conductor.manager",
        (
            (
                "    return deed.operation.open_key is not None and deed.operation.attempt == attempt",
                "    return deed.operation.open_key is not None",
            ),
        ),
    ),
    Mutation(
        "R8",
        "A guest that is off is started, whatever is being done with its server.",
        "pinfold.compute.resume",
        (("        and view.open_operation in (None, apart_from)\n", ""),),
    ),
    Mutation(
        "R9",
        "An operation that left a leftover tries another host.",
        "pinfold.conductor.operations.placing",
        (("        if deed.operation.left_leftover or deed.past_deadline", "        if deed.past_deadline"),),
    ),
    Mutation(
        "R10",
        "A finish that is repeated is looked at as if it were new.",
        "pinfold.conductor.manager",
        (("        if known is not None:", "        if False and known is not None:"),),
    ),
    Mutation(
        "R11",
        "An operation that ends badly deletes its image, also once that is the server's.",
        "pinfold.db.operations",
        (
            (
                "    if image is not None and instance.shelved_image != image:",
                "    if image is not None:",
            ),
        ),
    ),
    Mutation(
        "R12",
        "The guest of an offload is destroyed without asking the book first.",
        "pinfold.compute.operations.shelve_offload",
        (("Deed(destroying.destroy)", "Deed(destroying.destroy, begins=False)"),),
    ),
    Mutation(
        "R13",
        "A heartbeat renews whatever its host has, done or not.",
        "pinfold.conductor.workers",
        (
            (
                "                Operation.id.in_(named),\n",
                "",
            ),
            (
                "        mine = [operation for operation, attempt in rows if named[operation] == attempt]",
                "        mine = [operation for operation, _ in rows]",
            ),
            (
                "        return Heard(refused=self._renew(session, record)) if record.operations else Heard()",
                "        return Heard(refused=self._renew(session, record))",
            ),
        ),
    ),
    # --- others ------------------------------------------------------------------------------------
    Mutation(
        "leftover-passed",
        "A server is placed although its former guest may still run on a host that is away.",
        "pinfold.db.starts",
        (
            (
                "    refuse_leftovers(session, instance, kind)\n    operations.insert(",
                "    operations.insert(",
            ),
        ),
    ),
    Mutation(
        "outbox-forgets",
        "What is to be done outside is forgotten before it is done.",
        "pinfold.conductor.sweeper",
        (
            (
                """            session.execute(
                sa.update(Outbox)
                .where(Outbox.id == row.id)
                .values(tries=Outbox.tries + 1, due_at=epoch() + min(300.0, 5.0 * 2 ** min(row.tries, 10)))
            )""",
                """            session.execute(sa.delete(Outbox).where(Outbox.id == row.id))""",
            ),
        ),
    ),
    Mutation(
        "generation-stands",
        "A claim changes its role, and the node's generation stays.",
        "pinfold.db.claims",
        (
            (
                """    node.generation += 1
    claim.role = role""",
                """    claim.role = role""",
            ),
        ),
    ),
    Mutation(
        "message-is-the-record",
        "F021, F022: nobody looks for operations whose message was lost.",
        "pinfold.conductor.sweeper",
        (("for sweep in (self.operations, self.reports,", "for sweep in (self.reports,"),),
    ),
    Mutation(
        "check-then-write",
        "F025: whether an operation is open is not looked at.",
        "pinfold.model.states",
        (("    if open_kind is not None and not KINDS[kind].may_take_over(open_kind):", "    if False:"),),
    ),
    Mutation(
        "image-first",
        "The shelved image goes before the server runs again.",
        "pinfold.conductor.operations.unshelve",
        (
            (
                """    def placed(self, deed: Deed) -> None:
""",
                """    def entered(self, deed: Deed, step: str) -> bool:
        return False

    def abort(self, deed, abort):  # type: ignore
        operations.forget_shelved_image(deed.session, deed.instance, deed.at)
        return super().abort(deed, abort)

    def placed(self, deed: Deed) -> None:
""",
            ),
        ),
    ),
)

MUTATIONS = {mutation.name: mutation for mutation in _ALL}

"""The mutations: what each takes away, and a seed that shows it.

``seed`` is found by ``python -m tests.simulation --mutation NAME --seeds 0-999``. When the product's text changes,
bring ``changes`` up to date; when its behaviour does, look for another seed.
"""

from __future__ import annotations

import msgspec


class Mutation(msgspec.Struct, frozen=True):
    """``changes`` of the source text of ``module``: (old, new), and ``elsewhere``: (module, old, new); ``seed``, with
    ``faults``: of a run that finds it.

    ``module`` is one of the product, or of the simulator where that stands for what the product relies on. ``seed``
    is None where none is known yet.
    """

    name: str
    about: str
    module: str
    changes: tuple[tuple[str, str], ...]
    elsewhere: tuple[tuple[str, str, str], ...] = ()
    seed: int | None = None
    faults: str = ""

    @property
    def modules(self) -> dict[str, list[tuple[str, str]]]:
        """What is changed, by module."""
        found = {self.module: list(self.changes)}
        for module, old, new in self.elsewhere:
            found.setdefault(module, []).append((old, new))
        return found


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
        seed=3,
    ),
    Mutation(
        "abort-keeps-claim",
        "F001: the spawn fails, the operation ends, and the server keeps its place.",
        "pinfold.conductor.operations.placing",
        (
            ("            freed = deed.free(held)\n", "            freed = Freed()\n"),
            ("        if deed.operation.left_leftover or deed.past_deadline", "        if held_on"),
            (
                "        tries = len(deed.operation",
                "        held_on = deed.claim(book_claims.INCOMING) is not None\n        tries = len(deed.operation",
            ),
        ),
        seed=1,
        faults="driver-fail",
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
        seed=2,
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
        seed=4,
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
        seed=12,
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
        seed=109,
        faults="late,double,lose,crash,kill",
    ),
    Mutation(
        "R7-fence",
        "F023: a step is accepted from any attempt, so that a doubled message is done twice.",
        "pinfold.conductor.manager",
        (
            (
                "    return deed.operation.open_key is not None and deed.operation.attempt == attempt",
                "    return deed.operation.open_key is not None",
            ),
        ),
        seed=66,
        faults="late,double,lose,crash,kill,pause",
    ),
    Mutation(
        "R8",
        "F032: a guest that is off is started, whatever is being done with its server.",
        "pinfold.compute.resume",
        (("        and view.open_operation in (None, apart_from)\n", ""),),
        seed=71,
        faults="power-off,kill,crash,fence",
    ),
    Mutation(
        "R9",
        "An operation that left a leftover tries another host.",
        "pinfold.conductor.operations.placing",
        (("        if deed.operation.left_leftover or deed.past_deadline", "        if deed.past_deadline"),),
        (
            (
                "pinfold.conductor.manager",
                "not _is_open(deed, claim.attempt) or deed.operation.left_leftover:",
                "not _is_open(deed, claim.attempt):",
            ),
            # else it hardly ever comes to a leftover
            (
                "tests.simulation.world",
                "            patience=20.0,\n",
                "            patience=20.0,\n            destroy_tries=1,\n",
            ),
        ),
    ),
    Mutation(
        "R10",
        "A finish that is repeated is looked at as if it were new.",
        "pinfold.conductor.manager",
        (("        if known is not None:", "        if False and known is not None:"),),
        seed=3,
        faults="lose,db-fail-after,late",
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
    Mutation(
        "R6",
        "A worker begins while the hypervisor still carries out a request of its former incarnation.",
        "tests.simulation.world",
        (("        self.waits_for_orphans = True\n", "        self.waits_for_orphans = False\n"),),
        seed=66,
        faults="crash,kill,driver-orphan,driver-slow,driver-hang",
    ),
    Mutation(
        "R14",
        "F067: what is to be done outside the book is forgotten before it is done.",
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
        seed=14,
    ),
    Mutation(
        "R15",
        "A claim is written as it was planned, whatever has been claimed since, and no key says no.",
        "pinfold.db.claims",
        (
            ("    if node.taken_at > generation:\n", "    if False:\n"),
            (
                "    return sa.insert(_pins).values(",
                '    return sa.insert(_pins).prefix_with("OR IGNORE").values(',
            ),
        ),
        seed=28,
    ),
    # --- others ------------------------------------------------------------------------------------
    Mutation(
        "leftover-passed",
        "A server is placed although its former guest may still run on a host that is away.",
        "pinfold.db.starts",
        (
            (
                "    refuse_leftovers(session, book_claims.of_instance(session, instance_id), kind)\n"
                "    operations.insert(",
                "    operations.insert(",
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
        seed=0,
        faults="none",
    ),
    Mutation(
        "message-is-the-record",
        "F021, F022: nobody looks for operations whose message was lost.",
        "pinfold.conductor.sweeper",
        (("for sweep in (self.operations, self.reports,", "for sweep in (self.reports,"),),
        seed=1,
        faults="lose",
    ),
    Mutation(
        "check-then-write",
        "F025: whether an operation is open is not looked at.",
        "pinfold.model.states",
        (("    if open_kind is not None and not KINDS[kind].may_take_over(open_kind):", "    if False:"),),
        seed=6,
        faults="none",
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
        seed=0,
        faults="driver-fail,store-fail",
    ),
    Mutation(
        "pins-of-the-source",
        "F009: a guest that is moved is made on the CPUs that it had on its old node.",
        "pinfold.conductor.operations.moving",
        (
            (
                """        _, target = self._ends(deed)
        return Freed(bell=self._cast(deed, target, states.RECEIVE))""",
                """        source, target = self._ends(deed)
        return Freed(bell=self._cast(deed, (source[0], target[1]), states.RECEIVE))""",
            ),
        ),
        seed=7,
    ),
    Mutation(
        "confirm-keeps-old",
        "F037: the old place of a server is counted on after its move was confirmed.",
        "pinfold.conductor.operations.confirm_resize",
        (
            (
                """        if held is not None:
            freed = deed.free(held)
        self._end(deed)""",
                """        self._end(deed)""",
            ),
        ),
        seed=3,
    ),
    Mutation(
        "old-guest-is-stray",
        "F028: the audit destroys the old guest of a server that waits for its move to be confirmed.",
        "pinfold.compute.audit",
        (
            (
                """_HOLDING = ("incoming", "current", "outgoing")""",
                """_HOLDING = ("incoming", "current")""",
            ),
        ),
        seed=7,
    ),
    Mutation(
        "runs-beside-leftover",
        "A guest that is off is started, though another of its server may still run on another host.",
        "pinfold.compute.resume",
        (("        and view.other_claims == 0\n", ""),),
    ),
    Mutation(
        "host-not-set",
        "F062: a server that was placed forgets where.",
        "pinfold.conductor.operations.placing",
        (
            (
                "        generation = book_claims.set_role(*held, book_claims.CURRENT)\n",
                "        generation = held[1].generation\n",
            ),
        ),
        seed=0,
    ),
    Mutation(
        "confirm-goes-back",
        "F070: a confirm that failed on the old host leaves the move to be confirmed, without its old guest.",
        "pinfold.conductor.operations.confirm_resize",
        (
            (
                """        if not recorded(deed.operation):
            self.give_up(deed, fault)
            return Freed(), Bell()""",
                """        if True:
            self.give_up(deed, fault)
            return Freed(), Bell()""",
            ),
        ),
        seed=22,
        faults="driver-fail",
    ),
    Mutation(
        "failed-move-keeps-claim",
        "F071: a move that failed keeps its place at the destination.",
        "pinfold.conductor.operations.moving",
        (
            (
                "        freed = Freed() if target is None else deed.free(target)\n",
                "        freed = Freed()\n",
            ),
        ),
        seed=3,
    ),
    Mutation(
        "told-before-undone",
        "F072: a worker says that an attempt has failed, and does not remove what it made.",
        "pinfold.compute.operations.runner",
        (
            (
                "            clean = self._clean_away(attempt, plan)\n",
                "            clean = True\n",
            ),
        ),
        seed=29,
    ),
    Mutation(
        "claim-after-delete",
        "F018, F019: an operation that a delete has taken over still gets its claim.",
        "pinfold.conductor.manager",
        (
            (
                "        if deed is None or not _is_open(deed, claim.attempt) or deed.operation.left_leftover:\n",
                "        if deed is None:\n",
            ),
        ),
        seed=0,
    ),
    Mutation(
        "half-deleted",
        "F081: a delete that is carried on ends, and what the server holds stays.",
        "pinfold.conductor.operations.delete",
        (
            (
                """        if book_claims.holding(deed.claims):
            return False
""",
                "",
            ),
        ),
        seed=5,
    ),
    Mutation(
        "snapshot-left",
        "F092: the snapshot of an operation that a delete has taken over is nobody's.",
        "pinfold.db.operations",
        (
            (
                """    drop_unrecorded_image(session, operation, instance, at)
    # before the next""",
                """    # before the next""",
            ),
        ),
    ),
)

MUTATIONS = {mutation.name: mutation for mutation in _ALL}

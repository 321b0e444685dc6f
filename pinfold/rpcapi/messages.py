"""The records that travel between services: frozen, typed, plain JSON on the wire.

Every write of a worker carries (operation, attempt): the attempt is the fence.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec

from pinfold.model.host import ClaimView, NodeReport, NodeView
from pinfold.model.numa import Placement, Refusal
from pinfold.model.work import Work as Work

T = TypeVar("T")


def to_wire(record: msgspec.Struct) -> Any:
    """A record as plain JSON values."""
    return msgspec.to_builtins(record, str_keys=True)


def from_wire(value: Any, kind: type[T]) -> T:
    """The record that ``to_wire`` made. Raises msgspec.ValidationError when it is not one."""
    return msgspec.convert(value, kind, strict=False)


# --- what a worker knows of a node's claims -------------------------------------------------


class GuestView(msgspec.Struct, frozen=True):
    """What the book says of an instance, for the worker of ``node``: read in one transaction.

    ``vm_state`` is None for an instance that the book does not know. ``claims`` are the instance's claims on
    this node, oldest first; ``other_claims`` counts those on other nodes that may have a guest: leftovers too, but
    for hosts that are fenced. ``forced_down``: an operator has said that this node's host is fenced, so nothing may
    be started there. ``power_state`` is what the book last heard of the guest.
    """

    instance: str
    node: str
    vm_state: str | None
    open_operation: str | None = None
    other_claims: int = 0
    claims: tuple[ClaimView, ...] = ()
    forced_down: bool = False
    power_state: int | None = None


class GuestRequest(msgspec.Struct, frozen=True):
    """What does the book say of ``instance`` now? Asked by the worker of ``node`` inside its lock for the
    instance. A host or incarnation that is not the present one gets a Conflict, not an answer."""

    host: str
    incarnation: str
    node: str
    instance: str


# --- casts to a worker (besides model.work.Work) ----------------------------------------------


class ReportRequest(msgspec.Struct, frozen=True):
    """Ask a worker for ``kind`` ("tracker": its NodeViews; "guests": what its hypervisor lists; "heal": what an audit
    now found and did; "console_log": what a guest wrote); it answers by ``conductor.answer``."""

    request: str
    kind: str
    arguments: dict[str, Any] = {}


class ConsoleRequest(msgspec.Struct, frozen=True):
    """The ``arguments`` of a report "console_log": the last ``lines`` of the console, or all that is kept."""

    node: str
    instance: str
    lines: int | None = None


class HealRequest(msgspec.Struct, frozen=True):
    """The ``arguments`` of a report "heal": audit these nodes now; the answer is a list of Differences."""

    nodes: tuple[str, ...]


class ConsoleAnswer(msgspec.Struct, frozen=True):
    """Its answer: ``output``, or why there is none."""

    output: str = ""
    error: str | None = None


class Echo(msgspec.Struct, frozen=True):
    """What a worker asked for with a heartbeat, sent the way that its work comes: it shows that work gets there."""

    incarnation: str
    number: int


class Control(msgspec.Struct, frozen=True):
    """What is wished of an operation that the worker is doing: ``abort`` or ``force``."""

    operation: str
    wish: Literal["abort", "force"]


# --- calls of a worker to the conductor -----------------------------------------------------


class Register(msgspec.Struct, frozen=True):
    """A worker that starts. ``host_id`` is kept in its state folder and tells two machines of one name apart.

    ``found`` are instances of which its hypervisor has guests. A conductor that does not know these passes over them.
    """

    host: str
    host_id: str
    incarnation: str
    nodes: tuple[NodeReport, ...]
    found: tuple[str, ...] = ()


class Registered(msgspec.Struct, frozen=True):
    """``refused`` says why the worker must not start (and what to do), or is None. ``lease`` is how many
    seconds a heartbeat that was heard lets the worker go on."""

    refused: str | None = None
    nodes: tuple[NodeView, ...] = ()
    guests: tuple[GuestView, ...] = ()
    lease: float = 15.0


class Heartbeat(msgspec.Struct, frozen=True):
    """I live, and I am doing these ``operations`` (id, attempt): renew their leases. ``ready`` is False until
    the worker takes work.

    ``echo`` is the number of an Echo that it asks for. ``unheard``: for so many seconds none has come of those that
    were sent, so that it has been up until then only. ``deaf``: it ends for that reason, to be started anew. A
    conductor that does not know these passes over them.
    """

    host: str
    incarnation: str
    operations: tuple[tuple[str, int], ...] = ()
    ready: bool = True
    echo: int | None = None
    unheard: float = 0.0
    deaf: bool = False


class Heard(msgspec.Struct, frozen=True):
    """``superseded``: another incarnation of this host has registered, so this one must end.
    ``refused``: operations that are no longer this worker's (start nothing more for them).
    ``echoed``: the echo that was asked for was sent, or nobody listens where it should go."""

    superseded: bool = False
    refused: tuple[str, ...] = ()
    echoed: bool = False


class Begin(msgspec.Struct, frozen=True):
    """About to do ``step``. For the step ``record``, the snapshot is complete. ``waits`` are seconds by what the
    worker waited for (see ``model.timeline``): a note, which a conductor that does not know it passes over."""

    operation: str
    attempt: int
    step: str
    host: str
    incarnation: str
    waits: dict[str, float] = {}


class Begun(msgspec.Struct, frozen=True):
    """``accepted``, or refused; ``undo``: the operation ended without this work being recorded, so undo it.
    ``offload``: after ``record``, go on and destroy the guest."""

    accepted: bool
    undo: bool = False
    offload: bool = False


class Claim(msgspec.Struct, frozen=True):
    """Take this for the operation's instance on ``node``, planned on ``generation``. ``waits`` as in ``Begin``."""

    operation: str
    attempt: int
    host: str
    incarnation: str
    node: str
    generation: int
    claim: str
    memory_mb: int
    disk_gb: int
    shared_vcpus: int
    placement: Placement | None = None
    waits: dict[str, float] = {}


class Claimed(msgspec.Struct, frozen=True):
    """``accepted``: ``claim`` is the claim in the book (an earlier one of the same operation and node, if there
    is one: then ``placement`` is its). ``stale``: plan again on ``view``. ``refused``: not yours any more."""

    outcome: Literal["accepted", "stale", "refused"]
    claim: str | None = None
    generation: int | None = None
    placement: Placement | None = None
    view: NodeView | None = None


class Refit(msgspec.Struct, frozen=True):
    """Let the current ``claim`` of the operation's instance on ``node`` be for these sizes, planned on ``generation``
    as if it held nothing."""

    operation: str
    attempt: int
    host: str
    incarnation: str
    node: str
    generation: int
    claim: str
    memory_mb: int
    disk_gb: int
    shared_vcpus: int
    placement: Placement | None = None


class Refitted(msgspec.Struct, frozen=True):
    """``accepted``: ``placement`` is where the new guest is to be (an earlier answer's, if there was one), and until
    ``finish`` the claim holds the old guest's place as well. ``stale``: plan again on ``view``. ``refused``: not
    yours any more."""

    outcome: Literal["accepted", "stale", "refused"]
    placement: Placement | None = None
    view: NodeView | None = None


class Finish(msgspec.Struct, frozen=True):
    """All steps are done: the guest runs (create, unshelve), is gone (delete, offload) or is off (shelve).
    ``power_state`` is as in the compute API (1 running, 4 shut down)."""

    operation: str
    attempt: int
    host: str
    incarnation: str
    node: str
    power_state: int


class Finished(msgspec.Struct, frozen=True):
    """``done``, also when it had been done before. Otherwise refused: remove what this operation made.
    ``released`` is the id of the claim that is gone with it; ``generation`` is the node's after it, also when a
    claim only changed its role."""

    done: bool
    undo: bool = False
    released: str | None = None
    generation: int | None = None


class Abort(msgspec.Struct, frozen=True):
    """``step`` failed. ``clean``: the worker looked, and no guest of this operation is left on ``node``.
    ``code`` is a stable error code (``image-gone``: the image to spawn from exists no more; ``no-fit``: the node
    has no room, with ``refusals``); ``message`` is one sentence for the user, ``details`` for an admin."""

    operation: str
    attempt: int
    host: str
    incarnation: str
    node: str
    step: str
    code: str
    message: str
    details: str = ""
    clean: bool = True
    refusals: tuple[Refusal, ...] = ()


class Aborted(msgspec.Struct, frozen=True):
    """``accepted`` or not (then it was not this worker's to abort); ``released`` and ``generation`` as in
    ``Finished``."""

    accepted: bool
    released: str | None = None
    generation: int | None = None


class GuestsRequest(msgspec.Struct, frozen=True):
    """What does the book say of every instance with a claim on ``node``?"""

    host: str
    incarnation: str
    node: str


class Guests(msgspec.Struct, frozen=True):
    """What it says."""

    guests: tuple[GuestView, ...] = ()


class PowerSeen(msgspec.Struct, frozen=True):
    """The worker of ``node`` looked, inside its lock for the instance: the guest is in ``power_state``, which is not
    what the book says of a server in ``vm_state``."""

    host: str
    incarnation: str
    node: str
    instance: str
    vm_state: str
    power_state: int


class Release(msgspec.Struct, frozen=True):
    """The worker of ``node`` looked: no guest of the instance is there. Frees ``claim`` if it is a leftover."""

    host: str
    incarnation: str
    node: str
    claim: str


class Released(msgspec.Struct, frozen=True):
    """``released`` is False when the claim was no leftover or not there; then nothing changed."""

    released: bool
    generation: int | None = None


class Answer(msgspec.Struct, frozen=True):
    """The answer to a ReportRequest, as plain JSON values."""

    request: str
    host: str
    payload: Any

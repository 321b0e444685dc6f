"""Where book, tracker and hypervisor do not agree: kinds of difference, each with its cause and its cure."""

from __future__ import annotations

from collections.abc import Collection

import msgspec


class Kind(msgspec.Struct, frozen=True):
    """``heals``: a worker may put it right by itself, since nothing that anybody needs can be lost by it."""

    cause: str
    cure: str
    heals: bool = False


_AUDIT = "audit --heal, or wait for the next audit of its worker"

KINDS = {
    # --- the book alone ---
    "torn-claim": Kind(
        "somebody has written to the database by hand, or it was restored in part",
        "restore the database from a backup; no release writes this",
    ),
    # --- book and tracker ---
    "no-answer": Kind("it hangs, or gets no messages", "see its log; restart it"),
    "unknown-node": Kind(
        "its configuration has changed since the node was written",
        "check [compute] nodes and restart the worker",
    ),
    "tracker": Kind("a reply was lost", "audit --heal, or restart the worker", heals=True),
    # --- book and hypervisor ---
    "no-listing": Kind(
        "its hypervisor does not answer, or the worker is of an older release",
        "see its log; upgrade the worker",
    ),
    "leftover": Kind(
        "its worker was down, or could not remove the guest, when the operation ended",
        f"{_AUDIT}; where the host is down, start its worker",
        heals=True,
    ),
    "stray-guest": Kind(
        "its worker died between the guest and the book, or the guest came back with its host",
        _AUDIT,
        heals=True,
    ),
    "unknown-guest": Kind(
        "somebody else uses the hypervisor, or the database is an older one than the guest",
        "remove the guest at the hypervisor if it is nobody's; nothing here does",
    ),
    "missing-guest": Kind(
        "somebody has removed it at the hypervisor, or its host has lost its disk",
        "rebuild the server, or delete it",
    ),
    "power-state": Kind(
        "its user has shut it down from inside, somebody has changed it at the hypervisor, or an operation failed",
        f"{_AUDIT}; what it does not follow: start or stop the server",
        heals=True,
    ),
    "mass": Kind(
        "the hypervisor is not the one that it was, does not show its guests, or the database is an old one",
        "find out which of the two is wrong; nothing is healed on this node before they agree again",
    ),
}

_MANY = 3


class Difference(msgspec.Struct, frozen=True):
    """One thing on which they do not agree. ``did`` is what was done about it, if anything was."""

    node: str
    kind: str
    what: str
    server: str | None = None
    did: str = ""

    @property
    def cause(self) -> str:
        """What it comes from, as far as is known."""
        return KINDS[self.kind].cause

    @property
    def cure(self) -> str:
        """What an operator can do."""
        return KINDS[self.kind].cure

    @property
    def heals(self) -> bool:
        """Whether a worker may put it right."""
        return KINDS[self.kind].heals

    def __str__(self) -> str:
        about = f"server {self.server}: " if self.server else ""
        done = f" Done: {self.did}." if self.did else ""
        return f"{about}{self.what}. Cause: {self.cause}. Cure: {self.cure}.{done}"


def mass(homes: Collection[str], guests: Collection[str], strays: Collection[str]) -> str | None:
    """Why book and hypervisor differ as a whole, so that neither is to be believed: then nothing is changed.

    ``homes`` are the servers whose guests should be there, ``guests`` what is shown, and ``strays`` those of them
    without any claim on the node.
    """
    if homes and not guests:
        return f"it shows no guest at all, though {_servers(len(homes))} at home there"
    missing = [server for server in homes if server not in guests]
    if _is_mass(len(missing), len(homes)):
        return f"{len(missing)} of the {len(homes)} servers at home there have no guest"
    if _is_mass(len(strays), len(guests)):
        return f"{len(strays)} of its {len(guests)} guests have no claim there"
    return None


def _is_mass(odd: int, of: int) -> bool:
    return odd >= _MANY and 2 * odd > of


def _servers(count: int) -> str:
    return "1 server is" if count == 1 else f"{count} servers are"

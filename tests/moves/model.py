"""The model that random requests are held against: what an action wants of a server, and what it may lead to."""

from __future__ import annotations

from typing import Any

import msgspec

UP = frozenset({"ACTIVE", "SHUTOFF", "PAUSED", "SUSPENDED"})
ALL = frozenset({*UP, "ERROR", "VERIFY_RESIZE", "SHELVED", "SHELVED_OFFLOADED", "SOFT_DELETED"})
GONE, SAME = "DELETED", "as it was"

# What becomes of a server whose guest, or whose host, does something that nobody has asked for: it is followed.
DRIFTS = {
    "ACTIVE": {"SHUTOFF"},
    "PAUSED": {"SHUTOFF", "ACTIVE"},
    "SUSPENDED": {"SHUTOFF", "ACTIVE"},
}


class Action(msgspec.Struct, frozen=True):
    """``code`` is the answer to a server in one of ``wants``, ``leads`` what it is after that. ``members`` may do it.

    One that ``heeds`` nothing works wherever the server is, and whatever holds it."""

    code: int
    wants: frozenset[str]
    leads: frozenset[str]
    members: bool = True
    heeds: bool = True


def _action(
    wants: str, leads: str = SAME, code: int = 202, *, members: bool = True, heeds: bool = True
) -> Action:
    return Action(code, frozenset(wants.split()), frozenset(leads.split(", ")), members, heeds)


ACTIONS = {
    "migrate": _action("ACTIVE SHUTOFF", "VERIFY_RESIZE", members=False),
    "resize": _action("ACTIVE SHUTOFF", "VERIFY_RESIZE"),
    "confirmResize": _action("VERIFY_RESIZE", "ACTIVE, SHUTOFF", 204),
    "revertResize": _action("VERIFY_RESIZE", "ACTIVE, SHUTOFF"),
    "os-migrateLive": _action("ACTIVE PAUSED", members=False),
    "evacuate": _action("ACTIVE SHUTOFF ERROR", "as it was, ACTIVE", 200, members=False),
    "shelve": _action(" ".join(UP), "SHELVED, SHELVED_OFFLOADED"),
    "shelveOffload": _action("SHELVED", "SHELVED_OFFLOADED", members=False),
    "unshelve": _action("SHELVED SHELVED_OFFLOADED", "ACTIVE"),
    "os-stop": _action("ACTIVE ERROR", "SHUTOFF"),
    "os-start": _action("SHUTOFF", "ACTIVE"),
    "pause": _action("ACTIVE", "PAUSED"),
    "unpause": _action("PAUSED", "ACTIVE"),
    "suspend": _action("ACTIVE", "SUSPENDED"),
    "resume": _action("SUSPENDED", "ACTIVE"),
    "soft reboot": _action("ACTIVE", "ACTIVE"),
    "hard reboot": _action("ACTIVE SHUTOFF PAUSED SUSPENDED ERROR", "ACTIVE"),
    "createImage": _action(" ".join(UP)),
    "rebuild": _action("ACTIVE SHUTOFF ERROR", "as it was, ACTIVE"),
    "restore": _action("SOFT_DELETED", "ACTIVE"),
    "lock": _action(" ".join(ALL), members=False, heeds=False),
    "unlock": _action(" ".join(ALL), members=False, heeds=False),
}


class Known(msgspec.Struct):
    """A server as it was shown last, what the next look ``may`` find, and the sizes that it has and had.

    ``asked`` is what a request under way is to lead to."""

    status: str
    flavor: str
    before: str
    asked: frozenset[str] | None = None
    resizes: str | None = None
    deleted: frozenset[str] = frozenset()
    locked: bool = False

    def codes(
        self, action: str, flavor: str, *, member: bool, has_host: bool, host_down: bool, free: bool
    ) -> set[int]:
        """The answers that an action may get. ``free``: nothing of the server is left over, and no host is down."""
        told = ACTIONS[action]
        if member and self.locked and action != "createImage":
            return {409}
        if self.status not in told.wants or (self.status == "ERROR" and not has_host and told.heeds):
            return {400, 409}
        if action == "resize" and flavor == self.flavor:
            return {400} if free else {400, 409}
        if action == "evacuate":
            return {told.code, 409} if host_down else {400}
        if host_down and action == "revertResize":
            # a new host that is fenced is passed over
            return {told.code, 409}
        if host_down and told.heeds:
            return {409}
        return {told.code} if free or not told.heeds else {told.code, 409}

    def accepted(self, action: str, flavor: str) -> None:
        """What was asked for is under way."""
        self.asked = frozenset(self.status if lead == SAME else lead for lead in ACTIONS[action].leads)
        if action == "evacuate" and self.status == "SHUTOFF":
            self.asked = frozenset({"SHUTOFF"})
        elif action == "rebuild" and self.status != "ERROR":
            self.asked = frozenset({self.status})
        self.resizes = flavor if action == "resize" else None
        if action in ("lock", "unlock"):
            self.locked = action == "lock"

    def see(self, shown: dict[str, Any] | None, *, rough: bool) -> bool:
        """Take over what is shown now; False once the server is gone. Raises AssertionError.

        ``rough``: something went wrong on purpose, so that a request may have failed half way, and guests may have
        stopped. Otherwise it has done what it was to do, or says why not and is as it was.
        """
        status = GONE if shown is None else shown["status"]
        if self.deleted and not (rough and status != GONE and len(self.deleted) > 1):
            # one that only stops it may fail
            assert status in self.deleted, f"it was deleted and is {status}"
        if shown is None:
            assert self.deleted, f"a server that was {self.status} is gone"
            return False
        assert shown["OS-EXT-STS:task_state"] is None, shown["OS-EXT-STS:task_state"]
        if status != self.status:
            may = self._may(rough=rough, fault="fault" in shown)
            assert status in may, f"{self.status} became {status}, and not one of {sorted(may)}: {shown}"
        elif self.asked is not None and not rough and not self.deleted:
            assert status in self.asked or "fault" in shown, f"it is still {status}, and no fault says why"
        self._see_size(shown)
        self.status, self.asked, self.resizes, self.deleted = status, None, None, frozenset()
        return True

    def _may(self, *, rough: bool, fault: bool) -> set[str]:
        may = set(self.asked or ()) | set(self.deleted)
        if rough:
            may |= {self.status}
            for status in tuple(may):
                may |= DRIFTS.get(status, set())
            if self.asked is not None or self.status == "BUILD":
                may |= {"ERROR"} if fault else set()
        return may

    def _see_size(self, shown: dict[str, Any]) -> None:
        name = shown["flavor"]["original_name"]
        if shown["status"] == "VERIFY_RESIZE" and self.status != "VERIFY_RESIZE":
            self.before, self.flavor = self.flavor, self.resizes or self.flavor
        elif self.status == "VERIFY_RESIZE" and shown["status"] != "VERIFY_RESIZE" and name == self.before:
            self.flavor = self.before
        assert name == self.flavor, f"it is a {name}, and was a {self.flavor}"

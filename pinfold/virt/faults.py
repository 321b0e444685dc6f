"""Faults to order: a fake hypervisor's calls fail, hang or are late as a file says.

The file is a JSON list of rules; it is looked at before and after every call, so a rule acts at once::

    {"host": "host-1"|"*", "call": "spawn"|...|"*", "server": "<id>"|"*",
     "effect": "fail"|"hang"|"delay", "seconds": 2.0, "times": 1|null, "when": "before"|"after"}

Rules act in their order; a ``fail`` ends the call. ``hang`` lasts until no such rule is in the file. How
often a rule with ``times`` has acted is counted in a file of ours, which all hosts with neighbouring state
folders share; writing the fault file anew starts every count anew.
"""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from pinfold import durable
from pinfold.runtime import Runtime
from pinfold.virt.driver import DriverError

LOG = logging.getLogger(__name__)

POLL = 0.05
"""Seconds between two looks at the file while a call hangs."""

SETTLE = 0.25
"""Seconds that a file which is no JSON is given, since it may be being written."""

_RACY = 0.1
"""Seconds for which a file's times cannot tell two of its versions apart, with a wide margin."""

CALLS = frozenset(
    [
        "spawn",
        "destroy",
        "power_on",
        "power_off",
        "reboot",
        "pause",
        "unpause",
        "suspend",
        "resume",
        "snapshot",
        "rebuild",
        "migrate_disk",
        "finish_migration",
        "confirm_migration",
        "revert_migration",
        "check_live_migration",
        "admit_live_migration",
        "live_migrate",
        "console_log",
        "inventory",
        "list",
    ]
)

When = Literal["before", "after"]


class OrderedFault(DriverError):
    """The call failed because a rule of the fault file says so."""

    code = "ordered-fault"


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rule; see the module's text."""

    call: str
    effect: Literal["fail", "hang", "delay"]
    host: str = "*"
    server: str = "*"
    seconds: float | None = None
    times: int | None = None
    when: When = "before"

    def matches(self, host: str, call: str, server: str | None, when: When) -> bool:
        """Whether the rule is about this call."""
        return (
            self.when == when
            and self.host in ("*", host)
            and self.call in ("*", call)
            and (self.server == "*" or self.server == server)
        )


class _Version(msgspec.Struct, frozen=True):
    """Tells a file's versions apart."""

    inode: int
    modified: int
    size: int
    checksum: int = 0


class _Rules(msgspec.Struct, frozen=True):
    version: _Version
    rules: tuple[Rule, ...]
    settled: bool
    """Whether the version without its checksum is enough to know that the file is the same."""


class _Counts(msgspec.Struct):
    version: _Version
    used: dict[int, int]


_NO_RULES = _Rules(_Version(0, 0, 0), (), False)


class Faults:
    """The rules for one host in the file ``path`` (None: there are none), counted in ``count_path``."""

    def __init__(self, runtime: Runtime, host: str, path: str | None, count_path: str) -> None:
        self._runtime = runtime
        self._host = host
        self._path = path
        self._count_path = count_path
        self._lock = durable.FolderLock(runtime, count_path + ".lock")
        self._known = _NO_RULES

    def strike(
        self, call: str, server: str | None, when: When, until: Callable[[], bool] | None = None
    ) -> None:
        """Do what the rules say about this call; hangs and delays end early once ``until`` is true.

        Raises OrderedFault, or DriverError for an unusable file.
        """
        if self._path is None:
            return
        current = self._read(self._path)
        for index, rule in enumerate(current.rules):
            if rule.matches(self._host, call, server, when) and self._take(current.version, index, rule):
                self._act(rule, call, server, until)

    def _act(self, rule: Rule, call: str, server: str | None, until: Callable[[], bool] | None) -> None:
        what = f"{call} of {server} on {self._host}" if server else f"{call} on {self._host}"
        LOG.info("As ordered: %s %s (%s)", rule.effect, what, rule.when)
        if rule.effect == "fail":
            raise OrderedFault(f"{what} failed {rule.when} its work, as the fault file orders.")
        if rule.effect == "delay":
            self._delay(rule.seconds or 0.0, until)
            return
        while self._stands(rule) and not (until and until()):
            self._runtime.sleep(POLL)

    def _delay(self, seconds: float, until: Callable[[], bool] | None) -> None:
        if until is None:
            self._runtime.sleep(seconds)
            return
        while seconds > 0 and not until():
            self._runtime.sleep(min(seconds, POLL))
            seconds -= POLL

    def _stands(self, rule: Rule) -> bool:
        try:
            return rule in self._read(self._path or "").rules
        except DriverError:
            return True  # only a file that can be read says that the rule is out

    def _take(self, version: _Version, index: int, rule: Rule) -> bool:
        """Whether the rule may act once more; counts it."""
        if rule.times is None:
            return True
        with self._lock:
            counts = self._counts()
            if counts is None or counts.version != version:
                if counts is not None and counts.version.modified > version.modified:
                    return False  # written anew since this call read it
                counts = _Counts(version, {})
            used = counts.used.get(index, 0)
            if used >= rule.times:
                return False
            counts.used[index] = used + 1
            durable.replace(self._count_path, msgspec.json.encode(counts))
            return True

    def _counts(self) -> _Counts | None:
        try:
            with open(self._count_path, "rb") as file:
                return msgspec.json.decode(file.read(), type=_Counts)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def _read(self, path: str) -> _Rules:
        """The rules of the file; none when there is no file. Raises DriverError."""
        patience = SETTLE
        while True:
            try:
                status = os.stat(path)
                if self._known.settled and _version(status) == _bare(self._known.version):
                    return self._known
                self._known = self._load(path)
                return self._known
            except FileNotFoundError:
                return _NO_RULES
            except (OSError, msgspec.DecodeError, ValueError) as error:
                problem = f"The fault file {path} ([fake] fault_file) cannot be used: {error}"
            if patience <= 0:
                LOG.error("%s", problem)
                raise DriverError(problem, code="fault-file")
            patience -= POLL
            self._runtime.sleep(POLL)

    def _load(self, path: str) -> _Rules:
        with open(path, "rb") as file:
            version = _version(os.fstat(file.fileno()))
            content = file.read()
        rules = msgspec.json.decode(content, type=tuple[Rule, ...])
        _check(rules)
        age = self._runtime.now().timestamp() - version.modified / 1e9
        version = msgspec.structs.replace(version, checksum=zlib.crc32(content))
        return _Rules(version, rules, settled=age > _RACY)


def _version(status: os.stat_result) -> _Version:
    return _Version(status.st_ino, status.st_mtime_ns, status.st_size)


def _bare(version: _Version) -> _Version:
    return msgspec.structs.replace(version, checksum=0)


def _check(rules: Sequence[Rule]) -> None:
    """Raises ValueError for what the types allow and the rules do not."""
    for index, rule in enumerate(rules):
        if rule.call != "*" and rule.call not in CALLS:
            calls = ", ".join(sorted(CALLS))
            raise ValueError(f"rule {index}: there is no call '{rule.call}'; there are {calls} and *")
        if rule.seconds is not None and rule.seconds < 0:
            raise ValueError(f"rule {index}: seconds is {rule.seconds}, and must not be negative")
        if rule.times is not None and rule.times < 0:
            raise ValueError(f"rule {index}: times is {rule.times}, and must be a number of times or null")

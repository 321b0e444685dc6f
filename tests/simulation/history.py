"""What happened, as a table that people can read: time, process, what.

Ids are UUIDs in the product; here each has a short name (server ``s1``, operation ``o1``, ...) in the order in
which they came up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class History:
    """Kept as it comes, and made readable only when somebody wants to see it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.lines: list[tuple[float, str, str, tuple[object, ...]]] = []
        self._names: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def add(self, process: str, what: str, *values: object) -> None:
        """A line: ``what % values``."""
        self.lines.append((self.clock(), process, what, values))

    def name(self, prefix: str, identity: str) -> str:
        """The short name of an id, given to it the first time."""
        known = self._names.get(identity)
        if known is None:
            self._counts[prefix] = number = self._counts.get(prefix, 0) + 1
            known = self._names[identity] = f"{prefix}{number}"
        return known

    def readable(self, text: str) -> str:
        """``text`` with the short names of ids."""
        return _UUID.sub(lambda found: self._names.get(found[0], found[0][:8]), text)

    def table(self) -> Iterator[str]:
        """The lines of the table."""
        yield f"{'time':>10}  {'process':<12}  what"
        for time, process, what, values in self.lines:
            yield f"{time:10.3f}  {process:<12}  {self.readable(what % values if values else what)}"

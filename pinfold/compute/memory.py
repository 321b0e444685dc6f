"""What a worker remembers from one start to the next: how far the book was, for each of its nodes.

A book only goes on. One that is behind what is remembered is an older copy, which knows nothing of guests that came
later: a worker that believed it would remove them.
"""

from __future__ import annotations

import os

import msgspec

from pinfold import durable


class Memory:
    """Generations by node, in a file of the worker's state folder."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, "generations")
        self._known = self._read()

    def _read(self) -> dict[str, int]:
        try:
            with open(self.path, "rb") as file:
                return msgspec.json.decode(file.read(), type=dict[str, int])
        except (FileNotFoundError, msgspec.DecodeError):
            return {}

    def of(self, node: str) -> int:
        """The last generation that was noted of the node, or -1."""
        return self._known.get(node, -1)

    def note(self, generations: dict[str, int]) -> None:
        """Keep these, and those of no other node. Raises OSError."""
        if generations != self._known:
            durable.replace(self.path, msgspec.json.encode(generations))
            self._known = generations

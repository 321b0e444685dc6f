"""Server groups: on which hosts a group's rule lets one more server be.

``barred`` is what the scheduler proposes with and what the book is asked with again when a claim is written.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

AFFINITY, ANTI_AFFINITY = "affinity", "anti-affinity"
SOFT_AFFINITY, SOFT_ANTI_AFFINITY = "soft-affinity", "soft-anti-affinity"
POLICIES = (ANTI_AFFINITY, AFFINITY, SOFT_ANTI_AFFINITY, SOFT_AFFINITY)


class GroupRule(msgspec.Struct, frozen=True):
    """A group's policy, and how many of its other servers hold a claim on each host.

    ``most`` servers may be on one host with anti-affinity.
    """

    policy: str
    members: Mapping[str, int] = {}
    most: int = 1

    def barred(self, host: str) -> str | None:
        """The policy, if it forbids that one more server of the group is on ``host``."""
        here = self.members.get(host, 0)
        if self.policy == ANTI_AFFINITY and here >= self.most:
            return ANTI_AFFINITY
        if self.policy == AFFINITY and self.members and not here:
            return AFFINITY
        return None

    def weight(self, host: str) -> int:
        """How much a soft policy would rather not have it on ``host``."""
        here = self.members.get(host, 0)
        if self.policy == SOFT_AFFINITY:
            return -here
        return here if self.policy == SOFT_ANTI_AFFINITY else 0

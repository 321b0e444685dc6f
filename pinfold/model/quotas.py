"""How much of what a project or a user may have, and whether that is enough for what is asked.

-1 means without a limit. Nothing is kept here of what is used: that is always counted.
"""

from __future__ import annotations

from collections.abc import Mapping

from pinfold.model import errors

UNLIMITED = -1

# In the order in which they are shown; each with its default.
DEFAULTS: dict[str, int] = {
    "instances": 10,
    "cores": 20,
    "ram": 51200,
    "metadata_items": 128,
    "key_pairs": 100,
    "server_groups": 10,
    "server_group_members": 10,
    "injected_files": 5,
    "injected_file_content_bytes": 10240,
    "injected_file_path_bytes": 255,
    "fixed_ips": -1,
    "floating_ips": -1,
    "security_groups": -1,
    "security_group_rules": -1,
}
OF_SERVERS = ("instances", "cores", "ram")

Amounts = Mapping[str, int]


class OverQuota(errors.Forbidden):
    """There is no room for it under a limit."""

    code = "quota"


def is_enough(limit: int, amount: int) -> bool:
    """Whether ``amount`` is within ``limit``."""
    return limit < 0 or amount <= limit


def require(scope: str, limits: Amounts, used: Amounts, asked: Amounts) -> None:
    """Raise OverQuota, naming scope and resources, unless what is used and asked is within all limits."""
    over = [name for name in asked if not is_enough(limits[name], used.get(name, 0) + asked[name])]
    if over:
        listed = ", ".join(over)
        wanted = ", ".join(str(asked[name]) for name in over)
        spent = ", ".join(f"{used.get(name, 0)} of {limits[name]}" for name in over)
        raise OverQuota(
            f"Quota exceeded for {listed} of the {scope}: Requested {wanted}, but already used {spent} {listed}"
        )


def room(limits: Amounts, used: Amounts, each: Amounts, most: int) -> int:
    """For how many, up to ``most``, that each take ``each`` there is room."""
    for name, amount in each.items():
        if limits[name] >= 0 and amount > 0:
            most = min(most, max(0, limits[name] - used.get(name, 0)) // amount)
    return most

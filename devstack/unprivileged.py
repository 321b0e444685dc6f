"""Servers that do not run as root: whom they run as, and where their data stands."""

from __future__ import annotations

import os
import pwd
import secrets
from contextlib import suppress
from pathlib import Path

from devstack.layout import Layout, StackError

Account = pwd.struct_passwd | None


def account(server: str, usual: str) -> Account:
    """Whom ``server`` runs as when root starts it; None for the user who calls."""
    if os.geteuid() != 0:
        return None
    for name in (usual, "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise StackError(f"{server} does not run as root, and neither user {usual} nor nobody exists")


def command(who: Account, arguments: list[str]) -> list[str]:
    """What to run so that ``arguments`` run as ``who``."""
    if who is None:
        return arguments
    ids = ["--reuid", str(who.pw_uid), "--regid", str(who.pw_gid), "--clear-groups"]
    return ["setpriv", *ids, "--inh-caps=-all", *arguments]


def make_home(who: Account, layout: Layout) -> Path:
    """A new folder for its data: elsewhere if root made DIR, which another user may not be able to enter."""
    home = layout.root / "database" if who is None else layout.shelf / f"{layout.key}-{secrets.token_hex(3)}"
    home.mkdir(parents=True)
    give(who, home)
    home.chmod(0o700)
    return home


def give(who: Account, path: Path) -> None:
    """Make ``path`` theirs."""
    if who is not None:
        os.chown(path, who.pw_uid, who.pw_gid)

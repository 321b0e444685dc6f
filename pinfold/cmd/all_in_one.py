"""pinfold-all-in-one: API, conductor and the workers of some fake hosts in one process, without a broker."""

from __future__ import annotations

from pinfold.cmd import service


def main() -> int:
    """Run it until it is told to stop; the exit code."""
    return service.main("pinfold-all-in-one", "pinfold.cmd.assembly.all_in_one")

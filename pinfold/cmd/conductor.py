"""pinfold-conductor: runs operations; any number of them side by side."""

from __future__ import annotations

from pinfold.cmd import service


def main() -> int:
    """Run it until it is told to stop; the exit code."""
    return service.main("pinfold-conductor", "pinfold.cmd.assembly.conductor")

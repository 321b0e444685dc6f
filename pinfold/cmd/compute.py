"""pinfold-compute: the worker of one host."""

from __future__ import annotations

from pinfold.cmd import service


def main() -> int:
    """Run it until it is told to stop; the exit code."""
    return service.main("pinfold-compute", "pinfold.cmd.assembly.compute")

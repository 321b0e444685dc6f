"""pinfold-api: the HTTP API."""

from __future__ import annotations

from pinfold.cmd import service


def main() -> int:
    """Run it until it is told to stop; the exit code."""
    return service.main("pinfold-api", "pinfold.cmd.assembly.api")

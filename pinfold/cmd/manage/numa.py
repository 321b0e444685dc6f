"""pinfold-manage numa fit: the fit function as a filter of JSON lines."""

from __future__ import annotations

import argparse
import sys

import msgspec

from pinfold.cmd.manage.shared import Shell
from pinfold.model import numa_lines


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``numa`` and its own commands."""
    group = commands.add_parser("numa", help="ask the NUMA fit").add_subparsers(dest="command", required=True)
    fit = group.add_parser("fit", help="a JSON line of a host and a guest in, a JSON line with the place out")
    fit.set_defaults(run=_fit)


def _fit(_shell: Shell, _arguments: argparse.Namespace) -> int:
    failed = 0
    for number, line in enumerate(sys.stdin.buffer, 1):
        if not line.strip():
            continue
        try:
            answer = numa_lines.fit_line(msgspec.json.decode(line))
        except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
            print(f"line {number}: not a host and a guest: {error!r}", file=sys.stderr)
            failed += 1
            continue
        sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    return 2 if failed else 0

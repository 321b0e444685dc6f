"""pinfold-manage config check: the files of all processes of a cloud, alone and together."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from oslo_config import cfg

from pinfold.cmd.manage.shared import Shell, as_json
from pinfold.conf import checks, cloud, files, opts, service
from pinfold.conf.checks import Problem
from pinfold.conf.cloud import Member
from pinfold.model import errors


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``config`` and its own commands."""
    group = commands.add_parser("config", help="look at configuration files").add_subparsers(
        dest="command", required=True
    )
    check = group.add_parser(
        "check",
        help="look at the files of all processes of a cloud, alone and together",
        description="Look at the files of all processes of a cloud, alone and together. Files named by --config-file "
        "(before the command) are read by every process before its own. Exit code 1: there is an error.",
    )
    check.add_argument(
        "files",
        nargs="+",
        metavar="[KIND=]FILE",
        help="the file of one process; KIND is api, conductor, compute or all-in-one, and else told by what stands "
        "in the file, or by its name",
    )
    check.add_argument("--json", action="store_true")
    check.set_defaults(run=_check)


def _check(shell: Shell, arguments: argparse.Namespace) -> int:
    members, found = _members(arguments.files, [*map(Path, shell.conf.config_file or ())])
    if not any(problem.fatal for problem in found):
        found += cloud.of_cloud(members)
    _print(found, len(members), json=arguments.json)
    return 1 if any(problem.fatal for problem in found) else 0


def _members(given: Sequence[str], shared: Sequence[Path]) -> tuple[list[Member], list[Problem]]:
    """The processes, and what is wrong with each alone."""
    members, found = [], []
    for text in given:
        kind, mark, path = text.partition("=")
        if mark and kind not in cloud.LISTINGS:
            raise errors.InvalidRequest(f"{kind} is none of {', '.join(cloud.LISTINGS)}.")
        member = _member(kind if mark else None, Path(path if mark else text), shared)
        members.append(member)
        found += [
            Problem(f"{member.path} ({member.kind}): {problem.text}", problem.fatal)
            for problem in checks.of_process(member.conf, member.entries, strict=True)
        ]
    return members, found


def _member(kind: str | None, path: Path, shared: Sequence[Path]) -> Member:
    own = files.read(path)
    kind = kind or cloud.kind_of(path, own)
    conf = cfg.ConfigOpts()
    service.register(conf)
    for group, options in cloud.LISTINGS[kind]():
        conf.register_opts(options, group=None if group == "DEFAULT" else group)
    opts.register_libraries(conf)
    words = [f"--config-file={file}" for file in (*shared, path)]
    try:
        conf(words, project="pinfold", default_config_files=[], default_config_dirs=[])
    except cfg.Error as error:
        raise errors.ConfigurationError(str(error)) from error
    entries = [entry for file in shared for entry in files.read(file)]
    return Member(str(path), kind, conf, [*entries, *own])


def _print(found: Sequence[Problem], count: int, *, json: bool) -> None:
    if json:
        print(as_json([{"error": problem.fatal, "text": problem.text} for problem in found]))
        return
    for problem in sorted(found, key=lambda problem: not problem.fatal):
        print(f"{'error' if problem.fatal else 'warning'}: {problem.text}")
    errors_ = sum(problem.fatal for problem in found)
    print(f"{count} files, {errors_} errors, {len(found) - errors_} warnings", file=sys.stderr)

"""The parser and the way of errors to the terminal."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from oslo_config import cfg

from pinfold import concurrency
from pinfold.cmd.manage import audit, config, database, drain, numa, operation
from pinfold.cmd.manage.shared import Shell
from pinfold.conf import database as conf_database
from pinfold.conf import operations as conf_operations
from pinfold.conf import zones
from pinfold.model import errors


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 is well, 1 is a finding, 2 an error."""
    concurrency.choose()
    arguments = _parser().parse_args(argv)
    try:
        code: int = arguments.run(Shell(_conf(arguments)), arguments)
    except errors.PinfoldError as error:
        print(f"pinfold-manage: {error.message}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 2
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pinfold-manage", description="Look after a Pinfold cloud.")
    parser.add_argument("--config-file", action="append", default=[], metavar="FILE", help="may be repeated")
    parser.add_argument("--config-dir", action="append", default=[], metavar="DIR", help="may be repeated")
    commands = parser.add_subparsers(dest="group", required=True)
    for module in (config, database, audit, operation, drain, numa):
        module.add_parser(commands)
    return parser


def _conf(arguments: argparse.Namespace) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    conf_database.register(conf)
    conf_operations.register(conf)
    zones.register(conf)
    given = [f"--config-file={path}" for path in arguments.config_file]
    given += [f"--config-dir={path}" for path in arguments.config_dir]
    try:
        # without a file given, do not pick up one of the machine's by chance
        conf(given, project="pinfold", default_config_files=[], default_config_dirs=[])
    except cfg.Error as error:
        raise errors.ConfigurationError(str(error)) from error
    return conf

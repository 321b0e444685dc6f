"""The command of the toy service."""

from __future__ import annotations

import sys

from pinfold.cmd import service

if __name__ == "__main__":
    sys.exit(service.main("toy", "tests.cmd.toy"))

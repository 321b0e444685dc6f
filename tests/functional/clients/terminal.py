"""A terminal with the openstack command, in front of a cloud whose every exchange is written down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from tests.functional.clients.recorder import Exchange, Recorder
from tests.functional.harness import ROOT

_CLOUDS = """clouds:
  recorded:
    auth_type: none
    compute_endpoint_override: {url}/v2.1
    image_endpoint_override: {url}/image
    identity_endpoint_override: {url}/identity/v3
"""


class Outcome(msgspec.Struct, frozen=True):
    """What a command did."""

    code: int
    out: str
    err: str
    exchanges: list[Exchange]


class Terminal:
    """Commands run in ``folder``, one after the other."""

    def __init__(self, folder: Path, url: str) -> None:
        self.recorder = Recorder(url)
        clouds = folder / "clouds.yaml"
        clouds.write_text(_CLOUDS.format(url=self.recorder.url))
        environ = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
        environ |= {"OS_CLOUD": "recorded", "OS_CLIENT_CONFIG_FILE": str(clouds), "HOME": str(folder)}
        environ |= {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore", "COLUMNS": "200"}
        self._shell: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, "-m", "tests.functional.clients.shell"],
            cwd=folder,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, command: str) -> Outcome:
        """Run a line; it ends by itself."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self.recorder.take()
        self._shell.stdin.write(json.dumps(command) + "\n")
        self._shell.stdin.flush()
        done: dict[str, Any] = json.loads(self._shell.stdout.readline())
        return Outcome(done["code"], done["out"], done["err"], self.recorder.take())

    def close(self) -> None:
        self._shell.communicate(timeout=30)
        self.recorder.close()

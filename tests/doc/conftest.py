"""The documentation, built once, however many processes run the tests."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.doc.pages import ROOT, SOURCE


class Built(msgspec.Struct, frozen=True):
    """The pages as a browser gets them, and what Sphinx said."""

    folder: str
    code: int
    said: str

    def page(self, name: str) -> str:
        """The HTML of a page."""
        return Path(self.folder, f"{name}.html").read_text(encoding="utf-8")


def build(folder: Path) -> Built:
    """Build all pages; a warning is an error."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    done = subprocess.run(
        [*command, str(SOURCE), str(folder)], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    return Built(str(folder), done.returncode, done.stdout + done.stderr)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """All pages."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    result = shared / "documentation.json"
    with (shared / "documentation.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            result.write_bytes(msgspec.json.encode(build(shared / "documentation")))
    return msgspec.json.decode(result.read_bytes(), type=Built)

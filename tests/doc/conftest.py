"""The documentation, built once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.doc.pages import ROOT, SOURCE


class Built:
    """The pages as a browser gets them, and what Sphinx said."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
        self.done = subprocess.run(
            [*command, str(SOURCE), str(folder)], cwd=ROOT, capture_output=True, text=True, timeout=300
        )
        self.folder = folder

    def page(self, name: str) -> str:
        """The HTML of a page."""
        return (self.folder / f"{name}.html").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """All pages."""
    return Built(tmp_path_factory.mktemp("html"))

"""Sphinx. Build: ``sphinx-build -W doc/source doc/build/html``."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from pinfold import concurrency  # noqa: E402  the mode comes first, as in every entry point

concurrency.choose()

project = "Pinfold"
author = "Pinfold's authors"
copyright = "Pinfold's authors, Apache License 2.0"

extensions = ["sphinx.ext.extlinks", "oslo_config.sphinxext", "doc.source._ext.directives"]
if shutil.which("dot"):
    extensions.append("sphinx.ext.graphviz")
if (ROOT / ".git").exists():  # reno reads the history
    extensions.append("reno.sphinxext")
    exclude_patterns = ["releasenotes-without-history.rst"]
else:
    exclude_patterns = ["releasenotes.rst"]

extlinks = {"lp": ("https://bugs.launchpad.net/bugs/%s", "LP%s")}
extlinks_detect_hardcoded_links = False
graphviz_output_format = "svg"

default_role = "any"
html_theme = "alabaster"
html_theme_options = {
    "description": "Compute for servers with dedicated CPUs",
    "page_width": "72em",
    "sidebar_width": "15em",
    "fixed_sidebar": True,
}
html_copy_source = False
html_show_sphinx = False

"""The files in etc/pinfold say what the code says. To make them anew: etc/generate.sh."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from oslo_config import cfg

from pinfold.conf import files

ROOT = Path(__file__).parents[2]
GENERATORS, SAMPLES = ROOT / "etc" / "config-generator", ROOT / "etc" / "pinfold"
PROCESSES = ("api", "conductor", "compute", "all-in-one")
_GROUP = re.compile(r"^\[(\w+)\]$", re.MULTILINE)
_NAMESPACE = re.compile(r"^#\n# From ([\w.-]+)\n#$", re.MULTILINE)


def generated(program: str, name: str, folder: Path) -> str:
    """What the generator writes now."""
    made = folder / "sample"
    command = [
        str(Path(sys.executable).parent / program),
        "--config-file",
        f"etc/config-generator/{name}.conf",
    ]
    done = subprocess.run(
        [*command, "--output-file", str(made)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return made.read_text()


def blocks(text: str) -> dict[tuple[str, str], str]:
    """What stands under each (group, namespace)."""
    found: dict[tuple[str, str], str] = {}
    _, *groups = _GROUP.split(text)
    for group, body in zip(groups[::2], groups[1::2], strict=True):
        _, *named = _NAMESPACE.split(body)
        found |= {(group, name): block.strip() for name, block in zip(named[::2], named[1::2], strict=True)}
    return found


@pytest.mark.parametrize("name", PROCESSES)
def test_the_sample_of_a_process_has_its_options_as_they_are_now(name: str, tmp_path: Path) -> None:
    """Libraries may change their options, and the samples need not follow at once."""
    now = blocks(generated("oslo-config-generator", name, tmp_path))
    written = blocks((SAMPLES / f"{name}.conf.sample").read_text())
    stale = [
        key
        for key in now.keys() | written.keys()
        if key[1] in ("pinfold." + name, "pinfold.stop") and now.get(key) != written.get(key)
    ]
    assert stale == [], "run etc/generate.sh"
    assert {key[1] for key in written} == {key[1] for key in now}


def test_the_policy_sample_has_the_rules_as_they_are_now(tmp_path: Path) -> None:
    now = generated("oslopolicy-sample-generator", "policy", tmp_path)
    assert now == (SAMPLES / "policy.yaml.sample").read_text(), "run etc/generate.sh"


@pytest.mark.parametrize("name", PROCESSES)
def test_a_sample_is_a_file_that_can_be_read(name: str, tmp_path: Path) -> None:
    """With every line uncommented that has a value, it says what is the default anyway."""
    text = (SAMPLES / f"{name}.conf.sample").read_text()
    lines = re.findall(r"^(?:\[\w+\]|#\w+ = (?!<).*)$", text, re.MULTILINE)
    path = tmp_path / f"{name}.conf"
    path.write_text("\n".join(line.removeprefix("#") for line in lines))
    assert len(files.read(path)) > 60
    conf = cfg.ConfigOpts()
    conf(["--config-file", str(path)], project="pinfold")


def test_no_sample_names_the_machine_that_it_was_made_on() -> None:
    for path in SAMPLES.glob("*.sample"):
        assert not re.search(r"/(home|root|work)/", path.read_text()), path.name

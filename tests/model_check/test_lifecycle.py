"""The lifecycle by its rules: nothing is found; and with any rule switched off a story that ends badly."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

MODEL = Path(__file__).parents[2] / "doc" / "model" / "lifecycle.pml"

# What an assertion of the model says, by a part of its text.
CLAIMED_TWICE = "!((cl[0]&&bc[0]))"
WITHOUT_CLAIM = "((g[0]!=1)||cl[0])"
RUNS_TWICE = "!(((g[0]==1)&&(g[1]==1)))"
DISK_LOST = "||img)||g[0])||g[1])"
NEVER_ENDS = "!(open)"
NO_GUEST = "((cl[0]==1)==(g[0]==1))"
IMAGE_KEPT = "((vm==0)==(img!=0))"


class Found(msgspec.Struct, frozen=True):
    """What pan found: how many states, and the assertion that failed, if any."""

    states: int
    violated: str


Check = Callable[..., Found]


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.fail(f"{name} is not installed: install the Debian packages of bindep.txt (profile test)")
    return path


def _run(*command: str, folder: Path, bounds: dict[str, int] | None = None) -> str:
    environ = {**os.environ, **{name: str(value) for name, value in (bounds or {}).items()}}
    ran = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def _found(output: str) -> Found:
    states = re.search(r"(\d+) states, stored", output)
    assert states is not None, output
    violated = re.search(r"assertion violated (.*) \(at depth", output)
    return Found(int(states[1]), violated[1] if violated else "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the model is compiled, for a search in depth and one in breadth."""
    folder = tmp_path_factory.mktemp("model")
    _run(_tool("spin"), "-DASK", "-a", str(MODEL), folder=folder)
    for name, search in (("in-depth", ()), ("in-breadth", ("-DBFS",))):
        flags = ("-O1", "-DSAFETY", "-DCOLLAPSE", *search)
        _run(_tool("gcc"), *flags, "-o", name, "pan.c", folder=folder)
    return folder


@pytest.fixture
def everywhere(folder: Path) -> Check:
    """Looks at every state within bounds."""
    return lambda **bounds: _found(_run("./in-depth", "-m200000", "-w22", folder=folder, bounds=bounds))


@pytest.fixture
def shortest(folder: Path) -> Check:
    """Looks for the shortest story."""
    return lambda **bounds: _found(_run("./in-breadth", "-w22", folder=folder, bounds=bounds))


@pytest.mark.parametrize(
    ("bounds", "states"),
    [
        ({"START": 0, "MS": 0}, 964_000),
        ({"START": 0, "ML": 0}, 1_728_000),
        ({"START": 0, "MF": 0}, 296_000),
        ({"START": 1, "MS": 0}, 329_000),
        ({"START": 1, "ML": 0}, 581_000),
        ({"START": 1, "ML": 0, "LIE": 1}, 581_000),
    ],
    ids=lambda value: (
        " ".join(f"{name}={bound}" for name, bound in value.items()) if isinstance(value, dict) else ""
    ),
)
def test_with_all_rules_nothing_is_found(everywhere: Check, bounds: dict[str, int], states: int) -> None:
    """``states`` is how many there were at least: a model that has lost half its faults would find nothing too."""
    found = everywhere(MD=0, T=3, **bounds)
    assert found.violated == ""
    assert found.states >= states


@pytest.mark.parametrize(
    ("rule", "bounds", "why"),
    [
        (1, {}, WITHOUT_CLAIM),
        (2, {"MD": 0, "ML": 0}, WITHOUT_CLAIM),
        (3, {"MD": 0}, DISK_LOST),
        (4, {"START": 1}, DISK_LOST),
        (5, {"START": 1, "MD": 0, "ML": 0}, WITHOUT_CLAIM),
        (6, {"ML": 0, "MS": 0}, WITHOUT_CLAIM),
        (7, {"MF": 0}, WITHOUT_CLAIM),
        (8, {"START": 1, "MD": 0}, RUNS_TWICE),
        (9, {"MD": 0, "ML": 0, "MF": 0}, RUNS_TWICE),
        (10, {"MD": 0, "MS": 0}, DISK_LOST),
        (11, {"START": 1, "MO": 3, "MF": 0, "ML": 0}, DISK_LOST),
        (12, {"START": 1, "MD": 0}, NO_GUEST),
        (13, {"MD": 0}, NEVER_ENDS),
        (14, {"MD": 0, "ML": 0}, IMAGE_KEPT),
        (15, {}, CLAIMED_TWICE),
    ],
    ids=lambda value: f"R{value}" if isinstance(value, int) else "",
)
def test_without_a_rule_there_is_a_story_that_ends_badly(
    shortest: Check, rule: int, bounds: dict[str, int], why: str
) -> None:
    assert why in shortest(OFF=rule, **bounds).violated


def test_no_safety_rests_on_workers_fencing_themselves(everywhere: Check) -> None:
    assert everywhere(SF=0, MD=0, ML=0, T=3, START=1).violated == ""


def test_every_rule_of_the_model_is_told_and_tested() -> None:
    text = MODEL.read_text()
    told = {int(number) for number in re.findall(r"^     R(\d+) ", text, re.MULTILINE)}
    assert told == set(range(1, 16))
    assert told == {int(number) for number in re.findall(r"^#define R(\d+) c_expr", text, re.MULTILINE)}

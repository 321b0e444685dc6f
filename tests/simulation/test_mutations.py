"""The simulator finds faults: each that is put back into the product, at its known seed."""

from __future__ import annotations

import re

import pytest

from tests.simulation.commands import ROOT, simulate
from tests.simulation.mutations.table import MUTATIONS, Mutation

MODEL = ROOT / "doc" / "model" / "lifecycle.pml"
#: A change of the product may change what a seed is about: so many seeds from the known one on are tried.
DRIFT = 200
KNOWN = {name: (mutation, mutation.seed) for name, mutation in MUTATIONS.items() if mutation.seed is not None}


@pytest.mark.parametrize(("mutation", "seed"), KNOWN.values(), ids=KNOWN.keys())
def test_a_fault_that_is_put_back_is_found(mutation: Mutation, seed: int) -> None:
    seeds, faults = f"{seed}-{seed + DRIFT}", f"--faults={mutation.faults}"
    ran = simulate("--mutation", mutation.name, "--seeds", seeds, faults, "--quiet")
    assert re.search(r"^seed \d+ FAILED after ", ran.stdout, re.MULTILINE), (
        f"not found with seeds {seeds}: look for another one by\n"
        f"python -m tests.simulation --mutation {mutation.name} {faults} --seeds 0-999 --quiet\n"
        f"{ran.stdout}{ran.stderr}"
    )


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS.keys())
def test_a_mutation_fits_the_product_as_it_is(mutation: Mutation) -> None:
    for module, changes in mutation.modules.items():
        text = (ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
        assert [old for old, _ in changes if text.count(old) != 1] == []


def test_without_the_faults_the_same_seeds_are_well() -> None:
    for faults in sorted({mutation.faults for mutation, _ in KNOWN.values()}):
        seeds = {seed for mutation, seed in KNOWN.values() if mutation.faults == faults}
        ran = simulate("--seeds", ",".join(map(str, sorted(seeds))), f"--faults={faults}")
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_rule_of_the_model_has_a_mutation() -> None:
    rules = set(re.findall(r"^     (R\d+) ", MODEL.read_text(), re.MULTILINE))
    told = " ".join(f"{mutation.name} {mutation.about}" for mutation in MUTATIONS.values())
    assert rules
    assert rules <= set(re.findall(r"\bR\d+\b", told))

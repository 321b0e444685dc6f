"""Many seeds, and what is said of them."""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache, partial

from tests.simulation.book import Database
from tests.simulation.run import Options, Result, kinds_of, run_seed


def run(arguments: argparse.Namespace) -> int:
    """0 when every seed was well."""
    options = Options(
        operations=arguments.ops,
        users=arguments.users,
        kinds=tuple(kinds_of(arguments.faults)),
        keep_history=arguments.history or arguments.twice,
        logs=arguments.logs,
    )
    began = time.monotonic()
    failed = operations = seeds = 0
    counts, ended = Counter[str](), Counter[str]()
    for result in _results(_seeds(arguments.seeds), options, arguments):
        seeds += 1
        operations += result.operations
        counts.update(result.faults)
        ended.update(result.ended)
        failed += result.failure is not None
        _tell(result, arguments)
        if failed >= arguments.stop_after:
            break
    spent = time.monotonic() - began
    for what, counted in (("faults", counts), ("operations", ended)):
        print(f"{what}: " + ", ".join(f"{kind} {count}" for kind, count in sorted(counted.items())))
    print(f"{seeds} seeds, {operations} operations, {failed} failed, in {spent:.0f} s")
    return 1 if failed else 0


def _tell(result: Result, arguments: argparse.Namespace) -> None:
    if arguments.history or (result.failure is not None and not arguments.quiet):
        print("\n".join(result.history))
    if result.failure is not None:
        said = result.failure.splitlines()[0]
        print(f"seed {result.seed} FAILED after {result.operations} operations: {said}", flush=True)
    elif arguments.history:
        print(f"seed {result.seed}: {result.operations} operations, digest {result.digest}")


def _seeds(text: str) -> list[int]:
    seeds: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    return seeds


def _results(seeds: Iterable[int], options: Options, arguments: argparse.Namespace) -> Iterator[Result]:
    one = partial(_one, options=options, twice=arguments.twice)
    if arguments.jobs == 1:
        _quiet()
        yield from map(one, seeds)
        return
    with multiprocessing.get_context("fork").Pool(arguments.jobs, _quiet) as pool:
        yield from pool.imap(one, seeds, chunksize=4)


def _quiet() -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")


@cache
def _database() -> Database:
    made = Database()
    # what is there now stays; and what a seed leaves behind is looked for once, after it
    gc.collect()
    gc.freeze()
    gc.disable()
    return made


def _one(seed: int, options: Options, twice: bool) -> Result:
    gc.collect()
    result = run_seed(seed, _database(), options)
    if twice:
        again = run_seed(seed, _database(), options)
        for number, (one, other) in enumerate(zip(result.history, again.history, strict=False)):
            if one != other:
                raise AssertionError(f"seed {seed} differs at line {number}:\n{one}\n{other}")
        assert result.digest == again.digest
    return result

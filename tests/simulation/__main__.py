"""``python -m tests.simulation --seeds 0-999``: run seeds, and tell the story of each that fails."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Iterator
from functools import cache, partial

from pinfold import concurrency

concurrency.choose()

from tests.simulation.book import Database  # noqa: E402  the mode comes first, as in every entry point
from tests.simulation.run import Options, Result, kinds_of, run_seed  # noqa: E402


def main() -> int:
    """0 when every seed was well."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets of texts must not differ from run to run.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    arguments = _arguments()
    options = Options(
        operations=arguments.ops,
        kinds=tuple(kinds_of(arguments.faults)),
        keep_history=arguments.history or arguments.twice,
    )
    began = time.monotonic()
    failed = operations = seeds = 0
    counts: dict[str, int] = {}
    for result in _results(_range(arguments.seeds), options, arguments):
        seeds += 1
        operations += result.operations
        for kind, count in result.faults.items():
            counts[kind] = counts.get(kind, 0) + count
        if arguments.history and result.failure is None:
            print("\n".join(result.history))
        if result.failure is not None:
            failed += 1
            _tell(result, arguments)
            if failed >= arguments.stop_after:
                break
    spent = time.monotonic() - began
    print(f"{seeds} seeds, {operations} operations, {failed} failed, in {spent:.0f} s")
    print("faults: " + ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items())))
    return 1 if failed else 0


def _tell(result: Result, arguments: argparse.Namespace) -> None:
    if not arguments.quiet:
        print("\n".join(result.history))
    print(f"seed {result.seed} FAILED after {result.operations} operations: {result.failure}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default="0-99", help="a number, or first-last")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--ops", type=int, default=30, help="requests of users in each seed")
    parser.add_argument("--faults", help="kinds with commas; -kind leaves one out; none")
    parser.add_argument("--history", action="store_true", help="print the history of good seeds too")
    parser.add_argument("--quiet", action="store_true", help="print no history of bad seeds")
    parser.add_argument("--twice", action="store_true", help="run each seed twice, and compare")
    parser.add_argument("--stop-after", type=int, default=1, help="so many failures")
    return parser.parse_args()


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _results(seeds: range, options: Options, arguments: argparse.Namespace) -> Iterator[Result]:
    run = partial(_run, options=options, twice=arguments.twice)
    if arguments.jobs == 1:
        _quiet()
        yield from map(run, seeds)
        return
    with multiprocessing.get_context("fork").Pool(arguments.jobs, _quiet) as pool:
        yield from pool.imap(run, seeds, chunksize=4)


def _quiet() -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")


@cache
def _database() -> Database:
    return Database()


def _run(seed: int, options: Options, twice: bool) -> Result:
    result = run_seed(seed, _database(), options)
    if twice:
        again = run_seed(seed, _database(), options)
        if again.digest != result.digest:
            for number, (one, other) in enumerate(zip(result.history, again.history, strict=False)):
                if one != other:
                    raise AssertionError(f"seed {seed} differs at line {number}:\n{one}\n{other}")
    return result


if __name__ == "__main__":
    sys.exit(main())

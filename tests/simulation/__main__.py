"""``python -m tests.simulation --seeds 0-999``: run seeds, and tell the story of each that fails."""

from __future__ import annotations

import argparse
import os
import sys

from pinfold import concurrency
from tests.simulation import mutations
from tests.simulation.mutations.table import MUTATIONS


def main() -> int:
    """0 when every seed was well."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets of texts must not differ from run to run.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    arguments = _arguments()
    concurrency.choose()
    if arguments.mutation:
        mutations.install(arguments.mutation)
    from tests.simulation import many  # now, since it imports what may have been mutated

    return many.run(arguments)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default="0-99", help="numbers and first-last, with commas")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--ops", type=int, default=50, help="requests of users in each seed")
    parser.add_argument("--users", type=int, help="at a time; by the seed 1 to 4")
    parser.add_argument("--faults", help="kinds with commas; -kind leaves one out; none")
    parser.add_argument("--history", action="store_true", help="print the history of good seeds too")
    parser.add_argument("--logs", action="store_true", help="the history has what the product logs")
    parser.add_argument("--quiet", action="store_true", help="print no history of bad seeds")
    parser.add_argument("--twice", action="store_true", help="run each seed twice, and compare")
    parser.add_argument("--stop-after", type=int, default=1, help="so many failures")
    parser.add_argument("--mutation", choices=sorted(MUTATIONS), help="put a fault into the product")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

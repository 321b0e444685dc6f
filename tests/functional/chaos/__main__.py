"""``python -m tests.functional.chaos --minutes 10 --seed 1``: chaos on a cloud of its own."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.functional.chaos.run import run
from tests.functional.harness import Cloud
from tests.functional.variants import VARIANTS


def main() -> int:
    """0 when all was well."""
    parser = argparse.ArgumentParser(prog="python -m tests.functional.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--variant",
        default="standard",
        choices=[name for name, shapes in VARIANTS.items() if "multi" in shapes],
    )
    parser.add_argument("--keep", type=Path, help="copy the logs of a cloud that is not well to this folder")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pinfold-chaos-"))
    options = (option.format(folder=folder) for option in VARIANTS[arguments.variant]["multi"])
    cloud = Cloud(folder / "stack", *options)
    try:
        report = run(cloud, arguments.seed, arguments.minutes * 60.0, _tell)
        print(report)
        if report.problems and arguments.keep:
            shutil.copytree(cloud.layout.log, arguments.keep, dirs_exist_ok=True)
        return 1 if report.problems else 0
    finally:
        cloud.close()
        shutil.rmtree(folder, ignore_errors=True)


def _tell(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

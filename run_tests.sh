#!/usr/bin/env bash
# Set up what the tests need (fresh Debian 12, root or sudo) and run all of them: lint, types, layers, tests.
set -euo pipefail

ROOT=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)

usage() {
  cat <<'EOF'
Usage: ./run_tests.sh [--lint | --unit | --functional | --variants]... [--] [PYTEST ARGUMENT]...
Without arguments: lint, unit and functional. --lint: ruff, mypy, import-linter, shellcheck. --unit: all tests but
tests/functional, on all cores. --functional: real processes, one test at a time on each cloud, and a part of it on
eventlet, MariaDB and a cluster of brokers. --variants: all of it on each of these, and on SQLite shared by processes,
and the conductor's tests on MariaDB; an hour. Arguments for pytest in place of these run only what they name.
EOF
}

parts=()
while (($#)); do
  case $1 in
    --lint | --unit | --functional | --variants) parts+=("${1#--}") ;;
    --help | -h)
      usage
      exit 0
      ;;
    --)
      shift
      break
      ;;
    *) break ;;
  esac
  shift
done
if ((${#parts[@]} == 0 && $# == 0)); then parts=(lint unit functional); fi

SETUP_LOG=$(mktemp -t pinfold-setup.XXXXXX)
# shellcheck source=devstack/setup.sh
. "$ROOT/devstack/setup.sh"
install_packages broker database mariadb test
make_environment client,test
rm -f -- "$SETUP_LOG"
cd "$ROOT"
export PATH=$VENV/bin:$PATH PYTHONDONTWRITEBYTECODE=1
unset PYTHONPATH "${!OS_@}"

failed=()
run() { # run NAME COMMAND...
  local name=$1
  shift
  printf '\n== %s: %s\n' "$name" "$*"
  "$@" || failed+=("$name")
}

background() { # background NAME COMMAND... : beside what follows, until it is awaited
  BESIDE=$1 BESIDE_SAID=$(mktemp -t pinfold-beside.XXXXXX)
  "${@:2}" >"$BESIDE_SAID" 2>&1 &
  BESIDE_PID=$!
}

await() { # await : the end of what is in the background, what it said, and whether it failed
  printf '\n== %s\n' "$BESIDE"
  wait "$BESIDE_PID" || failed+=("$BESIDE")
  cat -- "$BESIDE_SAID"
  rm -f -- "$BESIDE_SAID"
}

for part in "${parts[@]}"; do
  case $part in
    lint)
      mapfile -t scripts < <(git ls-files -- '*.sh' .ci/run 2>/dev/null || find . -name '*.sh' -not -path './.*')
      background mypy mypy
      run ruff ruff check .
      run format ruff format --check .
      run layers lint-imports
      run shellcheck shellcheck -x "${scripts[@]}"
      await
      ;;
    unit) run unit pytest -n "$(nproc)" --dist worksteal --ignore=tests/functional "$@" tests ;;
    functional)
      run functional pytest -n 2 --dist loadfile "$@" tests/functional
      run variant pytest --variant other "$@" tests/functional/test_founding_report.py
      ;;
    variants)
      run conductor-mariadb pytest -n "$(nproc)" --databases mariadb "$@" tests/conductor
      for variant in eventlet mariadb sqlite cluster; do
        run "$variant" pytest --variant "$variant" "$@" tests/functional
      done
      ;;
  esac
done
if ((${#parts[@]} == 0)); then run pytest pytest "$@"; fi

if ((${#failed[@]})); then
  printf '\nFailed: %s (after %s s)\n' "${failed[*]}" "$(elapsed "$BEGAN")" >&2
  exit 1
fi
printf '\nAll passed in %s s\n' "$(elapsed "$BEGAN")"

#!/usr/bin/env bash
# Stop exactly what stack.sh started in a folder; with --wipe also remove what it wrote.
set -euo pipefail

ROOT=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)
DIR=$ROOT/.stack
wipe=()
while (($#)); do
  case $1 in
    --dir)
      if (($# < 2)) || [[ -z $2 ]]; then
        echo 'unstack.sh: --dir needs a folder' >&2
        exit 2
      fi
      DIR=$2
      shift
      ;;
    --dir=?*) DIR=${1#*=} ;;
    --wipe) wipe=(--wipe) ;;
    --help | -h)
      echo 'Usage: ./unstack.sh [--dir DIR] [--wipe]'
      exit 0
      ;;
    *)
      echo "unstack.sh: there is no option '$1'; usage: ./unstack.sh [--dir DIR] [--wipe]" >&2
      exit 2
      ;;
  esac
  shift
done
DIR=$(readlink -m -- "$DIR")
SETUP_LOG=/dev/null
# shellcheck source=devstack/setup.sh
. "$ROOT/devstack/setup.sh"
if ! [[ -f $DIR/stack.json ]]; then
  echo "there is no cloud in $DIR"
  exit 0
fi
[[ -x $VENV/bin/python ]] || die "$VENV is gone, and $DIR/stack.json says what still runs; ./stack.sh makes it anew"
devstack down --dir "$DIR" --began "$BEGAN" "${wipe[@]}"

#!/usr/bin/env bash
# Make the sample files in etc/pinfold anew, after an option or a policy rule was added or changed.
set -euo pipefail
cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.."
BINARIES=${BINARIES:-.venv/bin}
export PYTHONWARNINGS=ignore

for file in etc/config-generator/*.conf; do
  case $file in
    */policy.conf) generator=oslopolicy-sample-generator ;;
    *) generator=oslo-config-generator ;;
  esac
  "$BINARIES/$generator" --config-file "$file"
done

# shellcheck shell=bash
# Shared by stack.sh, unstack.sh and run_tests.sh: Debian packages and the virtual environment, with progress.
# The caller sets ROOT (this repository) and SETUP_LOG (where the output of long commands goes).

BEGAN=$(date +%s.%N)
VENV=$ROOT/.venv

elapsed() { awk -v a="$1" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }'; }

die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# step TEXT COMMAND...: run it, show what is done and for how long; on failure the end of its output.
step() {
  local text=$1 start ticker status=0
  shift
  start=$(date +%s.%N)
  printf '[%6ss] %s ...' "$(elapsed "$BEGAN")" "$text"
  (
    while sleep 2 && kill -0 $$ 2>/dev/null; do printf '.'; done
  ) &
  ticker=$!
  "$@" >>"$SETUP_LOG" 2>&1 </dev/null || status=$?
  kill "$ticker" 2>/dev/null || true
  wait "$ticker" 2>/dev/null || true
  if ((status)); then
    printf ' failed after %s s\n' "$(elapsed "$start")"
    tail -n 20 "$SETUP_LOG" | sed 's/^/  | /' >&2
    die "$text failed; all of its output is in $SETUP_LOG"
  fi
  printf ' %s s\n' "$(elapsed "$start")"
}

as_root() {
  if ((EUID == 0)); then
    "$@"
  else
    sudo -- "$@"
  fi
}

# wanted PROFILE...: the packages of bindep.txt without a profile, and those of the given ones.
wanted() {
  awk -v profiles=" $* " '
    /^[[:space:]]*(#|$)/ { next }
    {
      name = $1
      rest = $0
      sub(/^[^[]*\[?/, "", rest)
      sub(/\].*$/, "", rest)
      count = split(rest, words, /[[:space:]]+/)
      any = 0
      match_one = 0
      for (i = 1; i <= count; i++) {
        if (words[i] == "" || words[i] ~ /^platform:/) continue
        any = 1
        if (index(profiles, " " words[i] " ")) match_one = 1
      }
      if (!any || match_one) print name
    }' "$ROOT/bindep.txt"
}

missing_packages() {
  local name
  while read -r name; do
    if [[ $(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null) != installed ]]; then
      printf '%s\n' "$name"
    fi
  done < <(wanted "$@")
}

# While packages are installed, none of their services is started (or restarted): a private server is used instead.
POLICY=/usr/sbin/policy-rc.d
POLICY_MARK='# Pinfold: no service starts while packages are installed'

forbid_services() {
  if [[ -e $POLICY ]] && ! grep -qF "$POLICY_MARK" "$POLICY"; then
    as_root mv "$POLICY" "$POLICY.before-pinfold"
  fi
  printf '#!/bin/sh\n%s\nexit 101\n' "$POLICY_MARK" | as_root tee "$POLICY" >/dev/null
  as_root chmod 755 "$POLICY"
}

allow_services() {
  if grep -qsF "$POLICY_MARK" "$POLICY"; then as_root rm -f "$POLICY"; fi
  if [[ -e $POLICY.before-pinfold ]]; then as_root mv "$POLICY.before-pinfold" "$POLICY"; fi
}

apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@"; }

# Services that came with these packages do not start at the next boot either.
disable_services() {
  local name
  command -v systemctl >/dev/null || return 0
  for name in "$@"; do
    case $name in
      rabbitmq-server) as_root systemctl --quiet disable rabbitmq-server.service epmd.socket || true ;;
      postgresql) as_root systemctl --quiet disable postgresql.service || true ;;
      mariadb-server) as_root systemctl --quiet disable mariadb.service || true ;;
    esac
  done
}

# install_packages PROFILE...
install_packages() {
  local -a packages
  mapfile -t packages < <(missing_packages "$@")
  ((${#packages[@]})) || return 0
  command -v apt-get >/dev/null || die "these are missing, and this is no Debian system: ${packages[*]}"
  if ((EUID)) && ! command -v sudo >/dev/null; then
    die "these Debian packages are missing; install them, or run this as root: ${packages[*]}"
  fi
  step 'updating the list of Debian packages' apt update
  forbid_services
  trap allow_services EXIT
  step "installing ${packages[*]}" apt install -y --no-install-recommends "${packages[@]}"
  disable_services "${packages[@]}"
  allow_services
  trap - EXIT
}

find_python() {
  local candidate
  for candidate in python3.11 python3 /usr/bin/python3 python3.12 python3.13; do
    if command -v "$candidate" >/dev/null &&
      "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  die 'Python 3.11 or newer, with venv, is needed'
}

# What the environment was made from: when none of it has changed, there is nothing to install.
stamp() {
  (
    cd "$ROOT" || exit
    sha256sum requirements.txt test-requirements.txt devstack/requirements.txt setup.cfg setup.py
    printf '%s\n' "$ROOT" "$@"
  ) | sha256sum | cut -d' ' -f1
}

pip_install() { "$VENV/bin/python" -m pip install --disable-pip-version-check --no-input -e "${ROOT}[$1]"; }

# make_environment EXTRA,...: .venv with the package itself, editable. One at a time.
make_environment() {
  local extras=$1 now file=$VENV/.pinfold-$1
  now=$(stamp "$extras")
  made() { [[ -x $VENV/bin/pinfold-api && -f $file && $(<"$file") == "$now" ]]; }
  if made; then return; fi
  (
    flock 9
    if made; then exit; fi
    if ! [[ -x $VENV/bin/python ]] || ! "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
      step 'making a virtual environment' "$(find_python)" -m venv "$VENV"
    fi
    step "installing Python packages (pip, into ${VENV##*/})" pip_install "$extras"
    printf '%s\n' "$now" >"$file"
  ) 9<"$ROOT/setup.cfg"
}

devstack() { PYTHONPATH=$ROOT exec "$VENV/bin/python" -m devstack "$@"; }

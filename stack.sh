#!/usr/bin/env bash
# Set up and start a Pinfold cloud on this machine. See usage() and README.rst.
set -euo pipefail

ROOT=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd)

usage() {
  cat <<'EOF'
Usage: ./stack.sh [OPTION]...
Sets up everything that is missing (Debian 12, root or sudo), starts a cloud, and tells a story with it.

  (none)              all-in-one: one process, SQLite, three hosts with the fake hypervisor
  --hosts N           number of compute hosts (3)
  --multi             one process per service, over RabbitMQ and PostgreSQL
  --conductors N      how many conductors with --multi (2)
  --brokers N         with --multi: a cluster of N private brokers, 1, 3 or 5 (1)
  --database D        with --multi: the private database, postgresql or mariadb (postgresql)
  --transport-url U   with --multi: an existing broker, in place of a private one
  --database-url U    an existing database (postgresql://, mysql:// or sqlite:///)
  --driver D          fake or libvirt (fake)
  --topology FILE     shape of the fake hosts: JSON, a list of NUMA cells
  --dir DIR           where everything of this cloud stands (./.stack of the repository)
  --port P            port of the API on 127.0.0.1 (8774)
  --set S.O=V         also put option O = V into section [S] of every configuration file (repeatable)
  --no-story          only start
  --resume            start what is dead in DIR, with the same configuration; no set-up
  --help              this text
EOF
}

bad() {
  printf 'stack.sh: %s\nTry ./stack.sh --help\n' "$*" >&2
  exit 2
}

number() { # number OPTION VALUE MIN MAX
  if ! [[ $2 =~ ^[0-9]{1,6}$ ]] || ((10#$2 < $3 || 10#$2 > $4)); then
    bad "$1: expected a number from $3 to $4, not '$2'"
  fi
}

parse() {
  while (($#)); do
    local option=$1 value=
    case $option in
      --*=*)
        value=${option#*=}
        option=${option%%=*}
        set -- "$option" "$value" "${@:2}"
        ;;
    esac
    case $option in
      --hosts | --conductors | --brokers | --database | --transport-url | --database-url | --driver | --topology | \
        --dir | --port | --set)
        (($# >= 2)) || bad "$option needs a value"
        value=$2
        shift 2
        ;;
      --multi | --no-story | --resume | --help | -h) shift ;;
      *) bad "there is no option '$option'" ;;
    esac
    given+=("$option")
    take "$option" "$value"
  done
}

take() { # take OPTION VALUE
  case $1 in
    --hosts) number "$1" "$2" 1 200 ;;
    --conductors) number "$1" "$2" 1 50 ;;
    --brokers) [[ $2 =~ ^[135]$ ]] || bad "--brokers: 1, 3 or 5, not '$2'" ;;
    --database) [[ $2 == postgresql || $2 == mariadb ]] || bad "--database: postgresql or mariadb, not '$2'" ;;
    --port) number "$1" "$2" 1 65535 ;;
    --driver) [[ $2 == fake || $2 == libvirt ]] || bad "--driver: fake or libvirt, not '$2'" ;;
    --dir) [[ $2 ]] || bad '--dir needs a folder' ;;
    --topology) [[ -f $2 && -r $2 ]] || bad "--topology: there is no file '$2' that can be read" ;;
    --transport-url) [[ $2 == rabbit://?* ]] || bad "--transport-url: expected rabbit://..., not '$2'" ;;
    --database-url)
      [[ $2 =~ ^(postgresql|postgres|mysql|sqlite)(\+[a-z]+)?://. ]] ||
        bad "--database-url: expected postgresql://, mysql:// or sqlite:///, not '$2'"
      ;;
    --help | -h)
      usage
      exit 0
      ;;
  esac
  case $1 in
    --dir) DIR=$2 ;;
    --port) PORT=$2 ;;
    --multi | --no-story) pass+=("$1") ;;
    --resume) ;;
    --topology) pass+=("$1" "$(readlink -f -- "$2")") ;;
    *) pass+=("$1" "$2") ;;
  esac
}

has() { [[ " ${given[*]} " == *" $1 "* ]]; }

check_together() {
  local option
  if has --resume; then
    for option in "${given[@]}"; do
      [[ $option == --resume || $option == --dir ]] ||
        bad "--resume keeps the options of the cloud in DIR: it goes with --dir only, not with $option"
    done
  fi
  if ! has --multi; then
    for option in --conductors --transport-url --brokers --database; do
      has "$option" && bad "$option goes with --multi only"
    done
  fi
  if has --brokers && has --transport-url; then bad '--brokers are private ones: they do not go with --transport-url'; fi
  if has --database && has --database-url; then bad '--database is a private one: it does not go with --database-url'; fi
  if has --topology && [[ " ${pass[*]} " == *' --driver libvirt '* ]]; then
    bad '--topology is the shape of fake hosts: it does not go with --driver libvirt'
  fi
}

port_is_free() { # Before any set-up; a port of this cloud itself is looked at later.
  [[ -f $DIR/stack.json ]] && return
  if (exec 3<>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null; then
    die "port $PORT on 127.0.0.1 is taken; choose another with --port"
  fi
}

given=()
pass=()
DIR=$ROOT/.stack
PORT=8774
parse "$@"
check_together
DIR=$(readlink -m -- "$DIR")
SETUP_LOG=$DIR/log/setup.log
# shellcheck source=devstack/setup.sh
. "$ROOT/devstack/setup.sh"

if has --resume; then
  [[ -f $DIR/stack.json ]] || die "there is no cloud in $DIR; ./stack.sh --dir $DIR starts one"
  devstack resume --dir "$DIR" --began "$BEGAN"
fi

port_is_free
mkdir -p -- "$DIR/log" || die "--dir: $DIR cannot be made"
profiles=()
if has --multi; then
  has --transport-url || profiles+=(broker)
  if [[ " ${pass[*]} " == *' --database mariadb '* ]]; then
    profiles+=(mariadb)
  else
    has --database-url || profiles+=(database)
  fi
fi
install_packages "${profiles[@]}"
make_environment client
devstack up --dir "$DIR" --began "$BEGAN" --port "$PORT" "${pass[@]}"

# shellcheck shell=bash
# What the tests of this folder share: two network namespaces that a veth pair joins, near0 (10.5.0.1, here) and far0
# (10.5.0.2), processes that are started, watched for a bounded time and always ended. A test is called as
# NAME BUILD_FOLDER, and sources this file first.
set -euo pipefail
export LC_ALL=C SOFTRDMA=on

patience=${PACKET_TEST_PATIENCE:-1} # sanitized builds are slow

skip() {
  printf 'skipped: %s\n' "$*"
  [[ ${CI:-} == true ]] && exit 1
  exit 77
}

need_programs() {
  local program
  for program in "$@"; do
    command -v "$program" >/dev/null || { printf 'skipped: %s is not installed\n' "$program"; exit 77; }
  done
}

need_programs ip unshare nsenter setpriv
if [[ -z ${PACKET_TEST_NETWORK:-} ]]; then
  unshare --net true 2>/dev/null || skip "a network namespace needs root"
  PACKET_TEST_NETWORK=own exec unshare --net -- "$0" "$@"
fi

build=$(cd "${1:?usage: $0 BUILD_FOLDER}" && pwd -P)
scratch=$(mktemp -d "${TMPDIR:-/tmp}/packet-test.XXXXXX")
declare -A pids=()

end_all() {
  local pid
  for pid in "${pids[@]}"; do
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true # quietly
  done
  rm -rf "$scratch"
}
trap end_all EXIT
trap 'exit 1' INT TERM

fail() {
  local log
  printf 'FAIL: %s\n' "$*"
  for log in "$scratch"/*.log "$scratch"/*.errors; do
    [[ -s $log ]] || continue
    printf -- '---- the end of %s\n' "${log##*/}"
    tail -n 15 "$log" | cut -c 1-200
  done
  exit 1
}

# ---- processes ----

# start NAME PROGRAM [ARGUMENT...]: in the background; it ends with the test, however that ends.
start() {
  local name=$1
  shift
  : >"$scratch/$name.errors"
  setpriv --pdeathsig KILL "$@" </dev/null >"$scratch/$name.log" 2>"$scratch/$name.errors" &
  pids[$name]=$!
}

is_running() {
  local stat
  { read -r stat <"/proc/${pids[$1]}/stat"; } 2>/dev/null && [[ ${stat##*) } != Z* ]]
}
has_ended() { ! is_running "$1"; }

# wait_until SECONDS COMMAND...: counts looks, so that the time in which a busy machine runs nobody does not count.
wait_until() {
  local looks=$(($1 * patience * 50))
  shift
  until "$@"; do
    ((looks-- > 0)) || return 1
    sleep 0.02
  done
}

# finish NAME SECONDS [STATUS]: it ends within that time, with that status.
finish() {
  local name=$1 status=0
  wait_until "$2" has_ended "$name" || fail "$name: still runs after $2 s"
  wait "${pids[$name]}" || status=$?
  unset "pids[$name]"
  ! grep -qE 'ERROR: .*Sanitizer|WARNING: ThreadSanitizer|runtime error:' "$scratch/$name.errors" ||
    fail "$name: a sanitizer reports"
  ((status == ${3:-0})) || fail "$name: exit status $status"
}

# run NAME SECONDS PROGRAM...: to its good end.
run() {
  local name=$1 seconds=$2
  shift 2
  start "$name" "$@"
  finish "$name" "$seconds"
}

# says NAME TEXT: a line of its output or of its errors matches.
says() { grep -qE -- "$2" "$scratch/$1.log" "$scratch/$1.errors" || fail "$1 does not say: $2"; }

# ---- the network ----

start far unshare --net sleep infinity
own=$(readlink /proc/self/ns/net)
has_network() { [[ $(readlink "/proc/${pids[far]}/ns/net") != "$own" ]]; }
wait_until 5 has_network || fail "no second namespace"
at_far=(nsenter --net="/proc/${pids[far]}/ns/net")
sysctl -qw net.ipv6.conf.all.disable_ipv6=1
"${at_far[@]}" sysctl -qw net.ipv6.conf.all.disable_ipv6=1
ip link add near0 mtu 9000 type veth peer name far0 mtu 9000 netns "${pids[far]}"
ip address add 10.5.0.1/24 dev near0
ip link set near0 up
ip link set lo up
"${at_far[@]}" ip address add 10.5.0.2/24 dev far0
"${at_far[@]}" ip link set far0 up
"${at_far[@]}" ip link set lo up

# shellcheck shell=bash
# What the tests of this folder share: an ordinary user, a network of their own, processes that are
# started, watched for a bounded time and always ended.
#
# A test is called as NAME BUILD_FOLDER [ARGUMENT...] and sources this file first; it finds its
# ARGUMENTs in $@ afterwards.
set -euo pipefail
export LC_ALL=C

# Sanitized builds are slow: every bound below is multiplied by this.
patience=${SOFTRDMA_TEST_PATIENCE:-1}

skip() { printf 'skipped: %s\n' "$*"; exit 77; }

need_programs() {
  local program
  for program in "$@"; do
    command -v "$program" >/dev/null || skip "$program is not installed"
  done
}

[[ -x ${1:-}/bin/softrdma ]] || { echo "usage: $0 BUILD_FOLDER [ARGUMENT...]" >&2; exit 2; }
need_programs ss setpriv ibv_devices rping

# Root tests in a network of its own: ports cannot collide, and there is nobody else to hear.
if [[ $EUID == 0 && -z ${SOFTRDMA_TEST_NETWORK:-} ]] && unshare --net true 2>/dev/null; then
  SOFTRDMA_TEST_NETWORK=own exec unshare --net -- "$0" "$@"
fi
[[ ${SOFTRDMA_TEST_NETWORK:-} == own ]] && ip link set lo up

scratch=$(mktemp -d "${TMPDIR:-/tmp}/softrdma-test.XXXXXX")
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

# ---- an ordinary user ----

# Every program ends with the test, however that ends.
user=(setpriv --pdeathsig KILL)
build=$1
shift
if [[ $EUID == 0 ]]; then
  user+=(--reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all
    --no-new-privs)
  # The build tree may lie where that user cannot read.
  mkdir "$scratch/build"
  cp -a "$build/bin" "$build/lib" "$scratch/build/"
  build=$scratch/build
fi
soft=("${user[@]}" "$build/bin/softrdma")

cp "${BASH_SOURCE[0]%/*}/tsan.suppressions" "$scratch/"
export TSAN_OPTIONS=suppressions=$scratch/tsan.suppressions
chmod -R a+rX "$scratch"

# The tests are for the software device, also on a machine that has another.
[[ -e /dev/infiniband/rdma_cm ]] && export SOFTRDMA=${SOFTRDMA:-on}

has_ipv6() { [[ $(cat /proc/sys/net/ipv6/conf/lo/disable_ipv6 2>/dev/null) == 0 ]]; }

# ---- ports ----

# A block of ports for each process of tests that run side by side, below the ephemeral ones.
port=$((20000 + $$ % 750 * 16))

listens() { [[ $(ss -Htln "sport = :$1") ]]; }

# count_connections PORT: to a listener there, over TCP or in shared memory.
count_connections() {
  { ss -Htn state established "dport = :$1"; ss -Hx | grep -E "@softrdma/\S+:$1 " || true; } | wc -l
}

next_port() {
  port=$((port + 1))
  while listens "$port"; do
    port=$((port + 1))
  done
}

# ---- processes ----

# Where a process's output is, and where its errors.
log_of() { printf '%s/%s.log' "$scratch" "$1"; }
errors_of() { printf '%s/%s.errors' "$scratch" "$1"; }

fail() {
  local log
  printf 'FAIL: %s\n' "$*"
  for log in "$scratch"/*.{log,errors}; do
    [[ -s $log ]] || continue
    printf -- '---- the end of %s\n' "${log##*/}"
    tail -n 12 "$log" | cut -c 1-200
    grep -aA 25 "Sanitizer: " "$log" | cut -c 1-200 || true
    echo
  done
  exit 1
}

# start NAME PROGRAM [ARGUMENT...]: in the background.
start() {
  local name=$1
  shift
  : >"$(log_of "$name")" >"$(errors_of "$name")" # there, and empty, before the process is
  "$@" </dev/null >"$(log_of "$name")" 2>"$(errors_of "$name")" &
  pids[$name]=$!
}

is_running() {
  local stat
  { read -r stat <"/proc/${pids[$1]}/stat"; } 2>/dev/null && [[ ${stat##*) } != Z* ]]
}

# wait_until SECONDS COMMAND...: counts looks, 50 for a second, so that the time in which a busy
# machine runs nobody does not count.
wait_until() {
  local looks=$(($1 * patience * 50))
  shift
  until "$@"; do
    ((looks-- > 0)) || return 1
    sleep 0.02
  done
}

has_ended() { ! is_running "$1"; }

has_ended_or_listens() { has_ended "$1" || listens "$2"; }

# start_server NAME PORT PROGRAM [ARGUMENT...]: returns once it listens.
start_server() {
  local name=$1 at=$2
  shift 2
  start "$name" "$@"
  wait_until 10 has_ended_or_listens "$name" "$at" || fail "$name: does not listen: $*"
  is_running "$name" || fail "$name: ended before it listened: $*"
}

# rping destroys its event channel when all is done, but its other thread may be about to wait on
# it. Then that thread ends the process with this error, or the address sanitizer ends it with this
# report. Neither says anything about the device.
has_closed_channel() { grep -qx 'rdma_get_cm_event: Bad file descriptor' "$(errors_of "$1")"; }
has_freed_channel() {
  local errors
  errors=$(errors_of "$1")
  grep -q 'AddressSanitizer: heap-use-after-free' "$errors" && grep -q '/rping+0x' "$errors" &&
    grep -q 'in soft_rdma_get_cm_event ' "$errors" &&
    grep -q 'in soft_rdma_destroy_event_channel ' "$errors"
}

# finish NAME SECONDS: its exit status in $status; fails if it takes longer.
finish() {
  local name=$1 seconds=$2
  wait_until "$seconds" has_ended "$name" || fail "$name: still runs after $seconds s"
  status=0
  wait "${pids[$name]}" || status=$?
  unset "pids[$name]"
  ! grep -qE 'ERROR: .*Sanitizer|WARNING: ThreadSanitizer|runtime error:' "$(errors_of "$name")" ||
    has_freed_channel "$name" || fail "$name: a sanitizer reports"
}

# The shell reports a signal as 128 and its number; programs that return -1 end with 255.
ended_by_signal() { ((status > 128 && status <= 192)); }

ended_well() {
  ((status == 0)) || { ((status == 255)) && has_closed_channel "$1"; } ||
    { ((status == 1)) && has_freed_channel "$1"; }
}

# finish_well NAME SECONDS: exit status 0, or the test fails.
finish_well() {
  finish "$1" "$2"
  ended_well "$1" || fail "$1: exit status $status"
}

# kill_hard NAME: as kill -9; the wait is for the shell, which would print "Killed" otherwise.
kill_hard() {
  kill -KILL "${pids[$1]}" 2>/dev/null || true # it may have ended
  wait "${pids[$1]}" 2>/dev/null || true
  unset "pids[$1]"
}

# perftest's server listens anew for the connections that follow the first, while its client
# connects already. A client that comes too early is refused on any device, and then uses what it
# has freed. It must be run again.
came_too_early() { grep -q 'RDMA_CM_EVENT_REJECTED; error: -111' "$(errors_of client)"; }

# pair SECONDS SERVER... -- CLIENT...: a server and a client on $port that both exit with 0 within
# that time. They are named server and client.
pair() {
  local seconds=$1 server=() begin=${EPOCHREALTIME/./}
  shift
  while [[ $1 != -- ]]; do
    server+=("$1")
    shift
  done
  shift
  while
    start_server server "$port" "${soft[@]}" "${server[@]}"
    start client "${soft[@]}" "$@"
    finish client "$seconds"
    came_too_early
  do
    echo "note: the client came too early; again"
    kill_hard server
  done
  ended_well client || fail "client: exit status $status"
  finish_well server "$seconds"
  printf 'ok: %s (%d ms)\n' "$*" $(((${EPOCHREALTIME/./} - begin) / 1000))
}

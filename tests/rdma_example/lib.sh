# shellcheck shell=bash
# What the tests of rdma_server and rdma_client share, beyond what those of tests/programs have. IBMSG_ADDR chooses the
# address, and with it the device; the peer on bare verbs is $peer.
tests=${1:-}/tests
# shellcheck source-path=SCRIPTDIR source=../programs/lib.sh
. "${BASH_SOURCE[0]%/*}/../programs/lib.sh"
export LD_LIBRARY_PATH=$build/lib

work=$scratch/work
mkdir -m 777 "$work"
cp "$tests/rdma_example_peer" "$scratch/peer"
chmod a+rx "$scratch/peer"
peer=("${user[@]}" "$scratch/peer")
at=${IBMSG_ADDR:-127.0.0.1}

# In a guest a new process takes its time, so what is done over and over starts none.
exec {never}<> <(:)
wait_until() {
  local looks=$(($1 * patience * 50))
  shift
  until "$@"; do
    ((looks-- > 0)) || return 1
    read -rt 0.02 -u "$never" || true
  done
}

# has_said NAME TEXT: a line of its output or of its errors matches.
has_said() {
  local file line lines
  for file in "$scratch/$1.log" "$scratch/$1.errors"; do
    mapfile -t lines <"$file"
    for line in "${lines[@]}"; do
      [[ ! $line =~ $2 ]] || return 0
    done
  done
  return 1
}
says() { has_said "$@" || fail "$1 does not say: $2"; }
# await NAME TEXT: within ten seconds it says so.
says_or_ended() { has_said "$@" || has_ended "$1"; }
await() { wait_until 10 says_or_ended "$@" && has_said "$@" || fail "$1 has not said: $2"; }
# times NAME NUMBER TEXT: so many lines of its output match.
times() { (($(grep -cE -- "$3" "$(log_of "$1")") == $2)); }

# start_rdma_server [ARGUMENT...]: its name is server; it has a port of its own, and listens.
start_rdma_server() {
  next_port
  start server "${user[@]}" "$build/bin/rdma_server" -a "$at" -p "$port" "$@"
  await server 'Server is listening successfully'
}
# start_rdma_client NAME [ARGUMENT...]
start_rdma_client() {
  local name=$1
  shift
  start "$name" "${user[@]}" "$build/bin/rdma_client" -p "$port" -a "$at" "$@"
}
# start_peer NAME client|server BEHAVIOUR [ARGUMENT]
start_peer() {
  local name=$1 role=$2
  shift 2
  if [[ $role == server ]]; then next_port; fi
  start "$name" "${peer[@]}" "$role" "$at" "$port" "$@"
  if [[ $role == server ]]; then await "$name" 'Server is listening successfully'; fi
}

# expect_status NAME SECONDS STATUS
expect_status() {
  finish "$1" "$2"
  ((status == $3)) || fail "$1: exit status $status, not $3"
}
# expect_failure NAME SECONDS: neither success nor a crash. The programs end with a negative errno, most of which look like
# signals to a shell: these do not.
expect_failure() {
  finish "$1" "$2"
  [[ ! $status =~ ^(0|13[245679])$ ]] || fail "$1: exit status $status"
}

# serves: the server is as good as new.
serves() {
  start_rdma_client again -s "still there"
  finish_well again 20
  says again '^SUCCESS, source'
}
# stop_server SIGNAL STATUS: one that runs for ever.
stop_server() {
  kill -"$1" "${pids[server]}"
  expect_status server 10 "$2"
  says server '^Server shut-down is complete $'
}

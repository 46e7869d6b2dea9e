# shellcheck shell=bash
# What the tests of ibmsg-send and ibmsg-recv share, beyond what those of tests/programs have: a folder that their user can write
# to, and pairs of the two programs. $original has the programs of document 000.
original=${1:-}/tests
# shellcheck source-path=SCRIPTDIR source=../programs/lib.sh
. "${BASH_SOURCE[0]%/*}/../programs/lib.sh"
export SOFTRDMA=on LD_LIBRARY_PATH=$build/lib

work=$scratch/work
mkdir -m 777 "$work"
recv=("${user[@]}" "$build/bin/ibmsg-recv")
send=("${user[@]}" "$build/bin/ibmsg-send")
next_port

# start_recv [ARGUMENT...]: its name is recv; at 127.0.0.1 unless $at says otherwise.
at=127.0.0.1
start_recv() { start_server recv "$port" "${recv[@]}" "$@" "$at" "$port"; }
# start_send [ARGUMENT...]: its name is send. Its input is what $input names.
input=/dev/null
start_send() { start send sh -c 'exec "$@" <"$0"' "$input" "${send[@]}" "$@" "$at" "$port"; }

# expect_status NAME SECONDS STATUS
expect_status() {
  finish "$1" "$2"
  ((status == $3)) || fail "$1: exit status $status, not $3"
}

# says NAME TEXT: a line of its errors matches.
says() { grep -qE -- "$2" "$(errors_of "$1")" || fail "$1 does not say: $2"; }

# holds FOLDER NAME...: these files and nothing else, not even hidden ones.
holds() {
  local folder=$1 found
  shift
  found=$(cd "$folder" && find . -mindepth 1 -printf '%P\n' | sort | tr '\n' ' ')
  [[ $found == "${*:+$* }" ]] || fail "$folder holds: $found"
}

# move FILE OUTPUT: a transfer that goes well.
move() {
  start_recv -o "$2"
  start_send -f "$1"
  finish_well send 60
  finish_well recv 60
  says send ', confirmed$'
}

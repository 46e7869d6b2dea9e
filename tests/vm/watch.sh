# shellcheck shell=bash
# Following the guests of a run to their end: the command's output, its exit status, and what went wrong instead.

PEER_LIMIT=30  # seconds the peer command has to become ready
EXIT_TIMEOUT=124
EXIT_GUEST=125 # not the command failed but the guest

# fail STATUS REASON HOST: the guest's own failures, with what its console said last.
fail() {
  local status=$1 reason=$2 host=$3
  end_hosts
  say "$reason"
  say "the end of the console of host $host:"
  { grep -a "^console $host: " "$LOG" || true; } | console_end >&2
  say_peer
  say "the log is $LOG"
  exit "$status"
}

# The last lines of a console; all from a panic on, whose trace may be longer.
console_end() {
  awk '/Kernel panic/ { n = 0; panicked = 1 }
    { line[++n] = $0 }
    END { for (i = panicked || n < 40 ? 1 : n - 39; i <= n; i++) print line[i] }'
}

say_peer() {
  ((HOSTS == 2)) || return 0
  say "the end of the peer's output:"
  { grep -a '^peer: ' "$LOG" || true; } | tail -n 20 >&2
}

# Everything the guests wrote is in the share by now, so QEMU may end at once. Then wait for what is left in the pipes.
end_hosts() {
  local n
  for n in "${!QEMU_PID[@]}"; do
    end_process "${QEMU_PID[n]}"
    wait "${CONSOLE_PID[n]}" "${OUTPUT_PID[n]}" 2>/dev/null || true
  done
  QEMU_PID=()
}

# follow_output N: host 1's is shown and logged, host 2's logged.
follow_output() {
  local tail=(setpriv --pdeathsig TERM tail -c +1 -s 0.1 -f --pid "${QEMU_PID[$1]}" "$RUN/$1/output")
  if (($1 == 1)); then
    "${tail[@]}" | tee -p -a "$LOG" &
  else
    "${tail[@]}" | sed -u 's/^/peer: /' >>"$LOG" &
  fi
  OUTPUT_PID[$1]=$!
}

# check_hosts: ends the run if a guest that must be up is not. Host 2 may switch itself off: a test of a machine that
# is gone does so. A panic never counts as that.
check_hosts() {
  if [[ ! -e $RUN/1/status ]] && ! is_running "${QEMU_PID[1]}"; then
    # It may have ended by itself between the two tests.
    [[ -e $RUN/1/status ]] || fail "$EXIT_GUEST" "host 1 ended without an exit status: $(reason_of 1)" 1
  fi
  ((HOSTS == 2)) || return 0
  if ! is_running "${QEMU_PID[2]}" && { [[ ! -e $RUN/2/started ]] || has_panicked 2; }; then
    fail "$EXIT_GUEST" "host 2 ended: $(reason_of 2)" 2
  fi
}

has_panicked() {
  wait "${CONSOLE_PID[$1]}" 2>/dev/null || true
  grep -aq "^console $1: .*Kernel panic" "$LOG"
}

reason_of() {
  if has_panicked "$1"; then echo "a kernel panic"; else echo "it was switched off or did not boot"; fi
}

has_started() {
  check_hosts
  if ((HOSTS == 2)) && [[ ! -e $RUN/1/go && -e $RUN/2/status ]]; then
    fail "$EXIT_GUEST" "the peer command was not ready: status $(<"$RUN/2/status")" 2
  fi
  # The command waits for the peer.
  if ((HOSTS == 2)) && [[ ! -e $RUN/1/go && -e $RUN/2/started ]]; then touch "$RUN/1/go"; fi
  if [[ ! -e $RUN/1/started && -e $RUN/1/status ]]; then
    fail "$EXIT_GUEST" "host 1 could not be set up" 1
  fi
  [[ -e $RUN/1/started ]]
}

has_ended() {
  check_hosts
  [[ -e $RUN/1/status ]]
}

# watch_hosts: returns the command's exit status.
watch_hosts() {
  local limit=$BOOT_LIMIT status
  if ((HOSTS == 2)); then limit=$((limit + PEER_LIMIT)); fi
  wait_until "$limit" has_started || fail "$EXIT_GUEST" "the command did not start within $limit s" 1
  if [[ -n $READY ]]; then : >"$READY"; fi
  wait_until "$TIMEOUT" has_ended || fail "$EXIT_TIMEOUT" "the command did not end within $TIMEOUT s" 1
  status=$(<"$RUN/1/status")
  end_hosts
  if ((status != 0)); then
    say_peer
    say "exit status $status; the log is $LOG"
  fi
  return "$status"
}

# shellcheck shell=bash disable=SC2034 # the files that guest sources use each other's variables
# Starting and ending guests. Each host N of a run has the folder $RUN/N: its share, written by both sides.
#   host to guest: checkout, modules, settings, command, peer-ready, go
#   guest to host: output, started, status

KVM_LIMIT=8   # seconds a KVM guest has to prove itself
BOOT_LIMIT=120 # seconds any guest has to boot

declare -a QEMU_PID=() CONSOLE_PID=() # by host

# qemu ACCEL KERNEL INITRD SHARE ARGUMENT...: replaces the shell. The guest must not outlive us, however we end.
qemu() {
  local accel=(-accel "tcg,thread=multi" -cpu max) kernel=$2 initrd=$3 share=${4//,/,,}
  if [[ $1 == kvm ]]; then accel=(-accel kvm -cpu host); fi
  shift 4
  exec setpriv --pdeathsig KILL qemu-system-x86_64 "${accel[@]}" -m 1024 -smp 2 \
    -nodefaults -no-user-config -display none -monitor none -serial stdio -no-reboot \
    -kernel "$kernel" -initrd "$initrd" -append "console=ttyS0 quiet oops=panic panic=-1 no_timer_check" \
    -fsdev "local,id=share,path=$share,security_model=none" \
    -device virtio-9p-pci,fsdev=share,mount_tag=share "$@"
}

# boots ACCEL KERNEL INITRD SECONDS
boots() {
  local share=$RUN/probe
  rm -rf "$share"
  mkdir "$share"
  touch "$share/probe"
  qemu "$1" "$2" "$3" "$share" </dev/null >"$RUN/probe.console" 2>&1 &
  wait_until "$4" probe_ended "$!" || true
  end_process "$!"
  [[ -e $share/status ]]
} 2>/dev/null # where bash would report an aborted QEMU

probe_ended() { [[ -e $RUN/probe/status ]] || ! is_running "$1"; }

# wait_until SECONDS COMMAND...: polls COMMAND; fails when the time is over.
wait_until() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < deadline)) || return 1
    sleep 0.1
  done
}

# is_running PID: of our own children only, so that a reused number is never taken for one.
is_running() {
  [[ $'\n'$(jobs -pr)$'\n' == *$'\n'"$1"$'\n'* ]]
}

end_process() {
  # It may end by itself in between.
  if is_running "$1"; then kill -KILL "$1" 2>/dev/null || true; fi
  wait "$1" 2>/dev/null || true
}

# start_host N: the console goes into the log line by line, without the CRs of a terminal.
start_host() {
  local n=$1
  network_arguments "$n"
  mkfifo "$RUN/console$n"
  sed -u -e 's/\r//g' -e "s/^/console $n: /" <"$RUN/console$n" >>"$LOG" &
  CONSOLE_PID[n]=$!
  qemu "${ACCEL:?}" "$ENTRY/kernel" "$ENTRY/initrd" "$RUN/$n" \
    -fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap \
    -device virtio-9p-pci,fsdev=root,mount_tag=hostroot \
    -fsdev "local,id=checkout,path=${CHECKOUT//,/,,},security_model=none,multidevs=remap" \
    -device virtio-9p-pci,fsdev=checkout,mount_tag=checkout "${NETWORK[@]}" </dev/null >"$RUN/console$n" 2>&1 &
  QEMU_PID[n]=$!
}

# network_arguments N: sets NETWORK for host N.
network_arguments() {
  local port run=${RUN//,/,,}
  NETWORK=()
  if [[ -n $FORWARD ]]; then
    # A network in which 10.0.2.2 is the host's 127.0.0.1, and whose ports lead into the guest.
    NETWORK=(-netdev "user,id=n")
    for port in ${FORWARD//,/ }; do
      NETWORK[1]+=",hostfwd=tcp:127.0.0.1:$port-:$port"
    done
  elif ((HOSTS == 2)); then
    # One end of a wire over sockets in the run's folder: no ports to collide.
    NETWORK=(-netdev "dgram,id=n,local.type=unix,local.path=$run/link$1,remote.type=unix,remote.path=$run/link$((3 - $1))")
  else
    return 0
  fi
  NETWORK+=(-device "virtio-net-pci,netdev=n,mac=52:54:00:77:00:0$1,romfile=")
}

# shellcheck shell=bash
# The cache of kernels: which one to use, and making it once. An entry is complete when it exists: it is made under
# another name, shown to boot, and renamed.

CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/ibmsg
CACHE_LIMIT=3 # entries kept: checkouts with different recipes may share the cache
MAKER=        # the running make-kernel, leader of its own process group

# cache_open: sets ENTRY to the folder of a kernel that boots, and ACCEL to how.
cache_open() {
  mkdir -p "$CACHE"
  RECIPE=$(cat "$HERE/make-kernel" "$HERE/init" | sha256sum | cut -c 1-12)
  exec {CACHE_LOCK}>"$CACHE/lock"
  cache_lock &
  wait $! # in the background, as a foreground wait would hold back signals
  cache_choose
  accel_choose
  exec {CACHE_LOCK}>&-
}

# One maker at a time. The lock belongs to the open file, which the caller shares.
cache_lock() {
  flock -w 2 "$CACHE_LOCK" || {
    say "waiting for another guest that makes the kernel"
    flock "$CACHE_LOCK"
  }
}

# cache_use RELEASE: succeeds if there is an entry for it.
cache_use() {
  ENTRY=$CACHE/kernel-$1-$RECIPE
  [[ -d $ENTRY ]]
}

# The kernel chosen last, without asking apt, while the package lists have not changed since; else the current one.
# An entry's own time is when it was last chosen.
cache_choose() {
  local release
  if cache_use_newest && [[ $ENTRY -nt /var/lib/apt/lists ]]; then return; fi
  release=$(kernel_release)
  if [[ -z $release ]]; then
    # No package lists: a machine that is offline, or a container that never had them.
    if cache_use_newest; then return; fi
    update_lists
    release=$(kernel_release)
    [[ -n $release ]] || skip "no $(host_kernel_package) in the package lists, and no kernel in the cache"
  fi
  cache_use "$release" || cache_build "$release"
  touch "$ENTRY"
}

# cache_entries PATTERN: the latest first.
cache_entries() {
  find "$CACHE" -maxdepth 1 -name "$1" -printf '%T@ %p\n' | sort -rn | cut -d ' ' -f 2-
}

cache_use_newest() {
  ENTRY=$(cache_entries "kernel-*-$RECIPE" | head -n 1)
  [[ -n $ENTRY ]]
}

# The release of the distribution's current kernel according to the package lists, or nothing.
kernel_release() {
  LC_ALL=C apt-cache depends "$(host_kernel_package)" 2>/dev/null |
    sed -n '/-unsigned/d; s/^ *|\{0,1\}Depends: linux-image-\([0-9].*\)$/\1/p' | head -n 1 || true
}

update_lists() {
  local sudo=()
  ((EUID == 0)) || sudo=(sudo -n)
  say "updating the package lists"
  "${sudo[@]}" apt-get -qq update >&2 || say "the package lists could not be updated"
}

# cache_build RELEASE. Old package lists name packages that the mirror no longer has, hence the second attempt.
cache_build() {
  local release=$1 status=0
  cache_make "$release" || status=$?
  if ((status == 77)); then
    update_lists
    release=$(kernel_release)
    if cache_use "$release"; then return; fi
    status=0
    cache_make "$release" || status=$?
  fi
  ((status == 0)) || cache_do_without "$release" "$status"
}

# cache_do_without RELEASE STATUS: an older kernel is better than none.
cache_do_without() {
  say "the kernel $1 could not be made; the end of $CACHE/make-kernel.log:"
  tail -n 10 "$CACHE/make-kernel.log" >&2
  if cache_use_newest; then
    say "using ${ENTRY##*/} instead"
  elif (($2 == 77)); then
    skip "its packages could not be downloaded, and there is no kernel in the cache"
  else
    exit "$EXIT_GUEST"
  fi
}

# cache_make RELEASE: returns make-kernel's status. Called where errexit does not hold.
cache_make() {
  local folder status=0
  rm -rf "$CACHE"/make.*
  folder=$(mktemp -d "$CACHE/make.XXXXXX") || return 1
  SAY_FD=3 setsid "$HERE/make-kernel" "$1" "$folder" 3>&2 </dev/null >"$CACHE/make-kernel.log" 2>&1 &
  MAKER=$!
  wait "$MAKER" || status=$?
  MAKER=
  if ((status == 0)); then pick_kernel "$folder" && mv "$folder" "$CACHE/kernel-$1-$RECIPE" || status=1; fi
  if ((status == 0)); then
    cache_prune
    cache_use "$1"
  else
    rm -rf "$folder"
    return "$status"
  fi
}

# pick_kernel FOLDER: keeps as `kernel` the image that boots. Not every kernel's ELF can be booted directly.
pick_kernel() {
  local image
  for image in vmlinux bzImage; do
    if [[ -e $1/$image ]] && boots tcg "$1/$image" "$1/initrd" "$BOOT_LIMIT"; then
      mv "$1/$image" "$1/kernel"
      rm -f "$1/vmlinux" "$1/bzImage"
      return 0
    fi
  done
  {
    sed 's/\r//' "$RUN/probe.console"
    echo "neither the ELF nor the bzImage boots"
  } >>"$CACHE/make-kernel.log"
  return 1
}

cache_prune() {
  cache_entries 'kernel-*' | tail -n "+$((CACHE_LIMIT + 1))" | xargs -r -d '\n' rm -rf
}

# accel_choose: KVM only if it boots this kernel on this machine; there are hosts whose /dev/kvm hangs it.
accel_choose() {
  local verdict
  ACCEL=tcg
  [[ -r /dev/kvm && -w /dev/kvm ]] || return 0
  verdict=$ENTRY/accel-$({ uname -srv; grep -m 1 'model name' /proc/cpuinfo || true; } | sha256sum | cut -c 1-12)
  if [[ ! -s $verdict ]]; then
    say "trying KVM (once, at most $KVM_LIMIT s)"
    if boots kvm "$ENTRY/kernel" "$ENTRY/initrd" "$KVM_LIMIT"; then ACCEL=kvm; fi
    echo "$ACCEL" >"$verdict"
  fi
  ACCEL=$(<"$verdict")
}

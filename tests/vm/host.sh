# shellcheck shell=bash
# What the host has to offer: messages, its distribution, the packages and tools a guest needs.

say() { printf 'guest: %s\n' "$*" >&"${SAY_FD:-2}"; }

# A skip that CI must not take for a pass.
skip() {
  say "$*"
  if [[ ${CI:-} == true ]]; then exit 1; fi
  exit 77
}

host_packages() {
  echo qemu-system-x86 busybox-static cpio xz-utils zstd kmod binutils gcc make libelf1 \
    util-linux iproute2 ibverbs-providers ibverbs-utils rdmacm-utils
}

host_distribution() {
  # shellcheck source=/dev/null
  (. /etc/os-release && echo "${ID:-unknown}")
}

# The package whose newest dependency is the distribution's kernel.
host_kernel_package() {
  case $(host_distribution) in
    debian) echo linux-image-amd64 ;;
    ubuntu) echo linux-image-generic ;;
    *) return 1 ;;
  esac
}

check_host() {
  local missing=() pair
  [[ $(uname -m) == x86_64 ]] || skip "no recipe for a guest on $(uname -m), only on x86_64"
  host_kernel_package >/dev/null ||
    skip "no recipe for a guest kernel on $(host_distribution), only on debian and ubuntu"
  for pair in qemu-system-x86_64:qemu-system-x86 cpio:cpio xz:xz-utils zstd:zstd depmod:kmod \
    strip:binutils gcc:gcc make:make setpriv:util-linux flock:util-linux rdma:iproute2 \
    ibv_devinfo:ibverbs-utils rping:rdmacm-utils; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
  done
  host_busybox >/dev/null || missing+=(busybox-static)
  ((${#missing[@]} == 0)) || skip "please install: ${missing[*]}"
}

# check_netdev NAME: older QEMUs lack some.
check_netdev() {
  [[ $'\n'$(qemu-system-x86_64 -netdev help 2>/dev/null)$'\n' == *$'\n'"$1"$'\n'* ]] ||
    skip "this QEMU has no -netdev $1"
}

# The initrd has no libraries, so a dynamic busybox would not do.
host_busybox() {
  local path
  path=$(command -v busybox) || return 1
  ! readelf -lW "$path" 2>/dev/null | grep -q INTERP || return 1
  echo "$path"
}

# shellcheck shell=bash
# The program pairs that run between softrdma and siw; both sides read this.
# A case is PROGRAM:CRC:REVISION[:OPTIONS]: CRC and MPA revision are what softrdma asks for, OPTIONS are perftest's.

# server_command CASE ADDRESS PORT, client_command CASE ADDRESS PORT: words in $command.
# shellcheck disable=SC2034,SC2206 # the caller's words; options are words
server_command() {
  local program crc revision options
  IFS=: read -r program crc revision options <<<"$1"
  case $program in
    rping)
      command=(rping -s -v -C 10 -a "$2" -p "$3")
      # Revision 1 carries no read depths, and siw reports none as 0. rping accepts with what is reported, and then cannot
      # read; with a queue pair of its own making (-q) it accepts with depths of its own.
      if [[ $revision == 1 ]]; then command+=(-q); fi
      ;;
    rdma) command=(rdma_server -s "$2" -p "$3") ;;
    ib_*) command=("$program" -R -F -n 100 -p "$3" $options) ;;
  esac
}

# shellcheck disable=SC2034,SC2206
client_command() {
  local program crc revision options
  IFS=: read -r program crc revision options <<<"$1"
  case $program in
    rping) command=(rping -c -v -C 10 -a "$2" -p "$3") ;;
    rdma) command=(rdma_client -s "$2" -p "$3") ;;
    ib_*) command=("$program" -R -F -n 100 -p "$3" $options "$2") ;;
  esac
}

# softrdma_settings CASE: its environment, in $settings.
# shellcheck disable=SC2034
softrdma_settings() {
  local program crc revision options
  IFS=: read -r program crc revision options <<<"$1"
  settings=(SOFTRDMA=on SOFTRDMA_LOG=info "SOFTRDMA_CRC=$crc" "SOFTRDMA_MPA=$revision")
}

# ended_well STATUS LOG: or by rping's own race: it closes the event channel while its other thread reads that, which
# ends the program. Whether all had been done by then is to be checked.
ended_well() {
  (($1 == 0)) || grep -qx 'rdma_get_cm_event: Bad file descriptor' "$2"
}

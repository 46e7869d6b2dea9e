# shellcheck shell=bash
# What the tests of ibmsg-doctor share: run it, and look at what it says. Sourced with $doctor, how
# it is called, and $scratch set.

# check_json=no saves the time for it.

# Findings never depend on what the caller has set.
unset IBMSG_DOCTOR_ROOT KUBERNETES_SERVICE_HOST

# examine STATUS [ARGUMENT...]: it ends with that status, and its outputs agree with each other.
examine() {
  local wanted=$1 status=0
  shift
  echo "== ibmsg-doctor $*"
  "${doctor[@]}" "$@" >"$scratch/said" 2>"$scratch/said.errors" || status=$?
  ((status == wanted)) || fail_doctor "exit status $status, not $wanted"
  [[ $(grep -c '^problem ' "$scratch/said") == "$status" ]] || fail_doctor "status and problems differ"
  grep -vE '^(ok|note|problem) +[a-z]+ +.|^ +cure: +.|^([0-9]+|no) problems?$' "$scratch/said" &&
    fail_doctor "a line of another kind"
  every_problem_has_a_cure || fail_doctor "a problem without a cure, or a cure without a problem"
  [[ ${check_json:-yes} == yes ]] || return 0
  status=0
  "${doctor[@]}" --json "$@" >"$scratch/json" 2>>"$scratch/said.errors" || status=$?
  agrees_with_json "$status" || fail_doctor "--json is not valid, or says something else"
}

every_problem_has_a_cure() {
  awk '
    wanted { if ($1 != "cure:") exit 1; wanted = 0; next }
    $1 == "cure:" { exit 1 }
    $1 == "problem" { wanted = 1 }' "$scratch/said"
}

agrees_with_json() {
  python3 - "$scratch/json" "$1" <<'PYTHON'
import json, sys
report = json.load(open(sys.argv[1]))
problems = [f for f in report["findings"] if f["level"] == "problem"]
assert report["problems"] == len(problems) == int(sys.argv[2]), report
assert all(f["cure"] for f in problems), report
assert all("cure" not in f for f in report["findings"] if f["level"] != "problem"), report
PYTHON
}

# says LEVEL CHECK PATTERN: a finding of the last examination.
says() { grep -qE "^$1 +$2 +.*($3)" "$scratch/said" || fail_doctor "no $1 of $2: $3"; }
# with the cure that follows it
cures() {
  grep -A 1 -E "^problem +$1 +.*($2)" "$scratch/said" | grep -qE "^ +cure: +.*($3)" ||
    fail_doctor "no cure for $1, $2: $3"
}
says_not() { ! grep -qE "$1" "$scratch/said" || fail_doctor "it should not say: $1"; }

fail_doctor() {
  echo "FAIL: $*"
  cat "$scratch/said" "$scratch/said.errors"
  exit 1
}

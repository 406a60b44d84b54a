# shellcheck shell=bash
# Checks of a script, each a test case of its own. Source this file first:
#   . "$SRC/tests/check.sh"
#   check NAME [COMMAND...]   runs COMMAND (default: the function NAME) and prints a TAP line
#   finish                    the last line of every script; without it the script has failed
# A check runs in a subshell: `fail` and `skip` end this check alone, and only files reach later
# checks. The status of its last command counts; in a script with `set -e`, that of each command.
# WEFT_TEST_CHECK=PATTERN runs the checks whose name matches.
set -u
check_total=0 check_failures=0 in_check= check_reason=$PWD/.check-reason
declare -A check_results check_commands

# fail REASON...: ends the check as failed; outside of a check, the script.
fail() {
    echo "FAILED: $*"
    exit 1
}
# fail_with LOG REASON...: the same, with the end of LOG before it.
fail_with() {
    tail -n 40 "$1"
    shift
    fail "$@"
}
# skip REASON...: ends the check as skipped; outside of a check, the script.
skip() {
    [ -n "$in_check" ] || echo "1..0 # SKIP $*"
    echo "$*" >"$check_reason"
    exit 77
}
# needs NAME...: checks whose files this check reads. If one has failed, this check fails. If the
# filter excluded one, it runs here.
needs() {
    local name
    for name; do
        case ${check_results[$name]-} in
        ok) ;;
        '') eval "${check_commands[$name]-$name}" || fail "$name, which this check needs" ;;
        *) fail "not run: the check $name has ${check_results[$name]}" ;;
        esac
    done
}
check() {
    local name=$1 status result errexit=+e
    shift
    [ $# -gt 0 ] || set -- "$name"
    # shellcheck disable=SC2254 # a pattern
    case $name in
    ${WEFT_TEST_CHECK:-*}) ;;
    *) check_commands[$name]=$(printf '%q ' "$@"); return 0 ;;
    esac
    [ -z "${check_results[$name]-}" ] || fail "two checks have the name $name"
    check_total=$((check_total + 1))
    [[ $- != *e* ]] || errexit=-e
    set +e # here, where a failure is counted
    (in_check=$name; set $errexit; "$@")
    status=$?
    result="ok $check_total - $name"
    case $status in
    0) check_results[$name]=ok ;;
    77) check_results[$name]=skipped result="$result # SKIP $(cat "$check_reason")" ;;
    *) check_results[$name]=failed result="not $result" check_failures=$((check_failures + 1)) ;;
    esac
    echo "$result"
    set $errexit
}
# Prints the plan of TAP. For tests/run.sh, a log without it is of a script that ended early.
finish() {
    echo "1..$check_total"
    exit $((check_failures > 0))
}

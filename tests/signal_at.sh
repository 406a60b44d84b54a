# signal_at SIGNAL PATTERN COMMAND...: runs the command, and sends the signal to the program when a
# file gets a name that matches PATTERN (fnmatch). SIGNAL_ON (other events), SIGNAL_COUNT,
# SIGNAL_RANK, SIGNAL_TO and SIGNAL_HEARD: see signal_at.c. SIGNAL_WITH: a further library to preload.
command -v cc >/dev/null || skip "no cc to make signal_at.so with"
cc -D_GNU_SOURCE -shared -fPIC -o signal_at.so "$SRC/tests/signal_at.c" -ldl || exit 1
signal_library=$PWD/signal_at.so
signal_at() {
    local number
    number=$(kill -l "$1")
    SIGNAL_NUMBER=$number SIGNAL_AT=$2 LD_PRELOAD=$signal_library${SIGNAL_WITH:+:$SIGNAL_WITH} ASAN_OPTIONS=${ASAN_OPTIONS-}:verify_asan_link_order=0 "${@:3}"
}
# bash "$with_pid" NAME COMMAND...: writes the number of the process that runs the command to the
# file pid.NAME, or to pid.RANK if NAME is empty
with_pid=$PWD/with_pid
echo 'echo $$ >"pid.${1:-${OMPI_COMM_WORLD_RANK:-0}}"; shift; exec "$@"' >"$with_pid"

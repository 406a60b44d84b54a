# signal_at SIGNAL PATTERN COMMAND...: runs the command; the program gets the signal when a file whose path fits the PATTERN
# (fnmatch) has its name. SIGNAL_COUNT, SIGNAL_RANK and SIGNAL_TO: see signal_at.c.
command -v cc >/dev/null || { echo "no cc to make signal_at.so with"; exit 77; }
cc -shared -fPIC -o signal_at.so "$SRC/tests/signal_at.c" -ldl || exit 1
signal_library=$PWD/signal_at.so
signal_at() {
    local number
    number=$(kill -l "$1")
    SIGNAL_NUMBER=$number SIGNAL_AT=$2 LD_PRELOAD=$signal_library ASAN_OPTIONS=${ASAN_OPTIONS-}:verify_asan_link_order=0 "${@:3}"
}

# shellcheck shell=bash
# Checks of `weft serve`: each is a function of a Python file, with the server and the client of serve_client.py.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$SRC/tests/serve WEFT_PROGRESS_INTERVAL=0
command -v python3 >/dev/null || skip "no python3"
"$WEFT" serve --model x --listen nowhere >probe.log 2>&1
has_message probe.log library-missing >probe.out 2>&1 && skip "this build has no server (libmicrohttpd, SQLite)"
# cases FILE NAME...: runs the functions of a Python file, each as a check in a folder of its own
cases() {
    local file=$SRC/tests/serve/$1 name
    shift
    for name; do check "$name" run_case "$file" "$name"; done
}
run_case() {
    mkdir "$2" && cd "$2" || fail "$2"
    [ ! -e ../signal_at.so ] || cp ../signal_at.so .
    if ! timeout 900 python3 "$1" "$2" >case.log 2>&1; then
        for log in case.log *.log; do echo "== $log"; tail -n 25 "$log"; done
        fail "$2"
    fi
    [ ! -e skipped ] || skip "$(cat skipped)"
    return 0
}

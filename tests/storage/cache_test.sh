#!/bin/bash
# The cache of remote blocks: its downloads and its size. Damage, kills and a full disk do not change
# the bytes that a reader gets.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
. "$SRC/tests/storage/servers.sh"
PATH=$WEFT_BUILD/test-tools:$PATH
start_s3
export WEFT_CACHE=$PWD/cache

python3 -S -c 'import random; open("large", "wb").write(random.Random(5).randbytes(41 << 20))'
store s3://bucket/p put a <large || fail "no object"
downloads() { grep -c 'GET /bucket/p/a ' data/requests; }
blocks() { find "$WEFT_CACHE" -name '*.block' | wc -l; }
get() { store s3://bucket/p get a "$@"; }

# 41 MiB are six blocks of 8 MiB; each is downloaded once.
each_block_once() {
    get | cmp - large && get | cmp - large || return 1
    [ "$(downloads)" = 6 ] && [ "$(blocks)" = 6 ] || return 1
    get 8388600 20 | cmp - <(tail -c +8388601 large | head -c 20) || return 1
    [ "$(downloads)" = 6 ]
}
check each_block_once

# A rewritten object has blocks of its own.
other_version() {
    tac -s x large >turned && store s3://bucket/p put a <turned && get | cmp - turned || return 1
    [ "$(downloads)" = 12 ] || return 1
    store s3://bucket/p put a <large && get | cmp - large && [ "$(downloads)" = 12 ]
}
check other_version

damaged_blocks() {
    local block before i=0
    before=$(downloads)
    for block in "$WEFT_CACHE"/*.block; do
        i=$((i + 1))
        case $((i % 3)) in
        0) truncate -s 1000 "$block" ;;
        1) printf x | dd of="$block" bs=1 seek=4242 conv=notrunc 2>/dev/null ;;
        2) : >"$block" ;;
        esac
    done
    get | cmp - large || return 1
    [ "$(downloads)" -gt "$before" ]
}
check damaged_blocks

# Never more than the limit, also with several processes at once, and each reads the same bytes.
bound() {
    local i pids=()
    export WEFT_CACHE=$PWD/small WEFT_CACHE_BYTES=26MiB
    for i in 1 2 3; do
        get >read$i &
        pids+=($!)
    done
    while kill -0 "${pids[@]}" 2>/dev/null; do
        [ "$(find "$WEFT_CACHE" -type f -printf '%s\n' 2>/dev/null | awk '{s += $1} END {print s + 0}')" -le \
            $((26 << 20)) ] || { echo "more than the limit"; return 1; }
    done
    wait "${pids[@]}" || return 1
    for i in 1 2 3; do cmp read$i large || return 1; done
    [ "$(blocks)" -ge 1 ]
}
check bound

# Several processes download a block once.
shared() {
    local before i pids=()
    export WEFT_CACHE=$PWD/shared
    before=$(downloads)
    for i in 1 2 3 4; do
        get >read$i &
        pids+=($!)
    done
    wait "${pids[@]}" || return 1
    for i in 1 2 3 4; do cmp read$i large || return 1; done
    [ "$(downloads)" = $((before + 6)) ]
}
check shared

# Files that a killed process left are removed when room is needed, and counted until then.
killed() {
    export WEFT_CACHE=$PWD/killed WEFT_CACHE_BYTES=20MiB
    mkdir killed
    head -c 8388616 large >killed/00000000000000000000000000000000.part
    rm -f killed/total
    get | cmp - large || return 1
    ! ls killed/*.part 2>/dev/null
}
check killed

# They are removed at the start as well, unless another process holds the lock of the block. Files of
# other names are not weft's.
start() {
    export WEFT_CACHE=$PWD/start
    mkdir start
    local name=0123456789abcdef00000000000000
    touch start/${name}00.part start/${name}01.part start/a.part start/.part
    exec 7>start/lock-001
    flock 7 || return 1
    store s3://bucket/p list >/dev/null || return 1
    exec 7>&-
    [ "$(cd start && LC_ALL=C ls -A ./*.part .part)" = "$(printf '%s\n' ./${name}01.part ./a.part .part)" ]
}
check start

# Files are private, unless the folder is for a group or for all, whatever the umask is.
modes() {
    local folder
    umask 022
    WEFT_CACHE=$PWD/modes/private get >read || return 1
    for folder in group:2770 all:1777; do
        mkdir "modes/${folder%:*}" && chmod "${folder#*:}" "modes/${folder%:*}" || return 1
        WEFT_CACHE=$PWD/modes/${folder%:*} get >read || return 1
    done
    [ "$(stat -c %a modes/private)" = 700 ] || return 1
    [ "$(stat -c %a modes/private/* | sort -u)" = 600 ] || return 1
    [ "$(stat -c %a modes/group/* | sort -u)" = 660 ] || return 1
    [ "$(stat -c %a modes/all/* | sort -u)" = 666 ]
}
check modes

unusable() {
    local before
    before=$(downloads)
    : >file
    WEFT_CACHE=$PWD/file get 2>log | cmp - large || return 1
    has_message log storage-cache level=warning || return 1
    WEFT_CACHE_BYTES=0 get | cmp - large || return 1
    [ "$(downloads)" = $((before + 2)) ] || return 1
    WEFT_CACHE_BYTES=1000 get | cmp - large || return 1
    WEFT_CACHE_BYTES=many expect_error storage-settings key=WEFT_CACHE_BYTES -- get
}
check unusable

# The end of a run does not wait for the next attempt of a fetch, which would come two minutes later.
stopped_prefetch() {
    export WEFT_CACHE=$PWD/stopped WEFT_LOG=info
    head -c 1000 large >short && store s3://bucket/p put waits <short || return 1
    fault "GET /waits retry 503 120"
    mkfifo ends
    store s3://bucket/p expect waits <ends 2>log &
    exec 8>ends
    until has_message log storage-retry 2>/dev/null; do
        kill -0 $! || return 1
        sleep 0.05
    done
    exec 8>&-
    wait $! || return 1
    [ "$(grep -c 'GET .*/waits ' data/requests)" = 1 ]
}
check stopped_prefetch

# hold_locks LOCKS...: holds the locks of the cache for two minutes, or until `hold` is closed.
hold_locks() {
    mkfifo hold
    python3 -IS -c '
import fcntl, os, select, sys
files = [open(name, "w") for name in sys.argv[1:]]
for file in files: fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
select.select([open("hold")], [], [], 120)' "$@" >held &
    holder=$!
    exec 9>hold
    until grep -q held held; do sleep 0.05; done
}

# SIGTERM (as Ctrl-C) ends a wait for a block that another process downloads, and the wait for the
# next attempt.
interrupted() {
    export WEFT_CACHE=$PWD/interrupted WEFT_LOG=info
    mkdir interrupted
    hold_locks interrupted/lock-{000..255} || return 1
    local before
    before=$(wc -l <data/requests)
    store s3://bucket/p get a >read 2>log &
    until tail -n +$((before + 1)) data/requests | grep -q HEAD; do sleep 0.05; done
    kill -TERM $!
    wait $! && return 1
    has_message log interrupted level=error || return 1
    ! has_message log storage-cache 2>/dev/null || return 1
    exec 9>&-
    wait $holder || return 1
    fault "GET p/a retry 503 120"
    before=$(downloads)
    store s3://bucket/p get a >read 2>log &
    until has_message log storage-retry 2>/dev/null; do sleep 0.05; done
    kill -TERM $!
    wait $! && return 1
    has_message log interrupted level=error && [ "$(downloads)" = $((before + 1)) ]
}
check interrupted
finish

#!/bin/bash
# A rank whose matrix products take longer, by a clock that does not depend on the machine's load,
# is named by exactly one message with its compute time and that of the other ranks. With
# stragglers.window: 0 no rank is compared or named, and the losses are the same.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
command -v cc >/dev/null || skip "no cc to make slow_clock.so with"
cc -D_GNU_SOURCE -shared -fPIC -o slow_clock.so "$SRC/tests/slow_clock.c" -ldl || fail "slow_clock.so"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
slow() { # NAME RANK [OPTIONS...]: trains with this slow rank
    local name=$1 who=$2
    shift 2
    ranks 2 env SLOW_RANK="$who" SLOW_MS=10 LD_PRELOAD="$PWD/slow_clock.so" ASAN_OPTIONS="${ASAN_OPTIONS-}:verify_asan_link_order=0" \
        "$WEFT" train dit.yaml --set "out=runs/$name" --set data.latents=latents --set stages.0.steps=21 --set stages.1.steps=1 \
        --set checkpoint.interval=0 "$@" >"$name.log" 2>&1 || { cat "$name.log"; fail "$name"; }
}
the_slow_rank_is_named() { # WHO
    local who=$1
    slow slow$who $who --set stragglers.window=10
    has_message slow$who.log straggler "text~=rank $who is" "text~=10 steps" ||
        { cat slow$who.log; fail "the slow rank $who is not named"; }
    [ "$(count_messages slow$who.log straggler "text~=rank $((1 - who)) is")" = 0 ] || { cat slow$who.log; fail "the other rank is named"; }
}
for who in 0 1; do check "the_slow_rank_is_named_$who" the_slow_rank_is_named "$who"; done
without_a_window_none_is_named() {
    needs the_slow_rank_is_named_1
    slow quiet 0 --set stragglers.window=0
    [ "$(count_messages quiet.log straggler)" = 0 ] || { cat quiet.log; fail "a rank is named although stragglers.window is 0"; }
    diff <(losses runs/slow1) <(losses runs/quiet) || fail "stragglers.window changes the losses"
}
check without_a_window_none_is_named
finish

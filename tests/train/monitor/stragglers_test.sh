#!/bin/bash
# A rank that is held up again and again, which for the most part computes, is named, with its work against the others', by one rank; and with
# stragglers.steps: 0 nobody looks. Losses do not know of it.
source "$SRC/tests/train/common.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
hold_up() { # NAME RANK [OPTIONS...]
    local name=$1 who=$2 pid
    shift 2
    rm -f pid.*
    ranks 2 bash -c 'echo $$ >pid.$OMPI_COMM_WORLD_RANK; exec "$@"' sh "$WEFT" train dit.yaml --set "out=runs/$name" --set data.latents=latents \
        --set transformer.config.ffn_dim=2048 --set transformer.config.num_layers=8 --set stages.0.batch=8 \
        --set stages.0.steps=31 --set stages.1.steps=1 --set checkpoint.every=0 "$@" >"$name.log" 2>&1 &
    pid=$!
    for _ in $(seq 3000); do
        [ -s "runs/$name/metrics.jsonl" ] && break
        sleep 0.02
    done
    while kill -0 $pid 2>/dev/null; do # it is stopped for most of the time
        kill -STOP "$(cat pid.$who)"
        sleep 0.04
        kill -CONT "$(cat pid.$who)"
        sleep 0.01
    done 2>/dev/null
    wait $pid || { cat "$name.log"; fail "$name"; }
}
hold_up slow 1 --set stragglers.steps=10
grep -q 'rank 1 is slower than the others: in the last 10 steps its own work took .* a step (kernels .*, data .*) and it waited .*; the median of 2 ranks is' slow.log ||
    { cat slow.log; fail "the slow rank is not named"; }
hold_up quiet 0 --set stragglers.steps=0
! grep -q 'slower' quiet.log || { cat quiet.log; fail "somebody is named although nobody looks"; }
diff <(losses runs/slow) <(losses runs/quiet) || fail "losses know of it"
exit 0

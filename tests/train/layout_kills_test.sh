#!/bin/bash
# A rank killed in the middle of exchanges (links are slow) of a pipeline, a ring, gathered parameters beside split layers, and while a
# checkpoint is written after every step: each of the others ends by itself and names it, the same command goes on, and
# losses and weights are those of an undisturbed run. tools/kills.py plays many more at random.
source "$SRC/tests/train/common.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
options=(--set data.latents=latents --set transformer.config.num_layers=4 --set stages.0.steps=9 --set stages.1.steps=1 --set stages.1.batch=6)
play() { # RANKS VICTIM NAME OPTIONS...
    local n=$1 victim=$2 name=$3 more=() pid other
    shift 3
    for o in "$@"; do more+=(--set "$o"); done
    ranks "$n" "$WEFT" train dit.yaml "${options[@]}" --set "out=runs/$name" "${more[@]}" >whole.log 2>&1 || { cat whole.log; fail "$name undisturbed"; }
    rm -f pid.*
    WEFT_LINK="0.02 Gbit/s, 1000 us" "$MPIRUN" --oversubscribe --enable-recovery --tag-output -n "$n" bash -c 'echo $$ >pid.$OMPI_COMM_WORLD_RANK; exec "$@"' sh \
        "$WEFT" train dit.yaml "${options[@]}" --set "out=runs/broken-$name" "${more[@]}" >broken.log 2>&1 &
    pid=$!
    for _ in $(seq 6000); do
        [ -z "$(find "runs/broken-$name/checkpoints" -name "step-*" 2>/dev/null)" ] || break
        sleep 0.01
    done
    sleep 0.1
    kill -KILL "$(cat "pid.$victim")"
    wait $pid
    for other in $(seq 0 $((n - 1))); do
        [ "$other" = "$victim" ] || grep -aE "^\[1,$other\].*weft train: .*rank $victim (is gone|gave up)" broken.log >/dev/null ||
            { tr '\r' '\n' <broken.log; fail "$name: rank $other does not name rank $victim"; }
    done
    ranks "$n" "$WEFT" train dit.yaml "${options[@]}" --set "out=runs/broken-$name" "${more[@]}" >on.log 2>&1 || { cat on.log; fail "$name: going on"; }
    grep -q "going on from runs/broken-$name/checkpoints/step-" on.log || { cat on.log; fail "$name: not gone on"; }
    diff <(losses "runs/$name") <(losses "runs/broken-$name") || fail "$name: other losses"
    diff -r "runs/$name/model" "runs/broken-$name/model" || fail "$name: another model"
    [ -z "$(find "runs/broken-$name/checkpoints" -name '.*' -o -name 'note-*')" ] || fail "$name: something is left"
}
play 2 1 bubble parallel.pp=2 parallel.schedule=zero-bubble checkpoint.every=3
play 2 0 ring parallel.cp=2 parallel.context=ring checkpoint.every=3
play 4 2 parts parallel.fsdp=2 parallel.tp=2 checkpoint.every=2
play 2 1 writing parallel.dp=2 parallel.zero=2 checkpoint.every=1
exit 0

#!/bin/bash
# A rank killed in the middle of exchanges (when it sends a message after the first checkpoint) of a pipeline, a ring, gathered parameters beside split layers, and while a
# checkpoint is written after every step: each of the others ends by itself and names it, the same command goes on, and
# losses and weights are those of an undisturbed run. tools/kills.py plays many more at random.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
source "$SRC/tests/signal_at.sh"
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
options=(--set data.latents=latents --set transformer.config.num_layers=4 --set stages.0.steps=9 --set stages.1.steps=1 --set stages.1.batch=6)
play() { # RANKS VICTIM NAME MESSAGE OPTIONS...: killed when it sends that message after the first checkpoint
    local n=$1 victim=$2 name=$3 message=$4 more=() other
    shift 4
    for o in "$@"; do more+=(--set "$o"); done
    ranks "$n" "$WEFT" train dit.yaml "${options[@]}" --set "out=runs/$name" "${more[@]}" >whole.log 2>&1 || { cat whole.log; fail "$name undisturbed"; }
    WEFT_LINK="0.02 Gbit/s, 1000 us" SIGNAL_ON=send SIGNAL_RANK=$victim SIGNAL_COUNT=$message signal_at KILL "runs/broken-$name/checkpoints/step-*" \
        "$MPIRUN" --oversubscribe --enable-recovery --tag-output -n "$n" "$WEFT" train dit.yaml "${options[@]}" --set "out=runs/broken-$name" "${more[@]}" >broken.log 2>&1
    for other in $(seq 0 $((n - 1))); do
        [ "$other" = "$victim" ] || { grep -a "^\[1,$other\]" broken.log >of-rank.log; has_message of-rank.log rank-failed level=error "text~=rank $victim"; } ||
            { tr '\r' '\n' <broken.log; fail "$name: rank $other does not name rank $victim"; }
    done
    ranks "$n" "$WEFT" train dit.yaml "${options[@]}" --set "out=runs/broken-$name" "${more[@]}" >on.log 2>&1 || { cat on.log; fail "$name: going on"; }
    has_message on.log run-resumed || fail "$name: not gone on"
    diff <(losses "runs/$name") <(losses "runs/broken-$name") || fail "$name: other losses"
    diff -r "runs/$name/model" "runs/broken-$name/model" || fail "$name: another model"
    [ -z "$(find "runs/broken-$name/checkpoints" -name '.*' -o -name 'note-*')" ] || fail "$name: something is left"
}
check bubble play 2 1 bubble 20 parallel.pp=2 parallel.schedule=zero-bubble checkpoint.interval=3
check ring play 2 0 ring 30 parallel.cp=2 parallel.context=ring checkpoint.interval=3
check parts play 4 2 parts 40 parallel.fsdp=2 parallel.tp=2 checkpoint.interval=2
check writing play 2 1 writing 10 parallel.dp=2 parallel.zero=2 checkpoint.interval=1
finish

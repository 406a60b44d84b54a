#!/bin/bash
# A rank is killed while it sends a message after the first checkpoint: in a pipeline, a ring, fsdp
# with tp, and while a checkpoint is written after every step. Every other rank exits and names the
# killed rank. The same command resumes, and losses and weights are those of an undisturbed run.
# tools/kills.py plays many more of these at random.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
source "$SRC/tests/signal_at.sh"
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
options=(--set data.latents=latents --set transformer.config.num_layers=4 --set stages.0.steps=9 --set stages.1.steps=1 --set stages.1.batch=6)
# kill_and_resume RANKS VICTIM NAME MESSAGE OPTIONS...: kills rank VICTIM when it sends its
# MESSAGE-th message after the first checkpoint
kill_and_resume() {
    local n=$1 victim=$2 name=$3 message=$4 more=() other
    shift 4
    for o in "$@"; do more+=(--set "$o"); done
    ranks "$n" "$WEFT" train dit.yaml "${options[@]}" --set "out=runs/$name" "${more[@]}" >whole.log 2>&1 || { cat whole.log; fail "$name: the undisturbed run failed"; }
    WEFT_LINK="0.02 Gbit/s, 1000 us" SIGNAL_ON=send SIGNAL_RANK=$victim SIGNAL_COUNT=$message signal_at KILL "runs/broken-$name/checkpoints/step-*" \
        "$MPIRUN" --oversubscribe --enable-recovery --tag-output -n "$n" "$WEFT" train dit.yaml "${options[@]}" --set "out=runs/broken-$name" "${more[@]}" >broken.log 2>&1
    for other in $(seq 0 $((n - 1))); do
        [ "$other" = "$victim" ] || has_message broken.log rank-failed level=error process="$other" "text~=rank $victim" ||
            { tr '\r' '\n' <broken.log; fail "$name: rank $other does not name rank $victim"; }
    done
    ranks "$n" "$WEFT" train dit.yaml "${options[@]}" --set "out=runs/broken-$name" "${more[@]}" >on.log 2>&1 || { cat on.log; fail "$name: the resumed run failed"; }
    has_message on.log run-resumed || fail "$name: did not resume"
    diff <(losses "runs/$name") <(losses "runs/broken-$name") || fail "$name: losses differ after resuming"
    diff -r "runs/$name/model" "runs/broken-$name/model" || fail "$name: the model differs after resuming"
    [ -z "$(find "runs/broken-$name/checkpoints" -name '.*' -o -name 'note-*')" ] || fail "$name: partly written files are left among the checkpoints"
}
check bubble kill_and_resume 2 1 bubble 20 parallel.pp=2 parallel.schedule=zero-bubble checkpoint.interval=3
check ring kill_and_resume 2 0 ring 30 parallel.cp=2 parallel.context=ring checkpoint.interval=3
check parts kill_and_resume 4 2 parts 40 parallel.fsdp=2 parallel.tp=2 checkpoint.interval=2
check writing kill_and_resume 2 1 writing 10 parallel.dp=2 parallel.zero=2 checkpoint.interval=1
finish

#!/bin/bash
# SIGINT and SIGTERM at any step, sent to a single process, to the launcher of two ranks, or to one
# rank of two. The checkpoint of the last step is complete before any rank exits, exactly one rank
# reports the interruption, and the same command resumes bitwise.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
source "$SRC/tests/signal_at.sh"
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
steps=400
options="--set stages.0.steps=$steps --set stages.1.steps=1 --set checkpoint.interval=0"
ranks 2 "$WEFT" train dit.yaml --set out=runs/whole $options >whole.log 2>&1 || { cat whole.log; fail "weft train dit"; }
stopped() { message_field value "$1" interrupted level=info 'value=?*'; }
mkdir -p runs/stop
cp -r runs/whole/latents runs/stop
round=0
# Each case: signal, number of ranks, receiver (all, or one rank of two), and options of this run
# only. The uninterrupted run and the last, resumed run have two ranks without these options.
interrupted_at_any_step() {
    local try signal n who more launch how at=0
    for try in "INT 1 all" "INT 2 all" "TERM 2 1 --set parallel.fsdp=2" "TERM 2 0 --set stages.0.gradient_accumulation_steps=2 --set stages.0.batch=3" \
        "INT 2 1 --set parallel.tp=2" "TERM 2 all" "TERM 1 all" "INT 2 1"; do
    read -r signal n who more <<<"$try"
    round=$((round + 1))
    rm -rf runs/stop/checkpoints runs/stop/metrics.jsonl runs/stop/model
    launch=() how=(SIGNAL_ON=write SIGNAL_COUNT=$((3 + 7 * round))) # another step in each case
    [ $n = 1 ] || launch=("$MPIRUN" --oversubscribe -n $n)
    if [ $who != all ]; then
        how+=("SIGNAL_TO=pid.$who")
    elif [ $n = 2 ]; then
        how+=(SIGNAL_TO=pid.all SIGNAL_HEARD=yes) # mpirun forwards the signal to its ranks
    fi
    signal_at $signal '*/stop/metrics.jsonl' env "${how[@]}" bash "$with_pid" all "${launch[@]}" bash "$with_pid" "" \
        "$WEFT" train dit.yaml --set out=runs/stop $options $more >stop.log 2>&1
    [ "$(count_messages stop.log interrupted level=info)" = 1 ] || { cat stop.log; fail "$try: not reported by exactly one rank"; }
    at=$(stopped stop.log)
    [ -n "$at" ] || { cat stop.log; fail "$try: the step of the interruption is not reported"; }
    [ "$(ls -A runs/stop/checkpoints)" = "$(printf 'step-%08d' "$at")" ] || { cat stop.log; fail "$try: interrupted at step $at, but the checkpoints are '$(ls -A runs/stop/checkpoints)'"; }
    [ "$at" = "$(wc -l <runs/stop/metrics.jsonl)" ] || fail "$try: metrics.jsonl does not have $at steps"
    done
ranks 2 "$WEFT" train dit.yaml --set out=runs/stop $options >on.log 2>&1 || { cat on.log; fail "the resumed run failed"; }
has_message on.log run-resumed value=$at || fail "did not resume from step $at"
    diff <(losses runs/whole) <(losses runs/stop) || fail "losses differ after the interruptions"
}
check interrupted_at_any_step
finish

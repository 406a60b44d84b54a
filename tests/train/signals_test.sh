#!/bin/bash
# Ctrl-C and SIGTERM at any moment, to one process, to the launcher of two and to one rank only: the checkpoint of the last step is
# whole before anybody leaves, one rank says so, and the same command goes on with the same bits.
source "$SRC/tests/train/common.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
steps=1500
options="--set stages.0.steps=$steps --set stages.1.steps=1 --set checkpoint.every=0"
ranks 2 "$WEFT" train dit.yaml --set out=runs/whole $options >whole.log 2>&1 || { cat whole.log; fail "weft train dit"; }
stopped() { sed -n 's/.*stopped at step \([0-9]*\); the same command goes on from there$/\1/p' "$1"; }
mkdir -p runs/stop
cp -r runs/whole/latents runs/stop
round=0
# signal, ranks, who is told (all, or a rank of two), what is trained otherwise than at the end, where it goes on
for try in "INT 1 all" "INT 2 all" "TERM 2 1 --set parallel.fsdp=2" "TERM 2 0 --set stages.0.accumulate=2 --set stages.0.batch=3" \
           "INT 2 1 --set parallel.tp=2" "TERM 2 all" "TERM 1 all" "INT 2 1"; do
    read -r signal n who more <<<"$try"
    round=$((round + 1))
    rm -rf runs/stop/checkpoints runs/stop/metrics.jsonl runs/stop/model
    launch=()
    [ $n = 1 ] || launch=("$MPIRUN" --oversubscribe -n $n)
    "${launch[@]}" bash -c 'echo $$ >pid.${OMPI_COMM_WORLD_RANK:-0}; exec "$@"' sh "$WEFT" train dit.yaml --set out=runs/stop $options $more >stop.log 2>&1 &
    pid=$!
    lines=$((3 + 7 * round)) # at another step each time
    for _ in $(seq 3000); do
            [ "$(wc -l 2>/dev/null <runs/stop/metrics.jsonl)" -ge $lines ] 2>/dev/null && break
            sleep 0.01
    done
    [ $who = all ] || pid=$(cat pid.$who)
    kill -$signal $pid
    wait
    [ "$(grep -c 'stopped at' stop.log)" = 1 ] || { cat stop.log; fail "$try: not said by one rank"; }
    at=$(stopped stop.log)
    [ -n "$at" ] || { cat stop.log; fail "$try: not told where it stopped"; }
    [ "$(ls -A runs/stop/checkpoints)" = "$(printf 'step-%08d' "$at")" ] || { cat stop.log; fail "$try: stopped at $at, but there is '$(ls -A runs/stop/checkpoints)'"; }
    [ "$at" = "$(wc -l <runs/stop/metrics.jsonl)" ] || fail "$try: metrics are not those of $at steps"
done
ranks 2 "$WEFT" train dit.yaml --set out=runs/stop $options >on.log 2>&1 || { cat on.log; fail "going on"; }
grep -q "going on from runs/stop/checkpoints/step-0*$at\$" on.log || { cat on.log; fail "it did not go on from step $at"; }
diff <(losses runs/whole) <(losses runs/stop) || fail "other losses after signals"
exit 0

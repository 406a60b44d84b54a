#!/bin/bash
# SIGTERM and SIGINT between steps: while a later stage's latents are encoded, while a VAE's are measured at its end, and while a
# video is made. To one rank or all, all leave together with 130, one says it, what was made stays, and the same command goes on
# with the same bits.
source "$SRC/tests/train/common.sh"
make_shards
write_configs
size="--set stages.0.batch=1 --set stages.0.frames=9 --set stages.0.height=64 --set stages.0.width=64"
vae="vae.yaml --set autoencoder.config.base_dim=16 --set stages.0.steps=1 --set stages.0.warmup=0 $size"
dit="dit.yaml --set stages.0.steps=2 --set stages.1.steps=2 --set stages.0.warmup=0 --set stages.1.frames=9 --set stages.1.height=64 --set stages.1.width=64"
"$WEFT" train $vae >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
for n in 1 2; do
    ranks $n "$WEFT" train $dit --set out=runs/whole$n >whole.log 2>&1 || { cat whole.log; fail "weft train dit on $n ranks"; }
done
content() { for t in "$1"/latents/*/*.tar; do tar tf "$t" | while read -r m; do echo "$m $(tar xOf "$t" "$m" | md5sum)"; done; done | sort; }

# interrupt SIGNAL RANKS WHO PATTERN COMMAND...: started, and when a path that fits the pattern is there, WHO (all, or a rank) gets it
interrupt() {
    local signal=$1 n=$2 who=$3 pattern=$4 launch=() pid code
    shift 4
    rm -f pid.*
    [ $n = 1 ] || launch=("$MPIRUN" --oversubscribe -n $n)
    "${launch[@]}" bash -c 'echo $$ >pid.${OMPI_COMM_WORLD_RANK:-0}; exec "$@"' sh "$@" >stop.log 2>&1 &
    pid=$!
    for _ in $(seq 6000); do
        compgen -G "$pattern" >/dev/null && break
        sleep 0.005
    done
    [ $who = all ] && who='*'
    kill -$signal $(cat pid.$who)
    wait $pid
    code=$?
    [ $code = 130 ] || { cat stop.log; fail "$signal to $who of $n, $pattern: exit code $code"; }
    grep -q 'gave up' stop.log && { cat stop.log; fail "$signal to $who of $n: one left without the others"; }
    [ "$(grep -v '^stopped after step' stop.log | grep -c '^stopped')" = 1 ] || { cat stop.log; fail "$signal to $who of $n, $pattern: not said by one rank"; }
    [ -z "$(find runs videos -name '*.tmp.*' 2>/dev/null)" ] || fail "left: $(find runs videos -name '*.tmp.*')"
}

second=$(ls -t runs/whole1/latents | head -n 1)
first=$(ls runs/whole1/latents | grep -v "$second")
for try in "TERM 2 1" "INT 2 all" "TERM 1 0"; do
    read -r _ n _ <<<"$try"
    rm -rf runs/stop
    interrupt $try "runs/stop/latents/$second" "$WEFT" train $dit --set out=runs/stop
    grep -q 'stopped while latents are encoded; the same command goes on from there' stop.log || { cat stop.log; fail "$try: what was stopped is not told"; }
    [ "$(ls runs/stop/checkpoints)" = step-00000002 ] || fail "$try: the first stage's steps are in no checkpoint: $(ls runs/stop/checkpoints)"
    [ -e "runs/stop/latents/$first/complete" ] && [ ! -e "runs/stop/latents/$second/complete" ] || fail "$try: it was not stopped amid the second stage's latents"
    ranks $n "$WEFT" train $dit --set out=runs/stop >on.log 2>&1 || { cat on.log; fail "$try: going on"; }
    grep -qE 'latents: ([4-9]|1[0-9]|2[0-3]) of 24 samples are encoded already' on.log || { cat on.log; fail "$try: what was encoded before the signal is gone"; }
    diff <(losses runs/whole$n) <(losses runs/stop) || fail "$try: other losses"
    diff <(content runs/whole$n) <(content runs/stop) || fail "$try: other latents"
    diff -r runs/whole$n/model runs/stop/model || fail "$try: another model"
done

for try in "TERM 2 1" "INT 1 0"; do
    rm -rf runs/stop
    read -r _ n _ <<<"$try"
    interrupt $try runs/stop/checkpoints/step-00000001 "$WEFT" train $vae --set out=runs/stop
    grep -q 'stopped while latents are measured; the same command goes on from there' stop.log || { cat stop.log; fail "$try: what was stopped is not told"; }
    [ ! -e runs/stop/model ] || fail "$try: stopped, and there is a model"
    ranks $n "$WEFT" train $vae --set out=runs/stop >on.log 2>&1 || { cat on.log; fail "$try: going on"; }
    [ $n = 2 ] || diff -r runs/vae/model runs/stop/model || fail "$try: another model"
done

for try in "TERM 2 1" "INT 1 0"; do
    rm -rf videos
    interrupt $try videos "$WEFT" generate --model runs/whole1/model --prompt "a red circle" --steps 10000 --out videos
    [ -z "$(find videos -name '*.mp4*')" ] || fail "$try: $(ls videos) of a video that was stopped"
done
exit 0

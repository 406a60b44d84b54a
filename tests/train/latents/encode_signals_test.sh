#!/bin/bash
# SIGTERM and SIGINT outside of training steps: while the latents of a later stage are encoded, while
# latent statistics are measured after a VAE's training, and while a video is generated. Whether one
# rank gets the signal or all do, all ranks exit with 130, one rank reports it, and finished latents
# remain. The same command then resumes with bitwise identical results.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
source "$SRC/tests/signal_at.sh"
size="--set stages.0.batch=1 --set stages.0.frames=9 --set stages.0.height=64 --set stages.0.width=64"
vae="vae.yaml --set autoencoder.config.base_dim=16 --set stages.0.steps=1 --set stages.0.warmup_steps=0 $size"
dit="dit.yaml --set stages.0.steps=2 --set stages.1.steps=2 --set stages.0.warmup_steps=0 --set stages.1.frames=9 --set stages.1.height=64 --set stages.1.width=64"
"$WEFT" train $vae >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
for n in 1 2; do
    ranks $n "$WEFT" train $dit --set out=runs/whole$n >whole.log 2>&1 || { cat whole.log; fail "weft train dit on $n ranks"; }
done
content() { for t in "$1"/latents/*/*.tar; do tar tf "$t" | while read -r m; do echo "$m $(tar xOf "$t" "$m" | md5sum)"; done; done | sort; }

# interrupt SIGNAL RANKS TARGET EVENT PATTERN COMMAND...: sends SIGNAL to TARGET (all, or a rank) when
# rank 0 has this event (tests/signal_at.c)
interrupt() {
    local signal=$1 n=$2 target=$3 event=$4 pattern=$5 launch=() to code
    shift 5
    [ $n = 1 ] || launch=("$MPIRUN" --oversubscribe -n $n)
    to="pid.$target"
    [ $target != all ] || to="pid.0 pid.1"
    SIGNAL_ON=$event SIGNAL_RANK=0 SIGNAL_TO=$to signal_at $signal "$pattern" "${launch[@]}" bash "$with_pid" "" "$@" >stop.log 2>&1
    code=$?
    [ $code = 130 ] || { cat stop.log; fail "$signal to $target of $n, $pattern: exit code $code"; }
    [ "$(count_messages stop.log rank-failed)" = 0 ] || { cat stop.log; fail "$signal to $target of $n: a rank exited before the others"; }
    [ "$(count_messages stop.log interrupted level=info)" = 1 ] || { cat stop.log; fail "$signal to $target of $n, $pattern: not reported by exactly one rank"; }
    [ -z "$(find runs videos -name '*.tmp.*' 2>/dev/null)" ] || fail "temporary files: $(find runs videos -name '*.tmp.*')"
}

second=$(ls -t runs/whole1/latents | head -n 1)
first=$(ls runs/whole1/latents | grep -v "$second")
encoding_resumes() {
    for try in "TERM 2 1" "INT 2 all" "TERM 1 0"; do
        read -r _ n _ <<<"$try"
        rm -rf runs/stop
        interrupt $try write "*runs/stop/latents/$second/*.tar.tmp.*" "$WEFT" train $dit --set out=runs/stop
        has_message stop.log interrupted 'value=latents are encoded' || fail "$try: the interrupted phase is not reported"
        [ "$(ls runs/stop/checkpoints)" = step-00000002 ] || fail "$try: the steps of the first stage are in no checkpoint: $(ls runs/stop/checkpoints)"
        [ -e "runs/stop/latents/$first/complete" ] && [ ! -e "runs/stop/latents/$second/complete" ] || fail "$try: the encoding of the second stage was not interrupted"
        ranks $n "$WEFT" train $dit --set out=runs/stop >on.log 2>&1 || { cat on.log; fail "$try: resuming"; }
        kept=$(message_field value on.log data-report key=latents 'value=?*') && [ "$kept" -ge $n ] && [ "$kept" -le 23 ] || { cat on.log; fail "$try: latents encoded before the signal were lost"; }
        diff <(losses runs/whole$n) <(losses runs/stop) || fail "$try: other losses"
        diff <(content runs/whole$n) <(content runs/stop) || fail "$try: other latents"
        diff -r runs/whole$n/model runs/stop/model || fail "$try: another model"
    done
}
check encoding_resumes

measuring_resumes() {
    for try in "TERM 2 1" "INT 1 0"; do
        rm -rf runs/stop
        read -r _ n _ <<<"$try"
        interrupt $try rename '*runs/stop/checkpoints/step-00000001' "$WEFT" train $vae --set out=runs/stop
        has_message stop.log interrupted 'value=latents are measured' || fail "$try: the interrupted phase is not reported"
        [ ! -e runs/stop/model ] || fail "$try: an interrupted run has a model"
        ranks $n "$WEFT" train $vae --set out=runs/stop >on.log 2>&1 || { cat on.log; fail "$try: resuming"; }
        [ $n = 2 ] || diff -r runs/vae/model runs/stop/model || fail "$try: another model"
    done
}
check measuring_resumes

generating_stops() {
    for try in "TERM 2 1" "INT 1 0"; do
        rm -rf videos
        interrupt $try rename '*videos/prompts.jsonl' "$WEFT" generate --model runs/whole1/model --prompt "a red circle" --steps 10000 --out videos
        [ -z "$(find videos -name '*.mp4*')" ] || fail "$try: $(ls videos) of an interrupted video"
    done
}
check generating_stops
finish

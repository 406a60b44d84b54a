#!/bin/bash
# stages.N.gradient_accumulation_steps: 4 batches of 2 give the losses, gradient norms and weights
# of one batch of 8 on 1 and 2 ranks. The tolerance is 1e-6: the order of summation differs.
# Reserved memory is the predicted memory, resuming is bitwise, and a step may mix several buckets.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
sed -i 's/batch: 3/batch: 8/; s/steps: 8/steps: 10/' vae.yaml
sed -i 's/batch: 6/batch: 8/; s/steps: 12/steps: 10/; /steps: 8/d' dit.yaml
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
"$WEFT" train dit.yaml --set out=runs/large >large.log 2>&1 || { cat large.log; fail "weft train dit"; }
small="--set stages.0.gradient_accumulation_steps=4 --set stages.0.batch=2"
for n in 1 2; do
    ranks $n "$WEFT" train dit.yaml --set out=runs/dit$n $small >dit$n.log 2>&1 || { cat dit$n.log; fail "a transformer of 4 batches of 2 on $n ranks"; }
done
cat >compare.py <<'PY'
import glob, json, struct, sys
def metrics(run):
    return [json.loads(l) for l in open(run + "/metrics.jsonl")]
def weights(run):
    out = []
    for path in sorted(glob.glob(run + "/model/**/diffusion_pytorch_model.safetensors", recursive=True)):
        data = open(path, "rb").read()
        n = struct.unpack("<Q", data[:8])[0]
        out += struct.unpack(f"<{(len(data) - 8 - n) // 4}f", data[8 + n:])
    return out
a, b, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
x, y = metrics(a), metrics(b)
assert len(x) == len(y) == steps, (len(x), len(y))
worst = 0
for p, q in zip(x, y):
    for name in ("loss", "grad_norm") + (("mse",) if "mse" in p else ()):
        worst = max(worst, abs(p[name] - q[name]) / abs(p[name]))
u, v = weights(a), weights(b)
norm = sum(s * s for s in u) ** 0.5
difference = sum((s - t) ** 2 for s, t in zip(u, v)) ** 0.5 / norm
print(f"{b}: losses and norms within {worst:.1e}, weights within {difference:.1e}")
assert len(u) == len(v) and worst <= 1e-6 and difference <= 1e-6
PY
a_transformer_has_the_results_of_one_batch() { # N
    local n=$1
    python3 compare.py runs/large runs/dit$n 10 || fail "transformer on $n ranks: 4 batches of 2 differ from a batch of 8"
}
for n in 1 2; do check "a_transformer_has_the_results_of_one_batch_$n" a_transformer_has_the_results_of_one_batch "$n"; done
a_vae_has_the_results_of_one_batch() { # N
    local n=$1
    ranks $n "$WEFT" train vae.yaml --set out=runs/vae$n $small >vae$n.log 2>&1 || { cat vae$n.log; fail "a VAE of 4 batches of 2 on $n ranks"; }
    python3 compare.py runs/vae runs/vae$n 10 || fail "VAE on $n ranks: 4 batches of 2 differ from a batch of 8"
}
for n in 1 2; do check "a_vae_has_the_results_of_one_batch_$n" a_vae_has_the_results_of_one_batch "$n"; done

# memory: the reserved bytes are the predicted bytes; gradients are counted with the weights
the_program_is_as_predicted() {
    "$WEFT" inspect graph dit.yaml $small >inspect.txt || fail "weft inspect"
    grep -q "update after the batches of a step" inspect.txt || { cat inspect.txt; fail "inspect does not show the update"; }
    predicted=$(awk '$1 == "program" {print $2, $3}' inspect.txt)
    reserved=$(message_size dit1.log stage-report key= 'value=?*')
    [ -n "$predicted" ] && [ "$predicted" = "$reserved" ] || fail "reserved '$reserved' for the program, predicted '$predicted'"
}
check the_program_is_as_predicted

# resumed from the middle: losses are bitwise those of the uninterrupted run
a_stopped_run_resumes_bitwise() {
    cp -r runs/dit2 again
    rm -r again/model again/checkpoints/step-00000010
    ranks 2 "$WEFT" train dit.yaml --set out=again $small >again.log 2>&1 || { cat again.log; fail "the resumed run failed"; }
    has_message again.log run-resumed value=5 || fail "did not resume from step 5"
    diff <(losses runs/dit2) <(losses again) || fail "losses differ after resuming"
    ! ls again/checkpoints/*/ | grep -q grad || fail "a checkpoint holds gradients"
}
check a_stopped_run_resumes_bitwise

# Several buckets in one step, on 1 and 2 ranks and with fsdp. Batches of the three buckets
# alternate, so most steps mix buckets.
make_mixed_shards
sed -i '/^stages:/,$d; s/path: shards/path: mixed/' dit.yaml
buckets='[{batch: 4, frames: 9, height: 32, width: 32}, {batch: 3, frames: 9, height: 16, width: 32}, {batch: 5, frames: 1, height: 32, width: 32}]'
printf 'stages:\n  - {steps: 6, gradient_accumulation_steps: 3, buckets: %s, lr: 1e-3, warmup_steps: 2}\n' "$buckets" >>dit.yaml
for n in 1 2; do
    ranks $n "$WEFT" train dit.yaml --set out=runs/mixed$n >mixed$n.log 2>&1 || { cat mixed$n.log; fail "several buckets in a step on $n ranks"; }
done
several_buckets_in_a_step() {
    ranks 2 "$WEFT" train dit.yaml --set out=runs/mixedfsdp --set parallel.fsdp=2 >mixedfsdp.log 2>&1 || { cat mixedfsdp.log; fail "several buckets in a step under fsdp"; }
    [ "$(count_messages mixed1.log config-unusual)" = 0 ] || { cat mixed1.log; fail "a bucket without samples"; }
    python3 compare.py runs/mixed1 runs/mixed2 6 || fail "several buckets in a step: two ranks differ from one"
    python3 compare.py runs/mixed1 runs/mixedfsdp 6 || fail "several buckets in a step: fsdp differs from one rank"
}
check several_buckets_in_a_step
finish

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
limit = float(sys.argv[4]) if len(sys.argv) > 4 else 1e-6
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
assert len(u) == len(v) and worst <= limit and difference <= limit
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

# Packed rows: with a window of one sample, 4 samples of a step are the same 4 as in batches of one.
sed '/^stages:/,$d' dit.yaml >rows.yaml
sizes='{frames: 9, height: 32, width: 32}, {frames: 9, height: 16, width: 32}, {frames: 1, height: 32, width: 32}'
printf 'stages:\n  - {steps: 6, buckets: [%s], lr: 1e-3, warmup_steps: 2}\n' "$sizes" >>rows.yaml
train_rows() { # NAME RANKS OPTIONS...
    local name=$1 n=$2
    shift 2
    ranks $n "$WEFT" train rows.yaml --set "out=runs/$name" "$@" >$name.log 2>&1 || { cat $name.log; fail "packed rows: $name"; }
}
packed_rows_have_the_results_of_batches() {
    train_rows single 1 --set stages.0.gradient_accumulation_steps=4 --set stages.0.buckets.0.batch=1 --set stages.0.buckets.1.batch=1 --set stages.0.buckets.2.batch=1
    train_rows row 1 --set 'data.packing={tokens: 100, max_samples: 4, window: 1}'
    train_rows rows 2 --set 'data.packing={tokens: 50, max_samples: 2, rows: 2, window: 1}'
    train_rows rowsfsdp 2 --set 'data.packing={tokens: 50, max_samples: 2, rows: 2, window: 1}' --set parallel.fsdp=2
    train_rows rowstp 2 --set 'data.packing={tokens: 50, max_samples: 2, window: 1}' --set stages.0.gradient_accumulation_steps=2 --set parallel.tp=2 --set data.group_reads=true
    train_rows rowscp 2 --set 'data.packing={tokens: 100, max_samples: 4, window: 1}' --set parallel.cp=2
    train_rows rowspp 2 --set 'data.packing={tokens: 50, max_samples: 2, window: 1}' --set stages.0.gradient_accumulation_steps=2 --set parallel.pp=2 --set data.group_reads=true
    for run in row rows rowsfsdp rowstp rowscp rowspp; do
        python3 compare.py runs/single runs/$run 6 1e-5 || fail "packed rows: $run differs from batches of one sample"
    done
}
check packed_rows_have_the_results_of_batches
# Ranks of tp and pp need the same samples. Together they read them once, by their parts, with the same
# results as if each reads all.
a_group_reads_samples_once() {
    train_rows readall 2 --set 'data.packing={tokens: 50, max_samples: 2, window: 1}' --set stages.0.gradient_accumulation_steps=2 --set parallel.tp=2
    python3 -S - <<'EOF' || fail "bytes read by a group"
import json
once, tp, pp, all = (json.load(open(f"runs/{r}/data-stage-0.json"))["read_bytes"] for r in ("row", "rowstp", "rowspp", "readall"))
print(once, tp, pp, all)
assert once[0] > 0 and all == once * 2
for parts in (tp, pp):
    assert sum(parts) == once[0] and min(parts) > 0
EOF
    diff <(losses runs/rowstp) <(losses runs/readall) || fail "the losses depend on the rank that reads a sample"
}
check a_group_reads_samples_once

# With a window, 1 and 2 ranks have the same rows, and a run resumes at its samples.
packed_rows_resume() {
    train_rows window1 1 --set 'data.packing={tokens: 41, rows: 2}' --set checkpoint.interval=3
    train_rows window2 2 --set 'data.packing={tokens: 41, rows: 2}' --set checkpoint.interval=3
    python3 compare.py runs/window1 runs/window2 6 || fail "packed rows: two ranks differ from one"
    cp -r runs/window2 runs/resumed
    rm -r runs/resumed/model runs/resumed/checkpoints/step-00000006
    train_rows resumed 2 --set 'data.packing={tokens: 41, rows: 2}' --set checkpoint.interval=3
    has_message resumed.log run-resumed value=3 || fail "did not resume from step 3"
    diff <(losses runs/window2) <(losses runs/resumed) || fail "packed rows: losses differ after resuming"
    python3 -S -c 'import json
for line in open("runs/window1/metrics.jsonl"):
    d = json.loads(line); places = d["padding"] * 82; assert abs(places - round(places)) < 1e-4 and d["padding"] < 0.1, d' || fail "packed rows: padding"
}
check packed_rows_resume
refuse_rows() { # ID [FIELD=VALUE...] -- OPTIONS...
    take_message "$@"
    set -- "${rest[@]}"
    "$WEFT" train rows.yaml --set out=runs/refused "$@" >refused.log 2>&1 && fail "accepted: $*"
    has_message refused.log "${wanted[@]}" || { cat refused.log; fail "$*: another message than expected"; }
}
packed_rows_are_checked() {
    refuse_rows config-value key=data.packing.tokens value=3 -- --set data.packing.tokens=3
    refuse_rows config-conflict key=parallel.cascades -- --set data.packing.tokens=64 --set parallel.cascades=auto
    refuse_rows config-conflict key=stages.0 value=2 -- --set data.packing.tokens=64 --set stages.0.buckets.0.batch=2
    refuse_rows config-conflict key=data.packing text~=STDiT3 -- --set data.packing.tokens=64 --set 'transformer={class: STDiT3, config: {depth: 2, num_heads: 2, hidden_size: 32, pred_sigma: false}}'
    ranks 2 "$WEFT" train rows.yaml --set out=runs/refused --set data.packing.tokens=64 --set parallel.cp=2 --set parallel.context=ring >refused.log 2>&1 && fail "accepted a ring"
    has_message refused.log config-conflict key=data.packing || { cat refused.log; return 1; }
}
check packed_rows_are_checked
finish

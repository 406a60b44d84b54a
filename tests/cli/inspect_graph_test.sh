#!/bin/bash
# `weft inspect graph` predicts the bytes that a run of the same config reserves.
set -e
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
cat >vae.yaml <<'YAML'
out: run
data: {path: shards, split: ""}
autoencoder: {class: AutoencoderKLWan, config: {base_dim: 4, dim_mult: [1, 1, 1, 1], num_res_blocks: 1, z_dim: 4}}
stages:
  - {name: one, steps: 2, batch: 1, frames: 1, height: 32, width: 32, lr: 1e-4, warmup_steps: 0}
YAML
"$WEFT" inspect graph vae.yaml >plan.txt
grep -q "^stage one: 2 steps of 1 x 1x32x32" plan.txt
"$WEFT" inspect graph vae.yaml --graph | grep -q "adamw"
predicted=$(awk '$1 == "program" {print $2, $3}' plan.txt)
mkdir -p curated/clips curated/metas
ffmpeg -v error -f lavfi -i testsrc2=size=64x64:rate=8 -frames:v 12 -pix_fmt yuv420p curated/clips/a.mp4
echo '{"caption":"test","frames":12,"fps":8,"width":64,"height":64}' >curated/metas/a.json
"$WEFT" shard --in curated --out shards --set heldout=0 >/dev/null 2>&1
"$WEFT" train vae.yaml >run.txt 2>&1
the_run_reserves_the_prediction() {
    grep -qF "program $predicted," run.txt || { cat plan.txt run.txt; exit 1; }
    # Both print the phases of the whole run.
    terms() { sed -nE 's/.*memory: at most .*, (weights and optimizer .*, copies .*, stage 0 .* and batches .*, latent statistics [0-9.]+ .iB).*/\1/p' "$1"; }
    [ -n "$(terms plan.txt)" ] && [ "$(terms plan.txt)" = "$(terms run.txt)" ] || { cat plan.txt run.txt; exit 1; }
    "$WEFT" inspect graph vae.yaml --set stages.0.batch=3 | grep -q "of 3 x 1x32x32"
    if "$WEFT" inspect graph missing.yaml 2>err; then exit 1; fi
    has_message err file-not-found file=missing.yaml
}
check the_run_reserves_the_prediction

one_step_and_one_video_are_singular() {
    "$WEFT" inspect graph vae.yaml --set stages.0.steps=1 >one.txt
    "$WEFT" estimate vae.yaml --set stages.0.steps=1 >>one.txt
    "$WEFT" train vae.yaml --set out=one --set stages.0.steps=1 >>one.txt 2>&1
    "$WEFT" synth --out synthetic --shots 1 --per-video 1 --held-out-clips 1 >>one.txt 2>&1
    echo text >synthetic/notes.xyz
    "$WEFT" curate --in synthetic --out one-curated >>one.txt 2>&1
    local plural='(^|[^0-9.,])1 (steps|videos|shots|frames|sidecars|others|cuts)'
    [[ ! $(cat one.txt) =~ $plural ]] || { cat one.txt; fail "the plural of one: ${BASH_REMATCH[0]}"; }
}
check one_step_and_one_video_are_singular

# Sizes, mesh and recomputation on the command line replace those of the config.
bytes() { awk -v what="$1" '$1 == what {print $2 * ($3 == "KiB" ? 1 : $3 == "MiB" ? 1024 : 1048576)}' "$2"; }
options_replace_the_config() {
    "$WEFT" inspect graph vae.yaml --batch-size 4 --frames 5 --height 64 --width 32 >sizes.txt
    grep -q "of 4 x 5x64x32" sizes.txt
    "$WEFT" inspect graph vae.yaml --batch-size 4 --frames 5 --height 64 --width 32 --mesh dp=4 >mesh.txt
    "$WEFT" inspect graph vae.yaml --batch-size 4 --frames 5 --height 64 --width 32 --set parallel.dp=4 >set.txt
    stable() { sed 's/at most .*copies/copies/' "$1" | grep -v planned; } # resident memory differs each time
    diff <(stable mesh.txt) <(stable set.txt)
    awk -v a="$(bytes activations sizes.txt)" -v b="$(bytes activations mesh.txt)" \
        'BEGIN {exit !(b < 0.4 * a)}' || { cat sizes.txt mesh.txt; exit 1; }
    "$WEFT" inspect graph vae.yaml --recompute 'conv3d' --frames 5 >again.txt
    "$WEFT" inspect graph vae.yaml --frames 5 >once.txt
    awk -v a="$(bytes activations once.txt)" -v b="$(bytes activations again.txt)" 'BEGIN {exit !(b < a)}'
}
check options_replace_the_config

launches_of_a_run_are_listed() {
    "$WEFT" inspect graph vae.yaml --roofline rtx4090 --json >roofline.json || exit 1
    python3 -S -c 'import json; t=json.load(open("roofline.json")); p=t["programs"][0]; assert t["gpu"] == "RTX4090" and len(t["programs"]) == 1 and any(r["key"].startswith("conv3d f32") and r["least_seconds"] > 0 for r in p["rows"]), p'
    # TF32 reaches the kernels, also of the backward
    sed "s/_dim: 4/_dim: 8/g" vae.yaml >even.yaml
    "$WEFT" inspect graph even.yaml --roofline rtx4090 --set precision=tf32 --json >tf32.json || exit 1
    python3 -S -c 'import json; r=json.load(open("tf32.json"))["programs"][0]["rows"]; assert {x["key"].split()[0] for x in r if "weft_gemm_tf32" in x["kernels"]} >= {"conv3d", "conv3d_dx", "conv3d_dw"}, r'
    "$WEFT" inspect graph vae.yaml --roofline a100 --set stages.0.accumulate=2 >roofline.txt
    grep -q '^stage one: 1 x 1x32x32' roofline.txt && grep -q '^update$' roofline.txt
    if "$WEFT" inspect graph vae.yaml --json 2>err; then exit 1; fi
    has_message err option-no-effect key=--json
}
check launches_of_a_run_are_listed

# The seconds of a step on a cluster, with all terms.
seconds_on_a_cluster() {
    "$WEFT" inspect graph vae.yaml --on h100:1 | grep -q "^  predicted step .* forward .* backward .* update "
    if "$WEFT" inspect graph vae.yaml --on h1000 2>err; then exit 1; fi
    has_message err file-not-found file=h1000 'text~=did you mean h100'
}
check seconds_on_a_cluster

# Changes of each pass, a pass that is off, an unknown name, and starts and waits of collectives.
passes_are_listed() {
    "$WEFT" inspect graph vae.yaml --mesh dp=2 --batch-size 2 --passes --graph >passes.txt
    grep -q "^shard .*vary +" passes.txt
    grep -q "^recompute  *nothing to do" passes.txt
    grep -q "^comm_order .* collectives with [0-9.]* nodes during each" passes.txt
    grep -q "^start %[0-9]* .* = all_reduce" passes.txt
    grep -q "^wait %[0-9]*$" passes.txt
    "$WEFT" inspect graph vae.yaml --passes --set passes.comm_order=off | grep -q "^comm_order  *off"
    if "$WEFT" inspect graph vae.yaml --set passes.nonesuch=off 2>err; then exit 1; fi
    has_message err '*' level=error text~=nonesuch text~=recompute text~=comm_order
}
check passes_are_listed

# An axis that splits nothing, and the list of axes.
axes_that_nothing_splits_are_refused() {
    for mesh in pd=2 tp=2 dp=2,tp=2; do
        if "$WEFT" inspect graph vae.yaml --batch-size 2 --mesh $mesh 2>err; then exit 1; fi
        has_message err mesh-invalid 'text~=dp (' 'text~=fsdp (' || { cat err; exit 1; }
    done
    "$WEFT" inspect graph vae.yaml --batch-size 2 --mesh fsdp=2 >fsdp.txt
    "$WEFT" inspect graph vae.yaml --batch-size 2 >one.txt
    awk -v a="$(bytes weights one.txt)" -v b="$(bytes weights fsdp.txt)" 'BEGIN {exit !(b < 0.6 * a)}'
}
check axes_that_nothing_splits_are_refused

# Options of `inspect model` are refused.
options_of_the_other_word_are_refused() {
    for option in --json --tensors --training-step "--backend ref" "--top 3"; do
        if "$WEFT" inspect graph vae.yaml $option >out.txt 2>err; then cat out.txt; exit 1; fi
        has_message err option-no-effect key="${option% *}" 'text~=weft inspect model'
    done
    for option in --passes "--on h100:1" "--set seed=2"; do
        if "$WEFT" inspect model wan-1.3b $option >out.txt 2>err; then exit 1; fi
        has_message err option-no-effect key="${option% *}" 'text~=weft inspect graph'
    done
}
check options_of_the_other_word_are_refused

# The complete set-up of one rank of 1,024: Wan 14B, 75,600 tokens, every axis, and pipeline stages. No
# allocation has the size of the model or of the sequence (56 GiB of weights; one copy of a rope table
# is 37 MiB), and no table has an entry per pair of ranks.
mkdir -p large
echo '{"_class_name":"AutoencoderKLWan"}' >large/config.json
cat >large.yaml <<'YAML'
out: run
data: {path: shards, split: ""}
autoencoder: {weights: large}
transformer: {class: WanTransformer3DModel}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 512, num_layers: 2, max_length: 512}}]
memory: {recompute: ['transformer.blocks.*']}
stages:
  - {steps: 2, batch: 16, frames: 81, height: 720, width: 1280, lr: 1e-4, warmup_steps: 0}
parallel: {tp: 8, cp: 8, pp: 4, dp: 4, microbatches: 4}
YAML
a_rank_of_1024_is_set_up() {
    case $WEFT_BUILD in */asan | */tsan) most=0 ;; *) most=256 ;; esac
    most=$most python3 -S - <<'P'
import os, resource, subprocess
for rank in (0, 517, 1023):
    out = subprocess.run([os.environ["WEFT"], "inspect", "graph", "large.yaml", "--rank", str(rank), "--set", "backend=virtual"],
                         check=True, capture_output=True, text=True).stdout
    assert f"set up as rank {rank} of 1024 in " in out, out
    assert "stage  3  on pp=3" in out, out
held = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
assert int(os.environ["most"]) == 0 or held < int(os.environ["most"]), f"{held} MiB"
P
    if "$WEFT" inspect graph large.yaml --rank 1024 2>err; then exit 1; fi
    has_message err option-invalid key=--rank text~=1024 'text~=0 to 1023' || { cat err; exit 1; }
}
check a_rank_of_1024_is_set_up
finish

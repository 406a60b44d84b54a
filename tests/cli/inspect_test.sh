#!/bin/bash
# weft inspect model: exact parameter counts, time, consistent figures, errors.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
field() { python3 -S -c 'import json,sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$1" "$2"; }

echo '{"_class_name":"WanTransformer3DModel","num_attention_heads":12,"attention_head_dim":128,"ffn_dim":8960,"num_layers":30}' >small.json
echo '{"_class_name":"WanTransformer3DModel"}' >large.json
echo '{"_class_name":"AutoencoderKLWan"}' >vae.json
parameters_are_exact() { # NAME COUNT
    "$WEFT" inspect model $1.json --frames 9 --height 64 --width 64 --json >out.json || fail "$1"
    [ "$(field out.json parameters)" = $2 ] || fail "$1: $(field out.json parameters) parameters"
}
check parameters_of_small parameters_are_exact small 1418996800
check parameters_of_large parameters_are_exact large 14288491584
check parameters_of_vae parameters_are_exact vae 126892531

# The complete training step of 1.3B at 81x480x832 allocates no weights (1 GiB of address space) and has
# as many nodes as that of the smallest video, so that planning does not grow with the video.
figures_of_a_training_step() {
    case $WEFT_BUILD in */asan | */tsan) kib=unlimited ;; *) kib=1500000 ;; esac # sanitizers need it
    (ulimit -v $kib; OMP_NUM_THREADS=1 "$WEFT" inspect model small.json --training-step --json >train.json) || fail "1.3B"
    "$WEFT" inspect model small.json --training-step --frames 1 --height 16 --width 16 --json >least.json || fail "1.3B, a frame"
    python3 -S - <<'P' || fail "figures of 1.3B"
import json
t, least = json.load(open("train.json")), json.load(open("least.json"))
assert t["nodes"] == least["nodes"] > 1000 and t["flops_step"] > 1000 * least["flops_step"], (t, least)
assert t["parameters"] == 1418996800
assert t["weight_bytes"] >= 4 * 4 * t["parameters"]      # weights, two moments, the EMA
assert 2.7 < t["flops_step"] / t["flops_forward"] < 4, t # the backward is about twice the forward
assert t["arena_bytes"] >= t["live_bytes"] > 0
assert t["peak_bytes"] == t["program_bytes"] + t["weight_bytes"]
P
}
check figures_of_a_training_step

# The launches have the FLOPs of the nodes, and add up. Every time follows from its limit.
launches_add_up() {
    needs figures_of_a_training_step
    "$WEFT" inspect model small.json --training-step --frames 1 --height 16 --width 16 --roofline h100 --json >f32.json || fail "f32"
    "$WEFT" inspect model small.json --training-step --roofline h100 --bf16 --mesh fsdp=8 --batch-size 8 --json >bf16.json || fail "bf16"
    python3 -S - <<'P' || fail "launches"
import json, os
least, f32, bf16 = (json.load(open(name + ".json")) for name in ("least", "f32", "bf16"))
assert f32["programs"][0]["flops"] == least["flops_step"], (f32["programs"][0]["flops"], least)
for t in f32, bf16:
    p = t["programs"][0]
    rows = [r for r in p["rows"] if "sent_bytes" not in r]
    for key in "launches", "flops", "bytes", "redundant_bytes":
        assert abs(sum(r[key] for r in rows) - p[key]) <= 1e-9 * p[key], key
    for r in rows:
        assert r["least_seconds"] >= 0.999 * max(r["bytes"] / t["memory_bandwidth"], r["launches"] * t["launch_seconds"]), r
        assert r["redundant_bytes"] <= r["bytes"] and r["stated_seconds"] >= 0.999 * r["least_seconds"], r
    assert 0 < p["redundant_share"] < 1 and p["least"]["kernel_seconds"] <= p["stated"]["kernel_seconds"]
p = bf16["programs"][0]
own = [r for r in p["rows"] if r["key"] == "linear bf16[1,32760,1536] bf16[8960,1536] f32[8960] -> bf16[1,32760,8960]"]
assert len(own) == 1 and own[0]["launches"] == 30, own
assert abs(own[0]["least_seconds"] - own[0]["flops"] / bf16["flops"]) < 1e-9 and own[0]["limit"] == "flops", own
adamw = [r for r in p["rows"] if r["key"].startswith("adamw")]
assert sum(r["nodes"] for r in adamw) == 825 and all(r["part"] == "update" and r["occupancy"] == 62 for r in adamw), adamw[0]
# Of a node with several kernels, the least occupancy of the table (the last column is of sm_90).
table = {}
for line in open(os.environ["SRC"] + "/tools/gpu_budgets.txt"):
    part = line.split()
    if part and part[0][0] != "#":
        table[part[0]] = int(part[-1])
several = 0
for r in p["rows"]:
    known = [table.get(k) for k in r.get("kernels", "").split("+")]
    if None not in known:
        assert r["occupancy"] == min(known), r
        several += known[0] > min(known) # the first kernel's would be wrong
assert several > 0
assert p["measured"]["seconds"] < p["stated"]["seconds"] and "bench/gpu.md" in bf16["measured_source"], p["measured"]
assert p["exchanges"] > 0 and p["sent_bytes"] > 2 * 1418996800 and p["least"]["exchange_seconds"] > 0
assert p["least"]["seconds"] >= p["least"]["kernel_seconds"] and f32["programs"][0]["exchanges"] == 0
P
}
check launches_add_up
recomputation_saves() {
    needs figures_of_a_training_step
    "$WEFT" inspect model small.json --training-step --recompute 'transformer.blocks.*' --json >less.json || fail "recompute"
    python3 -S -c 'import json; a=json.load(open("train.json")); b=json.load(open("less.json")); assert b["arena_bytes"] < 0.15*a["arena_bytes"] and b["flops_step"] > a["flops_step"]' ||
        fail "recompute does not save"
    "$WEFT" inspect model small.json --recompute bogus >out 2>err && fail "--recompute without --training-step is accepted"
    has_message err option-no-effect key=--recompute text~=--training-step || fail "--recompute without --training-step: another message"
    "$WEFT" inspect model small.json --training-step --recompute 'blcks.*' >out 2>err && fail "a pattern that matches nothing is accepted"
    has_message err '*' level=error 'text~=blcks.*' || fail "a pattern that matches nothing: $(cat err)"
}
check recomputation_saves
a_rank_of_two_is_half() {
    "$WEFT" inspect model small.json --training-step --batch-size 4 --mesh dp=2 --json >dp.json || fail "dp=2"
    "$WEFT" inspect model small.json --training-step --batch-size 2 --json >one.json || fail "batch 2"
    python3 -S -c 'import json; a=json.load(open("dp.json")); b=json.load(open("one.json")); assert abs(a["arena_bytes"]/b["arena_bytes"]-1)<0.02 and a["wire_bytes"]>=4*a["parameters"] and b["wire_bytes"]==0' ||
        fail "a rank of two with four samples is not like one rank with two"
}
check a_rank_of_two_is_half

# Every axis of the trainer, alone and combined, has less of the parts that it splits. An axis that
# splits nothing is refused.
every_axis_splits() { # MESH
    local mesh=$1
    "$WEFT" inspect model small.json --training-step --frames 9 --height 64 --width 64 --batch-size 2 --mesh $mesh --json >mesh.json || fail "--mesh $mesh"
    "$WEFT" inspect model small.json --training-step --frames 9 --height 64 --width 64 --batch-size 2 --json >alone.json
    python3 -S -c 'import json,sys; a=json.load(open("mesh.json")); b=json.load(open("alone.json")); m=sys.argv[1]; cut=any(x in m for x in ("fsdp","tp","sp")); assert a["wire_bytes"] > 0 and a["flops_step"] < 0.8*b["flops_step"] and (a["weight_bytes"] < 0.75*b["weight_bytes"]) == cut, (m, a, b)' $mesh ||
        fail "figures of --mesh $mesh"
}
for mesh in fsdp=2 tp=2 cp=2 sp=2 dp=2,tp=2 fsdp=2,cp=2; do check "every_axis_splits_$mesh" every_axis_splits "$mesh"; done

# A training step of 14B on the simulated GPU needs at least the time of its FLOPs at 400 TFLOP/s, and
# less than 230 GB.
a_virtual_device_is_priced() {
    "$WEFT" inspect model large.json --training-step --frames 9 --height 256 --width 256 --backend virtual --json >virtual.json || fail "virtual"
    python3 -S -c 'import json; t=json.load(open("virtual.json")); least=t["flops_step"]/400e12; assert least <= t["simulated_seconds"] and t["weight_bytes"] > 200e9, t' ||
        fail "a step on the virtual device: $(cat virtual.json)"
    "$WEFT" inspect model small.json --frames 9 --height 64 --width 64 --backend virtual | grep -q "one run takes .* simulated" || fail "no seconds on the virtual device"
    "$WEFT" inspect model small.json --backend tpu >out 2>err && fail "an unknown backend is accepted"
    has_message err option-invalid key=--backend 'text~=cpu, ref, virtual' || fail "unknown backend: $(cat err)"
}
check a_virtual_device_is_priced

a_pipeline_folder_is_inspected() {
    mkdir -p pipeline/transformer pipeline/vae
    echo '{}' >pipeline/model_index.json
    cp small.json pipeline/transformer/config.json
    cp vae.json pipeline/vae/config.json
    "$WEFT" inspect model pipeline --frames 5 --height 64 --width 64 >text || fail "pipeline folder"
    grep -q 1,418,996,800 text && grep -q 126,892,531 text || fail "pipeline folder: counts"
    "$WEFT" inspect model pipeline/vae --graph --top 0 --frames 5 --height 32 --width 32 | grep -q '= conv3d(' || fail "--graph"
}
check a_pipeline_folder_is_inspected

refuse() { check "refuses $*" refused "$@"; }
refused() { # ID [FIELD=VALUE...] -- ARGS...
    take_message "$@"
    set -- "${rest[@]}"
    "$WEFT" inspect "$@" >out 2>err && fail "accepted: $*"
    has_message err "${wanted[@]}" || fail "$*: another message"
}
refuse file-not-found file=nothere.json -- model nothere.json
echo '{"_class_name":"Nobody"}' >other.json
refuse model-unknown file=other.json text~=Nobody -- model other.json
refuse argument-invalid "text~='shape'" -- shape small.json
refuse mesh-invalid -- model small.json --mesh dp=x
refuse mesh-invalid 'text~=dp (' 'text~=tp (' -- model small.json --mesh pd=2
refuse mesh-invalid 'text~=dp (' -- model vae.json --mesh tp=2
refuse file-not-found 'text~=rtx4090' -- model small.json --roofline h1000
refuse model-shape 'text~=frames' -- model vae.json --frames 6
refuse video-size key=--height text~=100x text~=8x8 -- model small.json --height 100 # sizes are not rounded
echo '{"_class_name":"WanTransformer3DModel","num_layers":2e9}' >many.json
refuse model-config file=many.json key=num_layers 'text~=2000000000 is not from 0 to 1024' -- model many.json
mkdir -p run/model
refuse model-not-found file=run text~=run/model -- model run

# Every published denoiser has a size by default that it takes. Other sizes need the option.
every_published_size_has_a_default() {
    python3 -S - "$SRC/src/model/denoisers" >sizes.txt <<'PY'
import glob, re, sys
for path in sorted(glob.glob(sys.argv[1] + "/*.c")):
    for table in re.findall(r"weft_named_config \w*\[\] = \{.*?\n\};", open(path).read(), re.S):
        print(*re.findall(r'^    \{"([a-z0-9.-]+)"', table, re.M), sep="\n")
PY
    [ "$(wc -l <sizes.txt)" -gt 60 ] || fail "$(wc -l <sizes.txt) sizes"
    local size
    while read -r size; do
        case $size in # positions of one size only
        uvit-*) set -- --height 256 --width 256 --text-tokens 77 ;;
        cogvideox-5b-i2v) set -- --frames 49 --width 720 ;;
        *) set -- ;;
        esac
        "$WEFT" inspect model "$size" --top 0 "$@" >page.txt 2>err || fail_with err "$size"
    done <sizes.txt
    # an image; the nearest number of frames to 81; frames, height and width of each family's autoencoder
    for size in "flux2-dev 1 x 1 x 30 x 52" "latte-1 1 x 16 x 60 x 104" "sd1 1 x 1 x 60 x 104" "cogvideox1.5-5b 1 x 22 x 60 x 104" "stdit3-xl 1 x 25 x 60 x 104" "ltx-2-19b 1 x 11 x 15 x 26" \
        "cosmos1-7b 1 x 11 x 60 x 104" "cosmos-transfer2.5-2b 1 x 21 x 60 x 104"; do
        "$WEFT" inspect model "${size%% *}" --top 0 >page.txt || fail "${size%% *}"
        grep -q "sample size *${size#* } (latents)" page.txt || fail_with page.txt "$size"
    done
    "$WEFT" inspect model flux2-dev --frames 81 >out 2>err && fail "81 frames of flux2-dev are accepted"
    has_message err model-shape text~=81 || fail_with err "the message"
    "$WEFT" inspect model stdit3-xl --frames 81 >out 2>err && fail "81 frames of stdit3-xl are accepted"
    has_message err video-size key=--frames value=81 || fail_with err "the message"
}
check every_published_size_has_a_default

# Names, types and sizes of every parameter, of a file and of a published size.
every_tensor_is_listed() {
    "$WEFT" inspect model small.json --tensors >small.txt || fail "--tensors"
    "$WEFT" inspect model wan-1.3b --tensors | diff - small.txt >/dev/null || fail "wan-1.3b is not small.json"
    grep -qx 'patch_embedding.weight f32 1536,16,1,2,2' small.txt || fail "no patch_embedding.weight"
    [ "$(wc -l <small.txt)" = 825 ] || fail "$(wc -l <small.txt) parameters"
    sort -c small.txt 2>/dev/null || LC_ALL=C sort -c small.txt || fail "--tensors is not sorted"
}
check every_tensor_is_listed

# A file with the authors' names and a prefix. One of its three tensors has a scale.
prefixes_and_scales_of_a_file_are_read() {
    python3 -S - <<'PY'
import json, struct
prefix, head, at = "model.diffusion_model.", {}, 0
for name, dtype, shape, size in (("head.modulation", "F32", [2, 3], 24), ("blocks.0.self_attn.q.bias", "F32", [4], 16),
                                 ("blocks.0.self_attn.q.weight", "F8_E4M3", [4, 2], 8),
                                 ("blocks.0.self_attn.q.scale_weight", "F32", [1], 4)):
    head[prefix + name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
    at += size
text = json.dumps(head).encode()
open("prefixed.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + bytes(at))
PY
    "$WEFT" inspect model prefixed.safetensors --tensors >names.txt || fail "--tensors of a file"
    grep -qx 'blocks.0.attn1.to_q.weight f8e4m3 4,2' names.txt || fail "names of a file: $(cat names.txt)"
    ! grep -q diffusion_model names.txt || fail "the prefix is listed: $(cat names.txt)"
    "$WEFT" inspect model prefixed.safetensors >summary.txt || fail "a file with scales"
    grep -q '; 1 with separate scales$' summary.txt || fail "scales: $(cat summary.txt)"
}
check prefixes_and_scales_of_a_file_are_read
finish

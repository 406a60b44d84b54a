#!/bin/bash
# `precision: tf32` on a GPU: latents of whole clips and of tiles are rounded, and have a cache of
# their own. `weft generate --vae-precision tf32` rounds frames. The channels of the VAE are multiples
# of 8, which tensor cores need.
source "$SRC/tests/train/common.sh"
export WEFT_CUDA_LIBRARY=$WEFT_BUILD/emu/libcuda.so.1 WEFT_GPU_VERDICTS=$PWD/verdicts
. "$SRC/tests/messages.sh"
make_shards 1
cat >vae.yaml <<'Y'
out: runs/vae
data: {path: shards}
autoencoder:
  class: AutoencoderKLWan
  config: {base_dim: 8, dim_mult: [1, 1, 2], num_res_blocks: 1, z_dim: 8, temperal_downsample: [false, true],
    latents_mean: [0, 0, 0, 0, 0, 0, 0, 0], latents_std: [1, 1, 1, 1, 1, 1, 1, 1]}
stages: [{steps: 1, batch: 1, frames: 1, height: 16, width: 16, lr: 1e-3}]
Y
cat >dit.yaml <<'Y'
autoencoder: {weights: runs/vae/model/vae}
data: {path: shards, latents: latents}
transformer: {class: WanTransformer3DModel, config: {num_layers: 1, num_attention_heads: 1, attention_head_dim: 6, ffn_dim: 8, freq_dim: 4}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 4, num_heads: 1, num_layers: 1, ffn_dim: 4, max_length: 8}}]
stages: [{steps: 1, batch: 1, frames: 3, height: 32, width: 32, lr: 1e-3}]
Y
"$WEFT" train vae.yaml >vae.log 2>&1 || fail_with vae.log "weft train vae"
encode() { # NAME SETTINGS...
    local name=$1
    shift
    "$WEFT" train dit.yaml --set "out=runs/$name" --set "data.latents=latents/$name" "$@" >"$name.log" 2>&1 || {
        has_message "$name.log" gpu-kernels && skip "no clang"
        fail_with "$name.log" "$name"
    }
}
# The comparison of kernels in TF32 is a test of tests/doctor: the verdicts of f32 are copied.
copy_verdicts() {
    python3 -S -c 'import json, sys
verdicts = json.load(open(sys.argv[1]))
verdicts["ops"]["tf32"] = verdicts["ops"]["f32"]
json.dump(verdicts, open(sys.argv[1], "w"))' verdicts/*.json
}
# difference A B: relative, in the norm of all latents
difference() {
    python3 -S - "$@" <<'PY'
import array, glob, struct, sys, tarfile
def load(name):
    values = {}
    for path in sorted(glob.glob(f"latents/{name}/*/*.tar")):
        with tarfile.open(path) as tar:
            for m in tar:
                if m.name.endswith(".npy"):
                    data = tar.extractfile(m).read()
                    values[m.name] = array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])
    return values
a, b = map(load, sys.argv[1:])
assert a and a.keys() == b.keys(), (a.keys(), b.keys())
off = sum((x - y) ** 2 for k in a for x, y in zip(a[k], b[k]))
print((off / sum(y * y for k in b for y in b[k])) ** .5)
PY
}
# Rounding to TF32 changes a product by up to 2^-11; f32 on two backends differs by the order of sums.
latents_are_rounded() { # NAME SETTINGS...
    local name=$1 f32 tf32
    shift
    encode "$name-cpu" "$@"
    encode "$name-f32" --set backend=cuda "$@"
    copy_verdicts
    encode "$name-tf32" --set backend=cuda --set precision=tf32 "$@"
    f32=$(difference "$name-f32" "$name-cpu")
    tf32=$(difference "$name-tf32" "$name-f32")
    echo "$name: f32 of cuda and cpu differ by $f32, tf32 and f32 by $tf32"
    awk "BEGIN {exit !($f32 < 1e-5 && $tf32 > 1e-4 && $tf32 < 6e-3)}" || fail "f32 $f32, tf32 $tf32"
}
check whole_clips_are_rounded latents_are_rounded whole
check tiles_are_rounded latents_are_rounded tiles --set "autoencoder.tile=16x16+8"

# The transformer computes in f32, so that verdicts of two precisions are loaded.
frames_are_rounded() {
    needs whole_clips_are_rounded
    local p
    for p in f32 tf32; do
        "$WEFT" generate --model runs/whole-f32/model --prompt x --steps 1 --frames 3 --height 32 --width 32 --backend cuda \
            --vae-precision $p --frames-npy --out $p.mp4 >$p.log 2>&1 || fail_with $p.log "weft generate"
    done
    python3 -S - <<'PY' || fail "frames of --vae-precision tf32"
import array, struct
def load(path):
    data = open(path, "rb").read()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])
a, b = load("f32.npy"), load("tf32.npy")
error = (sum((x - y) ** 2 for x, y in zip(a, b)) / sum(x * x for x in a)) ** .5
print(f"frames differ by {error:.2g} of the norm")
assert 1e-5 < error < 6e-3, error
PY
}
check frames_are_rounded

# A cache of f32 is not read by a run of TF32: its key has the precision. cpu does not round.
caches_are_separate() {
    encode shared
    encode shared --set out=runs/again --set precision=tf32
    [ "$(ls latents/shared | wc -l)" = 2 ] || fail "$(ls latents/shared)"
    local first=latents/shared/$(ls latents/shared | head -n 1) second=latents/shared/$(ls latents/shared | tail -n 1)
    content() { for t in "$1"/*.tar; do tar tf "$t" | grep npy | while read -r m; do echo "$m $(tar xOf "$t" "$m" | md5sum)"; done; done | sort; }
    diff <(content "$first") <(content "$second") || fail "cpu rounds"
}
check caches_are_separate
finish

#!/bin/bash
# Predicted memory of runs with identity conditioning by images: the peak of the process within 5 %,
# with and without features to encode. The image encoder is much larger than the other models, so
# that its weights and its program count.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh" # messages as JSON
make_shards 8
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
# images of the clips, and an image encoder of zeros
python3 -S - <<'PY' || fail "images"
import glob, json, os, struct, zlib
def part(kind, data): return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
def picture(path, side):
    rows = b"".join(b"\0" + bytes((x * y) % 251 for x in range(3 * side)) for y in range(side))
    open(path, "wb").write(b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b""))
for i, clip in enumerate(sorted(glob.glob("cur/clips/*.mp4"))):
    for folder in ["front"] + ["side"] * (i % 2):
        os.makedirs(folder, exist_ok=True)
        picture(f"{folder}/{os.path.basename(clip)[:-4]}.png", 90)
width, inner, layers, side = 256, 1024, 8, 224
tensors = {"vision_model.embeddings.class_embedding": [width], "vision_model.embeddings.patch_embedding.weight": [width, 3, 14, 14],
           "vision_model.embeddings.position_embedding.weight": [257, width], "visual_projection.weight": [64, width]}
norms = ["vision_model.pre_layrnorm", "vision_model.post_layernorm"]
for i in range(layers):
    at = f"vision_model.encoder.layers.{i}."
    norms += [at + "layer_norm1", at + "layer_norm2"]
    for name, a, b in [(f"self_attn.{n}_proj", width, width) for n in ("q", "k", "v", "out")] + [("mlp.fc1", inner, width), ("mlp.fc2", width, inner)]:
        tensors |= {at + name + ".weight": [a, b], at + name + ".bias": [a]}
for norm in norms: tensors |= {norm + ".weight": [width], norm + ".bias": [width]}
head, end = {}, 0
for name, shape in tensors.items():
    count = 4
    for n in shape: count *= n
    head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + count]}
    end += count
text = json.dumps(head).encode()
text += b" " * (-len(text) % 8)
os.makedirs("clip")
with open("clip/model.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text)
    f.truncate(8 + len(text) + end)
json.dump({"architectures": ["CLIPVisionModelWithProjection"], "model_type": "clip_vision_model", "hidden_size": width, "intermediate_size": inner, "projection_dim": 64,
           "num_hidden_layers": layers, "num_attention_heads": 4, "image_size": side, "patch_size": 14}, open("clip/config.json", "w"))
json.dump({"size": {"shortest_edge": side}, "crop_size": {"height": side, "width": side}}, open("clip/preprocessor_config.json", "w"))
PY
sed "/^stages/,\$d; s/runs.dit/runs\/id/" dit.yaml >id.yaml
cat >>id.yaml <<'Y'
identity: {class: WeftIdentityEncoder, config: {num_tokens: 4, dim: 64, num_heads: 2}, image_encoder: clip, images: [front, side]}
stages:
  - {steps: 2, batch: 4, frames: 9, height: 32, width: 32, lr: 1e-3, warmup_steps: 0}
Y
sed -i 's|path: shards|&, latents: latents|' id.yaml
predicted() { python3 "$SRC/tests/train/estimate/compare_memory.py" "$WEFT" "$@" || fail "$*"; }
check "features to encode" predicted "features to encode" id.yaml
check "features cached" predicted "features cached" id.yaml --set out=runs/id2
check "embeddings to encode" predicted "embeddings to encode" id.yaml --set out=runs/id3 --set identity.config.features=embedding
# While images are encoded, the image encoder is in memory, and its program needs the most here.
generation_counts_the_encoder() {
    needs "features to encode"
    local picture
    picture=$(find front -name '*.png' | head -1)
    python3 -S - "$WEFT" "$picture" <<'P' || fail "generation"
import json, os, re, subprocess, sys
weft, picture = sys.argv[1:]
def predicted(*options):
    made = subprocess.run([weft, "estimate", "--model", "runs/id/model", "--steps", "1", "--json", *options], capture_output=True, text=True)
    if made.returncode: sys.exit(made.stdout + made.stderr)
    return json.loads(made.stdout)["peak_bytes"] / 2**20
def measured(*options):
    process = subprocess.Popen([weft, "generate", "--model", "runs/id/model", "--prompt", "x", "--steps", "1", "--out", "x.mp4", *options], stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status: sys.exit(f"weft generate ends with {status}")
    return usage.ru_maxrss / 1024
images = ["--identity-image", picture] * 2
more, own, weights = predicted(*images) - predicted(), measured(*images) - measured(), os.path.getsize("clip/model.safetensors") / 2**20
print(f"images need {more:.1f} MiB more as predicted, {own:.1f} MiB measured; the image encoder has {weights:.1f} MiB of weights")
if more < weights - 8: sys.exit("the image encoder is not in the prediction")
if not re.search("/(asan|tsan)", weft) and own > more + 4: sys.exit("more memory than predicted")
P
}
check generation generation_counts_the_encoder
finish

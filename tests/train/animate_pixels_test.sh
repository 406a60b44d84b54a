#!/bin/bash
# From files to the inputs of Wan Animate: videos of poses, faces, masks and backgrounds, and images
# of characters. Latents and image tokens equal the results of diffusers and transformers (f64), so do
# the losses of steps, which depend on all inputs (tools/golden_animate_pixels.py). They are close,
# not bitwise: weft computes in f32.
source "$SRC/tests/train/common.sh"
golden=$SRC/tests/golden/animate_pixels models=$SRC/tests/golden/pipelines/wan_animate
cp -r "$golden"/{clips,poses,faces,images,backgrounds,masks} .
cat >plain.yaml <<Y
out: runs/plain
seed: 5
autoencoder: {weights: $models/vae}
data: {path: clips, latents: latents}
condition: control
control: {path: poses, face: faces, image_encoder: $models/image_encoder}
transformer: {weights: $models/transformer}
text_encoders: [{weights: $models/text_encoder, tokenizer: $models/tokenizer}]
caption_dropout: 0
flow: {shift: 3}
stages:
  - {steps: 4, batch: 2, frames: 9, height: 32, width: 32, lr: 1e-12, warmup_steps: 0, lr_schedule: constant}
Y
sed 's|runs/plain|runs/full|; s|face: faces|&, image: images, background: backgrounds, mask: masks, face_dropout: 0.4, window_overlap: 5, overlap_share: 0.5|' plain.yaml >full.yaml
cat >losses.py <<'P'
import json, sys
run, expected = sys.argv[1], json.load(open(sys.argv[2]))["losses"][sys.argv[1]]
made = [json.loads(line)["loss"] for line in open(f"runs/{run}/metrics.jsonl")]
if len(made) != len(expected) or any(abs(a - b) > 1e-5 * b for a, b in zip(made, expected)):
    sys.exit(f"{run}: the losses are {made}, not {expected}")
P
cat >latents.py <<'P'
import glob, json, struct, sys, tarfile
def floats(data, count): return struct.unpack(f"<{count}f", data)
def product(shape):
    count = 1
    for n in shape: count *= n
    return count
raw = open(sys.argv[1], "rb").read()
head = struct.unpack("<Q", raw[:8])[0]
expected = {}
for name, t in json.loads(raw[8:8 + head]).items():
    if name != "__metadata__":
        first, last = t["data_offsets"]
        expected[name] = t["shape"], floats(raw[8 + head + first:8 + head + last], product(t["shape"]))
made = []  # key, tokens or latents, shape, values
def npy(data):
    length = struct.unpack("<H", data[8:10])[0]
    shape = eval(data[10:10 + length].decode())["shape"]
    return list(shape), floats(data[10 + length:], product(shape))
for path in glob.glob("latents/*/*.tar"):
    for member in tarfile.open(path):
        key, _, suffix = member.name.partition(".")
        if suffix in ("latent.npy", "image.npy"):
            made.append((key, suffix, *npy(tarfile.open(path).extractfile(member).read())))
for path in glob.glob("latents/*/grey-*.npy"):
    made.append(("grey", "latent.npy", *npy(open(path, "rb").read())))
for name, (shape, values) in expected.items():
    key, suffix = name.split(".")[-1], "image.npy" if name.startswith("tokens.") else "latent.npy"
    scale = max(map(abs, values))
    off = [max(abs(a - b) for a, b in zip(values, other)) / scale for k, s, has, other in made if k == key and s == suffix and has == shape]
    if not off or min(off) > 1e-5:
        sys.exit(f"{name} is not in the cache: the nearest values are off by {min(off, default=None)}")
    print(name, "off by", min(off))
P
sees() { # RUN
    "$WEFT" train "$1.yaml" >"$1.log" 2>&1 || { cat "$1.log"; fail "weft train $1"; }
    python3 -S losses.py "$1" "$golden/expected.json" || fail "losses"
}
check plain sees plain
check full sees full
latents_are_equal() {
    needs plain full
    python3 -S latents.py "$golden/latents.safetensors" || fail "latents"
}
check latents latents_are_equal
finish

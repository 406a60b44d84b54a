# Sourced by the scripts of this folder: a small data set, and configs that train in seconds.
. "$SRC/tests/check.sh"
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
MPIRUN="$(command -v mpirun.openmpi || command -v mpirun)"
ranks() { # ranks N COMMAND...
    local n=$1
    shift
    if [ "$n" = 1 ]; then "$@"; else "$MPIRUN" --oversubscribe -n "$n" "$@"; fi
}
# losses RUN: one "step loss grad_norm" a line
losses() {
    python3 -S -c 'import json,sys
for line in open(sys.argv[1]):
    d = json.loads(line); print(d["step"], repr(d["loss"]), repr(d["grad_norm"]))' "$1/metrics.jsonl"
}
make_shards() { # [N]: 24 or N captioned clips in ./shards
    "$WEFT" synth --out raw --shots "${1:-24}" --single-share 1 --held-out-clips 0 --min-frames 12 --max-frames 14 >synth.log 2>&1 ||
        { cat synth.log; fail "weft synth"; }
    python3 -S - <<'PY'
import glob, json, os, shutil
os.makedirs("cur/clips"); os.makedirs("cur/metas")
for f in sorted(glob.glob("raw/train/s*.mp4")):
    key = os.path.basename(f)[:-4]
    shutil.copy(f, f"cur/clips/{key}.mp4")
    json.dump({"id": key, "caption": open(f[:-4] + ".txt").read().strip(), "frames": 12, "width": 64, "height": 64,
               "fps": 24.0}, open(f"cur/metas/{key}.json", "w"))
PY
    "$WEFT" shard --in cur --out shards --set heldout=0 >shard.log 2>&1 || { cat shard.log; fail "weft shard"; }
}
# make_mixed_shards: writes ./mixed, one shard as another tool would write it. Of the 24 clips, 12
# stay 64x64, 6 become 64x32 and 6 become images (PNG and JPEG).
make_mixed_shards() {
    command -v ffmpeg >/dev/null || skip "ffmpeg is not installed"
    python3 -S - <<'PY' || fail "mixed shards"
import glob, io, json, os, subprocess, tarfile
os.makedirs("mixed")
with tarfile.open("mixed/train-000000.tar", "w", format=tarfile.USTAR_FORMAT) as out:
    def add(name, data):
        info = tarfile.TarInfo(name)
        info.size = len(data)
        out.addfile(info, io.BytesIO(data))
    for i, clip in enumerate(sorted(glob.glob("cur/clips/*.mp4"))):
        key = os.path.basename(clip)[:-4]
        meta = json.load(open(f"cur/metas/{key}.json"))
        suffix, options = "mp4", None
        if i % 4 == 1:
            options = ["-vf", "scale=64:32", "-c:v", "libx264"]
            meta["height"] = 32
        if i % 4 == 3:
            suffix = "png" if i % 8 == 3 else "jpg"
            options = ["-frames:v", "1"]
            meta["frames"] = 1
        if options:
            subprocess.run(["ffmpeg", "-v", "error", "-y", "-i", clip, *options, "x." + suffix], check=True)
        add(key + "." + suffix, open("x." + suffix if options else clip, "rb").read())
        if i == 2:
            del meta["caption"]
        add(key + ".json", json.dumps(meta).encode())
PY
}
write_configs() {
    cat >vae.yaml <<'Y'
out: runs/vae
data: {path: shards}
autoencoder:
  class: AutoencoderKLWan
  config: {base_dim: 4, dim_mult: [1, 1, 2, 2], num_res_blocks: 1, z_dim: 4}
stages:
  - {steps: 8, batch: 3, frames: 5, height: 16, width: 16, lr: 1e-3, warmup_steps: 2}
Y
    cat >dit.yaml <<'Y'
out: runs/dit
autoencoder: {weights: runs/vae/model/vae}
data: {path: shards}
transformer:
  class: WanTransformer3DModel
  config: {num_layers: 2, num_attention_heads: 2, attention_head_dim: 12, ffn_dim: 48, freq_dim: 32}
text_encoders:
  - class: WeftBytesEncoder
    config: {dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}
optimizer: {ema_decay: 0.9}
checkpoint: {interval: 5, keep_latest: 2}
stages:
  - {steps: 12, batch: 6, frames: 9, height: 32, width: 32, lr: 2e-3, warmup_steps: 4}
  - {steps: 8, batch: 5, frames: 5, height: 32, width: 32, lr: 1e-3, warmup_steps: 0, lr_schedule: constant}
Y
}
# train CONFIG NAME [OPTIONS...]: trains CONFIG.yaml in runs/NAME; its messages are in NAME.log.
train() {
    local config=$1 name=$2
    shift 2
    "$WEFT" train "$config.yaml" --set "out=runs/$name" "$@" >"$name.log" 2>&1 || { cat "$name.log"; fail "weft train $config.yaml $*"; }
}
# resumes_bitwise CONFIG: a run that stops after 2 steps and resumes has the model of a whole one.
# The caller has included tests/messages.sh.
resumes_bitwise() {
    train "$1" "$1"
    train "$1" "$1-half" --set stages.0.steps=2
    train "$1" "$1-half"
    has_message "$1-half.log" run-resumed value=2 || fail "$1 did not resume from step 2"
    cmp "runs/$1/model/transformer/diffusion_pytorch_model.safetensors" \
        "runs/$1-half/model/transformer/diffusion_pytorch_model.safetensors" || fail "$1: the model differs after resuming"
}
# layout CONFIG RANKS [OPTIONS...]: the losses and gradient norms of 4 steps are those of one rank in
# runs/CONFIG, which the check CONFIG has written.
layout() {
    local config=$1 n=$2
    shift 2
    needs "$config"
    ranks "$n" "$WEFT" train "$config.yaml" --set "out=runs/ranks" "$@" >ranks.log 2>&1 || { cat ranks.log; fail "$*"; }
    paste <(losses "runs/$config") <(losses runs/ranks) | awk '
        function off(a, b, by) {return (a > b ? a - b : b - a) > by * (a > 0 ? a : -a)}
        off($2, $5, 1e-5) || off($3, $6, 1e-4) {print; bad = 1} END {exit bad || NR != 4}' || fail "$config, $*: losses differ from one rank"
    rm -r runs/ranks
}
# Mixed shards, an autoencoder, and c.yaml with a model and its text encoder, to which the caller
# appends the stages.
begin_cascade_config() {
    make_shards
    make_mixed_shards
    write_configs
    "$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
    cat >c.yaml <<'Y'
out: runs/c
autoencoder: {weights: runs/vae/model/vae}
data: {path: mixed, shuffle_buffer: 0}
transformer:
  class: WanTransformer3DModel
  config: {num_layers: 2, num_attention_heads: 2, attention_head_dim: 12, ffn_dim: 48, freq_dim: 32}
text_encoders:
  - class: WeftBytesEncoder
    config: {dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}
Y
}
make_pictures() { # red.png and blue.png, of 16x16
    python3 -S - <<'PY'
import struct, zlib
for name, colour in ("red", (200, 30, 30)), ("blue", (20, 40, 220)):
    rows = b"".join(b"\0" + bytes(colour) * 16 for _ in range(16))
    part = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    open(name + ".png", "wb").write(b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0)) +
                                    part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b""))
PY
}
# each_family BASE.yaml COMMAND: for every model family whose only inputs are latents, a timestep
# and text, writes CLASS.yaml (BASE.yaml with that transformer; images: of one frame) and checks
# COMMAND CLASS [OPTIONS...]. BASE.yaml has the WanTransformer3DModel of write_configs.
each_family() {
    local base=$1 command=$2
    family() { # CLASS CONFIG [OPTIONS...]
        local class=$1 config=$2
        shift 2
        sed "s/class: WanTransformer3DModel/class: $class/; s/  config: {num_layers: 2, num_att.*/  config: $config/" "$base" >"$class.yaml"
        check "family_$class" "$command" "$class" "$@"
    }
    family CogVideoXTransformer3DModel '{num_layers: 2, num_attention_heads: 2, attention_head_dim: 16, time_embed_dim: 32, max_text_seq_length: 32}'
    family CosmosTransformer3DModel '{num_layers: 2, num_attention_heads: 2, attention_head_dim: 16, adaln_lora_dim: 8}' --set process=edm
    family LTXVideoTransformer3DModel '{num_layers: 2, num_attention_heads: 2, attention_head_dim: 16}'
    family MochiTransformer3DModel '{num_layers: 2, num_attention_heads: 2, attention_head_dim: 16, pooled_projection_dim: 24}'
    family LatteTransformer3DModel '{num_layers: 2, num_attention_heads: 2, attention_head_dim: 16}'
    family OpenSoraT2V_v1_3 '{num_layers: 4, num_attention_heads: 2, attention_head_dim: 12, sparse_n: 2}'
    family SanaVideoTransformer3DModel '{num_layers: 2, num_attention_heads: 2, attention_head_dim: 12, num_cross_attention_heads: 2, cross_attention_head_dim: 12, cross_attention_dim: 24}'
    family LongCatVideoTransformer3DModel '{depth: 2, num_heads: 2, hidden_size: 32, adaln_tembed_dim: 16, frequency_embedding_size: 32}'
    family MotifVideoTransformer3DModel '{num_layers: 1, num_single_layers: 3, num_decoder_layers: 1, num_attention_heads: 2, attention_head_dim: 12, mlp_ratio: 2.0, rope_axes_dim: [4, 4, 4], enable_text_cross_attention_dual: true, enable_text_cross_attention_single: true}'
    family ChronoEditTransformer3DModel '{num_layers: 2, num_attention_heads: 2, attention_head_dim: 12, ffn_dim: 64, freq_dim: 32}'
    family SkyReelsV2Transformer3DModel '{num_layers: 2, num_attention_heads: 2, attention_head_dim: 12, ffn_dim: 64, freq_dim: 32}'
    family HeliosTransformer3DModel '{num_layers: 2, num_attention_heads: 2, attention_head_dim: 12, rope_dim: [4, 4, 4], ffn_dim: 64, freq_dim: 32}'
    family CausalWanTransformer3DModel '{num_layers: 2, num_attention_heads: 2, attention_head_dim: 12, ffn_dim: 64, freq_dim: 32, num_frames_per_block: 1}'
    family STDiT3 '{depth: 2, num_heads: 2, hidden_size: 32, pred_sigma: false}'
    family AllegroTransformer3DModel '{num_layers: 2, num_attention_heads: 2, attention_head_dim: 12}'
    # images
    local flux='in_channels: 16, num_layers: 1, num_single_layers: 1, num_attention_heads: 2, attention_head_dim: 12'
    sed 's/frames: [0-9]*/frames: 1/' "$base" >images.yaml
    base=images.yaml
    family QwenImageTransformer2DModel '{num_layers: 2, in_channels: 16, out_channels: 4, num_attention_heads: 2, attention_head_dim: 12, axes_dims_rope: [4, 4, 4]}'
    family Flux2Transformer2DModel "{num_layers: 1, num_single_layers: 1, num_attention_heads: 2, attention_head_dim: 16, timestep_guidance_channels: 16, axes_dims_rope: [4, 4, 4, 4]}"
    family ChromaTransformer2DModel "{$flux, axes_dims_rope: [4, 4, 4], approximator_num_channels: 16, approximator_hidden_dim: 32, approximator_layers: 1}"
    family ZImageTransformer2DModel '{dim: 32, n_layers: 2, n_refiner_layers: 1, n_heads: 2, axes_dims: [4, 6, 6], t_embedder_mid_dim: 32}'
    base=$1
    # two encoders, the second for the pooled vector; the embedded guidance scale is an input
    sed 's/^optimizer:/  - {class: WeftBytesEncoder, config: {dim: 12, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}}\n&/' "$base" >two_encoders.yaml
    base=two_encoders.yaml
    family HunyuanVideoTransformer3DModel '{num_layers: 1, num_single_layers: 1, num_refiner_layers: 1, num_attention_heads: 2, attention_head_dim: 16, rope_axes_dim: [4, 6, 6], pooled_projection_dim: 12}'
    family SparseUMMDiT '{num_layers: [2, 2, 2], sparse_n: [1, 2, 1], num_heads: 2, head_dim: 16, timestep_embed_dim: 16, pooled_projection_dim: 12}'
    family HunyuanVideo15Transformer3DModel '{num_layers: 2, num_refiner_layers: 1, num_attention_heads: 2, attention_head_dim: 12, rope_axes_dim: [4, 4, 4], text_embed_2_dim: 12, text_embed_2_hidden_dim: 16}'
    sed 's/frames: [0-9]*/frames: 1/' "$base" >images_of_two.yaml
    base=images_of_two.yaml family FluxTransformer2DModel "{$flux, axes_dims_rope: [4, 4, 4], pooled_projection_dim: 12}"
    family Kandinsky5Transformer3DModel '{num_text_blocks: 1, num_visual_blocks: 2, model_dim: 24, ff_dim: 64, time_dim: 16, axes_dims: [4, 4, 4], in_text_dim2: 12}'
}
# write_from CLASS: writes CLASS-from.yaml, two steps from the models in runs/CLASS on clips of the
# first stage's length.
write_from() {
    local class=$1 name folder frames encoders
    # The scope of LongCat's transformer is another one.
    name=$(awk '/^transformer:/ {getline; print $2}' "$class.yaml")
    folder=$(dirname "$(grep -l "\"_class_name\": \"$name\"" "runs/$class/model"/*/config.json)")
    frames=$(sed -n '/^stages:/{n;s/.*frames: \([0-9]*\).*/\1/p;}' "$class.yaml")
    encoders=$(ls -d runs/$class/model/text_encoder*)
    [ "$name" != FluxTransformer2DModel ] || encoders=$(ls -dr runs/$class/model/text_encoder*) # the first one gives the pooled vector
    {
        echo "autoencoder: {weights: runs/vae/model/vae}"
        echo "data: {path: shards, latents: latents}"
        echo "transformer: {weights: $folder}"
        echo "text_encoders:"
        printf '  - {weights: %s}\n' $encoders
        echo "checkpoint: {interval: 0}"
        echo "stages: [{steps: 2, batch: 2, frames: $frames, height: 32, width: 32, lr: 1e-3, warmup_steps: 0, lr_schedule: constant}]"
    } >"$class-from.yaml"
}
# write_update_config: writes update.yaml, dit.yaml for the runs that same_updates compares.
write_update_config() {
    sed 's/^checkpoint:.*/checkpoint: {interval: 0}/; s/^optimizer:.*/optimizer: {eps: 1e-3, ema_decay: 0.5}/; /^stages:/,$d' dit.yaml >update.yaml
    echo 'stages: [{steps: 3, batch: 4, frames: 9, height: 32, width: 32, lr: 1e-2, warmup_steps: 0, lr_schedule: constant}]' >>update.yaml
}
# one_rank CONFIG [OPTIONS...]: runs the reference for layouts, and writes the initial weights.
one_rank() {
    local config=$1
    shift
    "$WEFT" train "$config.yaml" --set "out=runs/$config.one" "$@" >one.log 2>&1 || { cat one.log; fail "$config"; }
    "$WEFT" train "$config.yaml" --set "out=runs/$config.begun" --set stages.0.lr=0 "$@" >one.log 2>&1 || { cat one.log; fail "$config"; }
}
# same_updates CONFIG RANKS NAME [OPTIONS...]: every tensor gets the update of one rank
# (same_updates.py).
same_updates() {
    local config=$1 n=$2 name=$3
    shift 3
    ranks "$n" "$WEFT" train "$config.yaml" --set "out=runs/$config.$name" "$@" >layout.log 2>&1 || { cat layout.log; fail "$config $name"; }
    python3 "$SRC/tests/train/same_updates.py" "runs/$config.begun" "runs/$config.one" "runs/$config.$name" || fail "$config $name: other weights"
}
# refuse_run CONFIG ID [FIELD=VALUE...] -- OPTIONS...: the run of CONFIG.yaml ends with this message (tests/messages.sh).
refuse_run() {
    local config=$1
    shift
    take_message "$@"
    set -- "${rest[@]}"
    "$WEFT" train "$config.yaml" --set out=runs/refused "$@" >out.log 2>&1 && fail "$*: not refused"
    has_message out.log "${wanted[@]}" || { cat out.log; fail "$*: another message than expected"; }
    rm -rf runs/refused
}

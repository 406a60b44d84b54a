#!/bin/bash
# Training of video and sound (LTX-2, `sound`): latents of sound and video are cached together. Clips
# without sound train the video alone. The finished model generates videos with sound. A stopped run resumes bitwise, and other layouts have the losses of one rank (1e-5).
# tests/latent/sound_encoder_test.c compares the latents, and tests/golden/ltx23_sound_train30 the
# steps, with PyTorch.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
command -v ffmpeg >/dev/null || skip "ffmpeg is not installed"
golden=$SRC/tests/golden/pipelines
mkdir clips
for i in 0 1 2 3 4 5; do
    sound=(-f lavfi -i "sine=frequency=$((40 + 20 * i)):sample_rate=44100" -c:a pcm_s16le -shortest)
    [ $i = 5 ] && sound=() # no sound
    ffmpeg -v error -nostdin -f lavfi -i "testsrc=size=64x64:rate=5:duration=2,hue=h=$((60 * i))" "${sound[@]}" -c:v libx264 "clips/c$i.mkv" || fail "ffmpeg"
    echo "clip number $i" >"clips/c$i.txt"
done
write() { # NAME PIPELINE
    cat >"$1.yaml" <<Y
out: runs/$1
data: {path: clips, fps: 5, latents: latents}
autoencoder: {weights: $golden/$2/vae}
transformer: {weights: $golden/$2/transformer}
text_encoders:
  - {weights: $golden/$2/text_encoder, tokenizer: $golden/$2/tokenizer, connectors: $golden/$2/connectors, max_length: 32}
sound: {autoencoder: $golden/$2/audio_vae, vocoder: $golden/$2/vocoder}
checkpoint: {interval: 2, keep_latest: 2}
stages:
  - {steps: 4, batch: 4, frames: 9, height: 64, width: 64, lr: 1e-3, warmup_steps: 0, lr_schedule: constant}
Y
}
for name in ltx2 ltx23; do write $name $name; done
for name in ltx2 ltx23; do check $name resumes_bitwise $name; done
# Both streams have a loss, and the clip without sound is counted.
both_streams() {
    needs ltx23
    python3 -S - <<'PY' || fail "losses of the streams"
import json
rows = [json.loads(line) for line in open("runs/ltx23/metrics.jsonl")]
assert len(rows) == 4
for row in rows:
    assert row["sound_loss"] > 0 and row["with_sound"] in (0.75, 1)
    assert abs(row["loss"] - row["video_loss"] - row["sound_loss"]) < 1e-5 * row["loss"], row
assert any(row["with_sound"] < 1 for row in rows)
PY
    has_message ltx23.log data-report value=1 || { cat ltx23.log; fail "the clip without sound is not counted"; }
    grep -q '"without_sound": 1' runs/ltx23/data-stage-0.json || fail "the data report has no count"
}
check both_streams both_streams
# Shared timesteps and another weight change the loss; a single run without sound in its clips has
# the loss of the video alone.
options() {
    needs ltx23
    train ltx23 shared --set sound.timesteps=shared --set sound.loss_weight=0.5 --set stages.0.steps=1
    mkdir silent
    for i in 0 1 2 3; do
        ffmpeg -v error -nostdin -i clips/c$i.mkv -an -c:v copy silent/c$i.mkv
        cp clips/c$i.txt silent
    done
    train ltx23 silent --set data.path=silent --set stages.0.steps=1
    python3 -S - <<'PY' || fail "losses with other options"
import json
shared, silent, plain = (json.loads(open(f"runs/{name}/metrics.jsonl").readline()) for name in ("shared", "silent", "ltx23"))
assert abs(shared["loss"] - shared["video_loss"] - 0.5 * shared["sound_loss"]) < 1e-5 * shared["loss"]
assert shared["sound_loss"] != plain["sound_loss"]
assert silent["sound_loss"] == 0 and silent["with_sound"] == 0 and silent["loss"] == silent["video_loss"]
PY
}
check options options
# Clips of weft curate with their sound, in shards. The clip without sound is counted.
curated() {
    "$WEFT" curate --in clips --out cur --set clips.sound=true --set duplicates.on=false --set quality.min_motion=0 --set clips.min_frames=9 \
        >cur.log 2>&1 || { cat cur.log; fail "weft curate"; }
    "$WEFT" shard --in cur --out shards --set heldout=0 >shard.log 2>&1 || { cat shard.log; fail "weft shard"; }
    train ltx23 curated --set data.path=shards --set stages.0.steps=2
    grep -q '"without_sound": 1' runs/curated/data-stage-0.json || { cat runs/curated/data-stage-0.json; fail "the clips lack their sound"; }
    python3 -S - <<'PY' || fail "losses of curated clips"
import json
for row in map(json.loads, open("runs/curated/metrics.jsonl")):
    assert row["sound_loss"] > 0 and row["with_sound"] >= 0.75, row
PY
}
check curated curated
check dp layout ltx23 2 --set parallel.dp=2
check fsdp layout ltx23 2 --set parallel.fsdp=2
check cp layout ltx23 2 --set parallel.cp=2
check sp layout ltx23 2 --set parallel.tp=2 --set parallel.sequence_parallel=true
check tp layout ltx2 2 --set parallel.tp=2
# a new model, whose two layers are two stages
config='{in_channels: 4, out_channels: 4, num_attention_heads: 2, attention_head_dim: 12, cross_attention_dim: 24, audio_in_channels: 8, audio_out_channels: 8, audio_num_attention_heads: 2, audio_attention_head_dim: 8, audio_cross_attention_dim: 16, num_layers: 2, caption_channels: 12, rope_type: split, audio_sampling_rate: 400, audio_hop_length: 10}'
sed "s|^transformer:.*|transformer: {class: LTX2VideoTransformer3DModel, config: $config}|" ltx2.yaml >deep.yaml
check deep train deep deep
check pp layout deep 2 --set parallel.pp=2
# Clips of two lengths and images in one stage: the sound has the length of its clip, and an image has
# none. Batches of a step are parts of the loader's batch.
several_sizes() {
    local buckets='[{frames: 9, height: 64, width: 64, batch: 2}, {frames: 17, height: 32, width: 32, batch: 2}, {frames: 1, height: 32, width: 32, batch: 2}]'
    mkdir mixed
    for i in 0 1 2 3; do
        ffmpeg -v error -nostdin -f lavfi -i "testsrc=size=32x32:rate=5:duration=4,hue=h=$((60 * i))" -f lavfi -i "sine=frequency=$((50 + 30 * i)):sample_rate=44100" -c:a pcm_s16le -shortest -c:v libx264 "mixed/long$i.mkv" || fail "ffmpeg"
        ffmpeg -v error -nostdin -i "mixed/long$i.mkv" -frames:v 1 "mixed/still$i.png" || fail "ffmpeg"
        cp "clips/c$i.mkv" mixed
        for clip in long$i still$i c$i; do echo "clip $clip" >"mixed/$clip.txt"; done
    done
    sed '/^stages:/,$d' ltx23.yaml >mixed.yaml
    echo "stages: [{steps: 6, buckets: $buckets, gradient_accumulation_steps: 2, lr: 1e-3, warmup_steps: 0, lr_schedule: constant}]" >>mixed.yaml
    train mixed mixed --set data.path=mixed
    grep -q '"without_sound": 4' runs/mixed/data-stage-0.json || fail "images are not counted as samples without sound"
    ranks 2 "$WEFT" train mixed.yaml --set out=runs/mixed2 --set data.path=mixed --set parallel.fsdp=2 >mixed2.log 2>&1 || { cat mixed2.log; fail "buckets on two ranks"; }
    paste <(losses runs/mixed) <(losses runs/mixed2) | awk '{d = $2 - $5; if (d * d > 1e-10 * $2 * $2) bad = 1} END {exit bad || NR != 6}' || fail "buckets: losses differ from one rank"
}
check several_sizes several_sizes
# The finished model is a complete pipeline.
generates() {
    needs ltx23
    "$WEFT" generate --model runs/ltx23/model --prompt "clip number 1" --frames 9 --height 64 --width 64 --fps 5 --steps 2 --frames-npy --out made.mp4 >made.log 2>&1 || { cat made.log; fail "weft generate"; }
    [ -s made.sound.npy ] || fail "the generated video has no sound"
}
check generates generates
first_frame() {
    train ltx2 first --set condition=first_frame --set stages.0.steps=2
    train ltx23 first23 --set condition=first_frame --set stages.0.steps=2
}
check first_frame first_frame
# A LoRA of both streams, in the names of diffusers (the exported adapter), of peft, and of the
# authors (comfyui: diffusion_model.* with patchify_proj, adaln_single, ...), makes the same video.
lora() {
    local format
    train ltx23 lora --set transformer.lora.rank=2 --set 'transformer.lora.targets=[to_q,to_out.0,proj_in,audio_proj_in,time_embed.linear,ff.net.2]' --set stages.0.lr=1e-2
    makes() { # NAME OPTIONS...
        local name=$1
        shift
        "$WEFT" generate --model "$golden/ltx23" --prompt "clip number 1" --frames 9 --height 64 --width 64 --fps 5 --steps 2 --max-sequence-length 32 --latents-npy --frames-npy --out "$name.mp4" "$@" >"$name.log" 2>&1 || { cat "$name.log"; fail "weft generate $*"; }
    }
    makes base
    makes diffusers --lora runs/lora/adapter
    cmp -s base.sound.npy diffusers.sound.npy && fail "the adapter does not change the sound"
    for format in peft comfyui; do
        "$WEFT" convert runs/lora/adapter "$format" --lora-format $format --config "$golden/ltx23/transformer" >convert.log 2>&1 || { cat convert.log; fail "weft convert --lora-format $format"; }
        makes "by-$format" --lora "$format"
        cmp diffusers.latents.npy "by-$format.latents.npy" || fail "$format: other latents of the video"
        cmp diffusers.sound.npy "by-$format.sound.npy" || fail "$format: another sound"
    done
    for name in diffusion_model.patchify_proj.lora_A diffusion_model.audio_patchify_proj.lora_A diffusion_model.adaln_single.linear.lora_A; do
        grep -aqF "$name" comfyui/*.safetensors || fail "the authors' adapter has no $name"
    done
}
check lora lora
# Step distillation has both streams, and the finished model generates sound in the student's steps.
distills() {
    train ltx2 dmd2 --set distill.method=dmd2 --set distill.guidance=3 --set distill.student_steps=2 --set distill.generator_interval=1 --set stages.0.steps=2
    train ltx2 lcm --set distill.method=lcm --set distill.guidance=3 --set transformer.lora.rank=4 --set stages.0.steps=1
    python3 -S - <<'PY' || fail "losses of distilled streams"
import json
for name in "dmd2", "lcm":
    for row in map(json.loads, open(f"runs/{name}/metrics.jsonl")):
        assert row["sound_loss"] > 0 and abs(row["loss"] - row["video_loss"] - row["sound_loss"]) < 1e-5 * row["loss"], row
PY
    "$WEFT" generate --model runs/dmd2/model --prompt "clip number 1" --frames 9 --height 64 --width 64 --fps 5 --frames-npy --out distilled.mp4 >made.log 2>&1 || { cat made.log; fail "weft generate"; }
    has_message made.log job-report "text~=2 steps of consistency, guidance 1;" || { cat made.log; fail "other settings than the student's"; }
    [ -s distilled.sound.npy ] || fail "the distilled model has no sound"
}
check distills distills
# Pairs of clips with sound, of which one has none: the rejected clip of a key is the clip of the next key. Before the first
# update the model is its reference, so the loss is log 2. A larger beta would multiply the rounding
# of the errors' difference.
mkdir others
for i in 0 1 2 3 4 5; do
    from=$(((i + 1) % 5))
    [ $i = 5 ] && from=5 # both without sound
    cp clips/c$from.mkv others/c$i.mkv
    cp clips/c$i.txt others
done
sed "s|^out:.*|out: runs/pairs|; /^sound:/a preference: {rejected: others, beta: 5}" ltx2.yaml >pairs.yaml
check pairs resumes_bitwise pairs
check pairs_fsdp layout pairs 2 --set parallel.fsdp=2
losses_of_pairs() {
    needs pairs
    train pairs pairs-lora --set transformer.lora.rank=2 --set stages.0.steps=2
    python3 -S - <<'PY' || fail "losses of pairs with sound"
import json
full, lora = ([json.loads(line) for line in open(f"runs/{name}/metrics.jsonl")] for name in ("pairs", "pairs-lora"))
assert len(full) == 4 and any(row["with_sound"] < 1 for row in full), full
for first in full[0], lora[0]:
    assert abs(first["loss"] - 0.693147) < 1e-5 and first["with_sound"] >= 0.75 and first["grad_norm"] > 0, first
PY
    # another sound of one rejected clip
    cp -r others quiet
    ffmpeg -v error -nostdin -y -i others/c0.mkv -af volume=0.1 -c:v copy -c:a pcm_s16le quiet/c0.mkv || fail "ffmpeg"
    train pairs pairs-quiet --set preference.rejected=quiet --set stages.0.steps=2
    ! cmp -s <(losses runs/pairs | head -2) <(losses runs/pairs-quiet) || fail "the sound of rejected clips has no effect"
    cp -r others silence
    ffmpeg -v error -nostdin -y -i others/c2.mkv -an -c:v copy silence/c2.mkv || fail "ffmpeg"
    "$WEFT" train pairs.yaml --set out=runs/refused --set preference.rejected=silence >out.log 2>&1 && fail "a rejected clip without sound: not refused"
    has_message out.log config-value file=silence key=preference.rejected value=c2 || { cat out.log; fail "a rejected clip without sound: another message"; }
}
check losses_of_pairs losses_of_pairs
# A step has a call with a gradient and one without for each clip of a pair: 8 / 3 of the FLOPs of one
# clip, apart from the optimizer's. The reference is a second set of parameters, except with LoRA.
estimate_of_pairs() {
    needs pairs
    "$WEFT" estimate ltx2.yaml --json >single.json 2>out.log || { cat out.log; fail "weft estimate"; }
    "$WEFT" estimate pairs.yaml --json >double.json 2>out.log || { cat out.log; fail "weft estimate of pairs"; }
    "$WEFT" estimate pairs.yaml --set transformer.lora.rank=2 --json >lora.json 2>out.log || { cat out.log; fail "weft estimate of pairs with LoRA"; }
    python3 -S - <<'PY' || fail "the estimate of pairs"
import json
one, pair, lora = (json.load(open(f"{name}.json")) for name in ("single", "double", "lora"))
flops, parameters = ([e["stages"][0]["sizes"][0]["flops"] for e in (one, pair)], [e["stages"][0]["parameters"] for e in (one, pair, lora)])
assert 2.6 < flops[1] / flops[0] < 2.67, flops
assert parameters[1] == 2 * parameters[0] > 1.5 * parameters[2], parameters
assert pair["stages"][0]["program_bytes"] > 1.5 * one["stages"][0]["program_bytes"], (one, pair)
PY
}
check estimate_of_pairs estimate_of_pairs
refuse() { # ID [FIELD=VALUE...] -- OPTIONS...
    take_message "$@"
    set -- "${rest[@]}"
    "$WEFT" train ltx23.yaml --set out=runs/refused "$@" >out.log 2>&1 && fail "$*: not refused"
    has_message out.log "${wanted[@]}" || { cat out.log; fail "$*: another message than expected"; }
}
refusals() {
    refuse config-missing-key key=sound.autoencoder -- --set sound.autoencoder=
    refuse config-missing-key key=data.fps -- --set data.fps=0
    refuse config-conflict key=process -- --set process=edm
    refuse config-conflict key=data.text_embeddings -- --set data.text_embeddings=step
    refuse config-value key=stages.0 -- --set data.fps=30 --set stages.0.frames=9
}
check refusals refusals
finish

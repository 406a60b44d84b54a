#!/bin/bash
# One file of LTX-2 in the authors' names, as Lightricks publishes it, with all parts but the text
# encoder: `weft convert` writes each part of a diffusers folder, and back, bitwise. Names are
# from Lightricks' LTX-2 (ltx_core) and diffusers' single_file_utils.py; original_names.py makes them
# by other means than the rules of weft.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
golden=$SRC/tests/golden/pipelines
parts() { # PIPELINE
    local name=$1 part
    for part in transformer vae audio_vae vocoder connectors; do
        "$WEFT" convert "$golden/$name/$part" "$name-$part.safetensors" --to comfyui --dtype own --config "$golden/$name/$part" >convert.log 2>&1 || { cat convert.log; fail "$name: weft convert of $part to the authors' names"; }
    done
    python3 -S - "$name" <<'PY' || fail "the parts cannot be joined"
import json, struct, sys
name = sys.argv[1]
head, body = {}, b""
for part in "transformer", "vae", "audio_vae", "vocoder", "connectors":
    data = open(f"{name}-{part}.safetensors", "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    for key, value in json.loads(data[8:8 + size]).items():
        if key == "__metadata__":
            continue
        assert key not in head, key
        value["data_offsets"] = [at + len(body) for at in value["data_offsets"]]
        head[key] = value
    body += data[8 + size:]
for key in ("model.diffusion_model.patchify_proj.weight", "model.diffusion_model.audio_patchify_proj.weight",
            "vae.per_channel_statistics.mean-of-means", "audio_vae.per_channel_statistics.mean-of-means",
            "audio_vae.decoder.conv_in.conv.weight", "model.diffusion_model.video_embeddings_connector.learnable_registers",
            "model.diffusion_model.audio_embeddings_connector.transformer_1d_blocks.0.attn1.q_norm.weight"):
    assert key in head, key
newer = name == "ltx23"
assert ("vocoder.vocoder.conv_pre.weight" if newer else "vocoder.conv_pre.weight") in head
assert ("text_embedding_projection.audio_aggregate_embed.weight" if newer else "text_embedding_projection.aggregate_embed.weight") in head
text = json.dumps(head).encode()
open(f"{name}.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + body)
PY
    for part in transformer vae audio_vae vocoder connectors; do
        "$WEFT" convert "$name.safetensors" "back-$name/$part" --dtype own --config "$golden/$name/$part" >convert.log 2>&1 || { cat convert.log; fail "$name: weft convert of $part from one file"; }
        python3 -S - "$golden/$name/$part" "back-$name/$part" <<'PY' || fail "$name: other tensors of $part"
import glob, json, struct, sys
def tensors(folder):
    data = open(glob.glob(folder + "/*.safetensors")[0], "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    return {k: (v["dtype"], v["shape"], data[8 + size:][slice(*v["data_offsets"])]) for k, v in json.loads(data[8:8 + size]).items() if k != "__metadata__"}
before, after = map(tensors, sys.argv[1:])
assert before == after, sorted(set(before) ^ set(after))[:5] or [k for k in before if before[k] != after[k]][:5]
PY
    done
}
for name in ltx2 ltx23; do check $name parts $name; done
# The pipeline with the converted parts makes the video and the sound of the golden folder.
generates() {
    local name=$1 part
    needs "$name"
    for part in text_encoder tokenizer scheduler model_index.json; do cp -rL "$golden/$name/$part" "back-$name/"; done
    for part in "$golden/$name" "back-$name"; do
        "$WEFT" generate --model "$part" --prompt x --frames 9 --height 64 --width 64 --fps 5 --steps 2 --max-sequence-length 32 --latents-npy --frames-npy --out "$(basename "$part").mp4" >generate.log 2>&1 || { cat generate.log; fail "weft generate"; }
    done
    cmp "$name.sound.npy" "back-$name.sound.npy" && cmp "$name.npy" "back-$name.npy" || fail "$name: another video or sound"
}
for name in ltx2 ltx23; do check "${name}_generates" generates $name; done
finish

#!/bin/bash
# An adapter of LongCat-Video, whose layers have other names than diffusers', is trained and exported in every format. The formats
# give the same video, and without an adapter the video is another one.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
sed 's/class: WanTransformer3DModel/class: LongCatVideoTransformer3DModel/; s/  config: {num_layers: 2, num_att.*/  config: {depth: 2, num_heads: 2, hidden_size: 32, adaln_tembed_dim: 16, frequency_embedding_size: 32}/' \
    dit.yaml >longcat.yaml
"$WEFT" train longcat.yaml --set stages.0.steps=3 --set stages.1.steps=1 >dit.log 2>&1 || { cat dit.log; fail "weft train dit"; }
cat >lora.yaml <<'Y'
autoencoder: {weights: runs/vae/model/vae}
data: {path: shards, latents: latents}
transformer:
  weights: runs/dit/model/dit
  lora: {rank: 4, alpha: 8, targets: [qkv, proj, q_linear, kv_linear, w1, w2, w3]}
text_encoders:
  - {weights: runs/dit/model/text_encoder}
stages:
  - {steps: 3, batch: 6, frames: 9, height: 32, width: 32, lr: 2e-2, warmup_steps: 0, lr_schedule: constant}
Y
video() { # NAME OPTIONS...
    "$WEFT" generate --model runs/dit/model --prompt cat --frames 9 --height 32 --width 32 --steps 2 --latents-npy --out "$1.mp4" "${@:2}" >"$1.log" 2>&1 ||
        { cat "$1.log"; fail "weft generate ${*:2}"; }
}
video none
exported_as() { # FORMAT
    "$WEFT" train lora.yaml --set out="runs/$1" --set transformer.lora.format="$1" >"$1.log" 2>&1 || { cat "$1.log"; fail "weft train with format $1"; }
    video "$1" --lora "runs/$1/adapter"
    cmp -s none.latents.npy "$1.latents.npy" && fail "the adapter has no effect"
    cmp "${first:=$1}.latents.npy" "$1.latents.npy" || fail "another video than with $first"
}
for format in diffusers peft kohya comfyui longcat; do
    check "exported_as_$format" exported_as $format
    first=${first:-$format}
done
the_authors_names_are_written() {
    grep -aq 'lora___lorahyphen___blocks___lorahyphen___1___lorahyphen___attn___lorahyphen___qkv.lora_up.weight' runs/longcat/adapter/pytorch_lora_weights.safetensors ||
        fail "no fused layer in the names of the authors"
}
check the_authors_names_are_written
finish

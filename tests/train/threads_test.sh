#!/bin/bash
# Training is the same to the bit on 1, 2 and 3 threads, and goes on with another number of them: a VAE and a DiT of
# the examples' widths, whose products, convolutions and sums are large enough to be cut into parts.
set -eu
source "$SRC/tests/train/common.sh"
make_shards
cat >vae.yaml <<'Y'
data: {path: shards}
autoencoder: {class: AutoencoderKLWan, config: {base_dim: 12, dim_mult: [1, 2, 4, 4], num_res_blocks: 1}}
checkpoint: {every: 2, keep: 9}
stages:
  - {steps: 5, batch: 2, frames: 5, height: 64, width: 64, lr: 5e-4, warmup: 0}
Y
cat >dit.yaml <<'Y'
data: {path: shards, latents: latents}
autoencoder: {weights: vae.1/model/vae}
transformer:
  class: WanTransformer3DModel
  config: {num_layers: 2, num_attention_heads: 6, attention_head_dim: 32, ffn_dim: 768}
text_encoders:
  - {class: WeftBytesEncoder, config: {dim: 128, num_layers: 1, max_length: 40}}
checkpoint: {every: 2, keep: 9}
stages:
  - {steps: 5, batch: 8, frames: 9, height: 64, width: 64, lr: 1e-3, warmup: 0}
Y
same() { # run, run
    cmp <(losses "$1") <(losses "$2") || fail "losses of $1 and $2"
    (cd "$1/model" && find . -name '*.safetensors' -exec cmp {} "../../$2/model/{}" \;) | grep . && fail "weights of $1 and $2"
    [ "$(losses "$1" | wc -l)" = 5 ] || fail "$1 has not five steps"
}
for model in vae dit; do
    for threads in 1 2 3; do
        OMP_NUM_THREADS=$threads "$WEFT" train $model.yaml --set out=$model.$threads >log 2>&1 || { cat log; fail "$model, $threads threads"; }
        same $model.1 $model.$threads
    done
    cp -r $model.1 $model.on
    rm -r $model.on/model $model.on/checkpoints/step-00000005
    OMP_NUM_THREADS=3 "$WEFT" train $model.yaml --set out=$model.on >log 2>&1 || { cat log; fail "$model, going on"; }
    same $model.1 $model.on
done
exit 0

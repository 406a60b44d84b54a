#!/bin/bash
# Training is bitwise identical on 1, 2 and 3 threads, and resumes with another number of threads.
# The VAE and the DiT have the widths of the examples: their matrix products, convolutions and
# reductions are large enough to be split over threads.
set -e
source "$SRC/tests/train/common.sh"
make_shards
cat >vae.yaml <<'Y'
data: {path: shards}
autoencoder: {class: AutoencoderKLWan, config: {base_dim: 12, dim_mult: [1, 2, 4, 4], num_res_blocks: 1}}
checkpoint: {interval: 2, keep_latest: 9}
stages:
  - {steps: 5, batch: 2, frames: 5, height: 64, width: 64, lr: 5e-4, warmup_steps: 0}
Y
cat >dit.yaml <<'Y'
data: {path: shards, latents: latents}
autoencoder: {weights: vae.1/model/vae}
transformer:
  class: WanTransformer3DModel
  config: {num_layers: 2, num_attention_heads: 6, attention_head_dim: 32, ffn_dim: 768}
text_encoders:
  - {class: WeftBytesEncoder, config: {dim: 128, num_layers: 1, max_length: 40}}
checkpoint: {interval: 2, keep_latest: 9}
stages:
  - {steps: 5, batch: 8, frames: 9, height: 64, width: 64, lr: 1e-3, warmup_steps: 0}
Y
same() { # RUN RUN
    cmp <(losses "$1") <(losses "$2") || fail "losses of $1 and $2 differ"
    (cd "$1/model" && find . -name '*.safetensors' -exec cmp {} "../../$2/model/{}" \;) | grep . && fail "weights of $1 and $2 differ"
    [ "$(losses "$1" | wc -l)" = 5 ] || fail "$1 does not have five steps"
}
any_number() { # MODEL
    local model=$1
    for threads in 1 2 3; do
        OMP_NUM_THREADS=$threads "$WEFT" train $model.yaml --set out=$model.$threads >log 2>&1 || { cat log; fail "$model, $threads threads"; }
        same $model.1 $model.$threads
    done
}
resumes_on_three_threads() { # MODEL
    local model=$1
    cp -r $model.1 $model.on
    rm -r $model.on/model $model.on/checkpoints/step-00000005
    OMP_NUM_THREADS=3 "$WEFT" train $model.yaml --set out=$model.on >log 2>&1 || { cat log; fail "$model: the resumed run failed"; }
    same $model.1 $model.on
}
for model in vae dit; do
    check "any_number_of_threads_$model" any_number $model
    check "a_checkpoint_resumes_with_another_number_$model" resumes_on_three_threads $model
done
finish

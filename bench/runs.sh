# Sourced by benchmarks that train: makes shards of 128x128 and a tiny autoencoder in a scratch folder,
# and defines configs of models.
. "$here/scratch.sh"
dit() { # STEPS LAYERS HEADS FFN BATCH SIDE
    cat <<Y
autoencoder: {weights: tiny/model/vae}
data: {path: shards, latents: latents}
transformer: {class: WanTransformer3DModel, config: {num_layers: $2, num_attention_heads: $3, attention_head_dim: 32, ffn_dim: $4, freq_dim: 64}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 64, num_heads: 2, num_layers: 1, ffn_dim: 128, max_length: 40}}]
checkpoint: {interval: 0}
stages: [{steps: $1, batch: $5, frames: 17, height: $6, width: $6, warmup_steps: 0}]
Y
}
vae() { # STEPS WIDTH BATCH SIDE
    cat <<Y
data: {path: shards}
autoencoder: {class: AutoencoderKLWan, config: {base_dim: $2, dim_mult: [1, 2, 4, 4], num_res_blocks: 1}}
checkpoint: {interval: 0}
stages: [{steps: $1, batch: $3, frames: 9, height: $4, width: $4, warmup_steps: 0}]
Y
}
say "$WEFT" synth --out raw --shots 40 --single-share 1 --held-out-clips 0 --min-frames 18 --max-frames 24 --size 128
say "$WEFT" curate --in raw/train --out cur
say "$WEFT" shard --in cur --out shards --set heldout=0
cat >tiny.yaml <<'Y'
out: tiny
data: {path: shards}
autoencoder: {class: AutoencoderKLWan, config: {base_dim: 8, dim_mult: [1, 2, 2, 2], num_res_blocks: 1, z_dim: 8}}
stages: [{steps: 2, batch: 2, frames: 9, height: 64, width: 64, warmup_steps: 0}]
Y
say "$WEFT" train tiny.yaml

#!/bin/bash
# A mesh cannot change the numbers: training with parameters split (fsdp), tensor parallel (tp), tokens
# split (cp), and two of them, has the losses and gradient norms of one rank, to 1e-4; and leaves a
# whole model of the same names and sizes. Axes that nothing splits are refused.
set -eu
source "$SRC/tests/train/common.sh"
mkdir -p curated/clips curated/metas
for i in 1 2 3 4; do
    ffmpeg -v error -f lavfi -i "testsrc2=size=64x64:rate=8,hue=h=$((i * 50))" -frames:v 12 -pix_fmt yuv420p curated/clips/$i.mp4
    echo '{"caption":"test '$i'","frames":12,"fps":8,"width":64,"height":64}' >curated/metas/$i.json
done
"$WEFT" shard --in curated --out shards --set heldout=0 >/dev/null 2>&1
cat >vae.yaml <<'YAML'
out: vae
data: {path: shards, split: ""}
autoencoder: {class: AutoencoderKLWan, config: {base_dim: 8, dim_mult: [1, 1, 1, 1], num_res_blocks: 1, z_dim: 4}}
stages:
  - {name: one, steps: 2, batch: 4, frames: 1, height: 32, width: 32, lr: 1e-3, warmup: 0}
YAML
cat >dit.yaml <<'YAML'
out: dit
data: {path: shards, split: ""}
autoencoder: {weights: vae/model/vae}
transformer: {class: WanTransformer3DModel, config: {num_layers: 2, num_attention_heads: 2, attention_head_dim: 16, ffn_dim: 64, freq_dim: 32}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 32, num_heads: 2, num_layers: 1, ffn_dim: 64, max_length: 16}}]
stages:
  - {name: one, steps: 3, batch: 4, frames: 1, height: 32, width: 32, lr: 1e-3, warmup: 0}
YAML
agree() { # run, tolerance
    paste <(losses "${1%%.*}") <(losses "$1") | awk -v e="$2" '
        function off(a, b) {return (a > b ? a - b : b - a) > e * (a > 0 ? a : -a)}
        off($2, $5) || off($3, $6) {print; bad = 1} END {exit bad || NR == 0}' || fail "$1 differs"
    for part in vae transformer text_encoder; do
        [ -d "${1%%.*}/model/$part" ] || continue
        diff <("$WEFT" inspect model "${1%%.*}/model/$part" --tensors) <("$WEFT" inspect model "$1/model/$part" --tensors)
    done
}
"$WEFT" train vae.yaml >log 2>&1 || { cat log; exit 1; }
ranks 2 "$WEFT" train vae.yaml --set out=vae.fsdp --set mesh=fsdp=2 >log 2>&1 || { cat log; exit 1; }
agree vae.fsdp 1e-4
"$WEFT" train dit.yaml >log 2>&1 || { cat log; exit 1; }
for mesh in tp=2 cp=2 fsdp=2,tp=2; do
    n=2
    [ $mesh = fsdp=2,tp=2 ] && n=4
    ranks $n "$WEFT" train dit.yaml --set out=dit.$mesh --set mesh=$mesh >log 2>&1 || { cat log; exit 1; }
    agree dit.$mesh 1e-4
done
for mesh in pd=2 tp=2; do
    if ranks 2 "$WEFT" train vae.yaml --set out=bad --set mesh=$mesh >log 2>&1; then exit 1; fi
    grep -q "nothing is known to split over the axis" log || { cat log; exit 1; }
done

#!/bin/bash
# The mesh does not change the results. Training with fsdp, tp, cp and pairs of these axes has the
# losses and gradient norms of one rank (1e-4) and exports the same tensors. For every model family,
# each axis updates each tensor as one rank does (same_updates.py). A mesh that splits nothing, or
# does not match the number of ranks, is refused.
set -e
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
mkdir -p curated/clips curated/metas
for i in 1 2 3 4; do
    ffmpeg -v error -f lavfi -i "testsrc2=size=64x64:rate=8,hue=h=$((i * 50))" -frames:v 12 -pix_fmt yuv420p curated/clips/$i.mp4
    echo '{"caption":"test '$i'","frames":12,"fps":8,"width":64,"height":64}' >curated/metas/$i.json
done
"$WEFT" shard --in curated --out shards --set heldout=0 >shard.log 2>&1 || fail_with shard.log "weft shard"
cat >vae.yaml <<'YAML'
out: vae
data: {path: shards, split: ""}
autoencoder: {class: AutoencoderKLWan, config: {base_dim: 8, dim_mult: [1, 1, 1, 1], num_res_blocks: 1, z_dim: 4}}
stages:
  - {name: one, steps: 2, batch: 4, frames: 1, height: 32, width: 32, lr: 1e-3, warmup_steps: 0}
YAML
cat >dit.yaml <<'YAML'
out: dit
data: {path: shards, split: ""}
autoencoder: {weights: vae/model/vae}
transformer: {class: WanTransformer3DModel, config: {num_layers: 2, num_attention_heads: 2, attention_head_dim: 16, ffn_dim: 64, freq_dim: 32}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 32, num_heads: 2, num_layers: 1, ffn_dim: 64, max_length: 16}}]
stages:
  - {name: one, steps: 3, batch: 4, frames: 1, height: 32, width: 32, lr: 1e-3, warmup_steps: 0}
YAML
agree() { # RUN TOLERANCE: compares with the run of one rank
    paste <(losses "${1%%.*}") <(losses "$1") | awk -v e="$2" '
        function off(a, b) {return (a > b ? a - b : b - a) > e * (a > 0 ? a : -a)}
        off($2, $5) || off($3, $6) {print; bad = 1} END {exit bad || NR == 0}' || fail "losses or gradient norms of $1 differ from one rank"
    for part in vae transformer text_encoder; do
        [ -d "${1%%.*}/model/$part" ] || continue
        diff <("$WEFT" inspect model "${1%%.*}/model/$part" --tensors) <("$WEFT" inspect model "$1/model/$part" --tensors) || fail "$1: other tensors of $part"
    done
}
"$WEFT" train vae.yaml >log 2>&1 || fail_with log "weft train"
fsdp_of_a_vae() {
    ranks 2 "$WEFT" train vae.yaml --set out=vae.fsdp --set parallel.fsdp=2 >log 2>&1 || fail_with log "weft train"
    agree vae.fsdp 1e-4
}
check fsdp_of_a_vae
"$WEFT" train dit.yaml >log 2>&1 || fail_with log "weft train"
run() { # RANKS NAME KEY=VALUE of parallel...
    local n=$1 name=$2 set=()
    shift 2
    for key; do set+=(--set "$key"); done
    ranks "$n" "$WEFT" train dit.yaml --set out="dit.$name" "${set[@]}" >log 2>&1 || fail_with log "weft train"
    agree "dit.$name" 1e-4
}
tensor_parallel() {
    run 2 tp parallel.tensor_parallel_degree=2
    has_message log stage-report "text~=tp" "text~=tensor parallel" || fail "the layout is not reported"
}
check tensor_parallel
check sequence_parallel run 2 sp parallel.tp=2 parallel.sequence_parallel=true
check context_parallel run 2 cp parallel.cp=2
check ring run 2 ring parallel.context=ring parallel.cp=2
ulysses_and_ring() {
    run 4 both 'parallel.context={ulysses: 2, ring: 2}'
    has_message log stage-report text~=ring text~=cp || fail "ulysses and ring are not reported"
}
check ulysses_and_ring
check fsdp_and_tp run 4 fsdp_tp parallel.fsdp=2 parallel.tp=2
# Sharded optimizer states (zero) with EMA, which is gathered at the end.
for zero in 1 2; do
    check zero_$zero run 3 zero$zero parallel.zero=$zero optimizer.ema_decay=0.5
done
# the weights of every family, and their EMA (optimizer.ema_decay)
make_shards
write_configs
mkdir -p runs && cp -r vae runs/vae
write_update_config
splits() { # CONFIG [OPTIONS...]
    local config=$1
    shift
    one_rank "$config" "$@"
    same_updates "$config" 2 cp "$@" --set parallel.cp=2
    same_updates "$config" 2 tp "$@" --set parallel.tp=2
    # tp splits the biases of fused projections, which stay in f32
    ranks 2 "$WEFT" train "$config.yaml" --set "out=runs/$config.bf16" "$@" --set precision=bf16 --set parallel.tp=2 --set stages.0.steps=2 \
        >log 2>&1 || { cat log; fail "$config in bf16 with tp"; }
}
check updates_of_cp_and_tp splits update
check updates_of_fsdp same_updates update 2 fsdp --set parallel.fsdp=2
check updates_of_zero same_updates update 2 zero2 --set parallel.zero=2
check updates_of_ring same_updates update 2 ring --set parallel.cp=2 --set parallel.context=ring
check updates_of_sp same_updates update 2 sp --set parallel.tp=2 --set parallel.sequence_parallel=true
check updates_of_fsdp_and_tp same_updates update 4 both --set parallel.fsdp=2 --set parallel.tp=2
each_family update.yaml splits
# Attention over chosen blocks, which need all tokens of a head: cp and ring split heads. Blocks have
# 8 by 8 tokens of one frame (Kandinsky 5 with nabla), or 1 by 2 tokens of 3 frames (LongCat-Video).
chosen_blocks() { # CLASS CONFIG: further keys of the config
    needs "family_$1"
    sed "s/^  config: {/&$2, /; s/32, width: 32/64, width: 64/" "$1.yaml" >blocks.yaml
    rm -rf runs/blocks.*
    one_rank blocks
    same_updates blocks 2 cp --set parallel.cp=2
    same_updates blocks 2 tp --set parallel.tp=2
    same_updates blocks 2 ring --set parallel.cp=2 --set parallel.context=ring
}
check chosen_blocks_of_nabla chosen_blocks Kandinsky5Transformer3DModel \
    'patch_size: [1, 1, 1], attention_type: nabla, attention_P: 0.5, attention_wT: 1, attention_wH: 1, attention_wW: 3'
check chosen_blocks_of_longcat chosen_blocks LongCatVideoTransformer3DModel \
    'enable_bsa: true, bsa_params: {sparsity: 0.6, chunk_3d_shape_q: [3, 1, 2], chunk_3d_shape_k: [3, 1, 2]}'
# A size without whole blocks is refused with the key of the size.
partial_blocks_of_longcat() {
    needs family_LongCatVideoTransformer3DModel
    sed "s/^  config: {/&enable_bsa: true, bsa_params: {sparsity: 0.6, chunk_3d_shape_q: [3, 1, 2], chunk_3d_shape_k: [3, 1, 2]}, /" LongCatVideoTransformer3DModel.yaml >partial.yaml
    "$WEFT" train partial.yaml --set out=runs/partial --set stages.0.frames=5 >partial.log 2>&1 && fail "not refused"
    has_message partial.log model-shape text~=stages.0 text~=enable_bsa || { cat partial.log; fail "another message than expected"; }
}
check partial_blocks_of_longcat
# An invalid mesh is refused with the number of ranks that it needs.
refuse_ranks() { # ID [FIELD=VALUE...] -- ARGS...
    take_message "$@"
    set -- "${rest[@]}"
    if ranks 2 "$WEFT" train "$@" --set out=bad >log 2>&1; then fail "$* is accepted"; fi
    has_message log "${wanted[@]}" || fail "$*: another message than expected"
}
refuse_ranks config-unknown-key text~=pd: -- dit.yaml --set parallel.pd=2
refuse_ranks mesh-invalid key=*tp -- vae.yaml --set parallel.tp=2
refuse_ranks layout-invalid key=*parallel 'text~=need 3 ranks, but 2 run' -- dit.yaml --set parallel.tp=3
refuse_ranks layout-invalid key=*parallel 'text~=make 4 ranks, but 2 run (mpirun -n 4' -- dit.yaml --set parallel.dp=2 --set parallel.tp=2
refuse_ranks layout-invalid key=*parallel 'text~=1048576 ranks' -- dit.yaml --set parallel.fsdp=1048576 --set parallel.ep=1048576 --set parallel.cp=1048576 --set parallel.tp=1048576
refuse_ranks layout-invalid key=*parallel.cp 'text~=cp is 4,' -- dit.yaml --set parallel.cp=4 --set parallel.context.ulysses=2
refuse_ranks layout-invalid key=*parallel.axis_order "text~='xp'" -- dit.yaml --set parallel.tp=2 --set 'parallel.axis_order=[xp]'
refuse_ranks config-unknown-key text~=mesh: text~=parallel -- dit.yaml --set mesh=tp=2
finish

#!/bin/bash
# parallel.schedule of a run's config is checked by every verb that reads the run, before any work.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
mkdir vae
echo '{"_class_name": "AutoencoderKLWan"}' >vae/config.json
cat >run.yaml <<'Y'
out: run
data: {path: shards}
autoencoder: {weights: vae}
transformer: {class: WanTransformer3DModel, config: {num_layers: 2, num_attention_heads: 2, attention_head_dim: 12, ffn_dim: 46, freq_dim: 32}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}}]
stages: [{steps: 2, batch: 4, frames: 9, height: 32, width: 32}]
Y
echo "0F0,later" >table.csv
# refused ID [FIELD=VALUE...] -- OPTIONS...: by each verb
refused() {
    take_message "$@"
    set -- "${rest[@]}"
    for verb in "estimate run.yaml" "plan layout --run-config run.yaml" "profile run.yaml"; do
        # shellcheck disable=SC2086 # words
        "$WEFT" $verb "$@" >out.txt 2>log && fail "accepted by weft $verb: $*"
        has_message log "${wanted[@]}" level=error || { cat log; fail "weft $verb $*"; }
    done
    [ ! -e run ] || fail "a file was written"
}
check unknown_schedules refused config-value file=run.yaml key=parallel.schedule value=1b1f text~=1f1b text~=zero-bubble -- --set parallel.schedule=1b1f --set parallel.pp=2
check unknown_schedules_without_stages refused config-value file=run.yaml key=parallel.schedule value=1b1f -- --set parallel.schedule=1b1f
check missing_files refused config-value file=run.yaml key=parallel.schedule value=none.csv -- --set parallel.schedule=none.csv --set parallel.pp=2
check damaged_files refused text-damaged file=table.csv line=1 value=later text~=parallel.schedule 'text~=weft plan pipeline --out' -- --set parallel.schedule=table.csv --set parallel.pp=2
check schedules_without_stages refused config-no-effect file=run.yaml key=parallel.schedule text~=parallel.pp -- --set parallel.schedule=wave
finish

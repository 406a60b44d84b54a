#!/bin/bash
# Every earlier name of a config key is accepted, and a notice prints the new one. Two names of one key
# in a config are refused with both lines.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
# earlier name, new name, value
cat >keys <<'KEYS'
gradient_sums grad_reduce_dtype f32
model_dtype export_dtype bf16
deadline comm_timeout 60
log_every log_interval 2
noise_from timestep_min 0.1
noise_to timestep_max 0.9
guidance embedded_guidance 3
recompute memory.recompute [attention]
data.threads data.decode_threads 2
data.prefetch data.prefetch_batches 2
data.shuffle data.shuffle_buffer 9
data.verify data.verify_checksums false
data.random_start data.random_temporal_crop false
data.samples_from data.input latents
data.embeddings data.text_embeddings online
text_encoders.0.length text_encoders.0.max_length 6
autoencoder.train autoencoder.trainable []
transformer.train transformer.trainable []
loss.lpips.trunk loss.lpips.backbone x
loss.adversarial.start loss.adversarial.start_step 3
loss.adversarial.channels loss.adversarial.base_channels 8
loss.adversarial.video loss.adversarial.temporal true
flow.times flow.timestep_sampling uniform
stages.0.accumulate stages.0.gradient_accumulation_steps 2
stages.0.tokens stages.0.max_tokens 9
stages.0.load stages.0.max_load 9
stages.0.load_power stages.0.load_exponent 1
stages.0.images stages.0.image_share 0.5
stages.0.lr_end stages.0.min_lr_ratio 0.5
stages.0.warmup stages.0.warmup_steps 1
stages.0.schedule stages.0.lr_schedule constant
checkpoint.every checkpoint.interval 9
checkpoint.keep checkpoint.keep_latest 3
memory.states memory.optimizer_states kept
memory.ahead memory.prefetch_budget 1MiB
stragglers.share stragglers.threshold 0.5
stragglers.steps stragglers.window 9
passes.tokens passes.token_sharding off
passes.slice passes.layer_slices off
passes.lift passes.early_exchange off
passes.regather passes.reshard_after_forward off
passes.halves passes.cfg_branches off
passes.order passes.comm_order off
passes.stream passes.weight_streaming off
parallel.text parallel.text_encoder_rank shared
parallel.sequence parallel.sequence_parallel true
parallel.order parallel.axis_order [tp]
parallel.plan parallel.layout_file x
parallel.slices.heads parallel.comm_overlap.heads 2
parallel.comm_overlap.lift_time parallel.comm_overlap.early_time 2
parallel.comm_overlap.lift_space parallel.comm_overlap.early_space 2
parallel.cascades.weigh parallel.cascades.loss_weight samples
parallel.cascades.unfit parallel.cascades.oversized skip
parallel.cascades.inner parallel.cascades.topology_aware false
parallel.cascades.inter parallel.cascades.prefer_producers false
parallel.cascades.cache parallel.cascades.program_cache 1MiB
parallel.cascades.memory parallel.cascades.memory_limit 1GiB
parallel.cascades.accumulation parallel.cascades.gradient_reduction own
KEYS
# A valid config, refused later because files are missing.
cat >run.yaml <<'YAML'
out: out
data: {path: nowhere}
text_encoders: [{weights: nowhere}]
stages: [{steps: 2, batch: 1, frames: 5, height: 32, width: 32}]
YAML
set=()
while read -r before now value; do set+=(--set "$before=$value"); done <keys
"$WEFT" train run.yaml "${set[@]}" >train.log 2>&1 && fail "a run without anything to train"
"$WEFT" help --markdown train >help.txt
every_earlier_key_is_accepted() {
    while read -r before now value; do
        case $before in
        parallel.slices.heads) earlier=parallel.slices later=parallel.comm_overlap ;;
        *) earlier=$before later=$now ;;
        esac
        has_message train.log config-renamed-key "file=--set $before=$value" "key=$earlier" "text~=$later" ||
            fail "$before is not accepted with a notice"
        key=$(sed 's/\.0\./.N./' <<<"$now")
        [ "$before" = parallel.slices.heads ] || [ "$before" = recompute ] ||
            grep -F -- "\`$key\`" help.txt | grep -q "also written .*\`${before##*.}\`" || fail "help of $key does not list ${before##*.}"
    done <keys
    [ "$(count_messages train.log config-renamed-key)" = "$(wc -l <keys)" ] || { cat train.log; fail "other notices"; }
    for id in config-missing-key config-conflict config-no-effect; do # no value of the config is refused
        [ "$(count_messages train.log $id level=error)" = "$(count_messages train.log '*' level=error)" ] && return
    done
    fail "a value is refused"
}
check every_earlier_key_is_accepted

# One notice for a key in several items of a list, and a key with both names.
cat >>run.yaml <<'YAML'
checkpoint:
  every: 3
  interval: 4
YAML
both_names_are_refused() {
    "$WEFT" train run.yaml >both.log 2>&1 && fail "both names of a key"
    has_message both.log config-syntax file=run.yaml line=6 key=every "text~='interval'" text~=run.yaml:7 || fail "both lines"
}
check both_names_are_refused

# Other verbs.
mkdir in
echo "clips: {key_interval: 9}" >curate.yaml
other_verbs_accept_earlier_keys() {
    "$WEFT" curate curate.yaml --in in --out clips --set video.prove=false --set duplicates.parts=0 >curate.log 2>&1
    has_message curate.log config-renamed-key file=curate.yaml line=1 key=clips.key_interval text~=clips.keyframe_interval &&
        has_message curate.log config-renamed-key "file=--set video.prove=false" text~=video.check_corruption &&
        has_message curate.log config-renamed-key "file=--set duplicates.parts=0" text~=duplicates.partial_share || fail "weft curate"
    "$WEFT" shard --in clips --out shards --set need_caption=true >shard.log 2>&1
    has_message shard.log config-renamed-key "file=--set need_caption=true" key=need_caption text~=require_caption || fail "weft shard"
    "$WEFT" generate --model nowhere --prompt x --out x.mp4 --parallel sequence=true --pass order=off >generate.log 2>&1
    has_message generate.log config-renamed-key "file=--parallel sequence=true" key=sequence text~=sequence_parallel || fail "weft generate"
}
check other_verbs_accept_earlier_keys
finish

#!/bin/bash
# memory.offload and memory.optimizer_states: losses are bitwise those without offloading, with and
# without recomputation, on two ranks, with gradient accumulation and in pipelines. The scratch file
# has no name. A folder without enough space is an error before the first step.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
cat >wide.yaml <<'Y'
out: runs/all
autoencoder: {weights: runs/vae/model/vae}
data: {path: shards, latents: latents}
transformer: {class: WanTransformer3DModel, config: {num_layers: 4, num_attention_heads: 4, attention_head_dim: 32, ffn_dim: 512, freq_dim: 32}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}}]
stages:
  - {steps: 2, batch: 16, frames: 9, height: 64, width: 64, lr: 1e-3, warmup_steps: 0}
Y
predicted_mib() { message_mib "$1" memory-report key= 'value=?*' | cut -d. -f1; }
try() { # NAME RANKS SETTINGS...: a run on RANKS ranks, which leaves no scratch file
    local name=$1 ranks=$2
    shift 2
    ranks "$ranks" "$WEFT" train wide.yaml --set out=runs/$name "$@" >$name.log 2>&1 || { cat $name.log; fail "$name"; }
    [ -z "$(find away runs/$name -name '.weft-scratch*' 2>/dev/null)" ] || fail "$name leaves files"
}
"$WEFT" train wide.yaml >all.log 2>&1 || { cat all.log; fail "without a limit"; }
limit=$(($(predicted_mib all.log) - 25))
activations_go_to_a_file() {
    try file 1 --set memory.limit=${limit}MiB --set memory.recompute=none --set memory.offload=away
    has_message file.log memory-report "text~=memory.limit: stage 0" || fail "the offloading is not reported"
    has_message file.log stage-report "text~=stage 0" text~=fetched || fail "hidden copies are not reported"
    [ "$(predicted_mib file.log)" -le "$limit" ] || { cat file.log; fail "the prediction is more than $limit MiB"; }
    diff <(losses runs/all) <(losses runs/file) || fail "offloading changes the losses"
}
check activations_go_to_a_file
optimizer_states_go_to_a_file() {
    try both 1 --set memory.limit=${limit}MiB --set memory.offload=auto --set memory.optimizer_states=offload --set trace=true
    diff <(losses runs/all) <(losses runs/both) || fail "offloaded states change the losses"
    grep -q '"fetch' runs/both/trace-0-0.json || fail "the trace shows no copies"
    has_message both.log memory-report text~=offloaded || fail "offloaded states are not reported"
}
check optimizer_states_go_to_a_file
states_and_activations_of_a_device_go_to_the_host() {
    try far 1 --set backend=far --set memory.limit=${limit}MiB --set memory.recompute=none --set memory.offload=host --set memory.optimizer_states=offload
    has_message far.log stage-report "text~=stage 0" text~=fetched || fail "nothing was offloaded on far"
    diff <(losses runs/all) <(losses runs/far) || fail "offloading changes the losses on far"
}
check states_and_activations_of_a_device_go_to_the_host
# If all cores compute, a copy needs one of them. Activations that are quick to recompute are then not
# offloaded, unless kernels were measured to lose little (other processes use the machine, too).
copies_take_a_core() {
    mkdir -p away
    OMP_NUM_THREADS=$(nproc) "$WEFT" inspect graph wide.yaml --set memory.limit=${limit}MiB --set memory.offload=away >shared.txt 2>shared.log || { cat shared.log; fail "inspect"; }
    lost=$(sed -n 's/.*memory.limit: .* kernels lose \([0-9]*\) %.*/\1/p' shared.txt)
    grep -q "memory.limit: stage 0 keeps .* recomputes .* in the backward" shared.txt || [ "${lost:-100}" -lt 50 ] || { cat shared.txt; fail "copies are priced as free on the cores that compute"; }
}
check copies_take_a_core
ranks_train_the_same() { # NAME SETTINGS
    local how=$2 least
    try plain 2 $how
    [[ $how = *pp=* ]] || has_message plain.log stage-report "text~=stage 0" text~=sent || fail "$how: exchanges are not reported"
    try two 2 $how --set memory.offload=away --set memory.optimizer_states=offload
    diff <(losses runs/plain) <(losses runs/two) || fail "$how: offloaded states change the losses"
    least=$(($(predicted_mib two.log) - 3))
    try three 2 $how --set memory.limit=${least}MiB --set memory.offload=away --set memory.optimizer_states=offload --set memory.prefetch_budget=512KiB
    has_message three.log memory-report "text~=memory.limit: stage 0" || fail "$how: nothing is recomputed or offloaded"
    echo "$how: $(predicted_mib plain.log) MiB, with offloaded states $(predicted_mib two.log), limit $least: $(predicted_mib three.log)"
    diff <(losses runs/two) <(losses runs/three) || fail "$how: the limit changes the losses"
    rm -rf runs/plain runs/two runs/three
}
check fsdp_trains_the_same ranks_train_the_same fsdp "--set parallel.fsdp=2"
check accumulation_trains_the_same ranks_train_the_same accumulation "--set stages.0.gradient_accumulation_steps=2 --set stages.0.batch=16"
check pipelines_train_the_same ranks_train_the_same pipeline "--set parallel.pp=2 --set parallel.microbatches=2"
# Activations that pipeline stages save for their backward are offloaded to the file, not recomputed.
pipelines_offload_saved_activations() { # SCHEDULE
    local schedule=$1
    how="--set parallel.pp=2 --set parallel.microbatches=4 --set parallel.schedule=$schedule"
    try plain 2 $how
    least=$(($(predicted_mib plain.log) - 1))
    try moved 2 $how --set memory.limit=${least}MiB --set memory.recompute=none --set memory.offload=away
    has_message moved.log memory-report "text~=memory.limit: stage 0" || fail "$schedule: the offloading is not reported"
    has_message moved.log stage-report "text~=stage 0" text~=fetched || fail "$schedule: nothing was offloaded"
    [ "$(predicted_mib moved.log)" -le "$least" ] || { cat moved.log; fail "$schedule: the prediction is more than $least MiB"; }
    predicted=$(message_field message moved.log memory-report key= 'value=?*' |
        sed -n 's/^memory.*stage 0 \([0-9.]* .iB\) and batches .* offloaded.*/\1/p')
    reserved=$(message_field message moved.log stage-report 'value=?*' |
        sed -n 's/^stage 0.*, program \(.* .iB\), weights.*/\1/p')
    [ -n "$predicted" ] && [ "$predicted" = "$reserved" ] || { cat moved.log; fail "$schedule: predicted '$predicted', reserved '$reserved'"; }
    echo "$schedule: $(predicted_mib plain.log) MiB, limit $least: $(predicted_mib moved.log); $(message_field message moved.log stage-report 'offloaded_bytes=?*')"
    diff <(losses runs/plain) <(losses runs/moved) || fail "$schedule: offloading changes the losses"
    rm -rf runs/plain runs/moved
}
for schedule in 1f1b zero-bubble wave; do check "pipelines_offload_saved_activations_$schedule" pipelines_offload_saved_activations "$schedule"; done
refusals() {
    "$WEFT" train wide.yaml --set out=runs/no --set memory.limit=${limit}MiB --set memory.offload=host >no.log 2>&1 && fail "host on cpu"
    has_message no.log config-value key=memory.offload text~=host || fail "host is not refused"
    "$WEFT" train wide.yaml --set out=runs/no --set memory.offload=away >no.log 2>&1 && fail "offload without a limit"
    has_message no.log config-no-effect key=memory.offload text~=memory.limit || fail "the missing limit is not reported"
    "$WEFT" train wide.yaml --set out=runs/no --set memory.profile=none.json >no.log 2>&1 && fail "a profile without a limit"
    has_message no.log config-no-effect file=wide.yaml key=memory.profile text~=none.json || fail "a profile without a limit is not reported"
}
check refusals
a_small_disk_is_refused() {
    if mkdir -p small && mount -t tmpfs -o size=4m none small 2>/dev/null; then
        "$WEFT" train wide.yaml --set out=runs/no --set memory.optimizer_states=offload --set memory.offload="$PWD/small" --set transformer.config.ffn_dim=4096 >no.log 2>&1
        code=$?
        "$WEFT" train wide.yaml --set out=runs/no --set memory.limit=${limit}MiB --set memory.offload="$PWD/small" >measured.log 2>&1
        measured=$?
        umount small
        [ $measured -ne 0 ] && has_message measured.log '*' level=error "text~=4.00 MiB" || fail "the free space is not reported"
        [ $code -ne 0 ] || fail "4 MiB are enough"
        has_message no.log file-io 'text~=offloading needs' || fail "the needed space is not reported"
        ! is_progress no.log train || fail "a step was trained"
    fi
}
check a_small_disk_is_refused
finish

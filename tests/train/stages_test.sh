#!/bin/bash
# A VAE with a training stage of single frames, in which temporal convolutions have no gradient, and
# a stage of clips. Resuming from a checkpoint inside either stage, or between them, is bitwise. The
# EMA of a parameter without gradient is the parameter.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
cat >>vae.yaml <<'Y'
  - {steps: 6, batch: 3, frames: 1, height: 16, width: 16, lr: 1e-3, warmup_steps: 0}
  - {steps: 6, batch: 3, frames: 5, height: 16, width: 16, lr: 1e-3, warmup_steps: 2}
optimizer: {ema_decay: 0.9}
checkpoint: {interval: 3, keep_latest: 9}
Y
sed -i '/steps: 8,/d' vae.yaml # only the two stages above
"$WEFT" train vae.yaml --set out=whole >whole.log 2>&1 || { cat whole.log; fail "weft train"; }
[ "$(ls whole/checkpoints | wc -l)" = 4 ] || fail "checkpoints: $(ls whole/checkpoints)"
resumes_from() { # STEP: as if killed right after its checkpoint
    local last=$1 step file
    rm -rf again
    cp -r whole again
    rm -r again/model
    for step in $(seq $((last + 3)) 3 12); do rm -r "again/checkpoints/step-$(printf %08d "$step")"; done
    "$WEFT" train vae.yaml --set out=again >again.log 2>&1 || { cat again.log; fail "resuming from step $last failed"; }
    has_message again.log run-resumed value=$last || fail "did not resume from step $last"
    diff <(losses whole) <(losses again) || fail "losses differ after resuming from step $last"
    for file in optimizer.safetensors ema.safetensors vae/diffusion_pytorch_model.safetensors; do
        cmp "whole/checkpoints/step-00000012/$file" "again/checkpoints/step-00000012/$file" || fail "$file differs after resuming from step $last"
    done
}
for last in 3 6 9; do check "resumes_at_step_$last" resumes_from $last; done
# Changes of the config between two starts, and a finished run, are reported.
changes_of_the_config_are_reported() {
    "$WEFT" train vae.yaml --set out=whole >over.log 2>&1 || { cat over.log; fail "starting the finished run again"; }
    has_message over.log run-finished value=12 && [ "$(count_messages over.log run-changed)" = 0 ] || { cat over.log; fail "the finished run is not reported, or a change is reported"; }
    [ "$(count_messages over.log memory-report key=memory)" = 0 ] || { cat over.log; fail "the peak of steps that were not made is compared"; }
    "$WEFT" train vae.yaml --set out=whole --set stages.1.steps=8 --set stages.1.lr=5e-4 >more.log 2>&1 || { cat more.log; fail "more steps"; }
    [ "$(count_messages more.log run-changed)" = 2 ] && has_message more.log run-changed text~=stages.1.steps text~=8 text~=6 &&
        has_message more.log run-changed text~=stages.1.lr text~=0.0005 text~=0.001 ||
        { cat more.log; fail "the changes of the config are not reported"; }
    [ "$(losses whole | wc -l)" = 14 ] || fail "14 steps expected"
}
check changes_of_the_config_are_reported
the_ema_of_unchanged_parameters_is_the_parameter() {
    python3 -S - whole/checkpoints/step-00000006 <<'PY' || fail "the EMA of a parameter without gradient is not the parameter"
import json, struct, sys
def tensors(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n])
    return {k: data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]] for k, v in head.items() if k != "__metadata__"}
ema, params = tensors(sys.argv[1] + "/ema.safetensors"), tensors(sys.argv[1] + "/vae/diffusion_pytorch_model.safetensors")
untouched = [k for k in params if "time_conv" in k]
assert untouched
for name in params:
    assert "ema.vae." + name in ema, name
for name in untouched:
    assert ema["ema.vae." + name] == params[name], name
PY
}
check the_ema_of_unchanged_parameters_is_the_parameter
finish

#!/bin/bash
# An autoencoder trained with LPIPS and a discriminator. Every loss term is logged, the
# discriminator does not train before loss.adversarial.start_step, and a stopped run resumes
# bitwise. Two ranks have the losses of one (1e-5: the order of summation differs). Without the keys
# no term is logged. Damaged network files are refused with file, tensor and remedy.
#
# The autoencoder starts from random weights. Wan's starts as a box average, whose flat blocks have
# equal features. Rounding decides which of equal features a max-pool of LPIPS chooses, so that two
# gradients are valid. A ReLU unit at 0 can have the same effect later.
set -e
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
for net in vgg alex; do python3 "$SRC/tests/train/graph/loss_nets.py" $net $net; done
cat >gan.yaml <<'Y'
out: gan
data: {path: shards}
autoencoder:
  class: AutoencoderKL
  config:
    block_out_channels: [8, 16]
    norm_num_groups: 4
    latent_channels: 4
    down_block_types: [DownEncoderBlock2D, DownEncoderBlock2D]
    up_block_types: [UpDecoderBlock2D, UpDecoderBlock2D]
loss:
  lpips: {weight: 0.5, backbone: vgg/trunk.safetensors, heads: vgg/heads.pth}
  adversarial: {weight: 0.5, start_step: 3, base_channels: 4, layers: 2}
optimizer: {weight_decay: 0}
checkpoint: {interval: 0}
stages:
  - {steps: 8, batch: 4, frames: 1, height: 32, width: 32, lr: 1e-3, warmup_steps: 0}
Y
train() { # ranks, KEY=VALUE...
    local n=$1 set=()
    shift
    for key; do set+=(--set "$key"); done
    ranks "$n" "$WEFT" train gan.yaml "${set[@]}" >log 2>&1 || { cat log; fail "weft train $*"; }
}
tensors() { (cd "$1" && find . -name '*.safetensors' | sort | xargs sha256sum); }

# ---- one rank: the logged terms, and the first step of the discriminator
the_parts_are_measured_and_written() {
    train 1 checkpoint.interval=1 checkpoint.keep_latest=9
    python3 -S - <<'P' || fail "metrics.jsonl does not have every loss term"
import json
rows = [json.loads(line) for line in open("gan/metrics.jsonl")]
assert len(rows) == 8
for i, r in enumerate(rows):
    for key in ("mse", "kl", "lpips", "generator", "discriminator", "adversarial_weight", "discriminator_norm"):
        assert key in r, key
    assert (r["adversarial_weight"] > 0) == (i >= 3), r
P
    same() { cmp -s "gan/checkpoints/step-0000000$1/discriminator/diffusion_pytorch_model.safetensors" "gan/checkpoints/step-0000000$2/discriminator/diffusion_pytorch_model.safetensors"; }
    same 1 3 || fail "the discriminator was trained before start_step"
    same 3 4 && fail "the discriminator is not trained after start_step"
    grep -q '"n_layers": 2' gan/model/discriminator/config.json || fail "the model has no discriminator"
    [ ! -e gan/checkpoints/step-00000008/lpips ] || fail "a checkpoint holds the LPIPS network"
    "$WEFT" report --run gan=gan --out gan.html >/dev/null
    for part in lpips generator discriminator; do grep -q "gan: $part" gan.html || fail "the report has no curve of $part"; done
}
check the_parts_are_measured_and_written

# ---- stopped after start_step and resumed: weights and moments are bitwise the same
a_stopped_run_resumes_bitwise() {
    needs the_parts_are_measured_and_written
    train 1 out=half stages.0.steps=8 checkpoint.interval=1 checkpoint.keep_latest=9
    rm -r half/model half/checkpoints/step-0000000[5678]
    train 1 out=half checkpoint.interval=1 checkpoint.keep_latest=9
    has_message log run-resumed value=4 || fail "did not resume from step 4"
    [ "$(tensors gan/model)" = "$(tensors half/model)" ] || fail "a resumed run has another model"
    [ "$(tensors gan/checkpoints/step-00000008)" = "$(tensors half/checkpoints/step-00000008)" ] || fail "a resumed run has other moments"
}
check a_stopped_run_resumes_bitwise

# ---- ranks, gradient accumulation, and other loss settings
# Two ranks have the losses of one rank over four steps, three of them with the discriminator, for
# one of five seeds. In about one step of ten a ReLU unit of LPIPS is within rounding of 0, and the
# two runs have different valid gradients. An error shows with every seed.
agree() { # NAME, KEY=VALUE of the two ranks only (-: none), KEY=VALUE...
    local name=$1 alone=$2 seed
    shift 2
    [ "$alone" != - ] || alone=
    for seed in 1 2 3 4 5; do
        rm -rf $name.1 $name.2
        train 1 out=$name.1 seed=$seed loss.adversarial.start_step=1 "$@"
        train 2 out=$name.2 seed=$seed loss.adversarial.start_step=1 $alone "$@"
        paste <(losses $name.1) <(losses $name.2) | head -4 | awk -v what="$name $seed" '
            {e = ($2 - $5) / $2; e = e < 0 ? -e : e; if (e > worst) worst = e}
            END {print what ": " worst; exit !(NR == 4 && worst <= 1e-5)}' && return
    done
    fail "$name: two ranks differ from one"
}
check two_ranks_dp agree dp -
check two_ranks_fsdp agree fsdp parallel.fsdp=2
check two_ranks_zero agree zero parallel.zero=2 stages.0.gradient_accumulation_steps=2
alex="loss.lpips.backbone=alex/trunk.safetensors loss.lpips.heads=alex/heads.pth"
check two_ranks_video agree video - $alex loss.adversarial.temporal=true loss.adversarial.layers=1 loss.adversarial.loss=vanilla \
    stages.0.frames=5 loss.adversarial.adaptive=false
# the discriminator starts from weights
a_discriminator_is_loaded() {
    needs the_parts_are_measured_and_written
    train 1 out=from loss.adversarial.weights=gan/model/discriminator loss.adversarial.start_step=100 stages.0.steps=1
    cmp -s gan/model/discriminator/diffusion_pytorch_model.safetensors from/model/discriminator/diffusion_pytorch_model.safetensors || fail "the discriminator of loss.adversarial.weights was not loaded, or was trained before start_step"
}
check a_discriminator_is_loaded

# ---- without the keys no loss terms exist
without_the_keys_no_term_is_logged() {
    train 1 out=plain loss.lpips.weight=0 loss.lpips.backbone= loss.lpips.heads= loss.adversarial.weight=0
    ! grep -q 'lpips\|discriminator' plain/metrics.jsonl || fail "metrics.jsonl has terms that the config does not have"
    "$WEFT" report --run plain=plain --out plain.html >/dev/null
    ! grep -q 'plain: lpips' plain.html || fail "the report has a curve of a term that the config does not have"
    [ ! -e plain/model/discriminator ] || fail "the model has a discriminator that the config does not have"
}
check without_the_keys_no_term_is_logged

# ---- damaged and other network files
refused() { # ID [FIELD=VALUE...] -- KEY=VALUE...
    take_message "$@"
    set -- "${rest[@]}"
    local set=()
    for key; do set+=(--set "$key"); done
    "$WEFT" train gan.yaml --set out=bad "${set[@]}" >log 2>&1 && fail "accepted: $*"
    has_message log "${wanted[@]}" || fail "$*: another message than expected"
}
refusals() {
    refused '*' text~=loss.lpips.backbone text~=no-such-file -- loss.lpips.backbone=no-such-file.pth
    refused tensor-missing 'file=*vgg/heads.pth' text~=features.0.weight: text~=torchvision -- loss.lpips.backbone=vgg/heads.pth
    refused tensor-shape 'file=*alex/heads.pth' text~=lin0.model.1.weight: 'text~=1 x 6 x 1 x 1,' 'text~=(vgg) has 4 channels' -- loss.lpips.heads=alex/heads.pth
    refused config-missing-key file=gan.yaml key=loss.lpips.heads -- loss.lpips.heads=
    refused config-no-effect file=gan.yaml key=loss.lpips -- loss.lpips.weight=0
    refused config-value file=gan.yaml key=stages.0 'text~=1 x 16 x 16' text~=loss.adversarial 'text~=24 x 24' -- \
        loss.adversarial.layers=3 stages.0.height=16 stages.0.width=16
}
check refusals
python3 -S - <<'P'
import json, struct
data = open("vgg/trunk.safetensors", "rb").read()
n = struct.unpack("<Q", data[:8])[0]
h = json.loads(data[8:8 + n])
h["features.12.weight"]["shape"] = [8, 8, 9, 1]
text = json.dumps(h).encode()
open("bent.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data[8 + n:])
P
bent_and_other_nets_are_refused() {
    needs a_stopped_run_resumes_bitwise
    refused tensor-shape file=*bent.safetensors key=features.12.weight 'text~=8 x 8 x 9 x 1, not N x 8 x 3 x 3;' text~=torchvision -- loss.lpips.backbone=bent.safetensors
    refused '*' 'text~=the networks of loss.lpips changed' -- out=half $alex stages.0.steps=9
}
check bent_and_other_nets_are_refused
finish

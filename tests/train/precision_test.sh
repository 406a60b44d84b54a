#!/bin/bash
# `precision: bf16`. Losses are within 2e-3 of those of f32, predicted memory is reserved memory and
# less than that of f32, and a repeated run is bitwise identical. On several ranks the forward is
# that of one rank; each rank rounds its gradients, and losses are within 2e-3 of one rank.
# grad_reduce_dtype: bf16 sends half the bytes. Checkpoints hold f32 and resume in either precision.
# A model written in bf16 generates. `precision: auto` chooses by rates, which a profile gives here.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml --set precision=bf16 >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
cat >wide.yaml <<'Y'
out: runs/none
autoencoder: {weights: runs/vae/model/vae}
data: {path: shards, latents: latents}
transformer: {class: WanTransformer3DModel, config: {num_layers: 4, num_attention_heads: 4, attention_head_dim: 16, ffn_dim: 128, freq_dim: 32}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}}]
optimizer: {ema_decay: 0.9}
checkpoint: {interval: 6}
stages: [{steps: 12, batch: 8, frames: 9, height: 32, width: 32, lr: 2e-3, warmup_steps: 0, lr_schedule: constant}]
Y
try() { # NAME RANKS SETTINGS...
    local name=$1 ranks=$2
    shift 2
    ranks "$ranks" "$WEFT" train wide.yaml --set out=runs/$name "$@" >$name.log 2>&1 || { cat $name.log; fail "$name"; }
}
narrow="--set precision=bf16"
try f32 1
loss_difference() { # A B: prints the largest relative difference of their losses
    paste <(losses "runs/$1") <(losses "runs/$2") | awk '{d = $2 / $5 - 1; d = d < 0 ? -d : d; m = d > m ? d : m} END {print m + 0}'
}
below() { awk "BEGIN {exit !($1 <= $2)}"; }
bf16_is_near_f32_and_repeats() {
    try bf16 1 $narrow
    try again 1 $narrow
    diff <(losses runs/bf16) <(losses runs/again) || fail "the repeated run differs"
    diff -q <(losses runs/f32) <(losses runs/bf16) >/dev/null && fail "bf16 has the losses of f32"
    below "$(loss_difference bf16 f32)" 2e-3 || fail "$(loss_difference bf16 f32) from f32"
}
check bf16_is_near_f32_and_repeats

program() { message_mib "$1" stage-report key= 'value=?*'; }
predicted() { sed -n 's/^  program *\([0-9.]*\) MiB.*/\1/p' "$1"; }
the_program_is_as_predicted_and_smaller() {
    for p in f32 bf16; do
        "$WEFT" inspect graph wide.yaml --set precision=$p >inspect.$p || { cat inspect.$p; fail "inspect $p"; }
        [ "$(predicted inspect.$p)" = "$(program $p.log)" ] || fail "$p: predicted $(predicted inspect.$p) MiB, reserved $(program $p.log)"
    done
    echo "program of a step: f32 $(program f32.log) MiB, bf16 $(program bf16.log) MiB"
    below "$(program bf16.log)" "0.7 * $(program f32.log)" || fail "bf16 needs more than 0.7 of the memory of f32"
}
check the_program_is_as_predicted_and_smaller

every_layout_is_near_one_rank() {
    try dp 2 $narrow --set parallel.dp=2
    try zero 2 $narrow --set parallel.dp=2 --set parallel.zero=2
    try fsdp 2 $narrow --set parallel.fsdp=2
    try tp 2 $narrow --set parallel.tp=2
    try stages 2 $narrow --set parallel.pp=2 --set parallel.microbatches=2
    try sums 2 $narrow --set parallel.dp=2 --set grad_reduce_dtype=bf16
    for name in dp zero fsdp tp stages sums; do
        paste <(losses runs/$name) <(losses runs/bf16) | awk 'NR == 1 {d = $2 / $5 - 1; exit d * d > 1e-12}' || fail "$name: the first loss differs from one rank"
        echo "$name: $(loss_difference $name bf16) from one rank, $(loss_difference bf16 f32) between bf16 and f32"
        below "$(loss_difference $name bf16)" 2e-3 || fail "$name is $(loss_difference $name bf16) from one rank"
    done
}
check every_layout_is_near_one_rank
sent() { # prints the KiB that dp sends
    "$WEFT" inspect graph wide.yaml $narrow --set parallel.dp=2 "$@" | sed -n '/sent a step and rank/,$p' | awk '$1 == "dp" {for (i = 1; i < NF; i++) if ($(i + 1) ~ /iB$/) print $i * ($(i + 1) == "MiB" ? 1024 : 1)}'
}
reduced_gradients_send_half() {
    below "$(sent --set grad_reduce_dtype=bf16)" "0.6 * $(sent)" || fail "grad_reduce_dtype: bf16 sends $(sent --set grad_reduce_dtype=bf16) KiB, f32 $(sent)"
}
check reduced_gradients_send_half

# master weights, and resuming
checkpoints_hold_f32() {
    python3 -S - runs/bf16/checkpoints <<'P' || fail "a checkpoint holds another dtype than f32"
import glob, json, struct, sys
files = glob.glob(sys.argv[1] + "/*/**/*.safetensors", recursive=True)
assert files
for name in files:
    f = open(name, "rb")
    header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    assert all(t["dtype"] == "F32" for k, t in header.items() if k != "__metadata__"), name
P
}
check checkpoints_hold_f32
a_stopped_run_resumes_bitwise() {
    try on 1 $narrow --set stages.0.steps=6
    try on 1 $narrow
    diff <(losses runs/bf16) <(losses runs/on) || fail "losses differ after resuming"
}
check a_stopped_run_resumes_bitwise
# grad_reduce_dtype rounds gradients only, not parameters: the first loss of two ranks is that of
# one. The runs resume from trained weights, because initial biases and norm scales are exact in
# bf16.
the_forward_is_that_of_one_rank() {
    for k in 1 2; do
        cp -r runs/bf16 runs/from$k
        rm -r runs/from$k/model
        try from$k $k $narrow --set stages.0.steps=13 --set grad_reduce_dtype=bf16
    done
    paste <(losses runs/from2) <(losses runs/from1) | awk 'NR == 13 {d = $2 / $5 - 1; same = d * d <= 1e-12} END {exit !same}' ||
        fail "grad_reduce_dtype: bf16 computes another forward"
}
check the_forward_is_that_of_one_rank
another_precision_resumes_and_generates() {
    try other 1 --set stages.0.steps=6
    try other 1 $narrow --set export_dtype=bf16
    below "$(loss_difference other f32)" 2e-3 || fail "from f32 to bf16: $(loss_difference other f32)"
    "$WEFT" inspect model runs/other/model/transformer/diffusion_pytorch_model.safetensors >file.txt || { cat file.txt; fail "inspect of the file"; }
    grep -qi "bf16" file.txt || { cat file.txt; fail "the model is not written in bf16"; }
    "$WEFT" generate --model runs/other/model --prompt "a red square" --out one.mp4 --steps 2 --seed 3 >one.log 2>&1 || { cat one.log; fail "generate"; }
}
check another_precision_resumes_and_generates

# auto: rates by a profile in the folder of the run, on which arithmetic takes nearly all time
rates() { # FOLDER BF16: FLOP/s of f32 are 1e8
    mkdir -p "$1"
    cat >"$1/profile.json" <<J
{"format": "weft.profile/1", "machine": "m", "memory": 1000000000, "threads": 1, "flops": 1e8, "gemm": 1, "attention": 1, "conv": 1,
 "bf16": {"flops": $2, "gemm": 1, "attention": 1, "conv": 1}, "memory_bandwidth": 1e12,
 "rates": [{"node": "gelu f32[8] -> f32[8]", "flops": 8, "bytes": 64, "seconds": 1e-6}]}
J
}
units() { "$WEFT" doctor | grep "^units" | grep -q "BF16 yes.*AMX)$"; } # without "WEFT_CPU_ISA disables"
chosen() { # LOG SOURCE PRECISION
    has_message "$1" layout-chosen source="$2" precision="$3" || { cat "$1"; fail "$1: precision is not $3 by the $2"; }
}
if units; then fast=bf16; else fast=f32; fi
auto_takes_the_faster_type() {
    rates runs/fast 4e8
    rates runs/slow 5e7
    try fast 2 --set precision=auto --set parallel.dp=2 --set stages.0.steps=6 --set grad_reduce_dtype=bf16
    chosen fast.log estimate $fast
    try slow 1 --set precision=auto
    chosen slow.log estimate f32
    diff <(losses runs/slow) <(losses runs/f32) || fail "auto with slow bf16 is not f32"
}
check auto_takes_the_faster_type
a_resumed_run_keeps_its_type() {
    needs auto_takes_the_faster_type
    rates runs/fast 5e7
    "$WEFT" inspect graph wide.yaml --set out=runs/fast --set precision=auto >inspect.auto || fail "inspect with auto"
    [ "$(predicted inspect.auto)" = "$(predicted inspect.$fast)" ] || fail "inspect predicts another type than $fast"
    try fast 2 --set precision=auto --set parallel.dp=2 --set grad_reduce_dtype=bf16
    chosen fast.log run $fast
    try given 2 --set precision=$fast --set parallel.dp=2 $([ $fast = f32 ] || echo --set grad_reduce_dtype=bf16)
    diff <(losses runs/fast) <(losses runs/given) || fail "auto differs from precision: $fast"
}
check a_resumed_run_keeps_its_type
finish

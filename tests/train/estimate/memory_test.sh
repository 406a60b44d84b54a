#!/bin/bash
# Memory that is predicted, reserved and measured: the predicted peak is the process' to 5 % with and without latents to encode,
# in f32 and bf16, of a transformer and of an autoencoder; `weft inspect graph` predicts what the run predicts. What
# memory.states: offload cannot offload is reported, and its folder is tried before the first step.
source "$SRC/tests/train/common.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
cat >wide.yaml <<'Y'
out: runs/wide
autoencoder: {weights: runs/vae/model/vae}
data: {path: shards, latents: latents}
transformer: {class: WanTransformer3DModel, config: {num_layers: 8, num_attention_heads: 4, attention_head_dim: 32, ffn_dim: 512, freq_dim: 32}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}}]
stages:
  - {steps: 2, batch: 16, frames: 9, height: 64, width: 64, lr: 1e-3, warmup: 0}
Y
cat >compare.py <<'P'
import re, resource, subprocess, sys
weft, name, *args = sys.argv[1:]
def told(text):
    value, unit = re.search(r"^memory: at most ([0-9.]+) ([KMG]iB)", text, re.M).groups()
    return float(value) * {"KiB": 2**-10, "MiB": 1, "GiB": 1024}[unit]
def program(text, pattern):
    return re.search(pattern, text, re.M).group(1)
inspect = subprocess.run([weft, "inspect", "graph", *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
train = subprocess.run([weft, "train", *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
if inspect.returncode or train.returncode:
    sys.exit(inspect.stdout + train.stdout)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
before, run = told(inspect.stdout), told(train.stdout)
print(f"{name}: inspect {before:.1f} MiB, run {run:.1f} MiB ({100 * (run / peak - 1):+.1f} %), measured {peak:.1f} MiB")
planned = program(inspect.stdout, r"^  program *([0-9.]+ [KMG]iB)")
reserved = program(train.stdout, r"^stage 0.*, program ([0-9.]+ [KMG]iB),")
if planned != reserved:
    sys.exit(f"the program is planned with {planned} and reserves {reserved}")
measures = not re.search("/(asan|tsan)", weft) # these have memory of their own
if measures and abs(run / peak - 1) > 0.05:
    sys.exit("the prediction is off by more than 5 %")
if measures and abs(before / run - 1) > 0.02:
    sys.exit("inspect predicts another peak than the run")
if "memory: this process had" not in train.stdout:
    sys.exit("the measured peak is not reported: " + train.stdout)
P
check() { python3 compare.py "$WEFT" "$@" || fail "$*"; }
check "latents to encode" wide.yaml
check "latents cached" wide.yaml --set out=runs/cached
check "bf16" wide.yaml --set out=runs/bf16 --set precision=bf16
check "autoencoder" vae.yaml --set out=runs/vae2 --set stages.0.steps=3 --set stages.0.height=64 --set stages.0.width=64 --set autoencoder.config.base_dim=16

"$WEFT" train dit.yaml --set out=runs/small --set memory.states=offload --set stages.0.steps=1 --set stages.0.warmup=0 --set stages.1.steps=1 >small.log 2>&1 || { cat small.log; fail "states of a small model"; }
grep -q "memory.states: offload has no effect: the largest of the optimizer's states has [0-9.]* KiB, and states below 64.00 KiB stay resident" small.log || { cat small.log; fail "states that stay are not reported"; }
"$WEFT" train wide.yaml --set out=runs/states --set memory.states=offload >states.log 2>&1 || { cat states.log; fail "states offloaded"; }
grep -q "has no effect" states.log && { cat states.log; fail "states are offloaded, and reported as resident"; }
touch file
"$WEFT" train dit.yaml --set out=runs/no --set memory.states=offload --set memory.offload=file/away >no.log 2>&1 && fail "a file as the folder of memory.offload"
grep -q "memory.offload: file.* is a file" no.log || { cat no.log; fail "the folder of memory.offload is not named"; }
grep -q "memory: at most" no.log && fail "the folder is tried after the run has begun"
exit 0

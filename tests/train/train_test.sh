#!/bin/bash
# Training from the command line: a VAE and a transformer, resuming after SIGKILL, 1, 2 and 3 ranks,
# the files that a run writes, a damaged checkpoint, and traces.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
[ -f runs/vae/model/vae/config.json ] && [ -f runs/vae/model/vae/diffusion_pytorch_model.safetensors ] || fail "no VAE in runs/vae/model"
# run_next LOG [OPTIONS...]: runs the next command that LOG prints
run_next() { # LOG [OPTIONS...]
    local next
    next=$(message_field next "$1" run-finished 'next=weft *') && next=${next#weft }
    [ -n "$next" ] || { cat "$1"; fail "$1 has no next command"; }
    shift
    eval "\"$WEFT\" $next $*" >next.log 2>&1 || { cat next.log; fail "next: weft $next"; }
}
the_next_command_of_the_vae_runs() {
    has_message vae.log run-finished autoencoder=runs/vae/model/vae || fail "the path of the autoencoder is not printed"
    run_next vae.log --limit 1
    grep -q '"latents_std"' runs/vae/model/vae/config.json || fail "latents_std is not in the VAE's config"
}
check the_next_command_of_the_vae_runs
# The event files of TensorBoard have the values of metrics.jsonl. Both checksums of each TFRecord
# are correct.
tensorboard_has_the_values_of_metrics() {
    python3 -S - runs/vae <<'PY' || fail "TensorBoard events"
import glob, json, struct, sys
table = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82f63b78 if n & 1 else 0)
    table.append(n)
def masked_crc(data):
    crc = 0xffffffff
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xffffffff
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff
def fields(data):  # the fields of a protobuf message: (number, value)
    at = 0
    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = varint() if key & 7 == 2 else 8 if key & 7 == 1 else 4
        yield key >> 3, data[at:at + size]
        at += size
seen = {}
for path in glob.glob(sys.argv[1] + "/events.out.tfevents.*"):
    data = open(path, "rb").read()
    at = 0
    while at < len(data):
        size, crc = struct.unpack("<QI", data[at:at + 12])
        assert masked_crc(data[at:at + 8]) == crc
        event = data[at + 12:at + 12 + size]
        assert masked_crc(event) == struct.unpack("<I", data[at + 12 + size:at + 16 + size])[0]
        at += 16 + size
        parts = dict(fields(event))
        for number, value in fields(parts.get(5, b"")):
            one = dict(fields(value))
            if 2 in one:
                seen[parts.get(2, 0), one[1].decode()] = struct.unpack("<f", one[2])[0]
lines = [json.loads(l) for l in open(sys.argv[1] + "/metrics.jsonl")]
assert len(lines) == 8
for line in lines:
    for name in ("loss", "grad_norm", "lr", "mse"):
        value = seen[line["step"], name]
        assert abs(value - line[name]) <= 1e-6 * abs(line[name]), (line["step"], name, value, line[name])
PY
}
check tensorboard_has_the_values_of_metrics

# an uninterrupted run
a_whole_run_writes_every_file() {
    "$WEFT" train dit.yaml --set out=runs/whole >whole.log 2>&1 || { cat whole.log; fail "weft train dit"; }
    [ "$(losses runs/whole | wc -l)" = 20 ] || fail "20 steps expected in runs/whole/metrics.jsonl"
    for part in model_index.json transformer/config.json text_encoder/config.json vae/config.json scheduler/scheduler_config.json weft.json; do
        [ -f "runs/whole/model/$part" ] || fail "runs/whole/model/$part is missing"
    done
    [ "$(ls runs/whole/checkpoints | tr '\n' ' ')" = "step-00000015 step-00000020 " ] || fail "retained checkpoints: $(ls runs/whole/checkpoints)"
    for file in config.yaml state.json optimizer.safetensors ema.safetensors transformer/diffusion_pytorch_model.safetensors; do
        [ -f "runs/whole/checkpoints/step-00000020/$file" ] || fail "the checkpoint has no $file"
    done
    has_message whole.log run-finished model=runs/whole/model || fail "the path of the model is not printed"
    run_next whole.log --steps 2
    [ -s video.mp4 ] || fail "the printed command made no video"
}
check a_whole_run_writes_every_file

# Killed when the first checkpoint is complete. The same command has bitwise the same losses.
source "$SRC/tests/signal_at.sh"
a_killed_run_resumes_bitwise() {
    needs a_whole_run_writes_every_file
    signal_at KILL '*/killed/checkpoints/step-00000005' "$WEFT" train dit.yaml --set out=runs/killed >killed.log 2>&1 && fail "not killed"
    "$WEFT" train dit.yaml --set out=runs/killed >killed.log 2>&1 || { cat killed.log; fail "resuming after SIGKILL failed"; }
    has_message killed.log run-resumed || fail "the run started from step 0 after SIGKILL"
    diff <(losses runs/whole) <(losses runs/killed) || fail "the losses differ after SIGKILL"
    cmp runs/whole/model/transformer/diffusion_pytorch_model.safetensors runs/killed/model/transformer/diffusion_pytorch_model.safetensors ||
        fail "the weights differ after SIGKILL"
}
check a_killed_run_resumes_bitwise

# One of two ranks is killed in the middle of a step.
two_ranks_resume_bitwise_after_a_kill() {
    ranks 2 "$WEFT" train dit.yaml --set out=runs/two >two.log 2>&1 || { cat two.log; fail "two ranks"; }
    SIGNAL_RANK=0 SIGNAL_TO=pid.1 signal_at KILL '*/half/checkpoints/step-00000005' ranks 2 bash "$with_pid" "" \
        "$WEFT" train dit.yaml --set out=runs/half >half.log 2>&1 && fail "no rank was killed"
    ranks 2 "$WEFT" train dit.yaml --set out=runs/half >half.log 2>&1 || { cat half.log; fail "resuming after a rank was killed failed"; }
    has_message half.log run-resumed || fail "the run started from step 0 after a rank was killed"
    diff <(losses runs/two) <(losses runs/half) || fail "the losses differ after a rank was killed"
}
check two_ranks_resume_bitwise_after_a_kill

# A damaged checkpoint is named, and the run resumes from the one before.
a_damaged_checkpoint_is_skipped() {
    needs a_whole_run_writes_every_file
    cp -r runs/whole runs/damaged
    rm -r runs/damaged/model
    printf x | dd of=runs/damaged/checkpoints/step-00000020/optimizer.safetensors bs=1 seek=5000 conv=notrunc 2>/dev/null
    "$WEFT" train dit.yaml --set out=runs/damaged >damaged.log 2>&1 || { cat damaged.log; fail "resuming with a damaged checkpoint failed"; }
    has_message damaged.log '*' level=warning 'file=*step-00000020/optimizer.safetensors' || fail "the damaged file is not named"
    has_message damaged.log run-resumed value=15 || fail "did not resume from step 15"
    diff <(losses runs/whole) <(losses runs/damaged) || fail "the losses differ after resuming from step 15"
}
check a_damaged_checkpoint_is_skipped

# Several ranks have the losses of one rank within 1e-5.
ranks_have_the_losses_of_one() {
    for n in 2 3; do
        ranks $n "$WEFT" train dit.yaml --set out=runs/r$n --set stages.0.steps=50 --set checkpoint.interval=0 >r$n.log 2>&1 || { cat r$n.log; fail "$n ranks"; }
    done
    "$WEFT" train dit.yaml --set out=runs/r1 --set stages.0.steps=50 --set checkpoint.interval=0 >r1.log 2>&1 || fail "1 rank"
    for n in 2 3; do
        python3 -S - runs/r1 runs/r$n <<'PY' || fail "$n ranks differ from one"
import json, sys
a, b = ([json.loads(l)["loss"] for l in open(p + "/metrics.jsonl")] for p in sys.argv[1:])
worst = max(abs(x - y) / abs(x) for x, y in zip(a, b))
print(f"{sys.argv[2]}: worst relative difference of {len(a)} losses: {worst:.2e}")
sys.exit(not (len(a) == len(b) == 58 and worst <= 1e-5))
PY
    done
}
check ranks_have_the_losses_of_one

# The trace of a step: kernels do not overlap, and collectives run while kernels run.
a_trace_has_every_kernel_and_collective() {
    ranks 2 "$WEFT" train dit.yaml --set out=runs/traced --set stages.0.steps=4 --set trace=true >traced.log 2>&1 || { cat traced.log; fail "trace: true"; }
    python3 -S - <<'PY' || fail "the trace"
import json
for rank in (0, 1):
    events = [e for e in json.load(open(f"runs/traced/trace-0-{rank}.json"))["traceEvents"] if e["ph"] == "X"]
    kernels = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["tid"] == 0)
    collectives = [e for e in events if e["tid"] == 1]
    assert len(kernels) > 100 and collectives and {e["pid"] for e in events} == {rank}
    assert all(a[1] <= b[0] + 0.01 for a, b in zip(kernels, kernels[1:])), "kernels overlap"
    assert all(e["cat"] == "all-reduce" and 0 < e["ts"] < kernels[-1][1] for e in collectives)
    assert any("backward" in e["name"] for e in events) and any(e["name"].startswith("wait: ") for e in events)
PY
}
check a_trace_has_every_kernel_and_collective
finish

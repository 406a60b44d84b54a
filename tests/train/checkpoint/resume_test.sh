#!/bin/bash
# A run's folder: who may write into it, what a killed run leaves, what a finished one says when it is started again.
source "$SRC/tests/train/common.sh"
make_shards
write_configs
"$WEFT" train vae.yaml --set optimizer.ema_decay=0.5 --set checkpoint.every=4 --set checkpoint.keep=9 --set data.fps=12 >vae.log 2>&1 ||
    { cat vae.log; fail "weft train vae"; }

# what each phase reserves is told before the first; the stage's is what it reserves then
told=$(sed -n 's/^memory: at most .*, stage 0 \(.* .iB\) and batches .*, latent statistics .* .iB$/\1/p' vae.log)
reserved=$(sed -n 's/.*, program \(.* .iB\), weights.*/\1/p' vae.log)
[ -n "$told" ] && [ "$told" = "$reserved" ] || { cat vae.log; fail "memory told '$told', reserved '$reserved'"; }

# all tensors are copied for a checkpoint; a store aligns them, so it is a little larger
sed -n 's/^memory: at most .*, weights and optimizer \([^(]*\) KiB ([^)]*), copies for checkpoints \(.*\) KiB, stage 0.*/\1 \2/p' vae.log |
    awk '{bad = $2 > $1 || $2 < 0.95 * $1} END {exit bad || NR != 1}' ||
    { cat vae.log; fail "the memory that checkpoints are written from is not told"; }

# what is told is what is taken: with the libraries, on one rank and under fsdp, where a whole model is cut
cat >peak.py <<'P'
import re, resource, subprocess, sys
log = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
told = float(re.search(r"^memory.*: at most ([0-9.]+) MiB", log.stdout, re.M).group(1))
real = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
print(f"told {told} MiB, taken {real:.1f} MiB")
sys.exit(log.returncode or abs(told - real) > 0.1 * real)
P
case $WEFT_BUILD in
*/asan | */tsan) ;; # have memory of their own
*)
    wide="--set autoencoder.config.base_dim=24 --set stages.0.steps=2 --set checkpoint.every=1"
    python3 peak.py "$WEFT" train vae.yaml $wide --set out=runs/peak1 || fail "the peak of one rank"
    python3 peak.py "$MPIRUN" --oversubscribe -n 2 "$WEFT" train vae.yaml $wide --set out=runs/peak2 --set parallel.fsdp=2 ||
        fail "the peak under fsdp"
    ;;
esac

# one run at a time in a folder: ranks that do not know of each other, each of which believes it leads, among them
"$WEFT" train vae.yaml --set out=runs/one --set stages.0.steps=100000 >one.log 2>&1 &
pid=$!
for _ in $(seq 3000); do
    [ -s runs/one/metrics.jsonl ] && break
    sleep 0.01
done
"$WEFT" train vae.yaml --set out=runs/one >two.log 2>&1 && fail "two runs in one folder"
grep -q "runs/one: another run writes here (process $pid on " two.log || { cat two.log; fail "the holder of the folder is not named"; }
kill -KILL $pid
wait $pid 2>/dev/null
# the lock of a killed run holds nobody up; what it was writing goes, what others wrote stays
dead=$(bash -c 'echo $$')
touch "runs/one/metrics.jsonl.tmp.$dead" "runs/one/events.tmp.$$" "runs/one/a.tmp.b"
mkdir -p runs/one/latents/x
touch "runs/one/latents/x/train-000000.tar.tmp.$dead"
"$WEFT" train vae.yaml --set out=runs/one >three.log 2>&1 || { cat three.log; fail "the lock of a killed run"; }
[ ! -e "runs/one/metrics.jsonl.tmp.$dead" ] && [ ! -e "runs/one/latents/x/train-000000.tar.tmp.$dead" ] || fail "leftovers of a killed run stay"
[ -e "runs/one/events.tmp.$$" ] && [ -e runs/one/a.tmp.b ] || fail "a file of somebody else was removed"

# a finished run started again writes the same model: its rate, and the latent statistics of the averages that it exports
cp -r runs/vae runs/again
rm -r runs/again/model
"$WEFT" train vae.yaml --set out=runs/again --set optimizer.ema_decay=0.5 --set checkpoint.every=4 --set checkpoint.keep=9 --set data.fps=12 >again.log 2>&1 ||
    { cat again.log; fail "a finished run"; }
for file in config.json diffusion_pytorch_model.safetensors; do
    cmp runs/vae/model/vae/$file runs/again/model/vae/$file || fail "$file of a finished run started again"
done
python3 - <<'PY' || fail "the exported weights are not the averages"
import json, struct
def tensors(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n])
    return {k: data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]] for k, v in head.items() if k != "__metadata__"}
model = tensors("runs/vae/model/vae/diffusion_pytorch_model.safetensors")
ema = tensors("runs/vae/checkpoints/step-00000008/ema.safetensors")
assert model and all(ema["ema.vae." + k] == model[k] for k in model)
PY
# a VAE that begins with these weights and learns nothing measures the same latents: they are those of the averages
"$WEFT" train vae.yaml --set out=runs/measure --set 'autoencoder={weights: runs/vae/model/vae}' --set stages.0.steps=1 --set stages.0.lr=0 --set data.fps=12 >measure.log 2>&1 ||
    { cat measure.log; fail "weights to begin with"; }
cmp runs/vae/model/vae/config.json runs/measure/model/vae/config.json || fail "latent statistics are not those of the exported weights"
"$WEFT" train dit.yaml --set stages.0.steps=2 --set stages.0.frames=5 --set stages.1.steps=2 --set data.fps=12 >dit.log 2>&1 || { cat dit.log; fail "weft train dit"; }
rm -r runs/dit/model
"$WEFT" train dit.yaml --set stages.0.steps=2 --set stages.0.frames=5 --set stages.1.steps=2 --set data.fps=12 >dit.log 2>&1 || { cat dit.log; fail "a finished dit"; }
grep -q '"fps": 12' runs/dit/model/weft.json || { cat runs/dit/model/weft.json; fail "the rate of a finished run started again"; }

# an autoencoder, sizes or shards that were replaced in between: refused, or allowed by name
cp -r runs/dit runs/other
rm -r runs/other/model
more="--set stages.0.steps=2 --set stages.0.frames=5 --set data.fps=12 --set out=runs/other"
"$WEFT" train dit.yaml $more --set stages.1.steps=3 --set autoencoder.weights=runs/one/model/vae >other.log 2>&1 && fail "another autoencoder was accepted"
grep -q "the autoencoder is another one" other.log && grep -q "checkpoint.allow_changes=true" other.log || { cat other.log; fail "the message of another autoencoder"; }
"$WEFT" train dit.yaml $more --set stages.1.steps=3 --set stages.1.batch=4 >other.log 2>&1 && fail "another batch was accepted"
grep -q "stages.1 has another batch or size" other.log || { cat other.log; fail "the message of another batch"; }
"$WEFT" train dit.yaml $more --set stages.1.steps=3 --set stages.1.batch=4 --set checkpoint.allow_changes=true >other.log 2>&1 || { cat other.log; fail "an allowed change"; }
grep -q "going on although this is not the run that it was" other.log || { cat other.log; fail "an allowed change is not told"; }

# the stage that no sample fits, and a batch of more samples than there are, are told before the first step
"$WEFT" train dit.yaml --set out=runs/late --set stages.1.frames=101 >late.log 2>&1 && fail "a stage that no sample fits"
grep -q "stages.1: shards: none of 24 samples fits" late.log || { cat late.log; fail "the stage that no sample fits is not named"; }
[ ! -e runs/late/metrics.jsonl ] && [ ! -e runs/late/latents ] || fail "it began before the last stage was looked at"
"$WEFT" train vae.yaml --set out=runs/many --set stages.0.batch=25 --set stages.0.steps=1 >many.log 2>&1 || { cat many.log; fail "more batch than samples"; }
grep -q "a step takes 25 samples of bucket 0, which has 24" many.log || { cat many.log; fail "more batch than samples is not told"; }

# a sample twice in a step has other noise the second time: the mean over both is not that over one
for batch in 24 48; do
    "$WEFT" train vae.yaml --set out=runs/batch$batch --set stages.0.batch=$batch --set stages.0.steps=1 >batch.log 2>&1 || { cat batch.log; fail "batch $batch"; }
done
python3 - <<'PY' || fail "a sample twice in a step has the same noise"
import json
a, b = (json.loads(open(f"runs/batch{n}/metrics.jsonl").readline())["loss"] for n in (24, 48))
print("losses of every sample once and twice:", a, b)
assert abs(a - b) > 1e-5 * a
PY

# every checkpoint damaged: refused, not begun anew
for step in 4 8; do printf x | dd of=runs/again/checkpoints/step-0000000$step/optimizer.safetensors bs=1 seek=3000 conv=notrunc 2>/dev/null; done
before=$(cat runs/again/metrics.jsonl)
"$WEFT" train vae.yaml --set out=runs/again --set stages.0.steps=9 >none.log 2>&1 && fail "began anew beside damaged checkpoints"
grep -q "none of 2 checkpoints is whole" none.log && grep -q "begin anew" none.log || { cat none.log; fail "the message of none whole"; }
[ "$before" = "$(cat runs/again/metrics.jsonl)" ] || fail "a refused run changed metrics.jsonl"
exit 0

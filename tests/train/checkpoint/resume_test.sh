#!/bin/bash
# The folder of a run: only one run may use it at a time, files of a killed run are removed, and a
# finished run that is started again writes the same model. Replaced inputs are refused, invalid
# training stages are refused before the first step, and damaged checkpoints are not overwritten.
# Predicted memory is compared with the reserved bytes and with the measured peak.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
source "$SRC/tests/signal_at.sh"
"$WEFT" train vae.yaml --set optimizer.ema_decay=0.5 --set checkpoint.interval=4 --set checkpoint.keep_latest=9 --set data.fps=12 >vae.log 2>&1 ||
    { cat vae.log; fail "weft train vae"; }

# The memory of every phase is predicted before the run. The stage reserves the predicted bytes.
the_program_is_as_predicted() {
    predicted=$(message_field message vae.log memory-report key= | sed -n 's/.*, stage 0 \(.*\) MiB and batches .*, latent statistics .* .iB$/\1/p')
    reserved=$(message_mib vae.log stage-report key= 'value=?*')
    [ -n "$predicted" ] && [ "$predicted" = "$reserved" ] || { cat vae.log; fail "predicted '$predicted', reserved '$reserved'"; }
}
check the_program_is_as_predicted

# A device whose memory the host cannot access: a run resumes there from a checkpoint
# of cpu. Weights, averages, optimizer states and the exported model equal cpu's bit by bit.
far_resumes_with_the_bits_of_cpu() {
    cp -r runs/vae runs/far
    rm -r runs/far/model runs/far/checkpoints/step-00000008
    "$WEFT" train vae.yaml --set out=runs/far --set backend=far --set optimizer.ema_decay=0.5 --set checkpoint.interval=4 --set checkpoint.keep_latest=9 --set data.fps=12 >far.log 2>&1 ||
        { cat far.log; fail "weft train on far"; }
    for file in $(cd runs/vae && find . -name '*.safetensors'); do
        cmp "runs/vae/$file" "runs/far/$file" || fail "$file differs on far"
    done
    rm -r runs/far
}
check far_resumes_with_the_bits_of_cpu

# A checkpoint copies all tensors. The store aligns tensors, so it is a little larger than the
# copies.
copies_for_checkpoints_are_predicted() {
    message_field message vae.log memory-report key= |
        sed -n 's/.*, weights and optimizer \([^(]*\) KiB ([^)]*), copies for checkpoints \(.*\) KiB, stage 0.*/\1 \2/p' |
        awk '{bad = $2 > $1 || $2 < 0.95 * $1} END {exit bad || NR != 1}' ||
        { cat vae.log; fail "the predicted memory of checkpoint copies is missing or wrong"; }
}
check copies_for_checkpoints_are_predicted

# The measured peak of the process, libraries included, is within 10 % of the predicted one: on one
# rank, and with fsdp, where the initial weights are unsharded before they are split.
cat >peak.py <<'P'
import json, resource, subprocess, sys
log = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
lines = [json.loads(line) for line in log.stdout.splitlines() if line.startswith("{")]
predicted = next(m["value"] for m in lines if m.get("id") == "memory-report" and "value" in m and "key" not in m) / 2**20
real = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
print(f"predicted {predicted:.2f} MiB, measured {real:.1f} MiB")
sys.exit(log.returncode or abs(predicted - real) > 0.1 * real)
P
peak_is_predicted() { # COMMAND...
    case $WEFT_BUILD in */asan | */tsan) skip "sanitizers use additional memory" ;; esac
    python3 peak.py "$@" --set autoencoder.config.base_dim=24 --set stages.0.steps=2 --set checkpoint.interval=1
}
check the_peak_is_predicted peak_is_predicted "$WEFT" train vae.yaml --set out=runs/peak1
check the_peak_under_fsdp_is_predicted peak_is_predicted "$MPIRUN" --oversubscribe -n 2 "$WEFT" train vae.yaml --set out=runs/peak2 --set parallel.fsdp=2

# One run at a time uses a folder. Processes that mpirun did not start together are separate runs,
# each with a rank 0. The first run is stopped by SIGSTOP after its first step and holds the lock.
a_folder_belongs_to_one_run() {
    SIGNAL_ON=write signal_at STOP '*/one/metrics.jsonl' bash "$with_pid" "" "$WEFT" train vae.yaml --set out=runs/one --set stages.0.steps=100000 >one.log 2>&1 &
    job=$!
    until [ -s pid.0 ] && grep -q '^State:.*stopped' "/proc/$(cat pid.0)/status"; do sleep 0.01; done
    pid=$(cat pid.0)
    "$WEFT" train vae.yaml --set out=runs/one >two.log 2>&1 && fail "two runs use one folder"
    has_message two.log folder-locked file=runs/one "text~=(process $pid on" || fail "the holder of the folder is not named"
    kill -KILL "$pid"
    ! wait $job 2>/dev/null # killed
}
check a_folder_belongs_to_one_run
# The lock of a killed run does not block the next run. Temporary files of the killed process are
# removed; files of a living process and other files stay.
a_lock_of_a_killed_run_is_released() {
    needs a_folder_belongs_to_one_run
    dead=$(bash -c 'echo $$')
    touch "runs/one/metrics.jsonl.tmp.$dead" "runs/one/events.tmp.$$" "runs/one/a.tmp.b"
    mkdir -p runs/one/latents/x
    touch "runs/one/latents/x/train-000000.tar.tmp.$dead"
    "$WEFT" train vae.yaml --set out=runs/one >three.log 2>&1 || { cat three.log; fail "the lock of a killed run blocks the next one"; }
    [ ! -e "runs/one/metrics.jsonl.tmp.$dead" ] && [ ! -e "runs/one/latents/x/train-000000.tar.tmp.$dead" ] || fail "temporary files of the killed run were not removed"
    [ -e "runs/one/events.tmp.$$" ] && [ -e runs/one/a.tmp.b ] || fail "a file of another process was removed"
}
check a_lock_of_a_killed_run_is_released

# A finished run that is started again writes the same model: the frame rate, the EMA weights and
# their latent statistics.
a_finished_run_writes_the_same_model() {
    cp -r runs/vae runs/again
    rm -r runs/again/model
    "$WEFT" train vae.yaml --set out=runs/again --set optimizer.ema_decay=0.5 --set checkpoint.interval=4 --set checkpoint.keep_latest=9 --set data.fps=12 >again.log 2>&1 ||
        { cat again.log; fail "starting a finished run again"; }
    for file in config.json diffusion_pytorch_model.safetensors; do
        cmp runs/vae/model/vae/$file runs/again/model/vae/$file || fail "a finished run that is started again writes another $file"
    done
}
check a_finished_run_writes_the_same_model
the_ema_weights_are_exported() {
    python3 -S - <<'PY' || fail "the exported weights are not the EMA"
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
}
check the_ema_weights_are_exported
# A VAE that starts with the exported weights and does not train has the same latent statistics:
# the statistics are those of the EMA weights.
latent_statistics_are_those_of_the_ema_weights() {
    "$WEFT" train vae.yaml --set out=runs/measure --set 'autoencoder={weights: runs/vae/model/vae}' --set stages.0.steps=1 --set stages.0.lr=0 --set data.fps=12 >measure.log 2>&1 ||
        { cat measure.log; fail "training from the exported weights"; }
    cmp runs/vae/model/vae/config.json runs/measure/model/vae/config.json || fail "latent statistics are not those of the exported weights"
}
check latent_statistics_are_those_of_the_ema_weights
a_finished_transformer_writes_its_rate() {
    "$WEFT" train dit.yaml --set stages.0.steps=2 --set stages.0.frames=5 --set stages.1.steps=2 --set data.fps=12 >dit.log 2>&1 || { cat dit.log; fail "weft train dit"; }
    rm -r runs/dit/model
    "$WEFT" train dit.yaml --set stages.0.steps=2 --set stages.0.frames=5 --set stages.1.steps=2 --set data.fps=12 >dit.log 2>&1 || { cat dit.log; fail "starting the finished transformer run again"; }
    grep -q '"fps": 12' runs/dit/model/weft.json || { cat runs/dit/model/weft.json; fail "a finished run that is started again writes another frame rate"; }
}
check a_finished_transformer_writes_its_rate

# A resumed run with another autoencoder or other batches is refused, unless
# checkpoint.allow_changes allows it.
replaced_inputs_are_refused() {
    needs a_finished_transformer_writes_its_rate a_lock_of_a_killed_run_is_released
    cp -r runs/dit runs/other
    rm -r runs/other/model
    more="--set stages.0.steps=2 --set stages.0.frames=5 --set data.fps=12 --set out=runs/other"
    "$WEFT" train dit.yaml $more --set stages.1.steps=3 --set autoencoder.weights=runs/one/model/vae >other.log 2>&1 && fail "another autoencoder was accepted"
    has_message other.log checkpoint-mismatch level=error text~=autoencoder text~=checkpoint.allow_changes || fail "the error does not name the autoencoder and checkpoint.allow_changes"
    "$WEFT" train dit.yaml $more --set stages.1.steps=3 --set stages.1.batch=4 >other.log 2>&1 && fail "another batch was accepted"
    has_message other.log checkpoint-mismatch level=error text~=stages.1 || fail "the error does not name the stage and checkpoint.allow_changes"
    "$WEFT" train dit.yaml $more --set stages.1.steps=3 --set stages.1.batch=4 --set checkpoint.allow_changes=true >other.log 2>&1 || { cat other.log; fail "an allowed change"; }
    has_message other.log run-changed || fail "an allowed change is not reported"
}
check replaced_inputs_are_refused

# A training stage that no sample fits is refused before the first step. A batch that is larger than
# the data set is reported.
a_stage_without_samples_is_refused_first() {
    "$WEFT" train dit.yaml --set out=runs/late --set stages.1.frames=101 >late.log 2>&1 && fail "a stage that no sample fits is accepted"
    has_message late.log samples-none key=*stages.1 'text~=none of 24 samples' || fail "the stage that no sample fits is not named"
    [ ! -e runs/late/metrics.jsonl ] && [ ! -e runs/late/latents ] || fail "training or encoding began before the last stage was checked"
    "$WEFT" train vae.yaml --set out=runs/many --set stages.0.batch=25 --set stages.0.steps=1 >many.log 2>&1 || { cat many.log; fail "a batch larger than the data set"; }
    has_message many.log sample-repeated text~=25 text~=24 || fail "a batch larger than the data set is not reported"
}
check a_stage_without_samples_is_refused_first

# A sample that is twice in a step has other noise the second time, so the mean loss of both differs
# from that of one.
a_sample_twice_in_a_step_has_other_noise() {
    for batch in 24 48; do
        "$WEFT" train vae.yaml --set out=runs/batch$batch --set stages.0.batch=$batch --set stages.0.steps=1 >batch.log 2>&1 || { cat batch.log; fail "batch $batch"; }
    done
    python3 -S - <<'PY' || fail "a sample twice in a step has the same noise"
import json
a, b = (json.loads(open(f"runs/batch{n}/metrics.jsonl").readline())["loss"] for n in (24, 48))
print("losses of every sample once and twice:", a, b)
assert abs(a - b) > 1e-5 * a
PY
}
check a_sample_twice_in_a_step_has_other_noise

# If every checkpoint is damaged, the run is refused; it does not start from step 0.
damaged_checkpoints_are_not_overwritten() {
    needs a_finished_run_writes_the_same_model
    for step in 4 8; do printf x | dd of=runs/again/checkpoints/step-0000000$step/optimizer.safetensors bs=1 seek=3000 conv=notrunc 2>/dev/null; done
    before=$(cat runs/again/metrics.jsonl)
    "$WEFT" train vae.yaml --set out=runs/again --set stages.0.steps=9 >none.log 2>&1 && fail "the run started from step 0 although checkpoints exist"
    has_message none.log checkpoint-damaged 'text~=none of 2 checkpoints' || fail "the error does not report that no checkpoint is intact"
    [ "$before" = "$(cat runs/again/metrics.jsonl)" ] || fail "a refused run changed metrics.jsonl"
}
check damaged_checkpoints_are_not_overwritten
finish

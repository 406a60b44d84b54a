#!/bin/bash
# backend: virtual is a dry run, here of two ranks with more than 5 GiB of weights and moments each. It
# reports step times and the peak and uses little memory. It reads no data, writes nothing and
# reports no loss.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
cat >big.yaml <<'Y'
out: runs/big
data: {path: nowhere}
backend: virtual
autoencoder:
  class: AutoencoderKLWan
  config: {base_dim: 168}
stages:
  - {name: images, steps: 1000, batch: 2, frames: 1, height: 64, width: 64}
  - {name: clips, steps: 2, gradient_accumulation_steps: 2, batch: 2, frames: 5, height: 64, width: 64}
Y
cat >peak.py <<'P'
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
open("resident", "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024))
sys.exit(code)
P
WEFT_LINK="100 Gbit/s, 10 us, 1 per node" python3 peak.py "$MPIRUN" --oversubscribe -n 2 "$WEFT" train big.yaml \
    >run.log 2>&1 || { cat run.log; fail "the dry run"; }
steps_are_reported_and_nothing_is_written() {
    [ "$(count_messages run.log stage-report dry_run_most=5)" = 1 ] || fail "the dry run is not announced once"
    has_message run.log stage-report stage=0 dry_run_steps=5 'predicted_seconds=?*' 'executed_seconds=?*' || fail "no step time of stage 0"
    has_message run.log stage-report stage=1 dry_run_steps=2 || fail "no step time of stage 1"
    is_progress run.log train && fail "a loss is reported"
    [ ! -e runs ] || fail "something was written: $(find runs)"
}
check steps_are_reported_and_nothing_is_written
the_peak_is_predicted_in_little_memory() {
    python3 -S - <<'P' || exit 1
import json
messages = [json.loads(line) for line in open("run.log") if line.startswith("{")]
peak = [m["value"] for m in messages if "dry_run_steps" in m.get("details", {})]
assert min(peak) > 5 << 30, peak
assert any(m["id"] == "memory-report" and m.get("value", 0) > 5 << 30 for m in messages), "no peak is predicted"
resident = int(open("resident").read())
assert resident < 700, f"{resident} MiB were resident"
P
}
check the_peak_is_predicted_in_little_memory
# Steps of more than 10 s: the seconds are printed before the first step. The run is then stopped.
long_runs_are_announced() {
    sed 's/batch: 2, frames: 1, height: 64, width: 64/batch: 64, frames: 1, height: 512, width: 512/' big.yaml >long.yaml
    "$WEFT" train long.yaml >long.log 2>&1 &
    local run=$!
    until has_message long.log estimate 'text~=dry run takes about' || ! kill -0 $run 2>/dev/null; do sleep 0.1; done
    kill -KILL $run 2>/dev/null
    wait $run
    has_message long.log estimate 'text~=dry run takes about' || { cat long.log; fail "not announced"; }
    has_message long.log stage-report 'dry_run_steps=?*' && fail "announced after the steps"
    ! has_message run.log estimate 'text~=dry run takes about' || fail "a run of seconds is announced"
}
check long_runs_are_announced
finish

#!/bin/bash
# backend: virtual rehearses a run of two ranks with more than 5 GiB of weights and moments each: step times and
# the peak are said, in little memory; no data is read, nothing is written, no loss is claimed.
source "$SRC/tests/train/common.sh"
cat >big.yaml <<'Y'
out: runs/big
data: {path: nowhere}
backend: virtual
autoencoder:
  class: AutoencoderKLWan
  config: {base_dim: 168}
stages:
  - {name: pictures, steps: 1000, batch: 2, frames: 1, height: 64, width: 64}
  - {name: clips, steps: 2, gradient_accumulation_steps: 2, batch: 2, frames: 5, height: 64, width: 64}
Y
cat >peak.py <<'P'
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print("resident", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
sys.exit(code)
P
WEFT_LINK="100 Gbit/s, 10 us, 1 per node" python3 peak.py "$MPIRUN" --oversubscribe -n 2 "$WEFT" train big.yaml \
    >run.log 2>&1 || { cat run.log; fail "a rehearsal"; }
steps_are_reported_and_nothing_is_written() {
    [ "$(grep -c 'dry run of at most' run.log)" = 1 ] || fail "the dry run is not announced once"
    grep -q 'stage 0: dry run of 5 steps; per step .* (predicted), .* executed, .*; peak [0-9.]* GiB' run.log ||
        fail "no step time of stage 0"
    grep -q 'stage 1: dry run of 2 steps' run.log || fail "no step time of stage 1"
    grep -qi 'nan\|loss 0' run.log && fail "a loss is claimed"
    [ ! -e runs ] || fail "something was written: $(find runs)"
}
check steps_are_reported_and_nothing_is_written
the_peak_is_predicted_in_little_memory() {
    python3 - <<'P' || exit 1
import re
text = open("run.log").read()
peak = float(re.search(r"stage 0: dry run.*peak ([0-9.]+) GiB", text).group(1))
assert peak > 5, peak
assert re.search(r"memory of a rank: at most ([0-9.]+) GiB", text), "no peak is predicted"
resident = int(re.search(r"^resident ([0-9]+)", text, re.M).group(1))
assert resident < 700, f"{resident} MiB were resident"
P
}
check the_peak_is_predicted_in_little_memory
finish

#!/bin/bash
# weft profile measures this machine. The profile is a cluster file for plan and simulate, and
# predicts the step time of a training step with other sizes. Predicted and measured seconds are
# compared on the clock of a simulated machine (tests/slow_clock.c), on which the seconds of a step
# are known.
set -e
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
refuse() { # ID [FIELD=VALUE...] -- COMMAND...: the command fails with this message
    take_message "$@"
    set -- "${rest[@]}"
    if "$@" >out 2>err; then fail "accepted: $*"; fi
    has_message err "${wanted[@]}" || fail "$*: another message than expected"
}

# without a config: a table of small models
"$WEFT" profile --seconds 0.1 --hidden-size 64 --out here.json >profiled.txt
a_profile_is_a_cluster() {
    grep -q 'kinds of nodes' profiled.txt
    "$WEFT" topology here.json | grep -q '1 node x 1 '
}
check a_profile_is_a_cluster
cat >tiny.json <<'JSON'
{"_class_name": "WanTransformer3DModel", "num_layers": 2, "num_attention_heads": 2, "attention_head_dim": 24, "ffn_dim": 96, "text_dim": 32}
JSON
a_profile_is_used_for_plans() {
    "$WEFT" plan layout --set model=tiny.json --set cluster=here.json --set batch=4 --set frames=5 --set height=64 --set width=64 \
        "$SRC/examples/plan-layout.yaml" >tiny.txt
    grep -q 'costs: graph' tiny.txt || fail "$(cat tiny.txt)"
}
check a_profile_is_used_for_plans
damaged_profiles_are_refused() {
    sed 's/"seconds": [0-9.e-]*/"seconds": -1/' here.json >bad.json
    refuse format-damaged file=bad.json -- "$WEFT" topology bad.json
    sed 's/weft.profile.1/weft.profile.9/' here.json >bad.json
    refuse format-damaged file=bad.json key=format -- "$WEFT" topology bad.json
    sed 's/"touch": [0-9.e-]*/"touch": 1e18/' here.json >bad.json
    refuse format-damaged file=bad.json key=touch text~=1e+18 -- "$WEFT" topology bad.json
    sed 's/"threads": [0-9]*/"threads": 0/' here.json >bad.json
    refuse format-damaged file=bad.json key=threads text~=0 -- "$WEFT" topology bad.json
    sed 's/"ranks": [0-9]*/"ranks": 1000000000000/' here.json >bad.json
    refuse format-damaged file=bad.json key=ranks text~=1000000000000 -- "$WEFT" topology bad.json
    sed 's/"exchanges": \[\]/"exchanges": {}/' here.json >bad.json
    refuse format-damaged file=bad.json key=exchanges -- "$WEFT" topology bad.json
}
check damaged_profiles_are_refused

# a DiT, at the profiled sizes and at other sizes
mkdir vae
echo '{"_class_name": "AutoencoderKLWan", "base_dim": 4, "dim_mult": [1, 1, 2, 2], "num_res_blocks": 1, "z_dim": 4}' >vae/config.json
cat >dit.yaml <<'Y'
out: runs/dit
autoencoder: {weights: vae}
data: {path: shards}
transformer:
  class: WanTransformer3DModel
  config: {num_layers: 4, num_attention_heads: 4, attention_head_dim: 24, ffn_dim: 384, freq_dim: 32}
text_encoders:
  - class: WeftBytesEncoder
    config: {dim: 32, num_heads: 2, num_layers: 1, ffn_dim: 64, max_length: 32}
stages:
  - {steps: 12, batch: 4, frames: 9, height: 64, width: 64, lr: 2e-3}
Y
sed 's/height: 64, width: 64/height: 80, width: 96/' dit.yaml >other.yaml
# On this clock a node takes the time of its products and of the readings of the clock. The profile
# must therefore predict its own step, and a step of other sizes, whose nodes are scaled.
simulated_profile() { # CONFIG OPTIONS...
    CLOCK_FLOPS=1e9 LD_PRELOAD="$PWD/slow_clock.so" ASAN_OPTIONS="${ASAN_OPTIONS-}:verify_asan_link_order=0" \
        "$WEFT" profile "$1" --seconds 0.1 --hidden-size 64 "${@:2}"
}
prediction_agrees() { # CONFIG CONDITION: within 0.5 %; the condition is on the share measured at these shapes
    simulated_profile "$1" --compare dit.json >against.txt || fail "$(cat against.txt)"
    python3 -S - "$2" <<'PY' || fail "prediction and measurement differ: $(cat against.txt)"
import re, sys
line = open("against.txt").read().splitlines()[1]
took, nodes, predicted = (float(x) for x in re.findall(r"([0-9.]+) ms", line)[:3])
share = int(re.search(r"(\d+) % of it measured", line).group(1))
ok = 0.995 * took < nodes <= took and abs(predicted / nodes - 1) < 0.005 and eval(sys.argv[1])
raise SystemExit(not ok)
PY
}
predicted_and_measured_seconds_agree() {
    command -v cc >/dev/null || skip "no cc to make slow_clock.so with"
    cc -D_GNU_SOURCE -shared -fPIC -o slow_clock.so "$SRC/tests/slow_clock.c" -ldl || fail "slow_clock.so"
    simulated_profile dit.yaml --out dit.json >profiled.txt
    prediction_agrees dit.yaml "share == 100"
    prediction_agrees other.yaml "share < 50"
}
check predicted_and_measured_seconds_agree

# Two ranks: the programs of every possible layout of the run and the communication are measured.
# The profile in the run's folder is the cluster of `weft plan layout --run-config`.
MPIRUN="$(command -v mpirun.openmpi || command -v mpirun)"
sed -i 's/num_layers: 4/num_layers: 2/' dit.yaml
mkdir -p runs/dit
two_ranks_are_profiled() {
    "$MPIRUN" --oversubscribe -n 2 "$WEFT" profile dit.yaml --seconds 0.1 --out runs/dit/profile.json >two.txt || fail "$(cat two.txt)"
    for program in 'dp=2, 4 x' 'cp=2 context=ring, 4 x' 'tp=2, 4 x' 'microbatches=2, 2 x' 'update'; do
        grep -qF "$program" two.txt || fail "no \"$program\" in: $(cat two.txt)"
    done
}
check two_ranks_are_profiled
the_profile_is_used_for_the_run() {
    needs two_ranks_are_profiled
    "$WEFT" plan layout --run-config dit.yaml --devices 2 --json >plan.json
    python3 -S - <<'PY'
import json
p = json.load(open("runs/dit/profile.json"))
assert p["ranks"] == 2 and p["threads"] == 1 and 0 <= p["drag"] <= 1, (p["ranks"], p["drag"])
ops = {e["op"] for e in p["exchanges"]}
assert ops == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "ring_shift", "send"}, ops
assert all(e["seconds"] > 0 and e["ranks"] == 2 for e in p["exchanges"])
assert not any(r["node"].split(" ")[0] in ops for r in p["rates"]), "a collective among the kernels"
plan = json.load(open("plan.json"))
assert plan["cluster"]["spec"] == "runs/dit/profile.json", plan["cluster"]
for c in plan["candidates"]:
    assert not c["fits"] or c["measured_share"] > 0.999, c # every node was measured at its shapes
PY
}
check the_profile_is_used_for_the_run
another_number_of_ranks_is_reported() {
    needs two_ranks_are_profiled
    "$WEFT" plan layout --run-config dit.yaml --devices 2 --set memory.limit=900MiB | grep -q "measured with" && fail "two ranks are reported as another number"
    "$WEFT" plan layout --run-config dit.yaml --devices 3 >three.txt || fail "three ranks: $(cat three.txt)"
    grep -q "measured with 2 processes at a time, and 3 will run" three.txt || fail "$(cat three.txt)"
}
check another_number_of_ranks_is_reported
finish

#!/bin/bash
# Another process than flow matching: trained, exported as its public scheduler, and sampled by every sampler.
source "$SRC/tests/train/common.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
"$WEFT" train dit.yaml --set process=edm >dit.log 2>&1 || { cat dit.log; fail "process: edm"; }
# The model begins by answering 0, and the target has about the deviation 1 at every noise level.
python3 - <<'PY' || fail "losses"
import json, math
losses = [json.loads(line)["loss"] for line in open("runs/dit/metrics.jsonl")]
assert all(math.isfinite(x) for x in losses) and 0.5 < losses[0] < 3, losses
scheduler = json.load(open("runs/dit/model/scheduler/scheduler_config.json"))
assert scheduler["_class_name"] == "EDMEulerScheduler" and scheduler["sigma_data"] == 0.5, scheduler
PY
for sampler in euler heun; do
    "$WEFT" generate --model runs/dit/model --prompt "a red circle" --steps 3 --sampler $sampler --raw --out $sampler.mp4 \
        >generate.log 2>&1 || { cat generate.log; fail "weft generate --sampler $sampler"; }
done
cmp -s euler.npy heun.npy && fail "the sampler changes nothing"
"$WEFT" generate --model runs/dit/model --prompt x --shift 3 --out x.mp4 >shift.log 2>&1 && fail "a shift where there is none"
grep -q -- '--shift: this model.s noise levels (edm) have no shift' shift.log || { cat shift.log; fail "--shift"; }
sed -i 's/"karras"/"exponential"/' runs/dit/model/scheduler/scheduler_config.json
"$WEFT" generate --model runs/dit/model --prompt x --out x.mp4 >schedule.log 2>&1 && fail "a schedule that weft does not have"
grep -q '"sigma_schedule": "exponential" is not supported; only "karras" is' schedule.log || { cat schedule.log; fail "sigma_schedule"; }
"$WEFT" train dit.yaml --set process=edm --set out=x --set edm.sigma_min=90 >min.log 2>&1 && fail "sigma_min above sigma_max"
grep -q 'edm.sigma_min: 90 is not below sigma_max, 80' min.log || { cat min.log; fail "sigma_min"; }
exit 0

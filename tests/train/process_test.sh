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
grep -q -- '--shift: this model.s noise levels (EDMEulerScheduler) have no shift' shift.log || { cat shift.log; fail "--shift"; }
sed -i 's/"karras"/"even"/' runs/dit/model/scheduler/scheduler_config.json
"$WEFT" generate --model runs/dit/model --prompt x --out x.mp4 >schedule.log 2>&1 && fail "a schedule that weft does not have"
grep -q '"sigma_schedule": "even" is not built in; known are exponential, karras' schedule.log || { cat schedule.log; fail "sigma_schedule"; }
"$WEFT" train dit.yaml --set process=edm --set out=x --set edm.sigma_min=90 >min.log 2>&1 && fail "sigma_min above sigma_max"
grep -q 'edm.sigma_min: 90 is not below edm.sigma_max: 80' min.log || { cat min.log; fail "sigma_min"; }

# DDPM: trained, exported, and gone down by every row; the noise that a sampler draws is the seed's.
"$WEFT" train dit.yaml --set process=ddpm --set ddpm.prediction=v_prediction --set ddpm.zero_snr=true --set ddpm.min_snr=5 \
    --set out=runs/ddpm >ddpm.log 2>&1 || { cat ddpm.log; fail "process: ddpm"; }
grep -q '"DDIMScheduler"' runs/ddpm/model/scheduler/scheduler_config.json || fail "the scheduler of ddpm"
grep -q '"DDIMScheduler"' runs/ddpm/model/model_index.json || fail "the index of ddpm"
generate()
{
    "$WEFT" generate --model runs/ddpm/model --prompt "a red circle" --steps 4 --raw "$@" >generate.log 2>&1 ||
        { cat generate.log; fail "weft generate $*"; }
}
for sampler in euler heun unipc dpmpp ddim ddpm lcm res_2ab res_2mid cogvideox_dpm; do
    generate --sampler $sampler --out ddpm-$sampler.mp4
done
generate --out own.mp4
cmp own.npy ddpm-ddim.npy || fail "the scheduler's own sampler is not ddim"
generate --sampler ddpm --out again.mp4
cmp again.npy ddpm-ddpm.npy || fail "the same seed draws other noise"
generate --eta 1 --out eta.mp4
cmp -s eta.npy own.npy && fail "--eta changes nothing"
for guide in cfg rescale cosmos dynamic zero_star apg; do
    generate --guide $guide --guidance-rescale 0.7 --out guide-$guide.mp4
done
generate --guide cfg --boundary 0.5 --guidance-low 2 --out experts.mp4
cmp -s experts.npy own.npy && fail "--guidance-low changes nothing"
refused()
{
    local says=$1
    shift
    "$@" >refused.log 2>&1 && fail "not refused: $*"
    grep -q -- "$says" refused.log || { cat refused.log; fail "refusal of $*"; }
}
refused 'sampler eulr: known are euler, heun' "$WEFT" generate --model runs/ddpm/model --prompt x --sampler eulr --out x.mp4
refused 'guide distilled: WanTransformer3DModel' "$WEFT" generate --model runs/ddpm/model --prompt x --guide distilled --out x.mp4
refused 'v_prediction' "$WEFT" train dit.yaml --set out=x --set process=ddpm --set ddpm.zero_snr=true
refused 'noise_from: 0.9 is not below noise_to: 0.8' "$WEFT" train dit.yaml --set out=x --set noise_from=0.9 --set noise_to=0.8
refused 'sampler: lcmm: process: flow' "$WEFT" train dit.yaml --set out=x --set sampler=lcmm
refused 'noise_from and noise_to go with' "$WEFT" train dit.yaml --set out=x --set process=edm --set noise_to=0.8

# An expert of high noise, by another draw, exported with another sampler; the class of the file is what samples.
"$WEFT" train dit.yaml --set flow.times=uniform --set flow.shift=3 --set noise_from=0.875 --set sampler=unipc --set out=runs/high \
    >high.log 2>&1 || { cat high.log; fail "noise_from"; }
grep -q '"UniPCMultistepScheduler"' runs/high/model/scheduler/scheduler_config.json || fail "sampler: unipc"
"$WEFT" generate --model runs/high/model --prompt x --steps 3 --out high.mp4 >high.log 2>&1 || { cat high.log; fail "generate"; }
grep -q '3 steps of unipc' high.log || { cat high.log; fail "the file's sampler"; }
sed -i 's/"UniPCMultistepScheduler"/"PNDMScheduler"/' runs/high/model/scheduler/scheduler_config.json
refused 'the scheduler class "PNDMScheduler" is not known; known are' "$WEFT" generate --model runs/high/model --prompt x --out x.mp4
exit 0

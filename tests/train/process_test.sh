#!/bin/bash
# Noise processes other than flow matching (edm, ddpm): trained, exported with the scheduler class
# of diffusers, and sampled by every sampler and guidance method that they support. Also a
# high-noise expert of a flow model.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
"$WEFT" train dit.yaml --set process=edm >dit.log 2>&1 || { cat dit.log; fail "process: edm"; }
# The initial model predicts 0, and the target has a deviation of about 1 at every noise level.
edm_is_trained_and_exported() {
    python3 -S - <<'PY' || fail "losses"
import json, math
losses = [json.loads(line)["loss"] for line in open("runs/dit/metrics.jsonl")]
assert all(math.isfinite(x) for x in losses) and 0.5 < losses[0] < 3, losses
scheduler = json.load(open("runs/dit/model/scheduler/scheduler_config.json"))
assert scheduler["_class_name"] == "EDMEulerScheduler" and scheduler["sigma_data"] == 0.5, scheduler
PY
}
check edm_is_trained_and_exported
every_sampler_of_edm_runs() {
    for sampler in euler heun; do
        "$WEFT" generate --model runs/dit/model --prompt "a red circle" --steps 3 --sampler $sampler --frames-npy --out $sampler.mp4 \
            >generate.log 2>&1 || { cat generate.log; fail "weft generate --sampler $sampler"; }
    done
    ! cmp -s euler.npy heun.npy || fail "the sampler has no effect"
}
check every_sampler_of_edm_runs
invalid_settings_of_edm_are_refused() {
    "$WEFT" generate --model runs/dit/model --prompt x --shift 3 --out x.mp4 >shift.log 2>&1 && fail "--shift is accepted for EDM"
    has_message shift.log option-no-effect key=--shift text~=EDMEulerScheduler || fail "the error of --shift"
    sed -i 's/"karras"/"even"/' runs/dit/model/scheduler/scheduler_config.json
    "$WEFT" generate --model runs/dit/model --prompt x --out x.mp4 >schedule.log 2>&1 && fail "an unknown sigma_schedule is accepted"
    has_message schedule.log scheduler-unsupported key=sigma_schedule 'text~="even"' 'text~=: exponential, karras' || fail "the error of an unknown sigma_schedule"
    "$WEFT" train dit.yaml --set process=edm --set out=x --set edm.sigma_min=90 >min.log 2>&1 && fail "sigma_min above sigma_max is accepted"
    has_message min.log '*' level=error key=edm.sigma_min text~=90 text~=edm.sigma_max || fail "the error of sigma_min"
}
check invalid_settings_of_edm_are_refused

# DDPM: trained, exported, and sampled by every sampler. The noise of a sampler depends on the seed
# only.
"$WEFT" train dit.yaml --set process=ddpm --set ddpm.prediction=v_prediction --set ddpm.zero_snr=true --set ddpm.min_snr=5 \
    --set out=runs/ddpm >ddpm.log 2>&1 || { cat ddpm.log; fail "process: ddpm"; }
ddpm_exports_its_scheduler() {
    grep -q '"DDIMScheduler"' runs/ddpm/model/scheduler/scheduler_config.json || fail "the scheduler class of ddpm in scheduler_config.json"
    grep -q '"DDIMScheduler"' runs/ddpm/model/model_index.json || fail "the scheduler class of ddpm in model_index.json"
}
check ddpm_exports_its_scheduler
generate() {
    "$WEFT" generate --model runs/ddpm/model --prompt "a red circle" --steps 4 --frames-npy "$@" >generate.log 2>&1 ||
        { cat generate.log; fail "weft generate $*"; }
}
every_sampler_of_ddpm_runs() {
    for sampler in euler heun unipc dpmpp dpm_singlestep euler_ancestral lms pndm ddim ddpm lcm consistency res_2ab res_2mid cogvideox_dpm; do
        generate --sampler $sampler --out ddpm-$sampler.mp4
    done
    generate --out own.mp4
    cmp own.npy ddpm-ddim.npy || fail "the default sampler of the scheduler is not ddim"
    generate --sampler ddpm --out again.mp4
    cmp again.npy ddpm-ddpm.npy || fail "the same seed gives other frames"
    generate --eta 1 --out eta.mp4
    ! cmp -s eta.npy own.npy || fail "--eta has no effect"
}
check every_sampler_of_ddpm_runs
every_guidance_method_runs() {
    for guide in cfg rescale cosmos rising dynamic_cfg zero_star apg; do
        generate --guidance-method $guide --guidance-rescale 0.7 --out guide-$guide.mp4
    done
    generate --guidance-method dynamic --out earlier.mp4
    has_message generate.log option-renamed text~=rising || fail "the present name of dynamic is not printed"
    cmp earlier.npy guide-rising.npy || fail "dynamic differs from rising"
    generate --guidance-method cfg --boundary-ratio 0.5 --guidance-scale-2 2 --out experts.mp4
    ! cmp -s experts.npy own.npy || fail "--guidance-scale-2 has no effect"
}
check every_guidance_method_runs
refused() {
    take_message "$@"
    set -- "${rest[@]}"
    "$@" >refused.log 2>&1 && fail "not refused: $*"
    has_message refused.log "${wanted[@]}" || fail "$*: another message than expected"
}
refusals() {
    refused option-invalid key=--sampler "text~='eulr'" 'text~=euler, heun' -- "$WEFT" generate --model runs/ddpm/model --prompt x --sampler eulr --out x.mp4
    refused model-input-unsupported key=--guidance-method text~=WanTransformer3DModel text~=distilled -- "$WEFT" generate --model runs/ddpm/model --prompt x --guidance-method distilled --out x.mp4
    refused config-conflict file=dit.yaml key=ddpm.zero_snr text~=v_prediction -- "$WEFT" train dit.yaml --set out=x --set process=ddpm --set ddpm.zero_snr=true
    refused '*' 'text~=timestep_min: 0.9 is not below timestep_max: 0.8' -- "$WEFT" train dit.yaml --set out=x --set timestep_min=0.9 --set timestep_max=0.8
    refused config-value file=dit.yaml key=sampler text~=lcmm 'text~=process: flow' -- "$WEFT" train dit.yaml --set out=x --set sampler=lcmm
    refused config-conflict file=dit.yaml key=timestep_max -- "$WEFT" train dit.yaml --set out=x --set process=edm --set timestep_max=0.8
}
check refusals

# A high-noise expert with another timestep sampling, exported with another sampler. `weft generate`
# uses the sampler of the scheduler class in the file.
an_expert_of_high_noise_is_trained() {
    "$WEFT" train dit.yaml --set flow.timestep_sampling=uniform --set flow.shift=3 --set timestep_min=0.875 --set sampler=unipc --set out=runs/high \
        >high.log 2>&1 || { cat high.log; fail "timestep_min"; }
    grep -q '"UniPCMultistepScheduler"' runs/high/model/scheduler/scheduler_config.json || fail "the exported scheduler class is not that of unipc"
    "$WEFT" generate --model runs/high/model --prompt x --steps 3 --out high.mp4 >high.log 2>&1 || { cat high.log; fail "generate"; }
    has_message high.log job-report "text~=3 steps" text~=unipc || fail "the sampler is not that of the scheduler class in the file"
    sed -i 's/"UniPCMultistepScheduler"/"FlowMatchOtherScheduler"/' runs/high/model/scheduler/scheduler_config.json
    refused scheduler-unsupported key=_class_name 'text~="FlowMatchOtherScheduler"' -- "$WEFT" generate --model runs/high/model --prompt x --out x.mp4
    # --sampler replaces the scheduler class of the file
    "$WEFT" generate --model runs/high/model --prompt x --steps 3 --sampler heun --out other.mp4 >other.log 2>&1 || { cat other.log; fail "--sampler heun"; }
    has_message other.log scheduler-replaced level=warning key=_class_name value=FlowMatchOtherScheduler text~=FlowMatchHeunDiscreteScheduler || fail "the replaced scheduler class is not reported"
}
check an_expert_of_high_noise_is_trained
finish

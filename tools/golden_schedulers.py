#!/usr/bin/env python3
"""Makes tests/golden/sched_*.json and .safetensors: trajectories of the schedulers of diffusers
with a linear model, in f32 on a CPU, with the noise that they draw. Each run is repeated in f64,
and the difference is in the json. Needs PyTorch, diffusers, scipy and safetensors; run from the
root of the checkout with names of files (none: all)."""
import importlib
import json
import sys

import numpy as np
import torch
from safetensors.torch import save_file

GOLDEN = "tests/golden"
SD = {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012}
FLOW = {"prediction_type": "flow_prediction", "use_flow_sigmas": True, "flow_shift": 3.0}


def even_below_1(steps):
    """The levels that Helios' pipeline sets."""
    return {"num_inference_steps": steps, "sigmas": [0.999 * (1 - i / steps) for i in range(steps)]}


# name: class, tolerance, runs of (config, steps or settings of set_timesteps, arguments of step)
FILES = {
    "sched_pndm": ("PNDMScheduler", 1e-5, [
        (SD | {"skip_prk_steps": True, "set_alpha_to_one": False, "steps_offset": 1}, 8, {}),
        ({}, 6, {}), ({}, 7, {}),
        ({"prediction_type": "v_prediction", "timestep_spacing": "linspace"}, 9, {}),
        (SD | {"skip_prk_steps": True, "prediction_type": "v_prediction", "timestep_spacing": "trailing", "set_alpha_to_one": True}, 7, {}),
        (SD | {"skip_prk_steps": True, "timestep_spacing": "linspace"}, 3, {}),
        (SD | {"skip_prk_steps": True}, 1, {})]),
    "sched_helios": ("HeliosScheduler", 1e-5, [
        ({"stages": 1}, even_below_1(8), {}), ({"stages": 1, "scheduler_type": "euler"}, 5, {}),
        ({"stages": 1, "solver_order": 3, "solver_type": "bh1"}, even_below_1(9), {}), ({"stages": 1, "disable_corrector": [0, 2]}, even_below_1(6), {})]),
    "sched_euler": ("EulerDiscreteScheduler", 3e-5, [
        (SD | {"timestep_spacing": "leading", "steps_offset": 1}, 8, {}),
        (SD | {"use_karras_sigmas": True}, 7, {}),
        (SD | {"use_karras_sigmas": True, "sigma_min": 0.05, "sigma_max": 12.0}, 5, {}),
        (SD | {"use_exponential_sigmas": True, "timestep_spacing": "trailing"}, 5, {}),
        (SD | {"use_beta_sigmas": True}, 6, {}),
        (SD | {"prediction_type": "v_prediction", "timestep_type": "continuous", "use_karras_sigmas": True, "sigma_min": 0.002, "sigma_max": 700.0,
               "timestep_spacing": "leading", "steps_offset": 1}, 5, {}),
        (SD | {"prediction_type": "sample", "interpolation_type": "log_linear"}, 4, {}),
        ({"final_sigmas_type": "sigma_min", "beta_schedule": "squaredcos_cap_v2"}, 5, {}),
        (SD, 6, {"s_churn": 2.0, "s_tmin": 0.5, "s_tmax": 10.0, "s_noise": 1.003}),
        (SD | {"prediction_type": "v_prediction"}, 6, {"s_churn": 9.0}),
        (SD, {"timesteps": [999, 845, 730, 587.5, 443, 310, 193, 116, 53, 13]}, {}),
        (SD, {"sigmas": [14.6146, 6.3151, 3.7718, 2.1811, 1.3405, 0.8603, 0.5551, 0.3798, 0.2332, 0.0]}, {}),
        (SD | {"prediction_type": "v_prediction"}, {"sigmas": [12.0, 5.0, 1.0, 0.5]}, {})]),
    "sched_euler_ancestral": ("EulerAncestralDiscreteScheduler", 1e-5, [
        (SD | {"timestep_spacing": "trailing"}, 8, {}), ({}, 6, {}),
        (SD | {"prediction_type": "v_prediction", "timestep_spacing": "leading", "steps_offset": 1}, 5, {})]),
    "sched_lms": ("LMSDiscreteScheduler", 1e-5, [
        (SD, 8, {}), (SD | {"use_karras_sigmas": True}, 6, {}), (SD | {"use_exponential_sigmas": True}, 6, {}),
        (SD | {"use_beta_sigmas": True, "timestep_spacing": "leading", "steps_offset": 1}, 6, {}),
        ({"prediction_type": "v_prediction", "timestep_spacing": "trailing"}, 5, {}), (SD | {"prediction_type": "sample"}, 5, {}),
        (SD, 6, {"order": 2})]),
    "sched_dpm_singlestep": ("DPMSolverSinglestepScheduler", 1e-5, [
        (SD, 8, {}), (SD, 7, {}), (SD | {"solver_order": 3}, 9, {}), (SD | {"solver_order": 3, "solver_type": "heun"}, 10, {}),
        (SD | {"solver_order": 3, "solver_type": "heun", "final_sigmas_type": "sigma_min"}, 9, {}),
        (SD | {"solver_order": 3, "solver_type": "heun", "final_sigmas_type": "sigma_min", "algorithm_type": "dpmsolver"}, 6, {}),
        (SD | {"solver_order": 3, "final_sigmas_type": "sigma_min", "algorithm_type": "dpmsolver"}, 8, {}),
        ({"solver_order": 1}, 5, {}), (SD | {"use_karras_sigmas": True, "solver_type": "heun"}, 7, {}),
        (SD | {"use_exponential_sigmas": True}, 6, {}), (SD | {"use_beta_sigmas": True}, 6, {}),
        ({"beta_schedule": "squaredcos_cap_v2", "lambda_min_clipped": -5.1}, 6, {}),
        (SD | {"thresholding": True, "sample_max_value": 1.5, "dynamic_thresholding_ratio": 0.9}, 6, {}),
        (SD | {"algorithm_type": "dpmsolver", "final_sigmas_type": "sigma_min"}, 6, {}),
        (SD | {"algorithm_type": "sde-dpmsolver++"}, 6, {}),
        (SD | {"algorithm_type": "sde-dpmsolver++", "solver_order": 3, "solver_type": "heun", "final_sigmas_type": "sigma_min"}, 6, {}),
        (SD | {"algorithm_type": "sde-dpmsolver++", "solver_order": 3, "final_sigmas_type": "sigma_min"}, 9, {}),
        (FLOW, 6, {}), (FLOW | {"use_dynamic_shifting": True}, {"num_inference_steps": 6, "mu": 0.8}, {}),
        ({"prediction_type": "v_prediction", "solver_order": 3, "lower_order_final": True}, 7, {}), (SD | {"prediction_type": "sample"}, 6, {}),
        (SD, {"timesteps": [999, 800, 600, 450, 300, 100]}, {})]),
    "sched_flow_lcm": ("FlowMatchLCMScheduler", 1e-5, [
        ({"shift": 3.0}, 4, {}), ({}, 6, {}), ({"use_dynamic_shifting": True}, {"num_inference_steps": 5, "mu": 0.9}, {}),
        ({"shift": 5.0}, {"sigmas": [1.0, 0.75, 0.5, 0.25]}, {}), ({"shift": 5.0, "shift_terminal": 0.1}, 5, {}),
        ({"use_karras_sigmas": True}, 5, {}), ({"use_exponential_sigmas": True}, 5, {}), ({"use_beta_sigmas": True}, 5, {}),
        ({"shift": 2.0}, {"timesteps": [1000, 700, 350, 120]}, {})]),
    "sched_flow_euler_given": ("FlowMatchEulerDiscreteScheduler", 1e-5, [
        ({"shift": 3.0}, {"timesteps": [1000, 812.5, 500, 250, 100]}, {}), ({"shift": 3.0}, {"sigmas": [1.0, 0.8, 0.45, 0.2]}, {}),
        ({"use_dynamic_shifting": True}, {"timesteps": [1000, 700, 300], "mu": 0.7}, {}),
        ({"invert_sigmas": True}, {"timesteps": [900, 700, 300]}, {}), ({"shift_terminal": 0.1}, {"timesteps": [1000, 700, 300]}, {})]),
    "sched_trained": ("DDIMScheduler", 1e-5, [
        ({"num_train_timesteps": 60, "trained_betas": [0.002 + 0.003 * i + 0.01 * (i % 3) for i in range(60)], "clip_sample": False}, 6, {}),
        ({"num_train_timesteps": 50, "trained_betas": [0.01 + 0.004 * i for i in range(50)], "clip_sample": False,
          "rescale_betas_zero_snr": True, "timestep_spacing": "trailing", "prediction_type": "v_prediction"}, 5, {})]),
    "sched_ddpm_given": ("DDPMScheduler", 1e-5, [(SD | {"clip_sample": False}, {"timesteps": [999, 750, 500, 250, 3]}, {})]),
    "sched_dpmpp_given": ("DPMSolverMultistepScheduler", 1e-5, [(SD, {"timesteps": [999, 850, 700, 450, 200, 60]}, {})]),
    "sched_lcm_given": ("LCMScheduler", 1e-5, [({}, {"timesteps": [999, 759, 499, 259]}, {})]),
    "sched_unipc_given": ("UniPCMultistepScheduler", 1e-5, [(FLOW, {"sigmas": [1.0, 0.8, 0.6, 0.35, 0.1]}, {})]),
}
W, SHAPE = 0.005, (1, 2, 3, 4)
torch.manual_seed(11)
START, BIAS = torch.randn(SHAPE), torch.randn(SHAPE)
NOISE = torch.randn((32,) + SHAPE)


def walk(name, config, settings, step, dtype):
    """One run; the scheduler computes in f32 and its levels are widened for the run in f64."""
    module = importlib.import_module(getattr(diffusers, name).__module__)
    drawn = []

    def draw(shape, **kinds):
        drawn.append(NOISE[len(drawn)])
        return drawn[-1].to(dtype)

    if hasattr(module, "randn_tensor"):
        module.randn_tensor = draw
    scheduler = getattr(diffusers, name)(**config)
    lists = {k: np.array(v) if k == "sigmas" else v for k, v in settings.items()}
    scheduler.set_timesteps(**lists)
    first = float(scheduler.init_noise_sigma) if hasattr(scheduler, "init_noise_sigma") else 1.0
    x = START.to(dtype) * first
    out = {"trajectory": [x], "model_input": [], "model_output": []}
    for t in scheduler.timesteps:
        scaled = scheduler.scale_model_input(x, t) if hasattr(scheduler, "scale_model_input") else x
        made = 0.3 * scaled + 0.1 * torch.cos(torch.tensor(W * float(t), dtype=dtype)) + 0.2 * BIAS.to(dtype)
        x = scheduler.step(made, t, x, **step).prev_sample
        for key, value in (("model_input", scaled), ("model_output", made), ("trajectory", x)):
            out[key].append(value)
    out = {k: torch.stack(v).float().contiguous() for k, v in out.items()}
    out["timesteps"] = scheduler.timesteps.clone()
    if hasattr(scheduler, "sigmas") and name not in ("PNDMScheduler", "DDPMScheduler", "LCMScheduler"):
        out["sigmas"] = scheduler.sigmas.float().clone()
    if drawn:
        out["noise"] = torch.stack(drawn)
    return first, out


import diffusers  # noqa: E402
for file, (name, tolerance, runs) in FILES.items():
    if sys.argv[1:] and file not in sys.argv[1:]:
        continue
    tensors, rows = {"in.noise": START, "in.bias": BIAS}, []
    for i, (config, settings, step) in enumerate(runs):
        settings = {"num_inference_steps": settings} if isinstance(settings, int) else settings
        given = {k: v for k, v in settings.items() if k != "num_inference_steps"}
        first, out = walk(name, config, settings, step, torch.float32)
        _, wide = walk(name, config, settings, step, torch.float64)
        difference = ((out["trajectory"] - wide["trajectory"]).norm() / wide["trajectory"].norm()).item()
        rows.append({"id": f"run{i}", "config": config, "num_inference_steps": settings.get("num_inference_steps", len(out["timesteps"])),
                     "set_timesteps": given, "step": step, "w": W, "init_noise_sigma": first, "difference_from_f64_run": difference})
        tensors |= {f"run{i}.{k}": v for k, v in out.items()}
    save_file(tensors, f"{GOLDEN}/{file}.safetensors")
    json.dump({"_class_name": name, "model": "model(x, t) = 0.3*x + 0.1*cos(w*t) + 0.2*b in f32; x = the scaled input, t = the timestep, "
               "b = in.bias", "tensors": "runK.trajectory: in.noise * init_noise_sigma, and x after every model call; runK.noise: the draws in order",
               "reference": f"diffusers {diffusers.__version__}, torch {torch.__version__.split('+')[0]}",
               "suggested_tolerance": {"out": tolerance}, "runs": rows}, open(f"{GOLDEN}/{file}.json", "w"), indent=1)
    print(file, max(r["difference_from_f64_run"] for r in rows))

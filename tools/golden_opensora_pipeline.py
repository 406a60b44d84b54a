#!/usr/bin/env python3
"""Makes tests/golden/pipelines/opensora, a folder of Open-Sora 1.2 with random weights, the latents and frames of its pipeline by
opensora_reference.py, and tests/golden/sched_rflow. Needs PyTorch, diffusers, transformers and safetensors; run from the root of
the checkout, with tools in PYTHONPATH.

The authors publish the transformer and the autoencoder in repositories of their own, with config.json and model.safetensors, and
sample in scripts/inference.py with the settings of configs/opensora-v1-2/inference/sample.py (tag v1.2.0).

    opensora        a text: the score in the prompt, the table of an absent text as the negative prompt under the prompt's mask, rectified
                    flow with levels shifted by area and frames; two clips of the autoencoder, and rows that no patch divides
    opensora_image  the first frame is given
    opensora_still  an image, whose frame rate is 120
    opensora_score  a prompt with a score of its own"""
import json
import os
import shutil

import numpy as np
import torch
from golden_parts import CASES, OUT, given, noise, picture, unigram, weights
from opensora_reference import STDiT3, VideoAutoencoder
from safetensors.torch import save_file
from transformers import T5Config, T5EncoderModel

torch.set_grad_enabled(False)
NAME, GOLDEN = "opensora", "tests/golden"
PROMPT, SCORED, STEPS, SCALE, FRAMES, HEIGHT, WIDTH = "A Red cat walks and sleeps", "a red cat. aesthetic score: 5.0.", 6, 7.0, 34, 18, 24
T5 = dict(vocab_size=100, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, feed_forward_proj="gated-gelu")
DENOISER = dict(hidden_size=24, depth=2, num_heads=2, in_channels=4, caption_channels=16, model_max_length=300, input_sq_size=512, mlp_ratio=4.0,
                patch_size=[1, 2, 2], qk_norm=True, pred_sigma=True, class_dropout_prob=0.1, drop_path=0.0, input_size=[None, None, None],
                only_train_temporal=False, freeze_y_embedder=False, skip_y_embedder=False, enable_flash_attn=True, enable_layernorm_kernel=True,
                enable_sequence_parallelism=False)
IMAGES = dict(block_out_channels=[4, 8], layers_per_block=1, latent_channels=4, norm_num_groups=2, down_block_types=["DownEncoderBlock2D"] * 2,
              up_block_types=["UpDecoderBlock2D"] * 2)
FRAMES_OF = dict(filters=4, num_res_blocks=1, channel_multipliers=[1, 1, 2, 2], temporal_downsample=[False, True, True], num_groups=2)
SHIFT, DEVIATION = [-0.10, 0.34, 0.27, 0.98], [3.85, 2.32, 2.33, 3.06]


def ratio_of(frames, height, width):
    latents = 1 if frames == 1 else frames // 17 * 5
    return (height * width / 512 ** 2) ** 0.5 * latents ** 0.5


def times_of(steps, frames, height, width):
    """Timesteps from 1000, as RFLOW sets them."""
    even, ratio = torch.tensor([1 - i / steps for i in range(steps)], dtype=torch.float64), ratio_of(frames, height, width)
    return 1000 * ratio * even / (1 + (ratio - 1) * even)


def part(folder, model, config, buffers):
    os.makedirs(f"{OUT}/{NAME}/{folder}")
    json.dump(config, open(f"{OUT}/{NAME}/{folder}/config.json", "w"), indent=1)
    save_file({n: t.data.contiguous() for n, t in [*model.named_parameters(), *buffers.items()]}, f"{OUT}/{NAME}/{folder}/model.safetensors")


def write(label, what, video):
    np.save(f"{OUT}/{NAME}/{what}{label and '_' + label}.npy", video[0].permute(1, 2, 3, 0).contiguous().numpy())


def text_of(prompt):
    scored = prompt if "aesthetic score:" in prompt else f"{prompt} aesthetic score: 6.5."
    return scored.lower().strip()  # all that the authors' cleaning changes in these prompts


def run(label, parts, prompt=PROMPT, frames=FRAMES, first=None, begin=None, decodes=True):
    denoiser, vae, t5, tokenizer = parts
    own = tokenizer(text_of(prompt), padding="max_length", max_length=300, truncation=True, return_tensors="pt")
    text, absent = t5(own.input_ids, own.attention_mask)[0], denoiser.y_embedder.y_embedding[None]
    rate = torch.tensor([24.0 if frames > 1 else 120.0])
    begin = begin if begin is not None else noise(4, (frames + 2) // 17 * 5 if frames > 1 else 1, HEIGHT // 2, WIDTH // 2)
    noisy = torch.ones(begin.shape[0], begin.shape[2], dtype=torch.bool)
    x = begin.clone()
    if first is not None:
        x[:, :, :1], noisy[:, 0] = first, False
    times = times_of(STEPS, frames, HEIGHT, WIDTH)
    for t, after in zip(times, [*times[1:], 0.0]):
        with_text, without = (denoiser(x, t.float()[None], text, own.attention_mask, rate, HEIGHT, WIDTH, noisy) for text in (text, absent))
        moved = x + (without + SCALE * (with_text - without)) * float((t - after) / 1000)
        x = torch.where(noisy[:, None, :, None, None], moved, x)
    asked = dict(prompt=prompt, negative="", height=HEIGHT, width=WIDTH, num_frames=frames, num_inference_steps=STEPS, guidance_scale=SCALE)
    CASES.append((NAME, label, asked))
    if not label or frames != FRAMES:
        write(label, "noise", begin)
    write(label, "latents", x)
    if decodes:
        scale, shift = (torch.tensor(values).view(1, -1, 1, 1, 1) for values in (DEVIATION, SHIFT))
        write(label, "frames", vae.decode(x * scale + shift, frames).clamp(-1, 1))


def pipeline():
    shutil.rmtree(f"{OUT}/{NAME}", ignore_errors=True)
    torch.manual_seed(0)
    tokenizer, t5 = unigram(), weights(T5EncoderModel(T5Config(**T5)), 3)
    freqs = STDiT3(**DENOISER).rope.freqs.data.clone()
    denoiser, vae = weights(STDiT3(**DENOISER), 1), weights(VideoAutoencoder(IMAGES, FRAMES_OF, 17), 4)
    denoiser.rope.freqs.data = freqs
    part("transformer", denoiser, dict(architectures=["STDiT3"], model_type="STDiT3", torch_dtype="float32", transformers_version="4.36.2", **DENOISER),
         {"y_embedder.y_embedding": denoiser.y_embedder.y_embedding})
    images = {key: value for key, value in IMAGES.items() if not key.endswith("types")}
    config = dict(architectures=["VideoAutoencoderPipeline"], model_type="VideoAutoencoderPipeline", cal_loss=False, freeze_vae_2d=False,
                  from_pretrained=None, micro_frame_size=17, scale=DEVIATION, shift=SHIFT, torch_dtype="float32", transformers_version="4.36.2",
                  vae_2d=dict(type="VideoAutoencoderKL", micro_batch_size=4, local_files_only=False, **images),
                  vae_temporal=dict(type="VAE_Temporal_SD", from_pretrained=None, **FRAMES_OF))
    part("vae", vae, config, {"scale": torch.tensor(DEVIATION).view(1, -1, 1, 1, 1), "shift": torch.tensor(SHIFT).view(1, -1, 1, 1, 1)})
    t5.save_pretrained(f"{OUT}/{NAME}/text_encoder")
    tokenizer.save_pretrained(f"{OUT}/{NAME}/tokenizer")
    os.makedirs(f"{OUT}/{NAME}/scheduler")
    json.dump(dict(_class_name="RFlowScheduler", num_timesteps=1000, use_timestep_transform=True),
              open(f"{OUT}/{NAME}/scheduler/scheduler_config.json", "w"), indent=1)
    parts = denoiser, vae, t5, tokenizer
    run("", parts)
    image = picture(WIDTH, HEIGHT, 3)
    given(NAME, image_image=image)
    pixels = torch.from_numpy(np.asarray(image, dtype=np.float32) / 127.5 - 1).permute(2, 0, 1)[None, :, None]
    scale, shift = (torch.tensor(values).view(1, -1, 1, 1, 1) for values in (DEVIATION, SHIFT))
    run("image", parts, first=(vae.encode(pixels)[0] - shift) / scale, decodes=False)
    run("still", parts, frames=1)
    run("score", parts, prompt=SCORED, decodes=False)


def scheduler():
    """Trajectories with a linear model of the flow from data to noise, as golden_schedulers.py has them."""
    weight, shape = 0.005, (1, 2, 3, 4)
    draw = torch.Generator().manual_seed(11)
    start, bias = torch.randn(shape, generator=draw), torch.randn(shape, generator=draw)
    tensors, rows = {"in.noise": start, "in.bias": bias}, []
    for i, (steps, size) in enumerate([(6, (51, 240, 426)), (30, (1, 720, 1280)), (4, (408, 144, 256)), (5, None)]):
        times = times_of(steps, *size) if size else 1000 * torch.tensor([1 - k / steps for k in range(steps)], dtype=torch.float64)
        x, out = start.double(), {"trajectory": [start], "model_input": [], "model_output": []}
        for t, after in zip(times, [*times[1:], 0.0]):
            made = 0.3 * x + 0.1 * torch.cos(weight * t) + 0.2 * bias.double()
            out["model_input"].append(x), out["model_output"].append(made)
            x = x - made * (t - after) / 1000
            out["trajectory"].append(x)
        tensors |= {f"run{i}.{k}": torch.stack([e.float() for e in v]).contiguous() for k, v in out.items()}
        tensors[f"run{i}.timesteps"] = times.float()
        tensors[f"run{i}.sigmas"] = torch.cat([times / 1000, torch.zeros(1)]).float()
        rows.append({"id": f"run{i}", "config": {"use_timestep_transform": size is not None}, "num_inference_steps": steps,
                     "set_timesteps": {"pixels": size} if size else {}, "step": {}, "w": weight, "init_noise_sigma": 1.0})
    save_file(tensors, f"{GOLDEN}/sched_rflow.safetensors")
    json.dump({"_class_name": "RFlowScheduler", "model": "model(x, t) = 0.3*x + 0.1*cos(w*t) + 0.2*b in f64; t = the timestep, b = in.bias",
               "reference": "the formulas of RFLOW and timestep_transform of Open-Sora 1.2", "suggested_tolerance": {"out": 1e-5}, "runs": rows},
              open(f"{GOLDEN}/sched_rflow.json", "w"), indent=1)


if __name__ == "__main__":
    scheduler()
    pipeline()

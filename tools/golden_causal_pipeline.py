#!/usr/bin/env python3
"""Makes tests/golden/pipelines/causal_wan and causal_wan_all: folders as FastVideo publishes causal Wan, and the latents that
tools/causal_wan.py generates from them block by block, with the new noise of weft's seed 0 in each step. Needs PyTorch,
diffusers 0.42 and transformers; run from the root of the checkout.

    causal_wan       blocks of two frames, a window of five frames with one first frame of the video
                     variants: guided, with a negative prompt; listed, with given noise levels; noisy, with a timestep of the
                     context; short, a video inside the window
    causal_wan_all   the same weights; blocks attend to all earlier ones
"""
import json
import os
from copy import deepcopy

import numpy as np
import torch
from causal_wan import CausalWanTransformer3DModel, generate
from diffusers import FlowMatchLCMScheduler, WanPipeline, WanTransformer3DModel
from golden_parts import NEGATIVE, OUT, PROMPT, noise, save, umt5, unigram, variant, wan_vae, weights
from weft_noise import SAMPLER, normal

SHIFT, HEADS, BLOCK = 5.0, 2, 2
torch.set_grad_enabled(False)
own = dict(patch_size=(1, 2, 2), num_attention_heads=HEADS, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=16, freq_dim=16,
           ffn_dim=32, num_layers=2)
transformer = weights(WanTransformer3DModel(**own), 1)
pipe = WanPipeline(
    tokenizer=unigram(), transformer=transformer, scheduler=FlowMatchLCMScheduler(shift=SHIFT),
    text_encoder=umt5(),
    vae=wan_vae())
# in f64, for a reference without rounding in the transformer
exact = WanPipeline(tokenizer=pipe.tokenizer, transformer=None, scheduler=pipe.scheduler, vae=pipe.vae, text_encoder=deepcopy(pipe.text_encoder).double())
TEXTS = exact.encode_prompt(PROMPT, NEGATIVE, do_classifier_free_guidance=True, max_sequence_length=512, dtype=torch.float64)


def fresh(at, step, shape):
    """The noise of weft's sampler: 65536 draws are reserved for a block, and latents have frames, rows, columns, channels."""
    _, channels, *sides = shape
    count = channels * int(np.prod(sides))
    drawn = torch.tensor([normal(0, (at * 65536 + step) * count + i, SAMPLER) for i in range(count)], dtype=torch.float32).double()
    return drawn.view(*sides, channels).permute(3, 0, 1, 2)[None]


def latents(begin, sigmas, scale, context=0.0, **causal):
    model = CausalWanTransformer3DModel(**own, num_frames_per_block=BLOCK, **causal)
    model.load_state_dict(transformer.state_dict())
    model.double()
    levels = [SHIFT * s / (1 + (SHIFT - 1) * s) for s in sigmas]
    made = [generate(model, HEADS, begin.double(), TEXTS, levels, fresh, scale, cached, context) for cached in (True, False)]
    error = ((made[0] - made[1]).norm() / made[0].norm()).item()
    print(f"{causal}: with the cache and without it {error:.2g}")
    assert error < 1e-14
    return made[0].float()


def folder(name, begin, **causal):
    asked = dict(prompt=PROMPT, height=32, width=32, num_frames=4 * begin.shape[2] - 3, num_inference_steps=4, guidance_scale=1.0)
    save(pipe, name, begin, latents(begin, (1, 0.75, 0.5, 0.25), 1.0, **causal), **asked)
    for path, keys in ((f"{OUT}/{name}/transformer/config.json", {"num_frames_per_block": BLOCK, **causal}),
                       (f"{OUT}/{name}/model_index.json", {"transformer": ["diffusers", "CausalWanTransformer3DModel"]})):
        config = json.load(open(path))
        config |= keys | ({"_class_name": "CausalWanTransformer3DModel"} if "transformer/" in path else {})
        json.dump(config, open(path, "w"), indent=1)
    return asked


window, begin = dict(local_attn_size=5, sink_size=1), noise(4, 10, 4, 4)
base = folder("causal_wan", begin, **window)
variant("causal_wan", "guided", latents(begin, (1, 0.75, 0.5, 0.25), 3.0, **window), **base | dict(negative=NEGATIVE, guidance_scale=3.0))
variant("causal_wan", "listed", latents(begin, (1, 0.757, 0.522), 1.0, **window),
        **{k: v for k, v in base.items() if k != "num_inference_steps"} | dict(sigmas=[1, 0.757, 0.522]))
variant("causal_wan", "off", latents(begin, (1, 0.75, 0.5, 0.25), 1.0, **window), **base | dict(kv_cache="off"))
variant("causal_wan", "noisy", latents(begin, (1, 0.75, 0.5, 0.25), 1.0, 100.0, **window), **base | dict(context_noise=100))
short = noise(4, 4, 4, 4)
np.save(f"{OUT}/causal_wan/noise_short.npy", short[0].permute(1, 2, 3, 0).contiguous().numpy())
variant("causal_wan", "short", latents(short, (1, 0.75, 0.5, 0.25), 1.0, **window), **base | dict(num_frames=13))
folder("causal_wan_all", begin, local_attn_size=-1, sink_size=0)
for part in ("text_encoder/model", "vae/diffusion_pytorch_model", "transformer/diffusion_pytorch_model"):
    path = f"{OUT}/causal_wan_all/{part}.safetensors"
    os.remove(path)
    os.symlink(os.path.relpath(f"{OUT}/causal_wan/{part}.safetensors", os.path.dirname(path)), path)

#!/usr/bin/env python3
"""Makes tests/golden/distill/history_*: steps of a tiny Framepack or Helios in PyTorch (f64), each sample with one section of a clip and
the history that the pipelines of diffusers give this section. Needs PyTorch and diffusers; run from the root of the checkout.

Item i of step s is sample (s B + i) % N with key 1000 s + i + 1. Noise, levels and sections are the draws of weft
(golden_draws.py)."""
import json

import golden_distill as base
import torch
from diffusers import HeliosTransformer3DModel, HunyuanVideoFramepackTransformer3DModel
from golden_draws import below, normal
from safetensors.torch import save_file

SECTION = 23  # purpose of the draw
SIZES = [1, 2, 16]  # frames of the history, from the section on
C, Y, X, SAMPLES, BATCH, STEPS = 4, 4, 4, 5, 2, 20
FRAMEPACK = {"in_channels": C, "out_channels": C, "num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 1, "num_single_layers": 1,
             "num_refiner_layers": 1, "mlp_ratio": 2.0, "patch_size": 2, "patch_size_t": 1, "guidance_embeds": True, "text_embed_dim": 8,
             "pooled_projection_dim": 6, "rope_axes_dim": [4, 2, 2], "has_image_proj": True, "image_proj_dim": 4,
             "has_clean_x_embedder": True}
HELIOS = {"in_channels": C, "out_channels": C, "num_attention_heads": 2, "attention_head_dim": 8, "text_dim": 8, "freq_dim": 8,
          "ffn_dim": 24, "num_layers": 2, "rope_dim": [4, 2, 2], "is_amplify_history": True}
# The largest patches have small gradients, which f32 rounds by 1e-4 of a step with the eps of the other files.
base.OPTIMIZER = {**base.OPTIMIZER, "eps": 1e-3}
# name: class, config, sections, their frames, order, the image is not a frame of the video, LoRA
FILES = {"history_framepack": (HunyuanVideoFramepackTransformer3DModel, FRAMEPACK, 5, 2, "reverse", False, None),
         "history_forward_lora": (HunyuanVideoFramepackTransformer3DModel, FRAMEPACK, 3, 3, "forward", False, base.LORA),
         "history_helios": (HeliosTransformer3DModel, HELIOS, 6, 3, "forward", True, None)}


def padded(frames, count, at_end):
    """`count` frames next to a section; zeros are where the clip has none."""
    zeros = torch.zeros(C, count, Y, X, dtype=frames.dtype)
    return torch.cat([frames, zeros], 1)[:, :count] if at_end else torch.cat([zeros, frames], 1)[:, -count:]


def section_of(clip, count, size, at, order, precedes):
    """Section `at` of a clip (C,T,Y,X), in the order of denoising: its latents, the histories of 1, 2 and 4 frames a token, and the time
    positions of all four, as HunyuanVideoFramepackPipeline and HeliosPipeline have them."""
    start = 0 if precedes else 1
    number = count - 1 - at if order == "reverse" else at  # in the order of time
    first = start + number * size
    image = torch.zeros_like(clip[:, :1]) if precedes and at == 0 else clip[:, :1]
    if order == "reverse":
        near = padded(clip[:, first + size:], sum(SIZES), True).split(SIZES, 1)
        paddings = list(range(count))[::-1] if count <= 4 else [3] + [2] * (count - 3) + [1, 0]
        gap = paddings[at] * size
        prefix, _, own, *places = torch.arange(1 + gap + size + sum(SIZES)).split([1, gap, size, *SIZES])
    else:
        near = padded(clip[:, :first], sum(SIZES), False).split(SIZES[::-1], 1)[::-1]
        prefix, long, middle, short, own = torch.arange(1 + sum(SIZES) + size).split([1, *SIZES[::-1], size])
        places = [short, middle, long]
    latents = [torch.cat([image, near[0]], 1), *near[1:]]
    return clip[:, first:first + size], latents, own, [torch.cat([prefix, places[0]]), *places[1:]]


def predict(model, x, s, text, pooled, latents, own, places):
    if isinstance(model, HeliosTransformer3DModel):
        names = ["short", "mid", "long"]
        return model(x, 1000 * s, text, indices_hidden_states=own, **{f"latents_history_{n}": v for n, v in zip(names, latents)},
                     **{f"indices_latents_history_{n}": v for n, v in zip(names, places)}, return_dict=False)[0]
    rows = []
    for i in range(len(x)):  # positions are the same for all rows of a call
        rows.append(model(x[i:i + 1], 1000 * s[i:i + 1], encoder_hidden_states=text[i:i + 1], pooled_projections=pooled[i:i + 1],
                          encoder_attention_mask=torch.ones(1, text.shape[1], dtype=torch.long), image_embeds=torch.zeros(1, 1, 4).double(),
                          guidance=torch.tensor([1000.0]).double(), indices_latents=own[i], latents_clean=latents[0][i:i + 1],
                          indices_latents_clean=places[0][i], latents_history_2x=latents[1][i:i + 1], indices_latents_history_2x=places[1][i],
                          latents_history_4x=latents[2][i:i + 1], indices_latents_history_4x=places[2][i], return_dict=False)[0])
    return torch.cat(rows)


def make(name):
    kind, config, count, size, order, precedes, lora = FILES[name]
    frames = count * size + (not precedes)
    base.SHAPE = (C, size, Y, X)
    torch.manual_seed(7)
    model = kind(**config)
    base.random_weights(model)
    model = model.double()
    clips = torch.randn(SAMPLES, C, frames, Y, X).double()
    text, pooled = torch.randn(SAMPLES, base.TEXT, 8).double(), torch.randn(SAMPLES, 6).double()
    if lora:
        base.add_lora(model, lora["rank"], lora["alpha"], lora["targets"])
    tensors = {**base.named(model, "param."), "in.latents": clips.permute(0, 2, 3, 4, 1).float(), "in.text": text.float()}
    if not precedes:
        tensors["in.pooled"] = pooled.float()
    optimizer, losses, norms, drawn = base.adamw(model), [], [], set()
    for step in range(STEPS):
        items, keys = [(step * BATCH + i) % SAMPLES for i in range(BATCH)], [1000 * step + i + 1 for i in range(BATCH)]
        at = [below(k, SECTION, count) for k in keys]
        drawn |= set(at)
        parts = [section_of(clips[item], count, size, one, order, precedes) for item, one in zip(items, at)]
        x0, own = torch.stack([p[0] for p in parts]), torch.stack([p[2] for p in parts])
        latents, places = [[torch.stack([p[k][i] for p in parts]) for i in range(3)] for k in (1, 3)]
        noise, s = base.noise_of(keys), base.shifted(torch.sigmoid(torch.tensor([float(normal(k, base.TIMESTEP, 0)) for k in keys]).double()))
        optimizer.zero_grad()
        x = (1 - base.each(s)) * x0 + base.each(s) * noise
        loss = ((predict(model, x, s, text[items], pooled[items], latents, own, places) - (noise - x0)) ** 2).mean()
        loss.backward()
        norms.append(base.clip(model))
        losses.append(loss.item())
        optimizer.step()
    assert len(drawn) == count  # every section is trained
    tensors |= base.named(model, "final.", bool(lora))
    save_file({k: v.contiguous() for k, v in tensors.items()}, f"tests/golden/distill/{name}.safetensors")
    json.dump({"config": {**config, "_class_name": kind.__name__}, "kind": name, "batch": BATCH, "shift": base.SHIFT,
               "optimizer": base.OPTIMIZER, "lora": lora, "latent_frames": frames,
               "history": {"frames": size, "forward": order == "forward", "precedes": precedes}, "losses": losses, "grad_norms": norms,
               "reference": f"torch {torch.__version__}, f64"}, open(f"tests/golden/distill/{name}.json", "w"), indent=1)


for name in FILES:
    make(name)

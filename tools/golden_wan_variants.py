#!/usr/bin/env python3
"""Makes tests/golden/skyreels_train30 and chronoedit_train30: 30 training steps of small random models,
with blocks of two frames, and with an image's tokens and two latent frames. The reference takes all
but the last 512 tokens for those of the image. Needs PyTorch, diffusers and safetensors; run from the
root of the checkout."""
import json

import torch
from diffusers import ChronoEditTransformer3DModel, SkyReelsV2Transformer3DModel
from safetensors.torch import save_file

STEPS, BATCH, ITEMS = 30, 2, 4
torch.set_num_threads(1)
common = dict(patch_size=[1, 2, 2], num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=10, freq_dim=8,
              ffn_dim=20, num_layers=1)


def train(name, kind, frames, text, given, **config):
    out, draw = f"tests/golden/{name}_train30", torch.Generator().manual_seed(48)
    model = kind(**common, **config)

    def normal(*shape):
        return torch.randn(shape, generator=draw)
    for parameter in model.parameters():
        parameter.data = normal(*parameter.shape) / parameter[0].numel() ** 0.5 if parameter.dim() > 1 else 0.1 * normal(*parameter.shape)
    for key, parameter in model.named_parameters():
        if "norm" in key and key.endswith(".weight"):
            parameter.data += 1
    tensors = {f"param.{n}": p.data.clone() for n, p in model.named_parameters()}
    data, noise, t = normal(ITEMS, 4, frames, 4, 4), normal(STEPS, BATCH, 4, frames, 4, 4), torch.rand((STEPS, BATCH), generator=draw)
    inputs = {"encoder_hidden_states": normal(ITEMS, text, 10)} | {k: normal(ITEMS, *shape) for k, shape in given.items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.002, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.01)
    losses, norms = [], []
    for step in range(STEPS):
        items = [(step * BATCH + i) % ITEMS for i in range(BATCH)]
        clean, level = data[items], t[step].view(-1, 1, 1, 1, 1)
        x = (1 - level) * clean + level * noise[step]
        made = model(x, 1000 * t[step], **{k: v[items] for k, v in inputs.items()}, return_dict=False)[0]
        loss = ((made - (noise[step] - clean)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        losses.append(loss.item())
        optimizer.step()
    tensors |= {f"final.{n}": p.data for n, p in model.named_parameters()}
    tensors |= inputs | {"data": data, "noise": noise, "t": t}
    save_file({k: v.contiguous() for k, v in tensors.items()}, f"{out}.safetensors")
    json.dump({"config": {"_class_name": kind.__name__, **common, **config},
               "optimizer": {"name": "AdamW", "lr": 0.002, "betas": [0.9, 0.95], "eps": 1e-08, "weight_decay": 0.01, "clip_grad_norm": 1.0},
               "batch": BATCH, "objective": "flow matching: x = (1-t)*data + t*noise, target = noise - data, model timestep = 1000*t",
               "losses": losses, "grad_norms_before_clip": norms,
               "params_without_gradient_in_reference": [n for n, p in model.named_parameters() if p.grad is None]},
              open(f"{out}.json", "w"), indent=1)


train("skyreels", SkyReelsV2Transformer3DModel, 4, 5, {}, num_frame_per_block=2)
train("chronoedit", ChronoEditTransformer3DModel, 2, 512, {"encoder_hidden_states_image": (3, 6)}, image_dim=6, added_kv_proj_dim=24)

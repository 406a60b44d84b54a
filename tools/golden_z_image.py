#!/usr/bin/env python3
"""Makes tests/golden/z_image_train30: 30 training steps of a small random ZImageTransformer2DModel.
Needs PyTorch, diffusers and safetensors; run from the root of the checkout."""
import json

import torch
from diffusers import ZImageTransformer2DModel
from diffusers.models.transformers import transformer_z_image as source
from safetensors.torch import save_file

OUT, STEPS, BATCH, ITEMS, INNER = "tests/golden/z_image_train30", 30, 2, 4, 8
made_by = source.TimestepEmbedder  # the class has 1024, which no field of the config changes
source.TimestepEmbedder = lambda *given, **named: made_by(*given, **{**named, "mid_size": INNER})
config = dict(all_patch_size=[2], all_f_patch_size=[1], in_channels=4, dim=24, n_layers=1, n_refiner_layers=1, n_heads=2, n_kv_heads=2,
              cap_feat_dim=10, axes_dims=[4, 4, 4], axes_lens=[128, 64, 64])
torch.set_num_threads(1)
model = ZImageTransformer2DModel(**config)
draw = torch.Generator().manual_seed(46)


def normal(*shape):
    return torch.randn(shape, generator=draw)


for parameter in model.parameters():
    parameter.data = normal(*parameter.shape) / parameter[0].numel() ** 0.5 if parameter.dim() > 1 else 1 + 0.1 * normal(*parameter.shape)
tensors = {f"param.{n}": p.data.clone() for n, p in model.named_parameters()}
data, noise, t, text = normal(ITEMS, 4, 1, 4, 6), normal(STEPS, BATCH, 4, 1, 4, 6), torch.rand((STEPS, BATCH), generator=draw), normal(ITEMS, 7, 10)
lengths = [7, 3, 5, 6]
mask = torch.tensor([[int(i < n) for i in range(7)] for n in lengths])
optimizer = torch.optim.AdamW(model.parameters(), lr=0.002, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.01)
losses, norms = [], []
for step in range(STEPS):
    items = [(step * BATCH + i) % ITEMS for i in range(BATCH)]
    clean, level = data[items], t[step].view(-1, 1, 1, 1, 1)
    x = (1 - level) * noise[step] + level * clean
    made = torch.stack(list(model(list(x), t[step], [text[k, :lengths[k]] for k in items], return_dict=False)[0]))
    loss = ((made - (clean - noise[step])) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
    losses.append(loss.item())
    optimizer.step()
tensors |= {f"final.{n}": p.data for n, p in model.named_parameters()}
save_file({k: v.contiguous() for k, v in tensors.items()} | {"data": data, "noise": noise, "t": t, "cap_feats": text, "text_mask": mask},
          f"{OUT}.safetensors")
json.dump({"config": {"_class_name": "ZImageTransformer2DModel", **config, "t_embedder_mid_dim": INNER},
           "optimizer": {"name": "AdamW", "lr": 0.002, "betas": [0.9, 0.95], "eps": 1e-08, "weight_decay": 0.01, "clip_grad_norm": 1.0},
           "batch": BATCH, "objective": "flow matching: x = (1-t)noise + t data, target = data - noise, the model takes t",
           "losses": losses, "grad_norms_before_clip": norms,
           "params_without_gradient_in_reference": [n for n, p in model.named_parameters() if p.grad is None]}, open(f"{OUT}.json", "w"), indent=1)

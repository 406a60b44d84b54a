#!/usr/bin/env python3
"""Makes tests/golden/sana_video_train30: 30 training steps of a small random
SanaVideoTransformer3DModel. Needs PyTorch, diffusers and safetensors; run from the root of the
checkout."""
import json

import torch
from diffusers import SanaVideoTransformer3DModel
from safetensors.torch import save_file

OUT, STEPS, BATCH, ITEMS = "tests/golden/sana_video_train30", 30, 2, 4
config = dict(in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=12, num_layers=1, num_cross_attention_heads=2,
              cross_attention_head_dim=12, cross_attention_dim=24, caption_channels=10, mlp_ratio=1.5, sample_size=30)
torch.set_num_threads(1)
model = SanaVideoTransformer3DModel(**config)
draw = torch.Generator().manual_seed(51)


def normal(*shape):
    return torch.randn(shape, generator=draw)


for parameter in model.parameters():
    parameter.data = normal(*parameter.shape) / parameter[0].numel() ** 0.5 if parameter.dim() > 1 else 1 + 0.1 * normal(*parameter.shape)
tensors = {f"param.{n}": p.data.clone() for n, p in model.named_parameters()}
size = (4, 3, 4, 6)
data, noise, t, text = normal(ITEMS, *size), normal(STEPS, BATCH, *size), torch.rand((STEPS, BATCH), generator=draw), normal(ITEMS, 7, 10)
mask = torch.tensor([[int(i < n) for i in range(7)] for n in (7, 3, 5, 6)])
optimizer = torch.optim.AdamW(model.parameters(), lr=0.002, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.01)
losses, norms = [], []
for step in range(STEPS):
    items = [(step * BATCH + i) % ITEMS for i in range(BATCH)]
    clean, level = data[items], t[step].view(-1, 1, 1, 1, 1)
    made = model((1 - level) * clean + level * noise[step], text[items], 1000 * t[step], encoder_attention_mask=mask[items], return_dict=False)[0]
    loss = ((made - (noise[step] - clean)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
    losses.append(loss.item())
    optimizer.step()
tensors |= {f"final.{n}": p.data for n, p in model.named_parameters()}
tensors |= {"data": data, "noise": noise, "t": t, "encoder_hidden_states": text, "encoder_attention_mask": mask}
save_file({k: v.contiguous() for k, v in tensors.items()}, f"{OUT}.safetensors")
json.dump({"config": {"_class_name": "SanaVideoTransformer3DModel", **config},
           "optimizer": {"name": "AdamW", "lr": 0.002, "betas": [0.9, 0.95], "eps": 1e-08, "weight_decay": 0.01, "clip_grad_norm": 1.0},
           "batch": BATCH, "objective": "flow matching: x = (1-t) data + t noise, target = noise - data, the model takes 1000 t",
           "losses": losses, "grad_norms_before_clip": norms,
           "params_without_gradient_in_reference": [n for n, p in model.named_parameters() if p.grad is None]}, open(f"{OUT}.json", "w"), indent=1)

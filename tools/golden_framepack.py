#!/usr/bin/env python3
"""Makes tests/golden/framepack_train30: 30 training steps of a small random
HunyuanVideoFramepackTransformer3DModel with a history. Needs PyTorch, diffusers and safetensors; run
from the root of the checkout."""
import json

import torch
from diffusers import HunyuanVideoFramepackTransformer3DModel
from safetensors.torch import save_file

OUT, STEPS, BATCH, ITEMS = "tests/golden/framepack_train30", 30, 2, 4
config = dict(in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=8, num_layers=1, num_single_layers=1,
              num_refiner_layers=1, mlp_ratio=2.0, patch_size=2, patch_size_t=1, guidance_embeds=True, text_embed_dim=10,
              pooled_projection_dim=6, rope_axes_dim=[4, 2, 2], has_image_proj=True, image_proj_dim=6, has_clean_x_embedder=True)
torch.set_num_threads(1)
model = HunyuanVideoFramepackTransformer3DModel(**config)
draw = torch.Generator().manual_seed(47)


def normal(*shape):
    return torch.randn(shape, generator=draw)


for parameter in model.parameters():
    parameter.data = normal(*parameter.shape) / parameter[0].numel() ** 0.5 if parameter.dim() > 1 else 0.1 * normal(*parameter.shape)
for name, parameter in model.named_parameters():
    if "norm" in name and name.endswith(".weight") and parameter.dim() == 1:
        parameter.data += 1
tensors = {f"param.{n}": p.data.clone() for n, p in model.named_parameters()}
data, noise, t = normal(ITEMS, 4, 3, 4, 4), normal(STEPS, BATCH, 4, 3, 4, 4), torch.rand((STEPS, BATCH), generator=draw)
masks = torch.tensor([[int(i < n) for i in range(5)] for n in (5, 3, 4, 2)])
places = {"indices_latents": torch.arange(1, 4), "indices_latents_clean": torch.tensor([0, 4]), "indices_latents_history_2x": torch.arange(5, 7),
          "indices_latents_history_4x": torch.arange(7, 23)}
given = {"encoder_hidden_states": normal(ITEMS, 5, 10), "pooled_projections": normal(ITEMS, 6), "image_embeds": normal(ITEMS, 3, 6),
         "guidance": 1000 * torch.tensor([6.0, 1.0, 3.0, 9.0]), "latents_clean": normal(ITEMS, 4, 2, 4, 4),
         "latents_history_2x": normal(ITEMS, 4, 2, 4, 4), "latents_history_4x": normal(ITEMS, 4, 16, 4, 4)}
optimizer = torch.optim.AdamW(model.parameters(), lr=0.002, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.01)
losses, norms = [], []
for step in range(STEPS):
    items = [(step * BATCH + i) % ITEMS for i in range(BATCH)]
    clean, level = data[items], t[step].view(-1, 1, 1, 1, 1)
    x = (1 - level) * clean + level * noise[step]
    made = model(x, 1000 * t[step], encoder_attention_mask=masks[items], **{k: v[items] for k, v in given.items()}, **places,
                 return_dict=False)[0]
    loss = ((made - (noise[step] - clean)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
    losses.append(loss.item())
    optimizer.step()
tensors |= {f"final.{n}": p.data for n, p in model.named_parameters()}
tensors |= given | {k: v.float().expand(ITEMS, -1) for k, v in places.items()}
tensors |= {"data": data, "noise": noise, "t": t, "encoder_attention_mask": masks}
save_file({k: v.contiguous() for k, v in tensors.items()}, f"{OUT}.safetensors")
json.dump({"config": {"_class_name": "HunyuanVideoFramepackTransformer3DModel", **config},
           "optimizer": {"name": "AdamW", "lr": 0.002, "betas": [0.9, 0.95], "eps": 1e-08, "weight_decay": 0.01, "clip_grad_norm": 1.0},
           "batch": BATCH, "objective": "flow matching: x = (1-t)*data + t*noise, target = noise - data, model timestep = 1000*t",
           "losses": losses, "grad_norms_before_clip": norms,
           "params_without_gradient_in_reference": [n for n, p in model.named_parameters() if p.grad is None]}, open(f"{OUT}.json", "w"), indent=1)

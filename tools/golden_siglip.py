#!/usr/bin/env python3
"""Makes tests/golden/siglip.json and .safetensors: outputs and gradients of a small random
SiglipVisionModel whose images have a row and a column of pixels after the last complete patches.
Needs PyTorch, transformers and safetensors; run from the root of the checkout."""
import json

import torch
from safetensors.torch import save_file
from transformers import SiglipVisionConfig, SiglipVisionModel

GOLDEN = "tests/golden"
torch.manual_seed(9)
config = SiglipVisionConfig(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40, image_size=29, patch_size=7)
model = SiglipVisionModel(config).train()
for name, parameter in model.named_parameters():
    scale = parameter[0].numel() ** -0.5 if parameter.dim() > 1 and "embedding" not in name else 0.2
    parameter.data = torch.randn_like(parameter) * scale + (parameter.data.mean() > 0.5)
pixels, target, target_pooled = torch.randn(2, 3, 29, 29), torch.randn(2, 16, 24), torch.randn(2, 24)


def run(dtype):
    made = model.to(dtype)
    made.zero_grad()
    given = pixels.to(dtype).requires_grad_()
    out = made(pixel_values=given)
    loss = ((out.last_hidden_state - target.to(dtype)) ** 2).mean() + ((out.pooler_output - target_pooled.to(dtype)) ** 2).mean()
    loss.backward()
    return out, loss.detach(), {n: p.grad.clone() for n, p in made.named_parameters()} | {"in.pixel_values": given.grad}


_, _, exact = run(torch.float64)
largest = max(g.abs().max() for g in exact.values())
tiny = {n: [g.abs().max().item()] for n, g in exact.items() if g.abs().max() < 1e-6 * largest}
out, loss, grad = run(torch.float32)
for n in tiny:
    tiny[n].append(grad[n].abs().max().item())
save_file({"in.pixel_values": pixels, "in.target": target, "in.target_pooled": target_pooled,
           "out.last_hidden_state": out.last_hidden_state.detach(), "out.pooler_output": out.pooler_output.detach(), "out.loss": loss.reshape(1)}
          | {f"param.{n}": p.data.contiguous() for n, p in model.named_parameters()} | {f"grad.{n}": g.contiguous() for n, g in grad.items()},
          f"{GOLDEN}/siglip.safetensors")
json.dump({"_class_name": "SiglipVisionModel", "architectures": ["SiglipVisionModel"], "model_type": "siglip_vision_model"}
          | {k: getattr(config, k) for k in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "image_size", "patch_size",
                                             "num_channels", "layer_norm_eps", "hidden_act", "vision_use_head")}
          | {"loss": "mean squared error of out.last_hidden_state against in.target + that of out.pooler_output against in.target_pooled",
             "params_without_gradient_in_reference": [], "gradients_mostly_rounding": {"what": "name: [largest magnitude in f64, in f32]", **tiny}},
          open(f"{GOLDEN}/siglip.json", "w"), indent=1)

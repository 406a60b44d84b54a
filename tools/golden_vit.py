#!/usr/bin/env python3
"""Makes tests/golden/vit.json and .safetensors: outputs and gradients of a small random ViTModel.
Needs PyTorch, transformers and safetensors; run from the root of the checkout."""
import json

import torch
from safetensors.torch import save_file
from transformers import ViTConfig, ViTModel

GOLDEN = "tests/golden"
torch.manual_seed(6)
config = ViTConfig(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40, image_size=28, patch_size=7,
                   hidden_dropout_prob=0, attention_probs_dropout_prob=0)
model = ViTModel(config, add_pooling_layer=False).train()
for name, parameter in model.named_parameters():
    scale = parameter[0].numel() ** -0.5 if parameter.dim() > 1 and "embeddings." not in name else 0.2
    parameter.data = torch.randn_like(parameter) * scale + (parameter.data.mean() > 0.5)
pixels, target, target_pooled = torch.randn(2, 3, 28, 28), torch.randn(2, 17, 24), torch.randn(2, 24)

# transformers 5 has other names in memory than in published files
NAMES = {"layers.": "encoder.layer.", "attention.q_proj": "attention.attention.query", "attention.k_proj": "attention.attention.key",
         "attention.v_proj": "attention.attention.value", "attention.o_proj": "attention.output.dense", "mlp.fc1": "intermediate.dense",
         "mlp.fc2": "output.dense"}


def published(name):
    for memory, file in NAMES.items():
        name = name.replace(memory, file)
    return name


def run(dtype):
    made = model.to(dtype)
    made.zero_grad()
    given = pixels.to(dtype).requires_grad_()
    out = made(pixel_values=given).last_hidden_state
    loss = ((out - target.to(dtype)) ** 2).mean() + ((out[:, 0] - target_pooled.to(dtype)) ** 2).mean()
    loss.backward()
    return out.detach(), loss.detach(), {published(n): p.grad.clone() for n, p in made.named_parameters()} | {"in.pixel_values": given.grad}


out, loss, exact = run(torch.float64)
largest = max(g.abs().max() for g in exact.values())
tiny = {n: [g.abs().max().item()] for n, g in exact.items() if g.abs().max() < 1e-6 * largest}
out, loss, grad = run(torch.float32)
for n in tiny:
    tiny[n].append(grad[n].abs().max().item())
save_file({"in.pixel_values": pixels, "in.target": target, "in.target_pooled": target_pooled, "out.last_hidden_state": out,
           "out.class_token": out[:, 0].contiguous(), "out.loss": loss.reshape(1)}
          | {f"param.{published(n)}": p.data.contiguous() for n, p in model.named_parameters()} | {f"grad.{n}": g.contiguous() for n, g in grad.items()},
          f"{GOLDEN}/vit.safetensors")
json.dump({"_class_name": "ViTModel", "architectures": ["ViTModel"], "model_type": "vit"}
          | {k: getattr(config, k) for k in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "image_size", "patch_size",
                                             "num_channels", "qkv_bias", "layer_norm_eps", "hidden_act")}
          | {"loss": "mean squared error of out.last_hidden_state against in.target + that of out.class_token against in.target_pooled",
             "params_without_gradient_in_reference": [], "gradients_mostly_rounding": {"what": "name: [largest magnitude in f64, in f32]", **tiny}},
          open(f"{GOLDEN}/vit.json", "w"), indent=1)

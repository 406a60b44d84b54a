#!/usr/bin/env python3
"""Makes tests/golden/qwen_vision.json and .safetensors: output and gradients of the vision part of a
small random Qwen2.5-VL. The windows at the right and lower edges of the images are not full.
Needs PyTorch, transformers and safetensors; run from the root of the checkout."""
import json

import torch
from safetensors.torch import save_file
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel

GOLDEN = "tests/golden"
PATCH, MERGE, ROWS, COLUMNS, IMAGES = 4, 2, 6, 10, 2
torch.manual_seed(31)
config = Qwen2_5_VLVisionConfig(depth=3, hidden_size=24, intermediate_size=36, num_heads=3, patch_size=PATCH, spatial_merge_size=MERGE,
                                temporal_patch_size=2, window_size=2 * MERGE * PATCH, out_hidden_size=20, fullatt_block_indexes=[1])
model = Qwen2_5_VisionTransformerPretrainedModel(config).train()
for name, parameter in model.named_parameters():
    scale = parameter[0].numel() ** -0.5 if parameter.dim() > 1 else 0.2
    parameter.data = torch.randn_like(parameter) * scale + (parameter.data.mean() > 0.5)
pixels = torch.randn(IMAGES, 3, ROWS * PATCH, COLUMNS * PATCH)
count = ROWS * COLUMNS // MERGE**2
target = torch.randn(IMAGES, count, 20)
grid = torch.tensor([[1, ROWS, COLUMNS]] * IMAGES)


def patches(images):
    """Patches of two equal frames, with those that are joined in sequence, as the image processor has them."""
    split = images.reshape(IMAGES, 3, ROWS // MERGE, MERGE, PATCH, COLUMNS // MERGE, MERGE, PATCH).permute(0, 2, 5, 3, 6, 1, 4, 7)
    return split.unsqueeze(6).expand(-1, -1, -1, -1, -1, -1, 2, -1, -1).reshape(IMAGES * ROWS * COLUMNS, -1)


def run(dtype):
    made = model.to(dtype)
    made.zero_grad()
    given = pixels.to(dtype).requires_grad_()
    out = made(patches(given), grid_thw=grid).pooler_output.reshape(IMAGES, count, -1)
    loss = ((out - target.to(dtype)) ** 2).mean()
    loss.backward()
    return out, loss.detach(), {n: p.grad.clone() for n, p in made.named_parameters()} | {"in.pixel_values": given.grad}


_, _, exact = run(torch.float64)
largest = max(g.abs().max() for g in exact.values())
tiny = {n: [g.abs().max().item()] for n, g in exact.items() if g.abs().max() < 1e-6 * largest}
out, loss, grad = run(torch.float32)
for n in tiny:
    tiny[n].append(grad[n].abs().max().item())
save_file({"in.pixel_values": pixels, "in.target": target, "out.pooler_output": out.detach().contiguous(), "out.loss": loss.reshape(1)}
          | {f"param.{n}": p.data.contiguous() for n, p in model.named_parameters()} | {f"grad.{n}": g.contiguous() for n, g in grad.items()},
          f"{GOLDEN}/qwen_vision.safetensors")
json.dump({"_class_name": "Qwen2_5_VisionTransformerPretrainedModel", "architectures": ["Qwen2_5_VisionTransformerPretrainedModel"],
           "model_type": "qwen2_5_vl_vision"}
          | {k: getattr(config, k) for k in ("depth", "hidden_size", "intermediate_size", "num_heads", "patch_size", "spatial_merge_size",
                                             "temporal_patch_size", "window_size", "out_hidden_size", "fullatt_block_indexes", "hidden_act",
                                             "in_channels")}
          | {"loss": "mean squared error of out.pooler_output against in.target", "params_without_gradient_in_reference": [],
             "gradients_mostly_rounding": {"what": "name: [largest magnitude in f64, in f32]", **tiny}},
          open(f"{GOLDEN}/qwen_vision.json", "w"), indent=1)

#!/usr/bin/env python3
"""Makes tests/golden/flux2_edit: outputs and gradients of a small random Flux2Transformer2DModel with
two images to edit, as in Flux2Pipeline. Needs PyTorch, diffusers and safetensors; run from the root
of the checkout."""
import json

import torch
from diffusers import Flux2Pipeline, Flux2Transformer2DModel
from safetensors.torch import save_file

OUT, ROWS, COLUMNS, IMAGES, WORDS = "tests/golden/flux2_edit", 2, 3, 2, 5
config = dict(in_channels=8, num_layers=1, num_single_layers=2, attention_head_dim=16, num_attention_heads=2, joint_attention_dim=12,
              timestep_guidance_channels=32, axes_dims_rope=[4, 4, 4, 4])
torch.set_num_threads(1)
model = Flux2Transformer2DModel(**config)
draw = torch.Generator().manual_seed(71)
for parameter in model.parameters():
    parameter.data = torch.randn(parameter.shape, generator=draw) * (parameter[0].numel() ** -0.5 if parameter.dim() > 1 else 0.2)
model.eval()
latents, images = torch.randn(2, 8, ROWS, COLUMNS, generator=draw), [torch.randn(2, 8, ROWS, COLUMNS, generator=draw) for _ in range(IMAGES)]
text, time, guidance = torch.randn(2, WORDS, 12, generator=draw), torch.tensor([0.7, 0.25]), torch.tensor([2.5, 4.0])
ids, text_ids = Flux2Pipeline._prepare_latent_ids(latents), Flux2Pipeline._prepare_text_ids(text)
image_ids = Flux2Pipeline._prepare_image_ids([image[:1] for image in images]).repeat(2, 1, 1)
own, edited = Flux2Pipeline._pack_latents(latents), torch.cat([Flux2Pipeline._pack_latents(image) for image in images], 1)
made = model(hidden_states=torch.cat([own, edited], 1), timestep=time, guidance=guidance, encoder_hidden_states=text, txt_ids=text_ids,
             img_ids=torch.cat([ids, image_ids], 1), return_dict=False)[0][:, :own.shape[1]]
target = torch.randn(made.shape, generator=draw)
loss = ((made - target) ** 2).mean()
loss.backward()
tensors = {"in.hidden_states": own, "in.image_latents": edited, "in.encoder_hidden_states": text, "in.timestep": time, "in.guidance": guidance,
           "in.img_ids": ids[0].float(), "in.target": target, "out.sample": made.detach(), "out.loss": loss.detach().view(1)}
for name, parameter in model.named_parameters():
    tensors |= {f"param.{name}": parameter.data, f"grad.{name}": parameter.grad}
save_file({k: v.contiguous() for k, v in tensors.items()}, f"{OUT}.safetensors")
json.dump({"_class_name": "Flux2Transformer2DModel", **config}, open(f"{OUT}.json", "w"), indent=1)

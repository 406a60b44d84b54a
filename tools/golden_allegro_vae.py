#!/usr/bin/env python3
"""Makes tests/golden/allegro_vae_tiled: outputs of a small random AutoencoderKLAllegro in tiles that
overlap in frames, rows and columns, with another overlap on each side. The reference has tiles of
24 frames and 320x320 pixels; here they are set to fewer. Needs PyTorch, diffusers and safetensors;
run from the root of the checkout."""
import json

import torch
from diffusers import AutoencoderKLAllegro
from safetensors.torch import save_file

KERNEL, STRIDE, VIDEO = (8, 16, 24), (4, 8, 16), (12, 24, 40)
torch.set_num_threads(1)
config = dict(block_out_channels=[4, 4, 6, 6], layers_per_block=1, norm_num_groups=2, latent_channels=4)
model, draw = AutoencoderKLAllegro(**config).eval(), torch.Generator().manual_seed(83)
for parameter in model.parameters():
    parameter.data = torch.randn(parameter.shape, generator=draw) * (parameter[0].numel() ** -0.5 if parameter.dim() > 1 else 0.2)
    parameter.data += parameter.dim() == 1
model.enable_tiling()
model.kernel, model.stride = KERNEL, STRIDE
video = torch.rand((1, 3, *VIDEO), generator=draw) * 2 - 1
with torch.no_grad():
    posterior = model.encode(video).latent_dist
    eps = torch.randn(posterior.mean.shape, generator=draw)
    decoded = model.decode(posterior.mean + posterior.std * eps).sample.transpose(1, 2)  # frames first in the reference
tensors = {"in.sample": video, "in.eps": eps, "out.mean": posterior.mean, "out.logvar": posterior.logvar, "out.sample": decoded}
tensors |= {f"param.{name}": tensor for name, tensor in model.state_dict().items()}
save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, "tests/golden/allegro_vae_tiled.safetensors")
json.dump({"_class_name": "AutoencoderKLAllegro", **config, "tiles": {"kernel": KERNEL, "stride": STRIDE}},
          open("tests/golden/allegro_vae_tiled.json", "w"), indent=1)

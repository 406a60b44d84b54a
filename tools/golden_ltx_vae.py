#!/usr/bin/env python3
"""Makes tests/golden/ltx_vae_noise.json and .safetensors: outputs and gradients of a small random LTX-Video autoencoder as in 0.9.1,
whose decoder adds noise. The reference draws this noise without a seed: here torch.randn returns weft's noise (src/base/rng.h), drawn by
draw. PyTorch, diffusers and safetensors; run from the root of the checkout."""
import json
import math

import torch
from diffusers import AutoencoderKLLTXVideo
from safetensors.torch import save_file
from weft_noise import normal

CONFIG = dict(latent_channels=4, block_out_channels=[4, 6, 8], down_block_types=["LTXVideoDownBlock3D"] * 3,
              decoder_block_out_channels=[8, 16], layers_per_block=[1, 1, 1, 1], decoder_layers_per_block=[1, 1, 2],
              spatio_temporal_scaling=[True, True, False], decoder_spatio_temporal_scaling=[True, True],
              decoder_inject_noise=[True, False, True], downsample_type=["conv"] * 3, upsample_residual=[True, True],
              upsample_factor=[2, 2], timestep_conditioning=True, patch_size=2)


torch.manual_seed(9)
draws = 0
plain = torch.randn
model = AutoencoderKLLTXVideo(**CONFIG).eval()
for parameter in model.parameters():
    if parameter.dim() > 1 and parameter.shape[1:] != (1, 1):
        parameter.data = plain(parameter.shape) / parameter[0].numel() ** 0.5
    elif parameter.dim():
        parameter.data = 0.3 * plain(parameter.shape)
sample, eps, temb = plain(2, 3, 5, 16, 16), plain(2, 4, 2, 2, 2), torch.tensor([0.05, 0.3])


def noise(shape, generator=None, device=None, dtype=None):
    global draws
    made = torch.tensor([normal(draws, i) for i in range(math.prod(shape))], dtype=torch.float64)
    draws += 1
    return made.to(torch.float32).to(dtype).reshape(shape)


def run(dtype):
    global draws
    draws = 0
    made = model.to(dtype)
    made.zero_grad()
    torch.randn = noise
    posterior = made.encode(sample.to(dtype)).latent_dist
    out = made.decode(posterior.mean + posterior.std * eps.to(dtype), temb.to(dtype)).sample
    torch.randn = plain
    fit = ((out - sample.to(dtype)) ** 2).mean()
    kl = (0.5 * (posterior.mean**2 + posterior.logvar.exp() - 1 - posterior.logvar)).mean()
    loss = fit + 0.01 * kl
    loss.backward()
    return ([posterior.mean.detach(), posterior.logvar.detach(), out.detach()], torch.stack([fit, kl, loss]).detach(),
            {n: p.grad.clone() for n, p in made.named_parameters()})


(_, _, right), _, exact = run(torch.float64)
(mean, logvar, out), loss, grad = run(torch.float32)
print("largest difference from f64:", ((out - right).norm() / right.norm()).item(), "draws:", draws)
largest = max(g.abs().max() for g in exact.values())
tiny = {n: [g.abs().max().item(), grad[n].abs().max().item()] for n, g in exact.items() if g.abs().max() < 1e-6 * largest}
save_file({"in.sample": sample, "in.eps": eps, "in.temb": temb, "out.mean": mean.contiguous(),
           "out.logvar": logvar.contiguous(), "out.sample": out.contiguous(), "out.loss": loss}
          | {f"param.{n}": p.data.contiguous() for n, p in model.named_parameters()}
          | {f"grad.{n}": g.contiguous() for n, g in grad.items()}, "tests/golden/ltx_vae_noise.safetensors")
json.dump({"_class_name": "AutoencoderKLLTXVideo", **CONFIG, "gradients_mostly_rounding":
           {"what": "name: [largest magnitude in f64, in f32]", **tiny}}, open("tests/golden/ltx_vae_noise.json", "w"), indent=1)

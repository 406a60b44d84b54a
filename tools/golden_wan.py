#!/usr/bin/env python3
"""Makes a golden file for `weft parity` from the reference implementation (PyTorch and diffusers).

usage: golden_wan.py OUT_PREFIX dit|vae CONFIG_JSON SHAPE [SEED]
  CONFIG_JSON  fields of the public config.json, e.g. '{"num_layers": 2, ...}'
  SHAPE        dit: B,C,T,Y,X,L (latents and text tokens); vae: B,3,T,Y,X
Writes OUT_PREFIX.safetensors (param.*, in.*, out.*, grad.*) and OUT_PREFIX.json, in f32 on the CPU."""
import json
import sys

import torch
from diffusers import AutoencoderKLWan, WanTransformer3DModel
from safetensors.torch import save_file


def random_weights(model):
    """Every parameter away from the special values that initialisers like (0 and 1)."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() > 1 and "gamma" not in name and "scale_shift_table" not in name:
                p.normal_(0, p[0].numel() ** -0.5)
            else:
                p.add_(0.1 * torch.randn_like(p))


def collect(model, tensors):
    missing = []
    for name, p in model.named_parameters():
        tensors["param." + name] = p
        if p.grad is None:
            missing.append(name)
        else:
            tensors["grad." + name] = p.grad
    return missing


def dit(config, shape):
    b, c, t, y, x, length = shape
    model = WanTransformer3DModel(**config)
    random_weights(model)
    latents = torch.randn(b, c, t, y, x, requires_grad=True)
    text = torch.randn(b, length, model.config.text_dim, requires_grad=True)
    timestep = torch.randint(0, 1001, (b,))
    sample = model(latents, timestep, text, return_dict=False)[0]
    target = torch.randn_like(sample)
    loss = (sample - target).pow(2).mean()
    loss.backward()
    tensors = {"in.hidden_states": latents, "in.timestep": timestep, "in.encoder_hidden_states": text, "in.target": target,
               "out.sample": sample, "out.loss": loss.reshape(1), "grad.in.hidden_states": latents.grad,
               "grad.in.encoder_hidden_states": text.grad}
    return model, tensors


def vae(config, shape):
    model = AutoencoderKLWan(**config)
    random_weights(model)
    video = (torch.rand(*shape) * 2 - 1).requires_grad_()
    posterior = model.encode(video).latent_dist
    mean, logvar = posterior.mean, posterior.logvar
    eps = torch.randn_like(mean)
    sample = model.decode(mean + (0.5 * logvar).exp() * eps).sample
    reconstruction = (sample - video.detach()).pow(2).mean()
    kl = (0.5 * (mean.pow(2) + logvar.exp() - 1 - logvar)).mean()
    loss = reconstruction + 0.01 * kl
    loss.backward()
    tensors = {"in.sample": video, "in.eps": eps, "out.mean": mean, "out.logvar": logvar, "out.sample": sample,
               "out.loss": torch.stack([reconstruction, kl, loss]), "grad.in.sample": video.grad}
    return model, tensors


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    prefix, kind, config, shape = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), [int(v) for v in sys.argv[4].split(",")]
    torch.manual_seed(int(sys.argv[5]) if len(sys.argv) > 5 else 0)
    model, tensors = {"dit": dit, "vae": vae}[kind](config, shape)
    missing = collect(model, tensors)
    save_file({k: v.detach().contiguous() for k, v in tensors.items()}, prefix + ".safetensors")
    described = {k: v for k, v in model.config.items() if not k.startswith("_") or k == "_class_name"}
    described["_class_name"] = type(model).__name__
    described["params_without_gradient_in_reference"] = missing
    with open(prefix + ".json", "w") as f:
        json.dump(described, f, indent=1)


main()

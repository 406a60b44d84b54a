#!/usr/bin/env python3
"""Makes tests/golden/wfvae and wfvae_flat (outputs and gradients), wfvae_stream, wfvae_flat_stream and wfvae_nearest (decoding
and encoding of longer videos), and tests/golden/names/wfvae and wfvae_flat, by wfvae_reference.py. wfvae is built as in
Open-Sora-Plan 1.5, wfvae_flat as in 1.3; wfvae_nearest repeats frames. Needs PyTorch and safetensors; run from the root of the
checkout."""
import json

import torch
from safetensors.torch import save_file
from wfvae_reference import WFVAE

GOLDEN = "tests/golden"
torch.set_num_threads(1)
IN_TIME = dict(l1_dowmsample_block="Spatial2xTime2x3DDownsample", l1_downsample_wavelet="HaarWaveletTransform3D",
               l1_upsample_block="Spatial2xTime2x3DUpsample", l1_upsample_wavelet="InverseHaarWaveletTransform3D")
BOTH = dict(norm_type="layernorm", t_interpolation="trilinear")
SMALL = dict(latent_dim=3, base_channels=4, encoder_num_resblocks=1, encoder_energy_flow_hidden_size=3, decoder_num_resblocks=1,
             decoder_energy_flow_hidden_size=5)
TIMED, FLAT = SMALL | BOTH | IN_TIME, SMALL | BOTH | dict(connect_res_layer_num=2, decoder_num_resblocks=2)
NEAREST = SMALL | dict(norm_type="layernorm", connect_res_layer_num=0, use_attention=False)


def model_of(config, seed):
    draw = torch.Generator().manual_seed(seed)
    model = WFVAE(**config).double()
    for name, parameter in model.named_parameters():
        drawn = torch.randn(parameter.shape, generator=draw).double()
        parameter.data = drawn / parameter[0].numel() ** 0.5 if parameter.dim() > 1 else 0.2 * drawn + (1 if "norm" in name and "weight" in name else 0)
    return model, draw


def write(name, config, tensors, **more):
    save_file({k: v.detach().float().contiguous() for k, v in tensors.items()}, f"{GOLDEN}/{name}.safetensors")
    json.dump({"_class_name": "WFVAEModel", **config, **more}, open(f"{GOLDEN}/{name}.json", "w"), indent=1)


def params(model):
    return {f"param.{n}": p.data for n, p in model.named_parameters()}


def once(name, config, seed, size):
    model, draw = model_of(config, seed)
    sample = torch.randn(size, generator=draw)
    video = sample.double().requires_grad_()
    mean, logvar = model.encode(video)
    eps = torch.randn(mean.shape, generator=draw)
    out = model.decode(mean + (logvar / 2).exp() * eps)
    rec = ((out - sample) ** 2).mean()
    kl = 0.5 * (mean ** 2 + logvar.exp() - 1 - logvar).mean()
    loss = rec + 0.01 * kl
    loss.backward()
    tensors = {"in.sample": sample, "in.eps": eps, "out.mean": mean, "out.logvar": logvar, "out.sample": out, "out.loss": torch.stack([rec, kl, loss]),
               "grad.in.sample": video.grad}
    write(name, config, tensors | params(model) | {f"grad.{n}": p.grad for n, p in model.named_parameters()})


def stream(name, config, seed, latents):
    model, draw = model_of(config, seed)
    factor = 8 if "l1_upsample_block" in config else 4
    sample = torch.randn((1, 3, 1 + factor * (latents - 1), 16, 24), generator=draw)
    given, longer = (torch.randn((1, 3, n, 2, 3), generator=draw) for n in (latents, latents + 1))
    with torch.no_grad():
        made = {"untiled": model.decode(given.double()), "untiled_long": model.decode(longer.double()),
                "untiled_moments": torch.cat(model.encode(sample.double()), 1)}
    write(name, config, {f"out.{k}": v for k, v in made.items()} | {"in.sample": sample, "in.latents": given, "in.latents_long": longer} | params(model),
          tile_sample_min_height=256, tile_sample_min_width=256)


def names():
    published = {"wfvae": BOTH | IN_TIME | dict(latent_dim=32, base_channels=160, encoder_energy_flow_hidden_size=128),
                 "wfvae_flat": BOTH | dict(connect_res_layer_num=2)}
    for name, config in published.items():
        with torch.device("meta"):
            model = WFVAE(**config)
        json.dump({"_class_name": "WFVAEModel", **config}, open(f"{GOLDEN}/names/{name}.config.json", "w"), indent=1)
        with open(f"{GOLDEN}/names/{name}.tensors.txt", "w") as file:
            for tensor, parameter in sorted(model.named_parameters()):
                print(tensor, ",".join(map(str, parameter.shape)) or 1, file=file)


names()
once("wfvae", TIMED, 160, (2, 3, 17, 16, 24))
once("wfvae_flat", FLAT, 161, (1, 3, 9, 24, 16))
stream("wfvae_nearest", NEAREST, 162, 5)
stream("wfvae_stream", TIMED, 163, 6)
stream("wfvae_flat_stream", FLAT, 164, 5)

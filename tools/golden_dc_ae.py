#!/usr/bin/env python3
"""Makes tests/golden/dc_ae_conv (outputs and gradients) and dc_ae_tiled (overlapping tiles) of small
random AutoencoderDC models. In dc_ae_conv, convolutions and interpolation change the size, the first
level has no blocks, and a frame has fewer places than a head has channels, for which the reference
multiplies in another order. Needs PyTorch, diffusers and safetensors; run from the root of the
checkout."""
import json

import torch
from diffusers import AutoencoderDC
from safetensors.torch import save_file

GOLDEN, SIZES = "tests/golden", dict(downsample_block_type="conv", upsample_block_type="interpolate")
torch.set_num_threads(1)


def config_of(widths, layers, multiscales, **more):
    blocks = ["ResBlock"] * (len(widths) - 1) + ["EfficientViTBlock"]
    both = {"block_types": blocks, "block_out_channels": widths, "layers_per_block": layers, "qkv_multiscales": multiscales}
    return dict(latent_channels=4, **{f"{half}_{k}": v for half in ("encoder", "decoder") for k, v in both.items()}, **more)


def model_of(config):
    model, draw = AutoencoderDC(**config).eval(), torch.Generator().manual_seed(71)
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=draw) * (parameter[0].numel() ** -0.5 if parameter.dim() > 1 else 0.2)
        parameter.data += parameter.dim() == 1
    return model, draw


def conv():
    config = config_of([4, 8, 16], [0, 1, 2], [[], [], [3]], attention_head_dim=8, encoder_out_shortcut=False, decoder_in_shortcut=False, **SIZES)
    model, draw = model_of(config)
    sample = torch.randn((2, 3, 8, 8), generator=draw)

    def run(dtype):
        made = model.to(dtype)
        made.zero_grad()
        mean = made.encode(sample.to(dtype)).latent
        out = made.decode(mean).sample
        loss = ((out - sample.to(dtype)) ** 2).mean()
        loss.backward()
        return mean.detach(), out.detach(), loss.detach(), {n: p.grad.clone() for n, p in made.named_parameters()}

    *_, exact = run(torch.float64)
    mean, out, loss, grad = run(torch.float32)
    largest = max(g.abs().max() for g in exact.values())
    tiny = {n: [g.abs().max().item(), grad[n].abs().max().item()] for n, g in exact.items() if g.abs().max() < 1e-6 * largest}
    tensors = {"in.sample": sample, "out.mean": mean, "out.sample": out, "out.loss": loss.view(1)}
    save_file({k: v.contiguous() for k, v in (tensors | {f"param.{n}": p.data for n, p in model.named_parameters()}
                                              | {f"grad.{n}": g for n, g in grad.items()}).items()}, f"{GOLDEN}/dc_ae_conv.safetensors")
    json.dump({"_class_name": "AutoencoderDC", **config, "gradients_mostly_rounding": {"what": "name: [largest magnitude in f64, in f32]", **tiny}},
              open(f"{GOLDEN}/dc_ae_conv.json", "w"), indent=1)


def tiled():
    config, tiles = config_of([4, 8, 8], [1, 1, 1], [[], [], [5]], attention_head_dim=4), {}
    for side in "height", "width":
        tiles |= {f"tile_sample_min_{side}": 32, f"tile_sample_stride_{side}": 24}
    model, draw = model_of(config)
    sample, latents = torch.randn((1, 3, 56, 64), generator=draw), torch.randn((1, 4, 14, 16), generator=draw)
    with torch.no_grad():
        untiled = model.decode(latents).sample
        model.enable_tiling(**tiles)
        made = {"untiled": untiled, "tiled": model.decode(latents).sample, "tiled_moments": model.encode(sample).latent}
    tensors = {f"out.{k}": v for k, v in made.items()} | {"in.sample": sample, "in.latents": latents}
    save_file({k: v.unsqueeze(2).contiguous() for k, v in tensors.items()} | {f"param.{n}": p.data.contiguous() for n, p in model.named_parameters()},
              f"{GOLDEN}/dc_ae_tiled.safetensors")
    json.dump({"_class_name": "AutoencoderDC", **config, **tiles}, open(f"{GOLDEN}/dc_ae_tiled.json", "w"), indent=1)


conv()
tiled()

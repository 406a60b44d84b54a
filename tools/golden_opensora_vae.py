#!/usr/bin/env python3
"""Makes tests/golden/opensora_vae (outputs and gradients of a video of two clips), opensora_vae_short (a video shorter than a
clip), opensora_vae_stream (decoding and encoding of longer videos) and tests/golden/names/opensora_vae by
opensora_reference.py. Needs PyTorch, diffusers and safetensors; run from the root of the checkout."""
import json

import torch
from opensora_reference import VideoAutoencoder
from safetensors.torch import save_file

GOLDEN = "tests/golden"
torch.set_num_threads(1)
IMAGES = dict(block_out_channels=[4, 8], layers_per_block=1, latent_channels=3, norm_num_groups=2, down_block_types=["DownEncoderBlock2D"] * 2,
              up_block_types=["UpDecoderBlock2D"] * 2)
FRAMES = dict(filters=4, num_res_blocks=1, channel_multipliers=[1, 1, 2, 2], temporal_downsample=[False, True, True], num_groups=2)
PUBLISHED = dict(block_out_channels=[128, 256, 512, 512], layers_per_block=2, latent_channels=4, norm_num_groups=32,
                 down_block_types=["DownEncoderBlock2D"] * 4, up_block_types=["UpDecoderBlock2D"] * 4)


def config_of(micro_frame_size, **more):
    """As the authors' config, with the fields of the image autoencoder that theirs has in another folder."""
    images = {key: value for key, value in IMAGES.items() if not key.endswith("types")}
    return dict(vae_2d=dict(type="VideoAutoencoderKL", micro_batch_size=4, **images),
                vae_temporal=dict(type="VAE_Temporal_SD", from_pretrained=None, **FRAMES), micro_frame_size=micro_frame_size, freeze_vae_2d=False,
                cal_loss=False, from_pretrained=None, **more)


def model_of(seed, micro_frame_size):
    draw = torch.Generator().manual_seed(seed)
    model = VideoAutoencoder(IMAGES, FRAMES, micro_frame_size).double()
    for name, parameter in model.named_parameters():
        drawn = torch.randn(parameter.shape, generator=draw).double()
        parameter.data = drawn / parameter[0].numel() ** 0.5 if parameter.dim() > 1 else 0.2 * drawn + (1 if "norm" in name and "weight" in name else 0)
    return model, draw


def write(name, config, tensors):
    save_file({k: v.detach().float().contiguous() for k, v in tensors.items()}, f"{GOLDEN}/{name}.safetensors")
    json.dump({"_class_name": "VideoAutoencoderPipeline", **config}, open(f"{GOLDEN}/{name}.json", "w"), indent=1)


def params(model):
    return {f"param.{n}": p.data for n, p in model.named_parameters()}


def once(name, seed, size, micro_frame_size):
    model, draw = model_of(seed, micro_frame_size)
    sample = torch.randn(size, generator=draw)
    video = sample.double().requires_grad_()
    mean, logvar = model.encode(video)
    eps = torch.randn(mean.shape, generator=draw)
    out = model.decode(mean + (logvar / 2).exp() * eps, size[2])
    rec = ((out - sample) ** 2).mean()
    kl = 0.5 * (mean ** 2 + logvar.exp() - 1 - logvar).mean()
    loss = rec + 0.01 * kl
    loss.backward()
    # the images' log variances have no effect
    grads = {f"grad.{n}": torch.zeros_like(p) if p.grad is None else p.grad for n, p in model.named_parameters()}
    write(name, config_of(micro_frame_size), {"in.sample": sample, "in.eps": eps, "out.mean": mean, "out.logvar": logvar, "out.sample": out,
                                              "out.loss": torch.stack([rec, kl, loss]), "grad.in.sample": video.grad} | params(model) | grads)


def stream(name, seed):
    model, draw = model_of(seed, 9)
    sample = torch.randn((1, 3, 27, 4, 6), generator=draw)
    given, longer = (torch.randn((1, 3, n, 2, 3), generator=draw) for n in (9, 12))
    with torch.no_grad():
        made = {"untiled": model.decode(given.double(), 27), "untiled_long": model.decode(longer.double(), 36),
                "untiled_moments": torch.cat(model.encode(sample.double()), 1)}
    write(name, config_of(9, tile_sample_min_height=256, tile_sample_min_width=256),
          {f"out.{k}": v for k, v in made.items()} | {"in.sample": sample, "in.latents": given, "in.latents_long": longer} | params(model))


def names():
    with torch.device("meta"):
        model = VideoAutoencoder(PUBLISHED, {}, 17)
    # as published: without the config of the image autoencoder, which is in another repository
    config = dict(architectures=["VideoAutoencoderPipeline"], cal_loss=False, freeze_vae_2d=False, from_pretrained=None, micro_frame_size=17,
                  model_type="VideoAutoencoderPipeline", scale=[3.85, 2.32, 2.33, 3.06], shift=[-0.1, 0.34, 0.27, 0.98], torch_dtype="float32",
                  transformers_version="4.36.2", vae_2d=dict(from_pretrained="PixArt-alpha/pixart_sigma_sdxlvae_T5_diffusers", local_files_only=False,
                                                             micro_batch_size=4, subfolder="vae", type="VideoAutoencoderKL"),
                  vae_temporal=dict(from_pretrained=None, type="VAE_Temporal_SD"))
    json.dump(config, open(f"{GOLDEN}/names/opensora_vae.config.json", "w"), indent=1)
    with open(f"{GOLDEN}/names/opensora_vae.tensors.txt", "w") as file:
        for tensor, parameter in sorted(model.named_parameters()):
            print(tensor, ",".join(map(str, parameter.shape)) or 1, file=file)
    print("parameters:", sum(p.numel() for p in model.parameters()))


if __name__ == "__main__":
    names()
    once("opensora_vae", 170, (2, 3, 18, 4, 6), 9)
    once("opensora_vae_short", 171, (1, 3, 5, 6, 4), 9)
    stream("opensora_vae_stream", 172)

#!/usr/bin/env python3
"""Makes tests/golden/names: names and shapes of the tensors of published sizes, by the configs of
diffusers' classes and without weights. Sana-Video's and Wan Animate's and DC-AE's are those of diffusers' scripts of conversion. Motif-Video's blocks are those of its report.
Needs PyTorch and diffusers; run from the root of the checkout."""
import json
import os

import torch
from diffusers import AutoencoderDC, AutoencoderKLLTX2Audio, MotifVideoTransformer3DModel, HeliosTransformer3DModel, SanaVideoTransformer3DModel, WanAnimateTransformer3DModel, ZImageTransformer2DModel

OUT = "tests/golden/names"


def sana(**more):
    return SanaVideoTransformer3DModel(mlp_ratio=3.0, **more)


def sana_720():
    return sana(in_channels=128, out_channels=128, patch_size=(1, 1, 1), sample_size=22)


def dc_ae():
    blocks = ("ResBlock",) * 3 + ("EfficientViTBlock",) * 3
    return AutoencoderDC(encoder_block_types=blocks, decoder_block_types=blocks, downsample_block_type="conv", upsample_block_type="interpolate",
                         scaling_factor=0.41407)


def motif():
    return MotifVideoTransformer3DModel(num_attention_heads=12, num_layers=12, num_single_layers=24, num_decoder_layers=8,
                                        text_embed_dim=2560, image_embed_dim=1152, enable_text_cross_attention_dual=True,
                                        enable_text_cross_attention_single=True)


def wan_animate():
    return WanAnimateTransformer3DModel(added_kv_proj_dim=5120)


os.makedirs(OUT, exist_ok=True)
MADE = {"z_image": ZImageTransformer2DModel, "sana_video": sana, "sana_video_720": sana_720, "ltx2_audio_vae": AutoencoderKLLTX2Audio,
        "motif_video": motif,
        "helios": HeliosTransformer3DModel,
        "wan_animate": wan_animate, "dc_ae": dc_ae}
for name, made in MADE.items():
    with torch.device("meta"):
        model = made()
    config = {"_class_name": type(model).__name__} | {k: v for k, v in model.config.items() if not k.startswith("_")}
    json.dump(config, open(f"{OUT}/{name}.config.json", "w"), indent=1)
    with open(f"{OUT}/{name}.tensors.txt", "w") as f:
        for tensor, parameter in sorted(model.named_parameters()):
            print(tensor, ",".join(map(str, parameter.shape)) or 1, file=f)

#!/usr/bin/env python3
"""Makes tests/golden/names: names and shapes of the tensors of published sizes, by the default
configs of diffusers' classes and without weights. Needs PyTorch and diffusers; run from the root of
the checkout."""
import json
import os

import torch
from diffusers import AutoencoderKLLTX2Audio, SanaVideoTransformer3DModel, ZImageTransformer2DModel

OUT = "tests/golden/names"
os.makedirs(OUT, exist_ok=True)
MADE = {"z_image": ZImageTransformer2DModel, "sana_video": SanaVideoTransformer3DModel, "ltx2_audio_vae": AutoencoderKLLTX2Audio}
for name, made in MADE.items():
    with torch.device("meta"):
        model = made()
    config = {"_class_name": made.__name__} | {k: v for k, v in model.config.items() if not k.startswith("_")}
    json.dump(config, open(f"{OUT}/{name}.config.json", "w"), indent=1)
    with open(f"{OUT}/{name}.tensors.txt", "w") as f:
        for tensor, parameter in sorted(model.named_parameters()):
            print(tensor, ",".join(map(str, parameter.shape)) or 1, file=f)

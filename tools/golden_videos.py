#!/usr/bin/env python3
"""Makes tests/golden/videos: small videos without loss, a random CLIPModel and ViTModel, and the scores of `weft eval videos`.
The formulas are those of VBench (temporal_flickering.py, background_consistency.py, subject_consistency.py), of torchmetrics' CLIPScore
and of the Frechet distance. Frames are scaled by torchvision as VBench does (clip_transform and dino_transform of vbench/utils.py), and by
CLIP's processor for the CLIP score. Positions of other image sizes are those of DINO's own code. Networks compute in f64. Needs PyTorch,
torchvision, transformers, PIL and the program ffmpeg; run from the root of the checkout."""
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import CenterCrop, Compose, InterpolationMode, Lambda, Normalize, Resize
from transformers import AutoTokenizer, CLIPConfig, CLIPImageProcessorPil, CLIPModel, ViTConfig, ViTModel

OUT = Path("tests/golden/videos")
TOKENIZER = Path("tests/golden/pipelines/flux/tokenizer")
# larger and smaller than the networks' images of 32 x 32; f has an equal number of patches, but another height
SIZES = {"a_wide.mkv": (6, 40, 56), "b_tall.mkv": (5, 52, 36), "c_single.mkv": (1, 32, 32), "d_small.mkv": (4, 22, 26), "e_large.mkv": (3, 75, 120),
         "f_near.mkv": (3, 38, 36), "g_exact.mkv": (3, 32, 32)}
PROMPTS = ["a red circle moving left", "two blue squares", "a still", "a small video", "a large video", "", "a square"]
rng = np.random.default_rng(3)
torch.manual_seed(3)
shutil.rmtree(OUT, ignore_errors=True)
(OUT / "in").mkdir(parents=True)


def draw(frames, height, width):
    y, x = np.mgrid[:height, :width]
    video = np.empty((frames, height, width, 3), np.uint8)
    for t in range(frames):
        inside = (x - 12 - 3 * t) ** 2 + (y - 16 - t) ** 2 < 64
        ground = np.stack([4 * x + 3 * t, 3 * y, x + y], -1) % 256
        video[t] = np.where(inside[..., None], [220, 30 + 9 * t, 40], ground) + rng.integers(0, 6, (height, width, 3)) & 255
    return video


videos = {}
for name, size in SIZES.items():
    videos[name] = draw(*size)
    subprocess.run(["ffmpeg", "-v", "error", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{size[2]}x{size[1]}", "-r", "8", "-i", "-", "-c:v", "ffv1",
                    "-pix_fmt", "gbrp", "-y", str(OUT / "in" / name)], input=videos[name].tobytes(), check=True)
(OUT / "prompts.txt").write_text("\n".join(PROMPTS) + "\n")

side = 32
vision = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 3, "image_size": side, "patch_size": 8}
text = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 262, "bos_token_id": 1, "eos_token_id": 4}
clip = CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=20)).eval()
dino = ViTModel(ViTConfig(**{**vision, "hidden_size": 30, "num_attention_heads": 5}), add_pooling_layer=False).eval()
for model in (clip, dino):
    for parameter in model.parameters():
        parameter.data += torch.randn_like(parameter) * 0.2
processor = CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size={"height": side, "width": side})
MEAN, DEVIATION = (0.5, 0.45, 0.4), (0.23, 0.22, 0.225)  # of the ViTModel's file; not DINO's, which are the default
colours = CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size={"height": side, "width": side}, image_mean=MEAN, image_std=DEVIATION)
background = Compose([Resize(side, interpolation=InterpolationMode.BICUBIC, antialias=False), CenterCrop(side), Lambda(lambda x: x.div(255)),
                      Normalize(processor.image_mean, processor.image_std)])
subject = Compose([Resize(size=side, antialias=False), Lambda(lambda x: x.div(255)), Normalize(MEAN, DEVIATION)])
tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
clip.save_pretrained(OUT / "clip")
shutil.copytree(TOKENIZER, OUT / "clip", dirs_exist_ok=True)
dino.save_pretrained(OUT / "dino")
colours.save_pretrained(OUT / "dino")


clip.double(), dino.double()


def positions(embeddings, height, width):
    """DINO's positions for an image of this size in pixels: (w0 + 0.1) / sqrt(N) as scale of the interpolation."""
    table = dino.embeddings.position_embeddings
    if embeddings.shape[1] == table.shape[1] and height == width:
        return table
    base, patch = side // vision["patch_size"], vision["patch_size"]
    grid = table[:, 1:].reshape(1, base, base, -1).permute(0, 3, 1, 2)
    scale = ((height // patch + 0.1) / base, (width // patch + 0.1) / base)
    grid = torch.nn.functional.interpolate(grid, scale_factor=scale, mode="bicubic")
    return torch.cat((table[:, :1], grid.permute(0, 2, 3, 1).reshape(1, -1, grid.shape[1])), 1)


dino.embeddings.interpolate_pos_encoding = positions


def unit(x):
    x = getattr(x, "pooler_output", x)
    return x / x.norm(dim=-1, keepdim=True)


def consistency(features):
    if len(features) < 2:
        return None
    pairs = [(max(0, (features[i - 1] @ features[i]).item()) + max(0, (features[0] @ features[i]).item())) / 2 for i in range(1, len(features))]
    return sum(pairs) / len(pairs)


@torch.no_grad()
def score(video, prompt):
    images = [Image.fromarray(frame) for frame in video]
    frames = torch.Tensor(video).permute(0, 3, 1, 2)  # f32, as VBench loads them
    changes = [np.abs(video[i].astype(np.float64) - video[i + 1]).mean() for i in range(len(video) - 1)]
    seen = unit(clip.get_image_features(pixel_values=processor(images, return_tensors="pt")["pixel_values"].double()))
    said = unit(clip.get_text_features(**tokenizer([prompt], padding="max_length", max_length=77, return_tensors="pt")))
    return {"flicker": (255 - np.mean(changes)) / 255 if changes else None,
            "clip_score": max(0, (100 * seen @ said[0]).mean().item()) if prompt else None,
            "background_consistency": consistency(unit(clip.get_image_features(pixel_values=background(frames).double()))),
            "subject_consistency": consistency(unit(dino(subject(frames).double(), interpolate_pos_encoding=True).last_hidden_state[:, 0]))}


def frechet(a, b):
    ca, cb = np.cov(a.T), np.cov(b.T)
    roots = np.sqrt(np.maximum(np.linalg.eigvals(ca @ cb).real, 0)).sum()
    return float(((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(ca) + np.trace(cb) - 2 * roots)


expected = {"videos": {name: score(videos[name], prompt) for name, prompt in zip(SIZES, PROMPTS)}, "frechet": {}}
for name, (many, few, width) in {"tall": (40, 30, 6), "wide": (7, 5, 12)}.items():
    a, b = rng.normal(size=(many, width)).astype("f"), (rng.normal(size=(few, width)) * 1.3 + 0.4).astype("f")
    np.save(OUT / f"{name}_a.npy", a)
    np.save(OUT / f"{name}_b.npy", b)
    expected["frechet"][name] = frechet(a.astype(np.float64), b.astype(np.float64))
(OUT / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")

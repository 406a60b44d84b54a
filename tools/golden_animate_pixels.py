#!/usr/bin/env python3
"""Makes tests/golden/animate_pixels: a small data set of Wan Animate as files, and what training makes of it, computed by
diffusers and transformers in f64 with the models of tests/golden/pipelines/wan_animate. Needs PyTorch, diffusers, transformers and
ffmpeg; run from the root of the checkout.

    clips, poses, faces, images, backgrounds, masks   two files each, without loss; some are larger than 32x32 and cropped
    expected.json         losses of the steps of two runs, without and with a background
    latents.safetensors   latents of the autoencoder, SET.KEY, and tokens of the image encoder, tokens.SET.KEY

The weights stay as they are, so a loss depends on the inputs of the transformer only."""
import json
import os
import shutil
import subprocess

import numpy as np
import torch
from diffusers import AutoencoderKLWan, WanAnimateTransformer3DModel
from golden_draws import item_key, normal, uniform
from PIL import Image
from safetensors.torch import save_file
from transformers import AutoTokenizer, CLIPImageProcessor, CLIPVisionModel, UMT5EncoderModel

OUT, MODELS = "tests/golden/animate_pixels", "tests/golden/pipelines/wan_animate"
NOISE, TIMESTEP, NO_FACE, OVERLAP = 2, 3, 20, 21  # purposes of the draws
KEYS = {"walk": "a red cat", "jump": "the cat jumps"}
FRAMES, SIDE, FACE, STEPS, SEED, SHIFT = 9, 32, 16, 4, 5, 3.0
SIZES = {"clips": (32, 32), "poses": (40, 32), "faces": (24, 16), "images": (32, 40), "backgrounds": (32, 32), "masks": (32, 32)}
FULL = {"face_dropout": 0.4, "window_overlap": 5, "overlap_share": 0.5}
torch.set_num_threads(1)


def film(draw, width, height, frames):
    """Smooth colours that move: u8 (T,Y,X,3)."""
    a, b = (np.asarray(Image.fromarray(draw.integers(0, 256, (4, 5, 3), dtype=np.uint8)).resize((width, height), Image.BILINEAR)) for _ in "ab")
    share = np.arange(frames)[:, None, None, None] / max(frames - 1, 1)
    return np.round(a * (1 - share) + b * share).astype(np.uint8)


def write(path, pixels):
    if len(pixels) == 1:
        return Image.fromarray(pixels[0]).save(path + ".png")
    count, height, width, _ = pixels.shape
    subprocess.run(["ffmpeg", "-v", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", "24", "-i", "-", "-c:v", "ffv1",
                    "-pix_fmt", "bgr0", "-fflags", "+bitexact", "-flags", "+bitexact", path + ".mkv"], input=pixels.tobytes(), check=True)


def middle(pixels, side):
    y, x = (pixels.shape[1] - side) // 2, (pixels.shape[2] - side) // 2
    return pixels[:, y:y + side, x:x + side]


def colours(pixels):
    """(1,3,T,Y,X) in [-1,1]"""
    return torch.tensor(pixels).permute(3, 0, 1, 2)[None].double() / 127.5 - 1


class Reference:
    def __init__(self):
        self.vae = AutoencoderKLWan.from_pretrained(f"{MODELS}/vae").double().eval()
        self.transformer = WanAnimateTransformer3DModel.from_pretrained(f"{MODELS}/transformer").double().eval()
        self.text = UMT5EncoderModel.from_pretrained(f"{MODELS}/text_encoder").double().eval()
        self.tokenizer = AutoTokenizer.from_pretrained(f"{MODELS}/tokenizer")
        self.image = CLIPVisionModel.from_pretrained(f"{MODELS}/image_encoder").double().eval()
        self.processor = CLIPImageProcessor.from_pretrained(f"{MODELS}/image_processor")
        self.mean, self.deviation = (torch.tensor(v).double().view(1, -1, 1, 1, 1)
                                     for v in (self.vae.config.latents_mean, self.vae.config.latents_std))
        self.kept = {}

    def latents(self, name, video):
        """Normalised; kept as the autoencoder gives them."""
        encoded = self.vae.encode(video).latent_dist.mode()
        self.kept[name] = encoded[0].permute(1, 2, 3, 0).float().contiguous()
        return (encoded - self.mean) / self.deviation

    def caption(self, text):
        tokens = self.tokenizer([text], padding="max_length", max_length=512, truncation=True, add_special_tokens=True, return_attention_mask=True,
                                return_tensors="pt")
        count = int(tokens.attention_mask.sum())
        made = self.text(tokens.input_ids, tokens.attention_mask).last_hidden_state
        made[:, count:] = 0
        return made

    def tokens(self, name, picture):
        pixels = self.processor(images=Image.fromarray(picture), return_tensors="pt").pixel_values.double()
        made = self.image(pixels, output_hidden_states=True).hidden_states[-2]
        self.kept["tokens." + name] = made[0].float().contiguous()
        return made


def marks_of(mask):
    """(1,4,T',Y',X'): 1 for black, at the first pixel of each latent; the first frame counts four times."""
    kept = torch.tensor(np.stack([1 - np.asarray(Image.fromarray(frame).convert("L"))[::8, ::8] / 255.0 for frame in mask]))
    kept = torch.cat([kept[:1].repeat(4, 1, 1), kept[1:]])
    return kept.reshape(-1, 4, *kept.shape[1:]).transpose(0, 1)[None]


def inputs_of(r, key, files, full):
    """All that a sample's steps need."""
    clip = colours(files["clips"])
    first = files["images"][0] if full else files["clips"][0]
    label = "images" if full else "first"
    given = colours(files["backgrounds"]) if full else torch.zeros_like(clip)
    joined = clip[:, :, :FULL["window_overlap"]]
    joined = torch.cat([joined, given[:, :, joined.shape[2]:]], 2)
    return {"clip": r.latents(f"clips.{key}", clip), "image": r.latents(f"{label}.{key}", colours(first[None])), "tokens": r.tokens(f"{label}.{key}", first),
            "poses": r.latents(f"poses.{key}", colours(files["poses"])), "face": colours(files["faces"]), "text": r.caption(KEYS[key]),
            "given": r.latents(f"backgrounds.{key}" if full else "grey", given), "marks": marks_of(files["masks"]) if full else None,
            "joined": r.latents(f"joined.{key}", joined) if full else None}


def loss_of(r, sample, draw_key, full):
    x0 = torch.cat([sample["image"], sample["clip"]], 2)
    c, t, y, x = x0.shape[1:]
    noise = np.array([normal(draw_key, NOISE, i) for i in range(x0.numel())]).reshape(t, y, x, c)
    noise = torch.tensor(noise).permute(3, 0, 1, 2)[None].double()
    s = 1 / (1 + np.exp(-float(normal(draw_key, TIMESTEP, 0))))
    s = SHIFT * s / (1 + (SHIFT - 1) * s)
    face, given = sample["face"], sample["given"]
    marks = sample["marks"].clone() if full else torch.zeros(1, 4, t - 1, y, x).double()
    if full and uniform(draw_key, NO_FACE, 0) < FULL["face_dropout"]:
        face = face * 0 - 1
    if full and uniform(draw_key, OVERLAP, 0) < FULL["overlap_share"]:
        given = sample["joined"]
        marks[:, :, :1 + FULL["window_overlap"] // 4] = 1
    first = torch.cat([torch.ones(1, 4, 1, y, x).double(), sample["image"]], 1)
    channels = torch.cat([first, torch.cat([marks, given], 1)], 2)
    v = r.transformer(torch.cat([(1 - s) * x0 + s * noise, channels], 1), torch.tensor([1000 * s]).double(), sample["text"],
                      encoder_hidden_states_image=sample["tokens"], pose_hidden_states=sample["poses"], face_pixel_values=face, return_dict=False)[0]
    return ((v - (noise - x0)) ** 2).mean().item()


def main():
    draw, sets = np.random.default_rng(11), {}
    shutil.rmtree(OUT, ignore_errors=True)
    for name, (width, height) in SIZES.items():
        os.makedirs(f"{OUT}/{name}")
        for key, caption in KEYS.items():
            pixels = film(draw, width, height, 1 if name == "images" else FRAMES)
            write(f"{OUT}/{name}/{key}", pixels)
            sets[name, key] = middle(pixels, FACE if name == "faces" else SIDE)
            if name == "clips":
                open(f"{OUT}/{name}/{key}.txt", "w").write(caption + "\n")
    r, losses = Reference(), {}
    with torch.no_grad():
        for run, full in ("plain", False), ("full", True):
            samples = {key: inputs_of(r, key, {name: sets[name, key] for name in SIZES}, full) for key in KEYS}
            losses[run] = [np.mean([loss_of(r, samples[key], item_key(SEED, step, key, step), full) for key in KEYS]) for step in range(STEPS)]
    save_file(r.kept, f"{OUT}/latents.safetensors")
    json.dump({"losses": losses, "seed": SEED, "shift": SHIFT, "full": FULL, "reference": f"torch {torch.__version__}, f64"},
              open(f"{OUT}/expected.json", "w"), indent=1)


if __name__ == "__main__":
    main()

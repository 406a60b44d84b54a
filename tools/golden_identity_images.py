#!/usr/bin/env python3
"""Makes tests/golden/identity: reference images of an identity as files, and what training and generation make of them, computed by
diffusers and transformers in f64 with an image encoder of CLIP and the other models of tests/golden/pipelines/wan_animate. Needs
PyTorch, diffusers, transformers and ffmpeg; run from the root of the checkout.

    clips                   two clips with captions
    front, side, stills     images of the clips; `side` has one of a single clip. Most have other sizes than the clips
    image_encoder, transformer, patches, embedding, latents   models; the last three are identity encoders
    expected.json           losses of the steps of four runs: each identity encoder with two sets, and patches of the first frame
    features.safetensors    features SET.KEY.KIND of the image encoder
    noise.npy, latents_*.npy   generation of WanPipeline, whose prompt embeddings have the identity tokens in front
    processor.safetensors   images rgb.NAME, the pixels of CLIPImageProcessor with Pillow, pixels.NAME, and with torchvision,
                            torchvision.NAME, whose resized colours differ by a level here and there

Pillow resizes all images but those of torchvision.NAME. Pillow 13 resizes rows before columns in some images that are more than
twice as high as wide; weft always resizes columns first, as Pillow up to 12, so none of the images is.

The weights stay as they are, so a loss depends on the inputs of the transformer only."""
import json
import os
import shutil

import numpy as np
import torch
from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanPipeline, WanTransformer3DModel
from golden_animate_pixels import MODELS, colours, film, middle, write
from golden_draws import item_key, normal, uniform
from golden_identity import Encoder
from golden_parts import NEGATIVE, PROMPT, weights
from PIL import Image
from safetensors.torch import save_file
from transformers import AutoTokenizer, CLIPImageProcessor, CLIPImageProcessorPil, CLIPVisionConfig, CLIPVisionModelWithProjection, UMT5EncoderModel

OUT = "tests/golden/identity"
NOISE, TIMESTEP, IDENTITY = 2, 3, 12  # purposes of the draws
KEYS = {"walk": "a red cat", "jump": "the cat jumps"}
FRAMES, SIDE, STEPS, SEED, SHIFT, DROPOUT = 9, 32, 4, 5, 3.0, 0.4
SIZES = {("front", "walk"): (50, 39), ("front", "jump"): (34, 61), ("side", "walk"): (40, 32), ("stills", "walk"): (32, 32), ("stills", "jump"): (32, 36)}
RUNS = {"patches": ["front", "side"], "embedding": ["front", "side"], "latents": ["stills", "side"], "first": []}
ENCODER = {"_class_name": "WeftIdentityEncoder", "num_images": 3, "text_dim": 16, "num_tokens": 2, "dim": 8, "num_heads": 2, "num_layers": 1, "ffn_dim": 12}
CHANNELS = {"patches": 8, "embedding": 6, "latents": 4}
IMAGES = {"wide": (97, 41), "tall": (33, 59), "small": (11, 17), "same": (28, 28), "near": (32, 32), "noise": (64, 61)}
torch.set_num_threads(1)


class Reference:
    def __init__(self):
        self.vae = AutoencoderKLWan.from_pretrained(f"{MODELS}/vae").double().eval()
        self.text = UMT5EncoderModel.from_pretrained(f"{MODELS}/text_encoder").double().eval()
        self.tokenizer = AutoTokenizer.from_pretrained(f"{MODELS}/tokenizer")
        self.processor = CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28})
        self.image = weights(CLIPVisionModelWithProjection(CLIPVisionConfig(
            hidden_size=8, intermediate_size=16, projection_dim=6, num_hidden_layers=3, num_attention_heads=2, image_size=28, patch_size=14)), 6)
        self.transformer = weights(WanTransformer3DModel(
            patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=16, freq_dim=16, ffn_dim=32,
            num_layers=2, rope_max_seq_len=32), 1)
        self.encoders = {kind: weights(Encoder({**ENCODER, "features": kind, "in_channels": n}), 7 + i) for i, (kind, n) in enumerate(CHANNELS.items())}
        self.mean, self.deviation = (torch.tensor(v).double().view(1, -1, 1, 1, 1)
                                     for v in (self.vae.config.latents_mean, self.vae.config.latents_std))
        self.kept = {}

    def save(self):
        self.image.save_pretrained(f"{OUT}/image_encoder")
        self.processor.save_pretrained(f"{OUT}/image_encoder")
        self.transformer.save_pretrained(f"{OUT}/transformer")
        for kind, encoder in self.encoders.items():
            os.makedirs(f"{OUT}/{kind}")
            json.dump({**ENCODER, "features": kind, "in_channels": CHANNELS[kind]}, open(f"{OUT}/{kind}/config.json", "w"), indent=1)
            save_file({k: v.detach().contiguous() for k, v in encoder.named_parameters()}, f"{OUT}/{kind}/model.safetensors")
        for model in (self.image, self.transformer, *self.encoders.values()):
            model.double()

    def latents(self, video):
        return (self.vae.encode(video).latent_dist.mode() - self.mean) / self.deviation

    def features(self, name, picture, kind):
        """(rows,channels) of an image u8 (Y,X,3)."""
        if kind == "latents":
            return self.latents(colours(middle(picture[None], SIDE)))[0, :, 0].permute(1, 2, 0)
        pixels = self.processor(images=Image.fromarray(picture), return_tensors="pt").pixel_values.double()
        made = self.image(pixels, output_hidden_states=True)
        made = made.image_embeds if kind == "embedding" else made.hidden_states[-2][0]
        self.kept[f"{name}.{kind}"] = made.float().contiguous()
        return made

    def tokens(self, kind, images):
        """(1,num_images K,W): of the images, then zeros."""
        made = self.encoders[kind](torch.stack(images)[None])
        return torch.cat([made, torch.zeros(1, ENCODER["num_images"] * ENCODER["num_tokens"] - made.shape[1], made.shape[2])], 1)

    def caption(self, text):
        tokens = self.tokenizer([text], padding="max_length", max_length=512, truncation=True, add_special_tokens=True, return_attention_mask=True,
                                return_tensors="pt")
        made = self.text(tokens.input_ids, tokens.attention_mask).last_hidden_state
        made[:, int(tokens.attention_mask.sum()):] = 0
        return made


def loss_of(r, x0, tokens, text, draw_key):
    c, t, y, x = x0.shape[1:]
    noise = np.array([normal(draw_key, NOISE, i) for i in range(x0.numel())]).reshape(t, y, x, c)
    noise = torch.tensor(noise).permute(3, 0, 1, 2)[None].double()
    s = 1 / (1 + np.exp(-float(normal(draw_key, TIMESTEP, 0))))
    s = SHIFT * s / (1 + (SHIFT - 1) * s)
    kept = float(uniform(draw_key, IDENTITY, 0) >= DROPOUT)
    v = r.transformer((1 - s) * x0 + s * noise, torch.tensor([1000 * s]).double(), torch.cat([tokens * kept, text], 1), return_dict=False)[0]
    return ((v - (noise - x0)) ** 2).mean().item()


def losses_of(r, run, clips, pictures):
    kind, losses = "patches" if run == "first" else run, []
    sample = {}
    for key, caption in KEYS.items():
        images = [r.features(f"{name}.{key}", pictures[name, key], kind) for name in RUNS[run] if (name, key) in pictures]
        images = images or [r.features(f"first.{key}", clips[key][0], kind)]
        sample[key] = r.latents(colours(clips[key])), r.tokens(kind, images), r.caption(caption)
    for step in range(STEPS):
        losses.append(np.mean([loss_of(r, *sample[key], item_key(SEED, step, key, step)) for key in KEYS]))
    return losses


def generate(r, kind, files, begin, pipe):
    """Latents, channels last."""
    prompt, negative = pipe.encode_prompt(PROMPT, NEGATIVE, True, max_sequence_length=512, dtype=torch.float64)
    tokens = r.tokens(kind, [r.features("given", picture, kind) for picture in files])
    embeds = [torch.cat(both, 1) for both in ((tokens, prompt), (tokens * 0, negative))]
    made = pipe(prompt_embeds=embeds[0], negative_prompt_embeds=embeds[1], height=32, width=32, num_frames=9, num_inference_steps=4, guidance_scale=3.0,
                latents=begin.clone(), output_type="latent").frames
    return np.ascontiguousarray(made[0].permute(1, 2, 3, 0).float().numpy())


def make_processor(r):
    draw, tensors = np.random.default_rng(3), {}
    torchvision = CLIPImageProcessor(size=r.processor.size, crop_size=r.processor.crop_size)
    for name, (width, height) in IMAGES.items():
        pixels = draw.integers(0, 256, (height, width, 3), dtype=np.uint8) if name == "noise" else film(draw, width, height, 1)[0]
        tensors[f"rgb.{name}"] = torch.tensor(pixels)
        for label, processor in ("pixels", r.processor), ("torchvision", torchvision):
            made = torch.as_tensor(processor(images=Image.fromarray(pixels), return_tensors="pt").pixel_values[0])
            tensors[f"{label}.{name}"] = made.permute(1, 2, 0).float().contiguous()
    save_file(tensors, f"{OUT}/processor.safetensors")


def main():
    draw = np.random.default_rng(11)
    shutil.rmtree(OUT, ignore_errors=True)
    clips, pictures = {}, {}
    for name in "clips", "front", "side", "stills":
        os.makedirs(f"{OUT}/{name}")
    for key, caption in KEYS.items():
        clips[key] = film(draw, SIDE, SIDE, FRAMES)
        write(f"{OUT}/clips/{key}", clips[key])
        open(f"{OUT}/clips/{key}.txt", "w").write(caption + "\n")
    for (name, key), (width, height) in SIZES.items():
        pictures[name, key] = film(draw, width, height, 1)[0]
        write(f"{OUT}/{name}/{key}", pictures[name, key][None])
    r = Reference()
    r.save()
    make_processor(r)
    begin = torch.randn((1, 4, 3, 4, 4), generator=torch.Generator().manual_seed(9))
    np.save(f"{OUT}/noise.npy", np.ascontiguousarray(begin[0].permute(1, 2, 3, 0).numpy()))
    pipe = WanPipeline(tokenizer=r.tokenizer, text_encoder=r.text, vae=r.vae, transformer=r.transformer,
                       scheduler=UniPCMultistepScheduler.from_pretrained(f"{MODELS}/scheduler"))
    pipe.set_progress_bar_config(disable=True)
    with torch.no_grad():
        losses = {run: losses_of(r, run, clips, pictures) for run in RUNS}
        front, side = pictures["front", "walk"], pictures["side", "walk"]
        for name, kind, files in (("one", "patches", [front]), ("two", "patches", [front, side]), ("swapped", "patches", [side, front]),
                                  ("embedding", "embedding", [front, side]), ("latents", "latents", [pictures["stills", "walk"]])):
            np.save(f"{OUT}/latents_{name}.npy", generate(r, kind, files, begin.double(), pipe))
    save_file({k: v for k, v in r.kept.items() if not k.startswith("given")}, f"{OUT}/features.safetensors")
    json.dump({"losses": losses, "seed": SEED, "shift": SHIFT, "dropout": DROPOUT, "reference": f"torch {torch.__version__}, f64"},
              open(f"{OUT}/expected.json", "w"), indent=1)


if __name__ == "__main__":
    main()

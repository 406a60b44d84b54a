#!/usr/bin/env python3
"""Makes tests/golden/pipelines/longcat and longcat_blocks: folders as LongCat-Video is published (the transformer in dit/), with random
weights, and the latents that this file generates from them with tools/longcat_reference.py in f64. No package has the pipeline: it is
written from the description and the steps of its authors (meituan-longcat/LongCat-Video, pipeline_longcat_video.py). Latents of
images and videos are means. Needs PyTorch, diffusers and transformers; run from the root of the checkout, with tools in
PYTHONPATH.

    longcat            text to video: guidance with the scaled unconditional prediction, levels from 1 to 0.001
    longcat_alone      without guidance
    longcat_image      a first frame. Guidance scales by all frames, the given one included
    longcat_video      continues a video of 9 frames, with 10 steps at even levels from 0.5 on. Guidance scales by later frames
    longcat_kept       the same, without the cache of the given frames (weft's option), to the same latents
    longcat_alone_video
                       the same without guidance, with the cache
    longcat_plain      continues a video with the levels of text to video
    longcat_blocks     attention over chosen blocks of tokens: text to video
    longcat_blocks_video, longcat_blocks_kept
                       the same after given frames, as longcat_video and longcat_kept
    longcat_refine     refines a coarse video: twice the frames, the level 0.5 and the schedule's below
    longcat_refine_same
                       without further frames, from the level 0.7 on, with guidance (weft's option)
    longcat_refine_image
                       after a first frame, of the first three coarse frames; also decoded frames
    longcat_refine_video, longcat_refine_kept
                       after six frames of a video, with and without the cache of the given frames
    longcat_blocks_refine, longcat_blocks_refine_image
                       the same with attention over chosen blocks
    longcat_blocks_refine_full
                       without it, by the option
    longcat_few        an adapter in the authors' names, and the 5 of 50 levels of their models of few steps, without guidance

Once, the authors' transformer, adapters and pipeline ran in f64 with these weights. Their latents of all variants differ from
these by less than 5e-6; their noise levels are in f32. Their refinement ran with the transformer of this checkout, to the same
latents within 3e-6."""
import json
import math
import os
from copy import deepcopy
from functools import partial

import numpy as np
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, WanPipeline
from diffusers.video_processor import VideoProcessor
from golden_longcat import CONFIG
from golden_parts import NEGATIVE, OUT, PROMPT, given, noise, picture, save, umt5, unigram, variant, wan_vae, weights
from longcat_reference import LongCatVideoTransformer3DModel, enlarge, levels_from, padding, repeat_ends
from safetensors.torch import save_file

SHIFT, FRAMES, HEIGHT, WIDTH, STEPS, GIVEN = 12.0, 21, 32, 48, 5, 9
COARSE, REFINE_STEPS = 5, 20
OWN = CONFIG | dict(caption_channels=16, text_tokens_zero_pad=True)
PUBLISHED = {"enable_bsa": False, "bsa_params": {"sparsity": 0.9375, "chunk_3d_shape_q": [4, 4, 4], "chunk_3d_shape_k": [4, 4, 4]}}
BLOCKS = {"enable_bsa": True, "bsa_params": {"sparsity": 0.6, "chunk_3d_shape_q": [4, 1, 1], "chunk_3d_shape_k": [4, 1, 1]}}


def make_parts():
    torch.manual_seed(0)
    pipe = WanPipeline(
        tokenizer=unigram(), transformer=None, scheduler=FlowMatchEulerDiscreteScheduler(shift=SHIFT),
        text_encoder=umt5(),
        vae=wan_vae())
    return pipe, weights(LongCatVideoTransformer3DModel(**OWN), 1)


def embed(pipe, text):
    """Embeddings (1,512,D) of the text and its padding, and the mask of the text."""
    made = pipe.tokenizer([text], padding="max_length", max_length=512, truncation=True, return_attention_mask=True, return_tensors="pt")
    encoder = deepcopy(pipe.text_encoder).double()
    return encoder(made.input_ids, made.attention_mask).last_hidden_state, made.attention_mask


def statistics(pipe):
    return (torch.tensor(what).double().view(1, -1, 1, 1, 1) for what in (pipe.vae.config.latents_mean, pipe.vae.config.latents_std))


def encode(pipe, pixels):
    """Normalized means of the latents of a video."""
    mean, deviation = statistics(pipe)
    return (deepcopy(pipe.vae).double().encode(pixels.double()).latent_dist.mode() - mean) / deviation


def decode(pipe, latents):
    mean, deviation = statistics(pipe)
    return deepcopy(pipe.vae).double().decode(latents.double() * deviation + mean).sample.clamp(-1, 1)


def pixels_of(frames):
    return VideoProcessor(vae_scale_factor=8).preprocess_video(frames, height=HEIGHT, width=WIDTH)


def latents_of(pipe, frames):
    """Normalized means of the latents of pictures."""
    return encode(pipe, pixels_of(frames))


def shifted(levels):
    return [SHIFT * s / (1 + (SHIFT - 1) * s) for s in levels]


def even(steps):
    return [1 - (1 - 0.001) * i / (steps - 1) for i in range(steps)]


def with_tail(levels, steps=10):
    return [s for s in levels if s > 0.5] + [0.5 - 0.5 * i / steps for i in range(steps)]


def few(steps, of=50):
    return [1 - math.floor(of * i / steps) / of for i in range(steps)]


def generate(model, texts, begin, levels, scale, known=None, apart=False):
    """`known`: latents of given frames, whose timestep is 0. `apart`: guidance scales by the other frames only."""
    x, count = begin.double().clone(), 0
    if known is not None:
        count = known.shape[2]
        x[:, :, :count] = known
    first = count if apart else 0
    for now, after in zip(levels, levels[1:] + [0.0]):
        time = torch.full((1, x.shape[2]), 1000.0 * now, dtype=torch.float64)
        time[:, :count] = 0
        made = [model(x, time, text.double(), mask, count) for text, mask in texts[:2 if scale > 1 else 1]]
        prediction = made[0]
        if scale > 1:
            own, other = (part[:, :, first:].flatten() for part in made)
            other = (own @ other) / (other @ other + 1e-8) * made[1]
            prediction = other + scale * (made[0] - other)
        x[:, :, count:] -= (after - now) * prediction[:, :, count:]
    return x.float()


def coarse_video():
    """Five pictures in motion, of the aspect ratio of the videos."""
    return [picture(36, 24, 20 + i) for i in range(COARSE)]


def save_animation(name, label, pictures):
    """A .png with several pictures, without loss."""
    pictures[0].save(f"{OUT}/{name}/refine_{label}.png", save_all=True, append_images=pictures[1:], duration=100)


def refine(pipe, model, texts, coarse, level=0.5, scale=1.0, double=True, given=None):
    """The latents and the frames (T,Y,X,3) of a refined video, and its noise. `given`: pictures that begin the video."""
    frames, given = len(coarse) * (2 if double else 1), given or []
    front, back, count = padding(frames, len(given))
    video = enlarge(np.stack([np.array(one) for one in coarse]), (frames, HEIGHT, WIDTH))
    clean = encode(pipe, repeat_ends(video, front, back))
    begin = noise(4, clean.shape[2], HEIGHT // 8, WIDTH // 8)
    known = encode(pipe, repeat_ends(pixels_of(given).double(), front, 0)) if given else None
    assert known is None or known.shape[2] == count
    levels = levels_from(level, shifted(even(REFINE_STEPS)))
    made = generate(model, texts, (1 - level) * clean + level * begin.double(), levels, scale, known, True)
    shown = decode(pipe, made)[0, :, front:front + frames].permute(1, 2, 3, 0)
    return made, shown.float().numpy(), begin


def save_refined(pipe, model, texts, name, label, coarse, asked, options=None, decoded=False, **settings):
    """A case with files of its own: noise_LABEL.npy, refine_LABEL.png, and with `decoded` frames_LABEL.npy."""
    made, frames, begin = refine(pipe, model, texts, coarse, **settings)
    variant(name, label, made, **asked, num_inference_steps=REFINE_STEPS, **options or {})
    np.save(f"{OUT}/{name}/noise_{label}.npy", begin[0].permute(1, 2, 3, 0).contiguous().numpy())
    save_animation(name, label, coarse)
    if decoded:
        np.save(f"{OUT}/{name}/frames_{label}.npy", frames)


def refined(pipe, exact, texts):
    coarse, image = coarse_video(), picture(60, 40, 1)
    asked = dict(prompt=PROMPT, height=HEIGHT, width=WIDTH)
    case = partial(save_refined, pipe, exact, texts, "longcat")
    case("refine", coarse, asked)
    case("refine_same", coarse, asked | dict(negative=NEGATIVE), dict(refine_level=0.7, refine_frames="same", guidance_scale=4.0),
         level=0.7, scale=4.0, double=False)
    case("refine_image", coarse[:3], asked, dict(num_frames=6), decoded=True, given=[image])
    save_animation("longcat", "refine_image", coarse)  # of which three are read
    case("refine_video", coarse, asked, dict(given_frames=6), given=[image] * 6)
    case("refine_kept", coarse, asked, dict(given_frames=6, kv_cache="off"), given=[image] * 6)
    given("longcat", image_refine_image=image, video_refine_video=image, video_refine_kept=image)


def refined_blocks(pipe, full, sparse, texts):
    coarse, image = coarse_video(), picture(60, 40, 1)
    asked = dict(prompt=PROMPT, height=HEIGHT, width=WIDTH)
    case = partial(save_refined, pipe, sparse, texts, "longcat_blocks")
    case("refine", coarse, asked)
    case("refine_image", coarse, asked, given=[image])
    save_refined(pipe, full, texts, "longcat_blocks", "refine_full", coarse, asked, dict(block_sparse="off"))
    given("longcat_blocks", image_refine_image=image)


def add_adapter(model, path, rank=4, scale=0.5):
    """A random adapter in the authors' names, merged into the model. Fused layers have blocks of rows of B, each with its own rows of A."""
    draw, tensors, mark = torch.Generator().manual_seed(11), {}, "___lorahyphen___"
    for name, layer in model.named_modules():
        if not isinstance(layer, torch.nn.Linear) or not name.startswith("blocks."):
            continue
        rows, columns = layer.weight.shape
        blocks = {"qkv": 3, "kv_linear": 2}.get(name.split(".")[-1], 1)
        module = f"lora{mark}{name.replace('.', mark)}"
        down = torch.randn((blocks * rank, columns), generator=draw) / columns ** 0.5
        up = [torch.randn((rows // blocks, rank), generator=draw) / rank ** 0.5 for _ in range(blocks)]
        tensors |= {f"{module}.lora_down.weight": down, f"{module}.alpha_scale": torch.tensor(scale)}
        tensors |= {f"{module}.lora_up.{f'blocks.{i}.' if blocks > 1 else ''}weight": part for i, part in enumerate(up)}
        layer.weight.data += scale * torch.cat([b.double() @ a.double() for a, b in zip(down.chunk(blocks), up)])
    save_file(tensors, path)


def publish(name, transformer, sparse):
    """The published folder: dit/ in place of transformer/."""
    os.makedirs(f"{OUT}/{name}/dit")
    json.dump({"_class_name": "LongCatVideoTransformer3DModel", "_diffusers_version": "0.35.1", **OWN, "patch_size": [1, 2, 2], "mlp_ratio": 4,
               **sparse, "enable_flashattn2": True, "enable_flashattn3": False, "enable_xformers": False, "cp_split_hw": None},
              open(f"{OUT}/{name}/dit/config.json", "w"), indent=1)
    save_file({key: value.contiguous() for key, value in transformer.state_dict().items()}, f"{OUT}/{name}/dit/diffusion_pytorch_model.safetensors")
    os.remove(f"{OUT}/{name}/model_index.json")  # the authors open each part by itself


def with_blocks(pipe, transformer, texts, asked):
    """8 latent frames, of which 4 are given."""
    frames, known_frames, image = 29, 13, picture(60, 40, 1)
    exact = LongCatVideoTransformer3DModel(**OWN, **BLOCKS).double()
    exact.load_state_dict(transformer.state_dict())
    begin, levels, asked = noise(4, 1 + frames // 4, HEIGHT // 8, WIDTH // 8), shifted(even(STEPS)), asked | dict(num_frames=frames)
    save(pipe, "longcat_blocks", begin, generate(exact, texts, begin, levels, 4.0), **asked)
    publish("longcat_blocks", transformer, BLOCKS)
    made = generate(exact, texts, begin, with_tail(levels), 4.0, latents_of(pipe, [image] * known_frames), True)
    variant("longcat_blocks", "video", made, **asked, given_frames=known_frames)
    variant("longcat_blocks", "kept", made, **asked, given_frames=known_frames, kv_cache="off")
    given("longcat_blocks", video_video=image, video_kept=image)
    refined_blocks(pipe, deepcopy(transformer).double(), exact, texts)


def main():
    torch.set_grad_enabled(False)
    pipe, transformer = make_parts()
    exact, begin = deepcopy(transformer).double(), noise(4, 1 + FRAMES // 4, HEIGHT // 8, WIDTH // 8)
    texts = [embed(pipe, "a red cat walks & sleeps"), embed(pipe, NEGATIVE)]
    asked = dict(prompt=PROMPT, negative=NEGATIVE, height=HEIGHT, width=WIDTH, num_frames=FRAMES, num_inference_steps=STEPS, guidance_scale=4.0)
    levels = shifted(even(STEPS))
    save(pipe, "longcat", begin, generate(exact, texts, begin, levels, 4.0), **asked)
    publish("longcat", transformer, PUBLISHED)
    alone = {key: value for key, value in asked.items() if key != "negative"} | dict(guidance_scale=1.0)
    variant("longcat", "alone", generate(exact, texts, begin, levels, 1.0), **alone)
    image = picture(60, 40, 1)
    variant("longcat", "image", generate(exact, texts, begin, levels, 4.0, latents_of(pipe, [image])), **asked)
    known = latents_of(pipe, [image] * GIVEN)
    continues, pictures = asked | dict(given_frames=GIVEN), {f"video_{name}": image for name in ("video", "kept", "alone_video", "plain")}
    made = generate(exact, texts, begin, with_tail(levels), 4.0, known, True)
    variant("longcat", "video", made, **continues)
    variant("longcat", "kept", made, **continues | dict(kv_cache="off"))
    variant("longcat", "alone_video", generate(exact, texts, begin, with_tail(levels), 1.0, known), **alone | dict(given_frames=GIVEN))
    variant("longcat", "plain", generate(exact, texts, begin, levels, 4.0, known, True), **continues | dict(tail_steps=0))
    given("longcat", image_image=image, **pictures)
    refined(pipe, exact, texts)
    with_blocks(pipe, transformer, texts, asked)
    add_adapter(exact, f"{OUT}/longcat/lora_few.safetensors")
    variant("longcat", "few", generate(exact, texts, begin, shifted(few(5)), 1.0),
            **{key: value for key, value in alone.items() if key != "num_inference_steps"} | dict(sigmas=few(5)))


if __name__ == "__main__":
    main()

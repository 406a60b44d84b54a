#!/usr/bin/env python3
"""Makes tests/golden/pipelines/helios: a folder as diffusers writes it, with random weights, and the
latents of HeliosPipeline. Needs diffusers and transformers; run from the root of the checkout, with
tools in PYTHONPATH.

    helios        text to video in three sections, UniPC with levels by resolution, guidance
    helios_euler  a variant of the same folder with Euler's method and levels without a shift
    helios_image  an image before the video. Latents of images and videos are means; their noise is weft's
    helios_video  two sections of another video before the video"""
import numpy as np
import torch
from diffusers import HeliosPipeline, HeliosScheduler, HeliosTransformer3DModel

from diffusers.models.autoencoders.vae import DiagonalGaussianDistribution
from diffusers.pipelines.helios import pipeline_helios
from golden_parts import NEGATIVE, PROMPT, given, noise, picture, save, umt5, unigram, variant, wan_vae, weights
from weft_noise import GIVEN, normal, uniform

FRAMES, SECTIONS = 3, 3  # latent frames of a section, sections


def latents(pipe, begin, **asked):
    """The latents of all sections. Section k has the noise of its place in the video."""
    at = iter(range(SECTIONS))

    def own(*_, **__):
        first = next(at) * FRAMES
        return begin[:, :, first:first + FRAMES].clone()
    pipe.prepare_latents = own
    window = 4 * FRAMES - 3
    made = pipe(num_latent_frames_per_chunk=FRAMES, num_frames=SECTIONS * window, output_type="latent", **asked).frames
    return made[:, :, -SECTIONS * FRAMES:], window * SECTIONS, window


torch.manual_seed(0)
text = umt5()
vae = wan_vae()
transformer = weights(HeliosTransformer3DModel(num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=16,
                                               freq_dim=16, ffn_dim=32, num_layers=2, rope_dim=(4, 4, 4), is_amplify_history=True), 1)
parts = dict(tokenizer=unigram(), text_encoder=text, vae=vae, transformer=transformer)
begin = noise(4, FRAMES * SECTIONS, 4, 6)
asked = dict(height=32, width=48, num_inference_steps=5, guidance_scale=4.0)

pipe = HeliosPipeline(**parts, scheduler=HeliosScheduler(stages=1, use_dynamic_shifting=True, time_shift_type="linear"))
made, frames, window = latents(pipe, begin, prompt=PROMPT, negative_prompt=NEGATIVE, **asked)
save(pipe, "helios", begin, made, prompt=PROMPT, negative=NEGATIVE, num_frames=frames, window=window, **asked)

levels = HeliosScheduler(stages=1, scheduler_type="euler")
pipe = HeliosPipeline(**parts, scheduler=levels)
made, frames, window = latents(pipe, begin, prompt=PROMPT, **(asked | dict(guidance_scale=1.0)))
variant("helios", "euler", made, levels, prompt=PROMPT, num_frames=frames, window=window, **(asked | dict(guidance_scale=1.0)))


def given_noise(size):
    """weft's noise of the seed 0, in the order of the reference's calls: shares of noise, and noise of (1, C, T, Y, X)."""
    frames, done = iter(range(100)), [0]

    def rand(count, **_):
        return torch.tensor([uniform(0, next(frames), GIVEN) for _ in range(count)], dtype=torch.float32)

    def randn(shape, **_):
        count, first = int(np.prod(shape)), done[0]
        done[0] += count
        made = torch.tensor([normal(0, first + i, GIVEN) for i in range(count)], dtype=torch.float32)
        return made.reshape(shape[2], shape[3], shape[4], shape[1]).permute(3, 0, 1, 2)[None]
    return rand, randn


def with_given(**more):
    pipe = HeliosPipeline(**parts, scheduler=HeliosScheduler(stages=1, use_dynamic_shifting=True, time_shift_type="linear"))
    DiagonalGaussianDistribution.sample = lambda self, generator=None: self.mode()
    kept = torch.rand
    torch.rand, pipeline_helios.randn_tensor = given_noise(begin.shape)
    made = latents(pipe, begin, prompt=PROMPT, negative_prompt=NEGATIVE, **more, **asked)
    torch.rand = kept
    return made


image = picture(60, 40, 1)
made, frames, window = with_given(image=image)
variant("helios", "image", made, prompt=PROMPT, negative=NEGATIVE, num_frames=frames, window=window, **asked)
given("helios", image_image=image)
made, frames, window = with_given(video=[image] * 20)
variant("helios", "video", made, prompt=PROMPT, negative=NEGATIVE, num_frames=frames, window=window, given_frames=18, **asked)
given("helios", video_video=image)

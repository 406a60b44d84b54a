#!/usr/bin/env python3
"""Makes tests/golden/pipelines/helios_mid and helios_distilled: folders as diffusers writes them, with random weights, and the
latents of HeliosPyramidPipeline. Needs diffusers and transformers; run from the root of the checkout, with tools in PYTHONPATH.

    helios_mid              text to video in two sections, UniPC with levels by resolution, CFG-Zero*
    helios_mid_one          one section, Euler's method, levels without a shift, other steps at each size, guidance without zeros
    helios_mid_image        an image before the video; helios_mid_video: two sections of another video before the video
    helios_distilled        the scheduler of distilled models, two sections, of which the first has twice the steps; no guidance
    helios_distilled_one    one section with guidance; steps so near that the scheduler finds another level for some of them
    helios_distilled_image  an image before the video; helios_distilled_video: two sections of another video before the video

Noise is weft's: of given frames, and of the places between two sizes. The covariance of the latter is singular up to 1e-8, so its
factor in f32 has no meaning (torch refuses it on a CPU). This maker computes the factor in f64."""
import numpy as np
import torch
from diffusers import HeliosDMDScheduler, HeliosPyramidPipeline, HeliosScheduler, HeliosTransformer3DModel
from diffusers.models.autoencoders.vae import DiagonalGaussianDistribution
from diffusers.pipelines.helios import pipeline_helios_pyramid

from golden_parts import NEGATIVE, PROMPT, given, noise, picture, save, umt5, unigram, variant, wan_vae, weights
from weft_noise import GIVEN, STAGE, normal, uniform

FRAMES, SECTIONS, STAGES = 3, 2, 3  # latent frames of a section, sections, sizes
WINDOW = 4 * FRAMES - 3
HEIGHT, WIDTH = 64, 128


def weft_normal(count, first, purpose):
    return torch.tensor([normal(0, first + i, purpose) for i in range(count)], dtype=torch.float32)


def block_noise(gamma):
    """Noise of weft's numbers, in the order of the calls."""
    done = [0]
    factor = torch.tensor(np.linalg.cholesky((1 + gamma + 1e-8) * np.eye(4) - gamma * np.ones((4, 4))))

    def own(batch, channels, frames, height, width, patch, *_):
        section, stage = divmod(done[0], STAGES - 1)
        done[0] += 1
        numbers = weft_normal(frames * height * width * channels, (section * STAGES + stage + 1) << 40, STAGE)
        z = numbers.reshape(frames, height // 2, 2, width // 2, 2, channels).permute(0, 1, 3, 5, 2, 4).reshape(-1, 4).double()
        made = (z @ factor.T).reshape(frames, height // 2, width // 2, channels, 2, 2).permute(3, 0, 1, 4, 2, 5)
        return made.reshape(1, channels, frames, height, width).float()
    return own


def given_noise():
    """weft's noise of the seed 0, in the order of the reference's calls: shares of noise, and noise of (1, C, T, Y, X)."""
    frames, done = iter(range(100)), [0]

    def rand(count, **_):
        return torch.tensor([uniform(0, next(frames), GIVEN) for _ in range(count)], dtype=torch.float32)

    def randn(shape, **_):
        count, first = int(np.prod(shape)), done[0]
        done[0] += count
        return weft_normal(count, first, GIVEN).reshape(shape[2], shape[3], shape[4], shape[1]).permute(3, 0, 1, 2)[None]
    return rand, randn


def latents(scheduler, sections, **asked):
    """The latents of all sections. Section k has the noise of its place in the video."""
    settings = dict(is_cfg_zero_star=not isinstance(scheduler, HeliosDMDScheduler), is_distilled=isinstance(scheduler, HeliosDMDScheduler))
    pipe = HeliosPyramidPipeline(**parts, scheduler=scheduler, **settings)
    at = iter(range(sections))

    def own(*_, **__):
        first = next(at) * FRAMES
        return begin[:, :, first:first + FRAMES].clone()
    pipe.prepare_latents, pipe.sample_block_noise = own, block_noise(scheduler.config.gamma)
    kept = torch.rand
    torch.rand, pipeline_helios_pyramid.randn_tensor = given_noise()
    made = pipe(num_latent_frames_per_chunk=FRAMES, num_frames=sections * WINDOW, output_type="latent", height=HEIGHT, width=WIDTH,
                prompt=PROMPT, **asked).frames
    torch.rand = kept
    return pipe, made[:, :, -sections * FRAMES:]


def asked(sections, steps, scale, **more):
    return dict(prompt=PROMPT, num_frames=WINDOW * sections, window=WINDOW, height=HEIGHT, width=WIDTH, guidance_scale=scale,
                stage_steps=steps, **more)


DiagonalGaussianDistribution.sample = lambda self, generator=None: self.mode()
text = umt5()
vae = wan_vae()
transformer = weights(HeliosTransformer3DModel(num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=16,
                                               freq_dim=16, ffn_dim=32, num_layers=2, rope_dim=(4, 4, 4), is_amplify_history=True), 1)
parts = dict(tokenizer=unigram(), text_encoder=text, vae=vae, transformer=transformer)
begin = noise(4, FRAMES * SECTIONS, HEIGHT // 8, WIDTH // 8)
image = picture(60, 40, 1)
frames = dict(image=dict(image=image), video=dict(video=[image] * 20))

# guidance, and zeros in the first steps of the first size
moving = HeliosScheduler(stages=STAGES, use_dynamic_shifting=True, time_shift_type="linear")
guided = dict(negative_prompt=NEGATIVE, guidance_scale=4.0, pyramid_num_inference_steps_list=[3, 2, 2])
pipe, made = latents(moving, SECTIONS, **guided)
save(pipe, "helios_mid", begin, made, negative=NEGATIVE, **asked(SECTIONS, [3, 2, 2], 4.0))
even = HeliosScheduler(stages=STAGES, scheduler_type="euler", shift=2.0)
_, made = latents(even, 1, **(guided | dict(pyramid_num_inference_steps_list=[2, 1, 3], use_zero_init=False)))
np.save("tests/golden/pipelines/helios_mid/noise_one.npy", begin[0, :, :FRAMES].permute(1, 2, 3, 0).contiguous().numpy())
variant("helios_mid", "one", made, even, negative=NEGATIVE, **asked(1, [2, 1, 3], 4.0, zero_steps=0))
for name, more in frames.items():
    _, made = latents(moving, SECTIONS, **guided, **more)
    variant("helios_mid", name, made, negative=NEGATIVE, **asked(SECTIONS, [3, 2, 2], 4.0, **(dict(given_frames=18) if name == "video" else {})))
    given("helios_mid", **{f"{name}_{name}": image})

# distilled: the first noise again in every step
distilled = HeliosDMDScheduler(stages=STAGES, use_dynamic_shifting=True)
plain = dict(guidance_scale=1.0, pyramid_num_inference_steps_list=[2, 2, 2])
pipe, made = latents(distilled, SECTIONS, is_amplify_first_chunk=True, **plain)
save(pipe, "helios_distilled", begin, made, **asked(SECTIONS, [2, 2, 2], 1.0, first_section_steps="double"))
near = HeliosDMDScheduler(stages=STAGES, num_train_timesteps=20)
_, made = latents(near, 1, **(guided | dict(pyramid_num_inference_steps_list=[6, 4, 3])))
np.save("tests/golden/pipelines/helios_distilled/noise_one.npy", begin[0, :, :FRAMES].permute(1, 2, 3, 0).contiguous().numpy())
variant("helios_distilled", "one", made, near, negative=NEGATIVE, **asked(1, [6, 4, 3], 4.0))
for name, more in frames.items():
    _, made = latents(distilled, SECTIONS, **plain, **more)
    variant("helios_distilled", name, made, **asked(SECTIONS, [2, 2, 2], 1.0, **(dict(given_frames=18) if name == "video" else {})))
    given("helios_distilled", **{f"{name}_{name}": image})

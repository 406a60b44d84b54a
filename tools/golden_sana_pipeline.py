#!/usr/bin/env python3
"""Makes tests/golden/pipelines/sana and sana_720: folders as diffusers writes them, with random
weights, and the latents of Sana-Video's pipelines. A prompt has an instruction, a negative one does
not. Needs diffusers and transformers; run from the root of the checkout, with tools in PYTHONPATH.

    sana          text to video, with DPM-Solver on flow noise
    sana_empty    a variant of the same folder with empty prompts
    sana_i2v      a variant of the same folder with an image and Euler's method
    sana_720      the parts of the 720p model: LTX-2's autoencoder, a token for each latent
    sana_720_i2v  a variant of that folder with an image"""
import sys

import torch
from diffusers import (AutoencoderKLLTX2Video, DPMSolverMultistepScheduler, FlowMatchEulerDiscreteScheduler,
                       SanaImageToVideoPipeline, SanaVideoPipeline, SanaVideoTransformer3DModel)
from transformers import Gemma2Config, Gemma2Model

from golden_gemma_tokenizer import gemma
from golden_parts import NEGATIVE, PROMPT, given, noise, picture, save, variant, wan_vae, weights


def text_parts():
    words = gemma(added=("<start_of_turn>",))
    text = weights(Gemma2Model(Gemma2Config(vocab_size=len(words), hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
                                            num_key_value_heads=1, head_dim=8, query_pre_attn_scalar=8, attn_implementation="eager")), 3)
    return dict(tokenizer=words, text_encoder=text)


def transformer(**more):
    return weights(SanaVideoTransformer3DModel(
        in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=12, num_layers=2, num_cross_attention_heads=2,
        cross_attention_head_dim=12, cross_attention_dim=24, caption_channels=16, mlp_ratio=2.0, **more), 1)


def dpm_solver():
    return DPMSolverMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=8.0)


def sana():
    vae = wan_vae()
    parts = dict(**text_parts(), vae=vae, transformer=transformer())
    begin = noise(4, 2, 4, 8)
    asked = dict(height=32, width=64, num_inference_steps=5, guidance_scale=4.0)
    made_so = dict(frames=5, output_type="latent", use_resolution_binning=False, **asked)
    both = dict(prompt=PROMPT, negative_prompt=NEGATIVE, **made_so)
    pipe = SanaVideoPipeline(**parts, scheduler=dpm_solver())
    save(pipe, "sana", begin, pipe(latents=begin.clone(), **both).frames, prompt=PROMPT, negative=NEGATIVE, num_frames=5, **asked)
    made = pipe(latents=begin.clone(), prompt="", negative_prompt="", **made_so).frames
    variant("sana", "empty", made, prompt="", negative="", num_frames=5, **asked)

    levels, image = FlowMatchEulerDiscreteScheduler(shift=8.0), picture(64, 32, 1)
    pipe = SanaImageToVideoPipeline(**parts, scheduler=levels)
    made = pipe(image=image, latents=begin.clone(), **both).frames
    given("sana", image_i2v=image)
    variant("sana", "i2v", made, levels, prompt=PROMPT, negative=NEGATIVE, num_frames=5, **asked)


def sana_720():
    vae = weights(AutoencoderKLLTX2Video(latent_channels=4, block_out_channels=(8, 8, 8, 8), decoder_block_out_channels=(4, 4, 4),
                                         layers_per_block=(1,) * 5, decoder_layers_per_block=(1,) * 4, upsample_factor=(1, 1, 1),
                                         upsample_residual=(False,) * 3, spatial_compression_ratio=32, temporal_compression_ratio=8), 4)
    draw = torch.Generator().manual_seed(11)
    vae.latents_mean.copy_(0.3 * torch.randn(4, generator=draw))
    vae.latents_std.copy_(0.7 + 0.6 * torch.rand(4, generator=draw))
    parts = dict(**text_parts(), vae=vae, transformer=transformer(patch_size=(1, 1, 1), sample_size=22))
    begin = noise(4, 2, 2, 3)
    asked = dict(height=64, width=96, num_inference_steps=5, guidance_scale=4.0)
    both = dict(prompt=PROMPT, negative_prompt=NEGATIVE, frames=9, output_type="latent", use_resolution_binning=False, **asked)
    pipe = SanaVideoPipeline(**parts, scheduler=dpm_solver())
    save(pipe, "sana_720", begin, pipe(latents=begin.clone(), **both).frames, prompt=PROMPT, negative=NEGATIVE, num_frames=9, **asked)
    levels, image = FlowMatchEulerDiscreteScheduler(shift=8.0), picture(96, 64, 1)
    made = SanaImageToVideoPipeline(**parts, scheduler=levels)(image=image, latents=begin.clone(), **both).frames
    given("sana_720", image_i2v=image)
    variant("sana_720", "i2v", made, levels, prompt=PROMPT, negative=NEGATIVE, num_frames=9, **asked)


if __name__ == "__main__":
    for name in sys.argv[1:] or ("sana", "sana_720"):
        {"sana": sana, "sana_720": sana_720}[name]()

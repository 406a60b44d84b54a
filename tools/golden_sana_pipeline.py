#!/usr/bin/env python3
"""Makes tests/golden/pipelines/sana: folders as diffusers writes them, with random weights, and the
latents of Sana-Video's pipelines. A prompt has an instruction, a negative one does not. Needs
diffusers and transformers; run from the root of the checkout, with tools in PYTHONPATH.

    sana        text to video, with DPM-Solver on flow noise
    sana_empty  a variant of the same folder with empty prompts
    sana_i2v    a variant of the same folder with an image and Euler's method"""
import torch
from diffusers import (AutoencoderKLWan, DPMSolverMultistepScheduler, FlowMatchEulerDiscreteScheduler, SanaImageToVideoPipeline, SanaVideoPipeline,
                       SanaVideoTransformer3DModel)
from diffusers.models.autoencoders.vae import DiagonalGaussianDistribution
from transformers import Gemma2Config, Gemma2Model

from golden_gemma_tokenizer import gemma
from golden_parts import NEGATIVE, PROMPT, given, noise, picture, save, variant, weights


def sana():
    words = gemma(added=("<start_of_turn>",))
    transformer = weights(SanaVideoTransformer3DModel(
        in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=12, num_layers=2, num_cross_attention_heads=2,
        cross_attention_head_dim=12, cross_attention_dim=24, caption_channels=16, mlp_ratio=2.0), 1)
    vae = weights(AutoencoderKLWan(base_dim=4, z_dim=4, dim_mult=[1, 1, 1, 1], num_res_blocks=1, latents_mean=[0.1, -0.2, 0.3, 0.0],
                                   latents_std=[1.1, 0.9, 1.3, 0.8]), 4)
    text = weights(Gemma2Model(Gemma2Config(vocab_size=len(words), hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
                                            num_key_value_heads=1, head_dim=8, query_pre_attn_scalar=8, attn_implementation="eager")), 3)
    levels = DPMSolverMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=8.0)
    parts = dict(tokenizer=words, text_encoder=text, vae=vae, transformer=transformer)
    begin = noise(4, 2, 4, 8)
    asked = dict(height=32, width=64, num_inference_steps=5, guidance_scale=4.0)
    made_so = dict(frames=5, output_type="latent", use_resolution_binning=False, **asked)
    both = dict(prompt=PROMPT, negative_prompt=NEGATIVE, **made_so)
    pipe = SanaVideoPipeline(**parts, scheduler=levels)
    save(pipe, "sana", begin, pipe(latents=begin.clone(), **both).frames, prompt=PROMPT, negative=NEGATIVE, num_frames=5, **asked)
    made = pipe(latents=begin.clone(), prompt="", negative_prompt="", **made_so).frames
    variant("sana", "empty", made, prompt="", negative="", num_frames=5, **asked)

    levels, image, sample = FlowMatchEulerDiscreteScheduler(shift=8.0), picture(64, 32, 1), DiagonalGaussianDistribution.sample
    pipe = SanaImageToVideoPipeline(**parts, scheduler=levels)
    made = pipe(image=image, latents=begin.clone(), **both).frames
    given("sana", image_i2v=image)
    variant("sana", "i2v", made, levels, prompt=PROMPT, negative=NEGATIVE, num_frames=5, **asked)


if __name__ == "__main__":
    sana()

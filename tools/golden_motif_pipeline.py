#!/usr/bin/env python3
"""Makes tests/golden/pipelines/motif: a folder as diffusers writes it, with random weights, and the
latents of Motif-Video's pipelines. Needs diffusers and transformers; run from the root of the
checkout, with tools in PYTHONPATH.

    motif      text to video, with adaptive projected guidance
    motif_cfg  a variant of the same folder with classifier-free guidance
    motif_zero_star, motif_zero_star2  variants with CFG-Zero*, in both formulations
    motif_i2v  a variant of the same folder with an image"""
import torch
from diffusers import (AdaptiveProjectedGuidance, ClassifierFreeGuidance, ClassifierFreeZeroStarGuidance,
                       FlowMatchEulerDiscreteScheduler, MotifVideoImage2VideoPipeline, MotifVideoPipeline, MotifVideoTransformer3DModel)
from diffusers.models.autoencoders.vae import DiagonalGaussianDistribution
from transformers import BatchFeature, SiglipImageProcessor, SiglipVisionConfig, T5Gemma2Encoder
from transformers.models.t5gemma2.configuration_t5gemma2 import T5Gemma2EncoderConfig, T5Gemma2TextConfig

from golden_gemma_tokenizer import gemma
from golden_parts import NEGATIVE, PROMPT, given, noise, picture, save, variant, wan_vae, weights

SIDE = 28


def unrounded(images, do_rescale, **steps):
    """The processor of images as it is with torchvision: it resizes numbers and does not round them."""
    assert not do_rescale and steps["do_resize"] and steps["do_normalize"]
    sized = torch.nn.functional.interpolate(images, (SIDE, SIDE), mode="bicubic", antialias=True)
    return BatchFeature({"pixel_values": (sized - 0.5) / 0.5})


def parts():
    words = gemma()
    words.model_max_length = 512
    text = T5Gemma2TextConfig(vocab_size=len(words), hidden_size=16, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2,
                              num_key_value_heads=1, head_dim=8, query_pre_attn_scalar=8, sliding_window=40, dropout_rate=0.0,
                              layer_types=["sliding_attention", "full_attention", "sliding_attention"])
    vision = SiglipVisionConfig(hidden_size=12, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2, image_size=SIDE, patch_size=7,
                                vision_use_head=False)
    encoder = weights(T5Gemma2Encoder(T5Gemma2EncoderConfig(text_config=text, vision_config=vision, mm_tokens_per_image=4)), 3)
    transformer = weights(MotifVideoTransformer3DModel(
        in_channels=9, out_channels=4, num_attention_heads=2, attention_head_dim=12, num_layers=1, num_single_layers=3, num_decoder_layers=1,
        mlp_ratio=2.0, text_embed_dim=16, image_embed_dim=12, rope_axes_dim=(4, 4, 4), enable_text_cross_attention_dual=True,
        enable_text_cross_attention_single=True), 1)
    vae = wan_vae()
    processor = SiglipImageProcessor(size={"height": SIDE, "width": SIDE})
    processor.preprocess = unrounded
    return dict(scheduler=FlowMatchEulerDiscreteScheduler(shift=15.0), vae=vae, text_encoder=encoder, tokenizer=words, transformer=transformer,
                feature_extractor=processor)


def projected():
    """With the settings of the authors' model card, a lower limit of the norm and a part of the parallel update."""
    return AdaptiveProjectedGuidance(guidance_scale=8.0, adaptive_projected_guidance_rescale=1.5, adaptive_projected_guidance_momentum=0.1,
                                     use_original_formulation=True, adaptive_projected_guidance_norm_dim=(-1, -2, -4), eta=0.75)


made_of, begin, image = parts(), noise(4, 2, 4, 6), picture(48, 32, 1)
asked = dict(height=32, width=48, num_frames=5, num_inference_steps=5)
both = dict(prompt=PROMPT, negative_prompt=NEGATIVE, output_type="latent", **asked)
with torch.no_grad():
    pipe = MotifVideoPipeline(**made_of, guider=projected())
    del made_of["feature_extractor"].preprocess
    save(pipe, "motif", begin, pipe(latents=begin.clone(), **both).frames, prompt=PROMPT, negative=NEGATIVE, **asked)
    made_of["feature_extractor"].preprocess = unrounded
    guider = ClassifierFreeGuidance(guidance_scale=4.0)
    made = MotifVideoPipeline(**made_of, guider=guider)(latents=begin.clone(), **both).frames
    variant("motif", "cfg", made, guider=guider, prompt=PROMPT, negative=NEGATIVE, **asked)
    for label, guider in ("zero_star", ClassifierFreeZeroStarGuidance()), ("zero_star2", ClassifierFreeZeroStarGuidance(
            guidance_scale=3.0, zero_init_steps=2, use_original_formulation=True)):
        made = MotifVideoPipeline(**made_of, guider=guider)(latents=begin.clone(), **both).frames
        variant("motif", label, made, guider=guider, prompt=PROMPT, negative=NEGATIVE, **asked)
    DiagonalGaussianDistribution.sample = lambda self, generator=None: self.mode()  # as weft, which draws no sample
    made = MotifVideoImage2VideoPipeline(**made_of, guider=projected())(image=image, latents=begin.clone(), **both).frames
    given("motif", image_i2v=image)
    variant("motif", "i2v", made, prompt=PROMPT, negative=NEGATIVE, **asked)

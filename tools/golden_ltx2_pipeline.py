#!/usr/bin/env python3
"""Makes tests/golden/pipelines/ltx2 and ltx23: folders as diffusers writes them, with random weights,
and the latents of LTX2Pipeline, of video and of sound. Needs diffusers and transformers; run from the
root of the checkout, with tools in PYTHONPATH.

    ltx2    as 2.0: guidance of video and sound by one scale
    ltx23   as 2.3: gates, a text for each stream, bandwidth extension, a scale for the sound
    ltx23_rescale         the same with rescaled guidance
    ltx2_weak, ltx23_weak    with weakened passes: without self-attention in a block, and with isolated
                          streams; stg and isolated: one of the two passes
    i2v_weak              both passes and an image
    ltx2_i2v, ltx23_i2v   with an image that is not compressed first; 2.0 without the times of the other
                          stream in the attention between the streams

noise.npy has the noise of the video, then of the sound. waveform.npy and frames.npy are what the
latents decode to, of the frames every fourth one, row 8 n and column 8 n. Parts that both folders have
are links in ltx23."""
import os
import shutil

import numpy as np
import torch
from diffusers import (AutoencoderKLLTX2Audio, AutoencoderKLLTX2Video, FlowMatchEulerDiscreteScheduler, LTX2ImageToVideoPipeline, LTX2Pipeline,
                       LTX2VideoTransformer3DModel)
from diffusers.pipelines.ltx2 import pipeline_ltx2_image2video
from diffusers.pipelines.ltx2.connectors import LTX2TextConnectors
from diffusers.pipelines.ltx2.vocoder import LTX2Vocoder, LTX2VocoderWithBWE
from transformers import Gemma3Config, Gemma3ForConditionalGeneration, Gemma3TextConfig

from golden_gemma_tokenizer import gemma
from golden_ltx2_parts import SYNTH, bases
from golden_parts import NEGATIVE, OUT, PROMPT, given, noise, picture, save, variant, weights

SIZE, STEPS, TOKENS = (2, 2, 2), 5, 32
CHANNELS, SOUND, BINS = 4, 2, 4  # of video latents; channels and mel bins of audio latents
SCHEDULER = dict(use_dynamic_shifting=True, base_shift=0.95, max_shift=2.05, base_image_seq_len=1024, max_image_seq_len=4096, shift_terminal=0.1)


def text_encoder(words):
    text = Gemma3TextConfig(vocab_size=len(words), hidden_size=12, intermediate_size=16, num_hidden_layers=3, num_attention_heads=2,
                            num_key_value_heads=1, head_dim=6, query_pre_attn_scalar=8, sliding_window=64,
                            layer_types=["sliding_attention", "full_attention", "sliding_attention"])
    vision = dict(hidden_size=4, intermediate_size=4, num_hidden_layers=1, num_attention_heads=1, image_size=14, patch_size=14)
    config = Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=1)
    config._attn_implementation = "eager"
    torch.manual_seed(2)
    return weights(Gemma3ForConditionalGeneration(config), 3)


def parts(newer):
    words = gemma()
    words.padding_side, words.model_max_length = "left", TOKENS
    widths = (24, 16)
    connectors = dict(caption_channels=12, text_proj_in_factor=4, video_connector_num_layers=1, video_connector_num_learnable_registers=8,
                      audio_connector_num_layers=1, audio_connector_num_learnable_registers=8, connector_rope_base_seq_len=64, rope_type="split",
                      video_connector_attention_head_dim=12 if newer else 6, audio_connector_attention_head_dim=8 if newer else 6,
                      video_connector_num_attention_heads=2, audio_connector_num_attention_heads=2)
    transformer = dict(in_channels=CHANNELS, out_channels=CHANNELS, num_attention_heads=2, attention_head_dim=12, cross_attention_dim=24,
                       audio_in_channels=SOUND * BINS, audio_out_channels=SOUND * BINS, audio_num_attention_heads=2, audio_attention_head_dim=8,
                       audio_cross_attention_dim=16, num_layers=1 if newer else 2, perturbed_attn=True, caption_channels=12, rope_type="split", audio_sampling_rate=400,
                       audio_hop_length=10)
    if newer:
        connectors |= dict(per_modality_projections=True, video_hidden_dim=widths[0], audio_hidden_dim=widths[1], video_gated_attn=True,
                           audio_gated_attn=True, proj_bias=True)
        transformer |= dict(gated_attn=True, cross_attn_mod=True, audio_gated_attn=True, audio_cross_attn_mod=True, use_prompt_embeddings=False)
    torch.manual_seed(1)  # of biases, which `weights` keeps; the same in both folders
    video = AutoencoderKLLTX2Video(latent_channels=CHANNELS, block_out_channels=(8, 8, 8, 8), decoder_block_out_channels=(4, 4, 4),
                                   layers_per_block=(1,) * 5, decoder_layers_per_block=(1,) * 4, upsample_factor=(1, 1, 1),
                                   upsample_residual=(False,) * 3, spatial_compression_ratio=32, temporal_compression_ratio=8)
    audio = AutoencoderKLLTX2Audio(base_channels=SOUND * BINS, ch_mult=(1, 1, 1), num_res_blocks=1, latent_channels=SOUND, mel_bins=4 * BINS,
                                   sample_rate=400, mel_hop_length=10)
    draw = torch.Generator().manual_seed(11)
    for vae in video, audio:
        vae.latents_mean.copy_(0.3 * torch.randn(vae.latents_mean.shape, generator=draw))
        vae.latents_std.copy_(0.7 + 0.6 * torch.rand(vae.latents_std.shape, generator=draw))
    synth = SYNTH | dict(in_channels=8 * BINS)
    if newer:
        wide = {"bwe_" + k: v for k, v in SYNTH.items()} | dict(bwe_upsample_factors=[3, 4], bwe_upsample_kernel_sizes=[7, 8])
        vocoder = LTX2VocoderWithBWE(**synth, **wide, filter_length=8, hop_length=6, window_length=8, num_mel_channels=4,
                                     input_sampling_rate=240, output_sampling_rate=480)
        bases(vocoder.mel_stft, 8, 4)
    else:
        vocoder = LTX2Vocoder(**synth, output_sampling_rate=240)
    vocoder = weights(vocoder, 9)
    for synth in [vocoder.vocoder, vocoder.bwe_generator] if newer else [vocoder]:
        synth.conv_out.weight.data *= 0.1
    return dict(tokenizer=words, text_encoder=text_encoder(words), connectors=weights(LTX2TextConnectors(**connectors), 5),
                transformer=weights(LTX2VideoTransformer3DModel(**transformer), 1), vae=weights(video, 4), audio_vae=weights(audio, 8),
                vocoder=vocoder, scheduler=FlowMatchEulerDiscreteScheduler(**SCHEDULER))


def pipeline(name, newer, audio_scale=None):
    given_parts = parts(newer)
    pipe = LTX2Pipeline(**given_parts)
    begin, frames, fps = noise(CHANNELS, *SIZE), 1 + 8 * (SIZE[0] - 1), 5.0
    sound = torch.randn((1, SOUND, round(frames / fps * 10), BINS), generator=torch.Generator().manual_seed(8))
    statistics = pipe.audio_vae.latents_mean, pipe.audio_vae.latents_std
    mean, std = (v.view(1, -1, 1, 1, 1) for v in (pipe.vae.latents_mean, pipe.vae.latents_std))
    asked = dict(height=32 * SIZE[1], width=32 * SIZE[2], num_inference_steps=STEPS, guidance_scale=3.0, frame_rate=fps, max_sequence_length=TOKENS)
    said = dict(prompt=PROMPT, negative=NEGATIVE, num_frames=frames, **asked) | ({"audio_guidance_scale": audio_scale} if audio_scale else {})

    def run(by, kind, rescale=0.0, audio_rescale=None, weakened={}, **more):
        usual = dict(stg_scale=0.0, modality_scale=1.0, audio_stg_scale=0.0, audio_modality_scale=1.0) | weakened
        blocks = usual.pop("stg_blocks", None)
        made = by(prompt=PROMPT, negative_prompt=NEGATIVE, num_frames=frames, output_type=kind, return_dict=False, **usual,
                  guidance_rescale=rescale, audio_guidance_scale=audio_scale, spatio_temporal_guidance_blocks=blocks,
                  audio_guidance_rescale=audio_rescale or rescale, audio_latents=pipe._denormalize_audio_latents(pipe._pack_audio_latents(sound), *statistics),
                  **asked, **more)
        return made if kind != "latent" else ((made[0] - mean) / std, pipe._normalize_audio_latents(pipe._pack_audio_latents(made[1]), *statistics))

    def other(label, made, **more):
        variant(name, label, made[0], **said, **more)
        np.save(f"{OUT}/{name}/audio_latents_{label}.npy", made[1][0].contiguous().numpy())

    packed = lambda: pipe._pack_latents(begin.clone())
    video, audio = run(pipe, "latent", latents=packed())
    pixels, waveform = run(pipe, "np", latents=packed())
    save(pipe, name, begin, video, **said)
    flat = torch.cat([begin[0].permute(1, 2, 3, 0).flatten(), pipe._pack_audio_latents(sound).flatten()])
    for what, array in ("noise", flat), ("audio_latents", audio[0]), ("waveform", waveform[0].detach()), ("frames", 2 * torch.tensor(pixels[0, ::4, ::8, ::8]) - 1):
        np.save(f"{OUT}/{name}/{what}.npy", array.float().contiguous().numpy())
    if newer:
        other("rescale", run(pipe, "latent", rescale=0.7, latents=packed()), guidance_rescale=0.7)
    # both weakened passes with scales of their own for the sound; one pass without guidance by a negative prompt
    layers = pipe.transformer.config.num_layers
    weak = dict(stg_scale=1.0, audio_stg_scale=0.5, stg_blocks=[layers - 1], modality_scale=3.0, audio_modality_scale=2.0)
    other("weak", run(pipe, "latent", weakened=weak, rescale=0.7, audio_rescale=0.3, latents=packed()),
          guidance_rescale=0.7, audio_guidance_rescale=0.3, **weak)
    stg, isolated = dict(stg_scale=2.0, stg_blocks=list(range(layers))), dict(modality_scale=3.0)
    other("stg", run(pipe, "latent", weakened=stg | dict(audio_stg_scale=2.0), latents=packed()), **stg)
    other("isolated", run(pipe, "latent", weakened=isolated | dict(audio_modality_scale=3.0), latents=packed()), **isolated)
    image = picture(32 * SIZE[2], 32 * SIZE[1], 1)
    pipeline_ltx2_image2video.randn_tensor = lambda shape, **_: begin.clone() if tuple(shape) == begin.shape else torch.zeros(shape)
    given(name, image_i2v=image)
    other("i2v", run(LTX2ImageToVideoPipeline(**given_parts), "latent", image=image, image_crf=0, use_cross_timestep=newer))
    given(name, image_i2v_weak=image)
    other("i2v_weak", run(LTX2ImageToVideoPipeline(**given_parts), "latent", image=image, image_crf=0, use_cross_timestep=newer, weakened=weak),
          **weak)
    for part in ("audio_vae", "vae", "text_encoder", "tokenizer", "scheduler") if newer else ():
        shutil.rmtree(f"{OUT}/{name}/{part}")
        os.symlink(f"../ltx2/{part}", f"{OUT}/{name}/{part}")


if __name__ == "__main__":
    pipeline("ltx2", False)
    pipeline("ltx23", True, 5.0)

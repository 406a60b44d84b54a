#!/usr/bin/env python3
"""Makes tests/golden/pipelines: folders of tiny random models as diffusers saves its pipelines, and
the latents that these pipelines compute from a given noise. Needs PyTorch, diffusers and
transformers; run from the root of the checkout with names of pipelines (none: all). No other part
of weft needs them.

    framepack  sections of a video from the last to the first, each with a history in three sizes of
              patches; an image, which SigLIP sees in the size of the video. framepack_variants: from
              the first section to the last; with a last image
    wan22     two experts with a boundary, UMT5 with zeros after the text, a negative prompt
    hunyuan   Llama with its template and CLIP's pooled vector, embedded guidance
    hunyuan_i2v      an image as vision input of LLaVA with the prompt; its latents follow the noisy
              ones on channels; guidance by a second prompt. The golden latents keep the first
              latent frame, which the pipeline drops at the end
    hunyuan_replace  the same with the image in place of the first frame and embedded guidance; a
              prompt that is too long
    flux      an image: T5 and CLIP's pooled vector, embedded guidance, noise levels shifted by
              resolution
    z_image   an image: Qwen3 with a template around texts, a negative prompt
    chroma    an image: T5 with a mask that shows one padding token, a negative prompt. Its mask is a
              boolean, as in the authors' code: the pipeline's is a number that is added to scores
    hunyuan15  Qwen2.5-VL in a template of 108 tokens, ByT5 of the quoted parts, empty image channels
    hunyuan15_i2v  a variant of the same folder with an image: tokens of SigLIP, which sees the image
              in the size of the video, and latents on channels
    flux_schnell  the same without guidance, with 256 text tokens
    qwen_image  an image: Qwen2.5-VL in a template of 34 tokens, guidance with the norm of the
              conditional prediction; the tokenizer has vocab.json and merges.txt
    hidream   an image: pooled vectors of two CLIPs, T5, and all layers of Llama; not square; the
              prediction has the other sign
    hunyuan_dit  an image: BERT and T5 with masks; the prediction has additional variance channels
    hunyuan_dit_11  the same with a style and the sizes of the image
    latte     T5 embeddings of the prompt's length, for the negative prompt, too; the prediction has
              additional variance channels
    wan_i2v   an image: CLIP tokens, mask and latents after the noisy ones; the image has another
              size and aspect
    wan_flf   the same from a first frame to a last one
    wan_ti2v  the latents of the image in place of the first frame, a timestep per token
    kandinsky5  Qwen2.5-VL in a template of 128 tokens, whose texts have different lengths, and CLIP's
              pooled vector; empty channels of a first frame
    kandinsky5_nabla  attention over chosen blocks, in a folder of its own
    kandinsky5_i2v  a variant of the same folder with an image, in the first frame and on channels
    wan_over  video-to-video (strength 0.7)
    wan_vace  a control video with a mask; both differ from frame to frame. With a reference image,
              and with two and no control
    chronoedit  an image that is edited, as a video of two latent frames. chronoedit_variants: with more
              frames between the two in the first steps, and the last two steps without
    skyreels  diffusion forcing with the same level for all frames: a timestep per frame, the frame
              rate, blocks of two frames. skyreels_variants: levels per block, an image in the first
              frame, also of a block of two, windows that begin with latents of the one before, the
              end of a video
    ltx_i2v   an image in place of the first frame, at 12 frames per second
    ltx_timed an image, decoded at two timesteps
    mochi     T5 with a mask, Mochi's noise levels, inverted timesteps
    cog_i2v   the latents of an image after the noisy ones, without a mask
    cog_control  the latents of a control video after the noisy ones
    flux_control  an image with the latents of a control image after the noisy ones
    cog15     tokens of two latent frames: three latent frames are padded to four
    cog15_i2v the same with an image, whose latents have inverse scaling, and its offset
    cosmos2   an image in place of the first frame with a mask, a timestep per frame; at 12 frames
              per second. Its first frame is set to the latents of the image: the pipeline ends one
              noise level before them
    *_variants  of existing folders: embedded guidance with a negative prompt, given noise levels,
              dynamic guidance of CogVideoX, and other schedulers"""
import json
import os
import sys

import numpy as np
import torch
from diffusers import (AutoencoderKL, CogVideoXFunControlPipeline, FluxControlPipeline, ChromaPipeline, ChromaTransformer2DModel, AutoencoderKLCogVideoX, AutoencoderKLHunyuanVideo, AutoencoderKLLTXVideo, AutoencoderKLMochi,
                       CogVideoXDDIMScheduler, CosmosTransformer3DModel, DPMSolverSinglestepScheduler, EulerDiscreteScheduler,
                       LMSDiscreteScheduler, PNDMScheduler, FluxPipeline, FluxTransformer2DModel, HiDreamImagePipeline,
                       HiDreamImageTransformer2DModel, DDIMScheduler, HunyuanDiT2DModel, HunyuanDiTPipeline,
                       CogVideoXImageToVideoPipeline, CogVideoXPipeline, CogVideoXTransformer3DModel, FlowMatchEulerDiscreteScheduler, HunyuanVideoPipeline,
                       HunyuanVideoTransformer3DModel, LattePipeline, LatteTransformer3DModel, LTXImageToVideoPipeline, LTXVideoTransformer3DModel,
                       MochiPipeline, MochiTransformer3DModel, SkyReelsV2DiffusionForcingPipeline, SkyReelsV2Transformer3DModel, UniPCMultistepScheduler,
                       WanImageToVideoPipeline, WanPipeline, WanTransformer3DModel, WanVACEPipeline, WanVACETransformer3DModel, WanVideoToVideoPipeline)
from diffusers.pipelines.cosmos import pipeline_cosmos2_video2world
from diffusers.pipelines.hunyuan_video import pipeline_hunyuan_video_image2video as whole
from PIL import Image
from safetensors.torch import load_file
from diffusers.models.autoencoders.vae import DiagonalGaussianDistribution
from transformers import (BertConfig, BertModel, BertTokenizer, CLIPImageProcessor, CLIPImageProcessorPil, CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, CLIPVisionConfig, CLIPVisionModel,
                          LlamaConfig, LlamaForCausalLM, LlamaModel, LlavaConfig, LlavaForConditionalGeneration,
                          T5Config, T5EncoderModel)
from golden_parts import (NEGATIVE, OUT, PROMPT, ProcessorOf, given, llama, llava_words, noise, picture, qwen_pairs, qwen_words, save,
                          two_files, umt5, unigram, variant, wan_vae, weights, words)


def wan22():
    def expert(seed):
        return weights(WanTransformer3DModel(patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=12, in_channels=4,
                                             out_channels=4, text_dim=16, freq_dim=16, ffn_dim=32, num_layers=1), seed)
    text = umt5()
    vae = wan_vae()
    levels = UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=5.0)
    pipe = WanPipeline(tokenizer=unigram(), text_encoder=text, transformer=expert(1), transformer_2=expert(2), vae=vae,
                       scheduler=levels, boundary_ratio=0.875)
    begin = noise(4, 2, 4, 4)
    asked = dict(height=32, width=32, num_frames=5, num_inference_steps=6, guidance_scale=4.0, guidance_scale_2=3.0)
    made = pipe(prompt=PROMPT, negative_prompt=NEGATIVE, latents=begin.clone(), output_type="latent", **asked).frames
    save(pipe, "wan22", begin, made, prompt=PROMPT, negative=NEGATIVE, **asked)


def hunyuan():
    transformer = weights(HunyuanVideoTransformer3DModel(in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=8,
                                                         num_layers=1, num_single_layers=1, num_refiner_layers=1, mlp_ratio=2.0,
                                                         patch_size=2, patch_size_t=1, guidance_embeds=True, text_embed_dim=16,
                                                         pooled_projection_dim=8, rope_axes_dim=(4, 2, 2)), 1)
    vae = weights(AutoencoderKLHunyuanVideo(in_channels=3, out_channels=3, latent_channels=4,
                                            down_block_types=("HunyuanVideoDownBlock3D",) * 4, up_block_types=("HunyuanVideoUpBlock3D",) * 4,
                                            block_out_channels=(4, 4, 4, 4), layers_per_block=1, norm_num_groups=2), 2)
    text = weights(LlamaModel(LlamaConfig(vocab_size=262, hidden_size=16, intermediate_size=32, num_hidden_layers=3,
                                          num_attention_heads=2, num_key_value_heads=1, rms_norm_eps=1e-5, pad_token_id=0)), 3)
    pooled = weights(CLIPTextModel(CLIPTextConfig(vocab_size=262, hidden_size=8, intermediate_size=16, num_hidden_layers=1,
                                                  num_attention_heads=2, eos_token_id=4, bos_token_id=1, pad_token_id=0)), 4)
    pipe = HunyuanVideoPipeline(text_encoder=text, tokenizer=llama(), transformer=transformer, vae=vae,
                                scheduler=FlowMatchEulerDiscreteScheduler(shift=7.0), text_encoder_2=pooled, tokenizer_2=llama())
    begin = noise(4, 2, 4, 4)
    asked = dict(height=32, width=32, num_frames=5, num_inference_steps=4, guidance_scale=6.0)
    made = pipe(prompt=PROMPT, latents=begin.clone(), output_type="latent", **asked).frames
    save(pipe, "hunyuan", begin, made, prompt=PROMPT, **asked)


def framepack_pipe():
    from diffusers import HunyuanVideoFramepackPipeline, HunyuanVideoFramepackTransformer3DModel
    from transformers import SiglipImageProcessor, SiglipVisionConfig, SiglipVisionModel
    transformer = weights(HunyuanVideoFramepackTransformer3DModel(
        in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=8, num_layers=1, num_single_layers=1, num_refiner_layers=1,
        mlp_ratio=2.0, text_embed_dim=16, pooled_projection_dim=8, rope_axes_dim=(4, 2, 2), has_image_proj=True, image_proj_dim=8,
        has_clean_x_embedder=True), 1)
    vae = weights(AutoencoderKLHunyuanVideo(in_channels=3, out_channels=3, latent_channels=4,
                                            down_block_types=("HunyuanVideoDownBlock3D",) * 4, up_block_types=("HunyuanVideoUpBlock3D",) * 4,
                                            block_out_channels=(4, 4, 4, 4), layers_per_block=1, norm_num_groups=2), 2)
    text = weights(LlamaModel(LlamaConfig(vocab_size=262, hidden_size=16, intermediate_size=32, num_hidden_layers=3,
                                          num_attention_heads=2, num_key_value_heads=1, rms_norm_eps=1e-5, pad_token_id=0)), 3)
    pooled = weights(CLIPTextModel(CLIPTextConfig(vocab_size=262, hidden_size=8, intermediate_size=16, num_hidden_layers=1,
                                                  num_attention_heads=2, eos_token_id=4, bos_token_id=1, pad_token_id=0)), 4)
    encoder = weights(SiglipVisionModel(SiglipVisionConfig(hidden_size=8, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2,
                                                           image_size=29, patch_size=7)), 5)
    return HunyuanVideoFramepackPipeline(text_encoder=text, tokenizer=llama(), transformer=transformer, vae=vae,
                                         scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True, base_shift=1.5, max_shift=9.0,
                                                                                   base_image_seq_len=4, max_image_seq_len=16),
                                         text_encoder_2=pooled, tokenizer_2=llama(), image_encoder=encoder,
                                         feature_extractor=SiglipImageProcessor(size={"height": 29, "width": 29}))


def framepack_latents(pipe, begin, count, order, **asked):
    """The latents of the whole video. Section k has the noise of its place in the video. The image has the mean of its latents. SigLIP's
    processor without torchvision cuts the fractions of pixels, which are a bit below whole numbers; here it gets whole numbers."""
    frames, made_by, sample = 3, pipe.prepare_latents, DiagonalGaussianDistribution.sample
    at = iter(range(count) if order == "vanilla" else reversed(range(count)))

    def own(*_, **__):
        first = 1 + next(at) * frames
        return begin[:, :, first:first + frames].clone()
    def see(image, device=None, dtype=None):
        whole_pixels = ((image[0].permute(1, 2, 0).numpy() + 1) / 2 * 255).round().astype(np.uint8)
        return pipe.image_encoder(**pipe.feature_extractor(images=Image.fromarray(whole_pixels), return_tensors="pt")).last_hidden_state
    pipe.prepare_latents, pipe.encode_image = own, see
    DiagonalGaussianDistribution.sample = lambda self, generator=None: self.mode()
    made = pipe(latent_window_size=frames, num_frames=count * (4 * frames - 3), sampling_type=order, output_type="latent", **asked).frames[-1]
    pipe.prepare_latents, DiagonalGaussianDistribution.sample = made_by, sample
    return made


FRAMEPACK = dict(height=32, width=48, num_inference_steps=3, guidance_scale=6.0)


def framepack():
    pipe = framepack_pipe()
    begin, image = noise(4, 16, 4, 6), picture(60, 40, 1)
    made = framepack_latents(pipe, begin, 5, "inverted_anti_drifting", prompt=PROMPT, image=image, **FRAMEPACK)
    save(pipe, "framepack", begin, made, prompt=PROMPT, num_frames=61, window=12, **FRAMEPACK)
    given("framepack", image=image)


def framepack_variants():
    """After framepack."""
    from diffusers import HunyuanVideoFramepackPipeline
    pipe = HunyuanVideoFramepackPipeline.from_pretrained(f"{OUT}/framepack")
    begin, image, last = noise(4, 16, 4, 6), picture(60, 40, 1), picture(48, 32, 2)
    made = framepack_latents(pipe, begin, 5, "vanilla", prompt=PROMPT, image=image, **FRAMEPACK)
    variant("framepack", "forward", made, prompt=PROMPT, num_frames=61, window=12, sections="forward", **FRAMEPACK)
    given("framepack", image_forward=image)
    made = framepack_latents(pipe, begin, 5, "inverted_anti_drifting", prompt=PROMPT, negative_prompt=NEGATIVE, true_cfg_scale=2.0, image=image,
                             last_image=last, **FRAMEPACK)
    variant("framepack", "last", made, prompt=PROMPT, negative=NEGATIVE, true_cfg_scale=2.0, num_frames=61, window=12, **FRAMEPACK)
    given("framepack", image_last=image, last_image_last=last)
def kandinsky5_pipe(kind, **blocks):
    from diffusers import Kandinsky5Transformer3DModel
    from golden_kandinsky5 import keep_f32
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
    keep_f32()
    torch.manual_seed(0)
    transformer = weights(Kandinsky5Transformer3DModel(in_visual_dim=4, out_visual_dim=4, in_text_dim=16, in_text_dim2=12, time_dim=8,
                                                       model_dim=24, ff_dim=32, num_text_blocks=1, num_visual_blocks=2, axes_dims=(4, 4, 4),
                                                       visual_cond=True, **blocks), 1)
    vae = weights(AutoencoderKLHunyuanVideo(latent_channels=4, block_out_channels=(8, 8, 8, 8), layers_per_block=1, norm_num_groups=4), 2)
    text = weights(Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(
        text_config=dict(vocab_size=264, hidden_size=16, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1,
                         rope_parameters={"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 1, 1]}),
        vision_config=dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=1, out_hidden_size=16, fullatt_block_indexes=[0]),
        image_token_id=3, video_token_id=4, vision_start_token_id=5, vision_end_token_id=6)), 3)
    pooled = weights(CLIPTextModel(CLIPTextConfig(vocab_size=262, hidden_size=12, intermediate_size=16, num_hidden_layers=1,
                                                  num_attention_heads=2, eos_token_id=4, bos_token_id=1, pad_token_id=0)), 4)
    pipe = kind(text_encoder=text, tokenizer=None, transformer=transformer, vae=vae, scheduler=FlowMatchEulerDiscreteScheduler(shift=5.0),
                text_encoder_2=pooled, tokenizer_2=llama())
    made = qwen_words(pipe.prompt_template.split("{}")[0], 128)
    pipe.register_modules(tokenizer=ProcessorOf(made))
    return pipe


def kandinsky5():
    from diffusers import Kandinsky5T2VPipeline
    pipe = kandinsky5_pipe(Kandinsky5T2VPipeline)
    begin = noise(4, 2, 4, 6)
    asked = dict(height=32, width=48, num_frames=5, num_inference_steps=4, guidance_scale=3.0)
    given = torch.cat([begin.permute(0, 2, 3, 4, 1), torch.zeros(1, 2, 4, 6, 5)], -1)
    made = pipe(prompt=PROMPT, negative_prompt=NEGATIVE, latents=given, output_type="latent", **asked).frames.permute(0, 4, 1, 2, 3)
    save(pipe, "kandinsky5", begin, made, prompt=PROMPT, negative=NEGATIVE, **asked)
    pipe.tokenizer.made.save_pretrained(f"{OUT}/kandinsky5/tokenizer")


def kandinsky5_nabla():
    """Three latent frames of 16 by 32: two blocks of 8 by 8 tokens each."""
    from diffusers import Kandinsky5T2VPipeline
    from golden_kandinsky5 import MARGIN, mask_densely
    pipe = kandinsky5_pipe(Kandinsky5T2VPipeline, attention_type="nabla", attention_P=0.5, attention_wT=1, attention_wH=1, attention_wW=1,
                           attention_add_sta=True, attention_method="topcdf")
    mask_densely()
    begin = noise(4, 3, 16, 32)
    asked = dict(height=128, width=256, num_frames=9, num_inference_steps=4, guidance_scale=3.0)
    given = torch.cat([begin.permute(0, 2, 3, 4, 1), torch.zeros(1, 3, 16, 32, 5)], -1)
    made = pipe(prompt=PROMPT, negative_prompt=NEGATIVE, latents=given, output_type="latent", **asked).frames.permute(0, 4, 1, 2, 3)
    assert min(MARGIN) > 1e-5, min(MARGIN)
    save(pipe, "kandinsky5_nabla", begin, made, prompt=PROMPT, negative=NEGATIVE, **asked)
    pipe.tokenizer.made.save_pretrained(f"{OUT}/kandinsky5_nabla/tokenizer")


def kandinsky5_i2v():
    """After kandinsky5. Six latent frames: the first four get statistics of the last two."""
    from diffusers import Kandinsky5I2VPipeline
    pipe, image, sample = kandinsky5_pipe(Kandinsky5I2VPipeline), picture(48, 32, 1), DiagonalGaussianDistribution.sample
    for name, part in ("transformer", pipe.transformer), ("vae", pipe.vae):
        part.load_state_dict(load_file(f"{OUT}/kandinsky5/{name}/diffusion_pytorch_model.safetensors"))
    DiagonalGaussianDistribution.sample = lambda self, generator=None: self.mode()
    asked = dict(height=32, width=48, num_frames=21, num_inference_steps=4, guidance_scale=3.0)
    made = pipe(image=image, prompt=PROMPT, negative_prompt=NEGATIVE, generator=torch.Generator().manual_seed(7), output_type="latent",
                **asked).frames
    DiagonalGaussianDistribution.sample = sample
    begin = torch.randn((1, 6, 4, 6, 4), generator=torch.Generator().manual_seed(7))
    np.save(f"{OUT}/kandinsky5/noise_i2v.npy", begin[0].numpy())
    given("kandinsky5", image_i2v=image)
    variant("kandinsky5", "i2v", made.permute(0, 4, 1, 2, 3), prompt=PROMPT, negative=NEGATIVE, **asked)


def hunyuan_picture(name, prompt, condition, channels, guided, **asked):
    transformer = weights(HunyuanVideoTransformer3DModel(in_channels=channels, out_channels=4, num_attention_heads=2, attention_head_dim=8,
                                                         num_layers=1, num_single_layers=1, num_refiner_layers=1, mlp_ratio=2.0,
                                                         patch_size=2, patch_size_t=1, guidance_embeds=guided, text_embed_dim=16,
                                                         pooled_projection_dim=8, rope_axes_dim=(4, 2, 2),
                                                         image_condition_type=condition), 1)
    vae = weights(AutoencoderKLHunyuanVideo(in_channels=3, out_channels=3, latent_channels=4,
                                            down_block_types=("HunyuanVideoDownBlock3D",) * 4, up_block_types=("HunyuanVideoUpBlock3D",) * 4,
                                            block_out_channels=(4, 4, 4, 4), layers_per_block=1, norm_num_groups=2), 2)
    text = weights(LlavaForConditionalGeneration(LlavaConfig(
        vision_config=CLIPVisionConfig(hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=48,
                                       patch_size=2),
        text_config=LlamaConfig(vocab_size=270, hidden_size=16, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2,
                                num_key_value_heads=1, rms_norm_eps=1e-5),
        image_token_index=5, pad_token_id=0)), 3)
    pooled = weights(CLIPTextModel(CLIPTextConfig(vocab_size=270, hidden_size=8, intermediate_size=16, num_hidden_layers=1,
                                                  num_attention_heads=2, eos_token_id=4, bos_token_id=1, pad_token_id=0)), 4)
    pipe = whole.HunyuanVideoImageToVideoPipeline(
        text_encoder=text, tokenizer=llava_words(), transformer=transformer, vae=vae, scheduler=FlowMatchEulerDiscreteScheduler(shift=7.0),
        text_encoder_2=pooled, tokenizer_2=llava_words(),
        image_processor=CLIPImageProcessorPil(size={"shortest_edge": 48}, crop_size={"height": 48, "width": 48}))  # torchvision rounds otherwise
    begin, image, steps = noise(4, 3, 4, 4), picture(50, 39, 1), []
    size = dict(height=32, width=32, num_inference_steps=4)
    pipe(image=image, prompt=prompt, num_frames=9, latents=begin.clone(), output_type="latent", **size, **asked,
         callback_on_step_end=lambda pipe, step, time, given: steps.append(given["latents"]) or {})
    frames = 5 if condition == "latent_concat" else 9  # of the video
    scale = asked.get("true_cfg_scale", asked["guidance_scale"])
    negative = {"negative": asked["negative_prompt"]} if "negative_prompt" in asked else {}
    save(pipe, name, begin, steps[-1], prompt=prompt, num_frames=frames, **size, **negative, guidance_scale=scale)
    given(name, image=image)


def hunyuan_i2v():
    hunyuan_picture("hunyuan_i2v", PROMPT, "latent_concat", 9, False, negative_prompt=NEGATIVE, true_cfg_scale=3.0, guidance_scale=1.0)


def hunyuan_replace():
    hunyuan_picture("hunyuan_replace", "a long prompt " * 30, "token_replace", 4, True, guidance_scale=6.0)


def flux():
    pipe = flux_pipe(FluxPipeline, 16)
    begin = noise(4, 1, 8, 12)
    packed = FluxPipeline._pack_latents(begin[:, :, 0], 1, 4, 8, 12)
    asked = dict(height=64, width=96, num_inference_steps=4, guidance_scale=3.5)
    made = pipe(prompt=PROMPT, latents=packed, output_type="latent", **asked).images
    made = FluxPipeline._unpack_latents(made, 64, 96, pipe.vae_scale_factor)[:, :, None]
    save(pipe, "flux", begin, made, prompt=PROMPT, num_frames=1, **asked)


def flux_control():
    pipe = flux_pipe(FluxControlPipeline, 32)
    sample = DiagonalGaussianDistribution.sample
    DiagonalGaussianDistribution.sample = lambda self, generator=None: self.mode()
    begin, image = noise(4, 1, 8, 12), picture(96, 64, 1)
    packed = FluxPipeline._pack_latents(begin[:, :, 0], 1, 4, 8, 12)
    asked = dict(height=64, width=96, num_inference_steps=4, guidance_scale=3.5)
    made = pipe(control_image=image, prompt=PROMPT, latents=packed, output_type="latent", **asked).images
    DiagonalGaussianDistribution.sample = sample
    made = FluxPipeline._unpack_latents(made, 64, 96, pipe.vae_scale_factor)[:, :, None]
    save(pipe, "flux_control", begin, made, prompt=PROMPT, num_frames=1, **asked)
    given("flux_control", control=image)


def flux_pipe(kind, channels):
    transformer = weights(FluxTransformer2DModel(in_channels=channels, out_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=8,
                                                 num_attention_heads=2, joint_attention_dim=16, pooled_projection_dim=8,
                                                 guidance_embeds=True, axes_dims_rope=(4, 2, 2)), 1)
    vae = weights(AutoencoderKL(block_out_channels=(4, 4, 4, 4), down_block_types=("DownEncoderBlock2D",) * 4,
                                up_block_types=("UpDecoderBlock2D",) * 4, layers_per_block=1, latent_channels=4, norm_num_groups=2,
                                scaling_factor=0.3611, shift_factor=0.1159, use_quant_conv=False, use_post_quant_conv=False), 2)
    text = weights(T5EncoderModel(T5Config(vocab_size=100, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2,
                                           feed_forward_proj="gated-gelu")), 3)
    pooled = weights(CLIPTextModel(CLIPTextConfig(vocab_size=262, hidden_size=8, intermediate_size=16, num_hidden_layers=1,
                                                  num_attention_heads=2, eos_token_id=4, bos_token_id=1, pad_token_id=0)), 4)
    levels = FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True, base_shift=0.5, max_shift=1.15,
                                             base_image_seq_len=256, max_image_seq_len=4096)
    words = llama()
    words.model_max_length = 77
    return kind(scheduler=levels, vae=vae, text_encoder=pooled, tokenizer=words, text_encoder_2=text, tokenizer_2=unigram(),
                transformer=transformer)


HUNYUAN15_INNER = 12


def hunyuan15_pipe(kind, **more):
    import inspect
    from diffusers import AutoencoderKLHunyuanVideo15, ClassifierFreeGuidance, HunyuanVideo15Pipeline, HunyuanVideo15Transformer3DModel
    from diffusers.models.transformers import transformer_hunyuan_video15 as source
    from transformers import ByT5Tokenizer, Qwen2_5_VLTextConfig, Qwen2_5_VLTextModel
    made_by = source.HunyuanVideo15ByT5TextProjection  # the class has 2048, which no field of the config changes
    source.HunyuanVideo15ByT5TextProjection = lambda width, _, out: made_by(width, HUNYUAN15_INNER, out)
    transformer = weights(HunyuanVideo15Transformer3DModel(in_channels=9, out_channels=4, num_attention_heads=2, attention_head_dim=8,
                                                           num_layers=2, num_refiner_layers=1, mlp_ratio=2.0, text_embed_dim=16,
                                                           text_embed_2_dim=16, image_embed_dim=8, rope_axes_dim=(4, 2, 2),
                                                           task_type="t2v"), 1)
    source.HunyuanVideo15ByT5TextProjection = made_by
    vae = weights(AutoencoderKLHunyuanVideo15(latent_channels=4, block_out_channels=(8, 8, 8, 8), layers_per_block=1,
                                              spatial_compression_ratio=8), 2)
    text = weights(Qwen2_5_VLTextModel(Qwen2_5_VLTextConfig(
        vocab_size=264, hidden_size=16, intermediate_size=32, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 1, 1]})), 3)
    glyphs = weights(T5EncoderModel(T5Config(vocab_size=384, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2,
                                             feed_forward_proj="gated-gelu")), 4)
    system = inspect.signature(HunyuanVideo15Pipeline._get_mllm_prompt_embeds).parameters["system_message"].default
    return kind(text_encoder=text, tokenizer=qwen_words(f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n", 108),
                transformer=transformer, vae=vae, scheduler=FlowMatchEulerDiscreteScheduler(shift=5.0), text_encoder_2=glyphs,
                tokenizer_2=ByT5Tokenizer(), guider=ClassifierFreeGuidance(guidance_scale=3.0), **more)


def hunyuan15():
    from diffusers import HunyuanVideo15Pipeline
    pipe = hunyuan15_pipe(HunyuanVideo15Pipeline)
    begin = noise(4, 2, 4, 4)
    asked = dict(height=32, width=32, num_frames=5, num_inference_steps=4)
    prompt = 'a sign with "caf\u00e9", \u201cOpen\u201d and "caf\u00e9"'
    made = pipe(prompt=prompt, latents=begin.clone(), output_type="latent", **asked).frames
    save(pipe, "hunyuan15", begin, made, prompt=prompt, **asked)  # the scale is in the guider's config
    path = f"{OUT}/hunyuan15/transformer/config.json"
    config = json.load(open(path))
    json.dump({**config, "text_embed_2_hidden_dim": HUNYUAN15_INNER}, open(path, "w"), indent=2)


def hunyuan15_i2v():
    """After hunyuan15. 29 pixels are four patches of 7 and one more, as 384 are 27 of 14."""
    from diffusers import HunyuanVideo15ImageToVideoPipeline
    from transformers import SiglipImageProcessor, SiglipVisionConfig, SiglipVisionModel
    encoder = weights(SiglipVisionModel(SiglipVisionConfig(hidden_size=8, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2,
                                                           image_size=29, patch_size=7)), 5)
    processor = SiglipImageProcessor(size={"height": 29, "width": 29})
    pipe = hunyuan15_pipe(HunyuanVideo15ImageToVideoPipeline, image_encoder=encoder, feature_extractor=processor)
    for name, part in ("transformer", pipe.transformer), ("vae", pipe.vae), ("text_encoder", pipe.text_encoder), ("text_encoder_2", pipe.text_encoder_2):
        stem = "model" if name.startswith("text") else "diffusion_pytorch_model"
        part.load_state_dict(load_file(f"{OUT}/hunyuan15/{name}/{stem}.safetensors"), strict=not name.startswith("text"))
    pipe.target_size = 32
    asked = dict(num_frames=5, num_inference_steps=4)
    image = picture(40, 40, 1)
    size = pipe.video_processor.calculate_default_height_width(height=40, width=40, target_size=pipe.target_size)
    begin = noise(4, 2, size[0] // 8, size[1] // 8)
    made = pipe(prompt=PROMPT, negative_prompt=NEGATIVE, image=image, latents=begin.clone(), output_type="latent", **asked).frames
    for name, part in ("image_encoder", encoder), ("feature_extractor", processor):
        part.save_pretrained(f"{OUT}/hunyuan15/{name}")
    variant("hunyuan15", "i2v", made, prompt=PROMPT, negative=NEGATIVE, height=size[0], width=size[1], **asked)
    given("hunyuan15", image_i2v=image)


def z_image():
    from diffusers import ZImagePipeline, ZImageTransformer2DModel
    from diffusers.models.transformers import transformer_z_image as source
    from transformers import Qwen3Config, Qwen3Model
    inner, made_by = 12, source.TimestepEmbedder  # the class has 1024, which no field of the config changes
    source.TimestepEmbedder = lambda *given, **named: made_by(*given, **{**named, "mid_size": inner})
    transformer = weights(ZImageTransformer2DModel(all_patch_size=(2,), all_f_patch_size=(1,), in_channels=4, dim=24, n_layers=1,
                                                   n_refiner_layers=1, n_heads=2, n_kv_heads=2, cap_feat_dim=16, axes_dims=[4, 4, 4],
                                                   axes_lens=[1024, 64, 64]), 1)
    vae = weights(AutoencoderKL(block_out_channels=(4, 4, 4, 4), down_block_types=("DownEncoderBlock2D",) * 4,
                                up_block_types=("UpDecoderBlock2D",) * 4, layers_per_block=1, latent_channels=4, norm_num_groups=2,
                                scaling_factor=0.3611, shift_factor=0.1159, use_quant_conv=False, use_post_quant_conv=False), 2)
    text = weights(Qwen3Model(Qwen3Config(vocab_size=260, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
                                          num_key_value_heads=1, head_dim=8)), 3)
    letters_of = words(["<|endoftext|>", "<|im_start|>", "<|im_end|>"], {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
                                                                         "use_regex": False})
    letters_of.chat_template = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                                "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
    pipe = ZImagePipeline(scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0), vae=vae, text_encoder=text, tokenizer=letters_of,
                          transformer=transformer)
    begin = noise(4, 1, 8, 12)
    asked = dict(height=64, width=96, num_inference_steps=4, guidance_scale=3.5)
    made = pipe(prompt=PROMPT, negative_prompt=NEGATIVE, latents=begin[:, :, 0], output_type="latent", **asked).images[:, :, None]
    save(pipe, "z_image", begin, made, prompt=PROMPT, negative=NEGATIVE, num_frames=1, **asked)
    path = f"{OUT}/z_image/transformer/config.json"
    config = json.load(open(path))
    json.dump({**config, "t_embedder_mid_dim": inner}, open(path, "w"), indent=2)


def qwen_image():
    from diffusers import AutoencoderKLQwenImage, QwenImagePipeline, QwenImageTransformer2DModel
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2Tokenizer
    torch.manual_seed(0)
    transformer = weights(QwenImageTransformer2DModel(in_channels=16, out_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=2,
                                                      joint_attention_dim=16, axes_dims_rope=(4, 2, 2)), 1)
    vae = weights(AutoencoderKLQwenImage(base_dim=4, z_dim=4, dim_mult=[1, 1, 1, 1], num_res_blocks=1,
                                         latents_mean=[0.1, -0.2, 0.3, 0.0], latents_std=[1.5, 2.0, 0.5, 1.0]), 2)
    text = weights(Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(
        text_config=dict(vocab_size=268, hidden_size=16, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1,
                         rope_parameters={"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 1, 1]}),
        vision_config=dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=1, out_hidden_size=16, fullatt_block_indexes=[0]),
        image_token_id=3, video_token_id=4, vision_start_token_id=5, vision_end_token_id=6)), 3)
    levels = FlowMatchEulerDiscreteScheduler(shift=1.0, use_dynamic_shifting=True, base_shift=0.5, max_shift=0.9, shift_terminal=0.02,
                                             base_image_seq_len=256, max_image_seq_len=8192)
    system = ("Describe the image by detailing the color, shape, size, texture, quantity, text, spatial relationships of the objects and "
              "background:")
    letters_of = qwen_pairs(qwen_words(f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n", 34))
    pipe = QwenImagePipeline(scheduler=levels, vae=vae, text_encoder=text, tokenizer=letters_of, transformer=transformer)
    assert pipe.prompt_template_encode.split("{}")[0].count(system) == 1
    begin, prompt = noise(4, 1, 8, 12), "a red cafe\u0301 in 1234, ready"
    size = dict(height=64, width=96, num_inference_steps=4)
    made = pipe(prompt=prompt, negative_prompt=NEGATIVE, latents=FluxPipeline._pack_latents(begin[:, :, 0], 1, 4, 8, 12), output_type="latent",
                true_cfg_scale=4.0, **size).images
    made = QwenImagePipeline._unpack_latents(made, 64, 96, pipe.vae_scale_factor)
    save(pipe, "qwen_image", begin, made, prompt=prompt, negative=NEGATIVE, num_frames=1, guidance_scale=4.0, **size)
    two_files(f"{OUT}/qwen_image/tokenizer")
    again = Qwen2Tokenizer.from_pretrained(f"{OUT}/qwen_image/tokenizer")
    assert again(system + prompt).input_ids == letters_of(system + prompt).input_ids


def chroma():
    transformer = weights(ChromaTransformer2DModel(in_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=8,
                                                   num_attention_heads=2, joint_attention_dim=16, axes_dims_rope=(4, 2, 2),
                                                   approximator_num_channels=16, approximator_hidden_dim=12, approximator_layers=1), 1)
    vae = weights(AutoencoderKL(block_out_channels=(4, 4, 4, 4), down_block_types=("DownEncoderBlock2D",) * 4,
                                up_block_types=("UpDecoderBlock2D",) * 4, layers_per_block=1, latent_channels=4, norm_num_groups=2,
                                scaling_factor=0.3611, shift_factor=0.1159, use_quant_conv=False, use_post_quant_conv=False), 2)
    levels = FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True, base_shift=0.5, max_shift=1.15,
                                             base_image_seq_len=256, max_image_seq_len=4096)
    pipe = ChromaPipeline(scheduler=levels, vae=vae, text_encoder=umt5(T5EncoderModel, T5Config), tokenizer=unigram(), transformer=transformer)
    numbers = pipe._prepare_attention_mask
    pipe._prepare_attention_mask = lambda *given, **named: numbers(*given, **named).bool()
    begin = noise(4, 1, 8, 12)
    asked = dict(height=64, width=96, num_inference_steps=4, guidance_scale=3.5)
    made = pipe(prompt=PROMPT, negative_prompt=NEGATIVE, latents=FluxPipeline._pack_latents(begin[:, :, 0], 1, 4, 8, 12), output_type="latent",
                **asked).images
    made = FluxPipeline._unpack_latents(made, 64, 96, pipe.vae_scale_factor)[:, :, None]
    save(pipe, "chroma", begin, made, prompt=PROMPT, negative=NEGATIVE, num_frames=1, **asked)


def hidream():
    transformer = weights(HiDreamImageTransformer2DModel(patch_size=2, in_channels=4, out_channels=4, num_layers=1, num_single_layers=1,
                                                         attention_head_dim=16, num_attention_heads=2, caption_channels=[16, 16],
                                                         text_emb_dim=20, num_routed_experts=2, num_activated_experts=1,
                                                         axes_dims_rope=(8, 4, 4), max_resolution=(16, 16), llama_layers=[1, 2]), 1)
    vae = weights(AutoencoderKL(block_out_channels=(4, 4, 4, 4), down_block_types=("DownEncoderBlock2D",) * 4,
                                up_block_types=("UpDecoderBlock2D",) * 4, layers_per_block=1, latent_channels=4, norm_num_groups=2,
                                scaling_factor=0.3611, shift_factor=0.1159, use_quant_conv=False, use_post_quant_conv=False), 2)

    def pooled(width, seed):
        return weights(CLIPTextModelWithProjection(CLIPTextConfig(vocab_size=262, hidden_size=8, intermediate_size=16, num_hidden_layers=1,
                                                                  num_attention_heads=2, eos_token_id=4, bos_token_id=1, pad_token_id=0,
                                                                  max_position_embeddings=248, projection_dim=width)), seed)
    text = weights(LlamaForCausalLM(LlamaConfig(vocab_size=262, hidden_size=16, intermediate_size=32, num_hidden_layers=3,
                                                num_attention_heads=2, num_key_value_heads=1, rms_norm_eps=1e-5)), 5)
    words = llama()
    words.eos_token = "<|eot_id|>"
    t5 = umt5(T5EncoderModel, T5Config)
    pipe = HiDreamImagePipeline(scheduler=unipc(), vae=vae, text_encoder=pooled(8, 3), tokenizer=llama(), text_encoder_2=pooled(12, 4),
                                tokenizer_2=llama(), text_encoder_3=t5, tokenizer_3=unigram(), text_encoder_4=text, tokenizer_4=words,
                                transformer=transformer)
    pipe.default_sample_size = (64 * 96) ** 0.5 / 8 * 1.0001  # pictures are made as large as this
    begin = noise(4, 1, 8, 12)
    asked = dict(height=64, width=96, num_inference_steps=4, guidance_scale=3.0)
    made = pipe(prompt=PROMPT, negative_prompt=NEGATIVE, latents=begin.clone()[:, :, 0], output_type="latent", **asked).images[:, :, None]
    save(pipe, "hidream", begin, made, prompt=PROMPT, negative=NEGATIVE, num_frames=1, **asked)


def hunyuan_dit(name="hunyuan_dit", style=False):
    transformer = weights(HunyuanDiT2DModel(num_attention_heads=2, attention_head_dim=16, in_channels=4, patch_size=2, sample_size=128,
                                            hidden_size=32, num_layers=2, mlp_ratio=2.0, cross_attention_dim=16, cross_attention_dim_t5=16,
                                            pooled_projection_dim=16, text_len=77, text_len_t5=256,
                                            use_style_cond_and_image_meta_size=style), 1)
    vae = weights(AutoencoderKL(block_out_channels=(4, 4, 4, 4), down_block_types=("DownEncoderBlock2D",) * 4,
                                up_block_types=("UpDecoderBlock2D",) * 4, layers_per_block=1, latent_channels=4, norm_num_groups=2,
                                scaling_factor=0.13025), 2)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "re", "##d", "cat", "walk", "##s", "&", ";", "am", "##p", "sleep", "blur",
             "##ry", "##e", "red"]
    open(f"{OUT}/vocab.txt", "w").write("\n".join(words) + "\n")
    bert = BertTokenizer(f"{OUT}/vocab.txt")
    os.remove(f"{OUT}/vocab.txt")
    bert.model_max_length = 77
    text = weights(BertModel(BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
                                        max_position_embeddings=80)), 3)
    levels = DDIMScheduler(beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.03, prediction_type="v_prediction", steps_offset=1,
                           clip_sample=False, set_alpha_to_one=False)
    pipe = HunyuanDiTPipeline(vae=vae, text_encoder=text, tokenizer=bert, transformer=transformer, scheduler=levels, safety_checker=None,
                              feature_extractor=None, requires_safety_checker=False, text_encoder_2=umt5(T5EncoderModel, T5Config),
                              tokenizer_2=unigram())
    begin = noise(4, 1, 8, 12)
    asked = dict(height=64, width=96, num_inference_steps=4, guidance_scale=3.0)
    made = pipe(prompt=PROMPT, negative_prompt=NEGATIVE, latents=begin.clone()[:, :, 0], output_type="latent", use_resolution_binning=False,
                **asked).images[:, :, None]
    save(pipe, name, begin, made, prompt=PROMPT, negative=NEGATIVE, num_frames=1, **asked)


def hunyuan_dit_11():
    hunyuan_dit("hunyuan_dit_11", True)


def latte():
    transformer = weights(LatteTransformer3DModel(num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=8, num_layers=2,
                                                  cross_attention_dim=32, attention_bias=True, sample_size=8, patch_size=2,
                                                  norm_type="ada_norm_single", norm_elementwise_affine=False,
                                                  activation_fn="gelu-approximate", caption_channels=16, video_length=4), 1)
    vae = weights(AutoencoderKL(block_out_channels=(4, 4, 4, 4), down_block_types=("DownEncoderBlock2D",) * 4,
                                up_block_types=("UpDecoderBlock2D",) * 4, layers_per_block=1, latent_channels=4, norm_num_groups=2), 2)
    levels = DDIMScheduler(beta_schedule="linear", beta_start=0.0001, beta_end=0.02, clip_sample=False)
    pipe = LattePipeline(tokenizer=unigram(), text_encoder=umt5(T5EncoderModel, T5Config), vae=vae, transformer=transformer, scheduler=levels)
    begin = noise(4, 4, 8, 8)
    asked = dict(height=64, width=64, num_inference_steps=4, guidance_scale=3.0)
    made = pipe(prompt=PROMPT, negative_prompt=NEGATIVE, latents=begin.clone(), video_length=4, output_type="latent", **asked).frames
    save(pipe, "latte", begin, made, prompt=PROMPT, negative=NEGATIVE, num_frames=4, **asked)


def wan_dit(channels, **more):
    return weights(WanTransformer3DModel(patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=12, in_channels=channels,
                                         out_channels=4, text_dim=16, freq_dim=16, ffn_dim=32, num_layers=1, **more), 1)


def unipc():
    return UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=5.0)


def wan_image(name, pictures, asked, transformer, sees):
    encoder = processor = None
    if sees:
        encoder = weights(CLIPVisionModel(CLIPVisionConfig(hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
                                                           image_size=28, patch_size=14)), 5)
        processor = CLIPImageProcessor(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28})
    pipe = WanImageToVideoPipeline(tokenizer=unigram(), text_encoder=umt5(), transformer=transformer, vae=wan_vae(), scheduler=unipc(),
                                   image_encoder=encoder, image_processor=processor, expand_timesteps=not sees)
    begin = noise(4, 3, 4, 4)
    asked = dict(height=32, width=32, num_frames=9, num_inference_steps=4, guidance_scale=3.0, **asked)
    made = pipe(prompt=PROMPT, negative_prompt=NEGATIVE, latents=begin.clone(), output_type="latent", **pictures, **asked).frames
    save(pipe, name, begin, made, prompt=PROMPT, negative=NEGATIVE, **asked)
    given(name, **pictures)


def wan_i2v():
    wan_image("wan_i2v", {"image": picture(50, 39, 1)}, {}, wan_dit(12, image_dim=8, added_kv_proj_dim=24), True)


def wan_flf():
    wan_image("wan_flf", {"image": picture(50, 39, 1), "last_image": picture(20, 30, 2)}, {},
              wan_dit(12, image_dim=8, added_kv_proj_dim=24, pos_embed_seq_len=10), True)


def wan_ti2v():
    wan_image("wan_ti2v", {"image": picture(32, 40, 1)}, {}, wan_dit(4), False)


def wan_over():
    pipe = WanVideoToVideoPipeline(tokenizer=unigram(), text_encoder=umt5(), transformer=wan_dit(4), vae=wan_vae(), scheduler=unipc())
    generator = torch.Generator().manual_seed(7)
    asked = dict(height=32, width=32, num_inference_steps=6, guidance_scale=3.0, strength=0.7)
    image = picture(32, 32, 3)
    made = pipe(video=[image] * 9, prompt=PROMPT, negative_prompt=NEGATIVE, generator=generator, output_type="latent", **asked).frames
    save(pipe, "wan_over", noise(4, 3, 4, 4), made, prompt=PROMPT, negative=NEGATIVE, num_frames=9, **asked)
    given("wan_over", video=image)


def wan_vace():
    transformer = weights(WanVACETransformer3DModel(patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=12, in_channels=4,
                                                    out_channels=4, text_dim=16, freq_dim=16, ffn_dim=32, num_layers=2, vace_layers=[0, 1],
                                                    vace_in_channels=72), 1)
    pipe = WanVACEPipeline(tokenizer=unigram(), text_encoder=umt5(), transformer=transformer, vae=wan_vae(), scheduler=unipc())
    begin = noise(4, 3, 4, 4)
    asked = dict(height=32, width=32, num_frames=9, num_inference_steps=4, guidance_scale=3.0)
    control, mask = [picture(32, 32, seed) for seed in range(9)], []
    for i in range(9):
        white = np.zeros((32, 32, 3), np.uint8)
        white[5:25, 2 * i:2 * i + 11] = 255
        mask.append(Image.fromarray(white))
    made = pipe(prompt=PROMPT, negative_prompt=NEGATIVE, video=control, mask=mask, latents=begin.clone(), output_type="latent", **asked).frames
    save(pipe, "wan_vace", begin, made, prompt=PROMPT, negative=NEGATIVE, **asked)
    weak = pipe(prompt=PROMPT, negative_prompt=NEGATIVE, video=control, mask=mask, conditioning_scale=0.4, latents=begin.clone(),
                output_type="latent", **asked).frames
    variant("wan_vace", "weak", weak, prompt=PROMPT, negative=NEGATIVE, control_scale=0.4, **asked)
    # Images of other aspect ratios and of sides that are not whole latents. The pipeline pads them.
    person, thing = picture(44, 61, 21), picture(70, 25, 22)
    for label, more in ("reference", dict(video=control, mask=mask, reference_images=[person])), ("references", dict(reference_images=[person, thing])):
        begin = noise(4, 3 + len(more["reference_images"]), 4, 4)
        np.save(f"{OUT}/wan_vace/noise_{label}.npy", begin[0].permute(1, 2, 3, 0).contiguous().numpy())
        latents, frames = (pipe(prompt=PROMPT, negative_prompt=NEGATIVE, latents=begin.clone(), output_type=kind, **more, **asked).frames
                           for kind in ("latent", "np"))
        variant("wan_vace", label, latents, prompt=PROMPT, negative=NEGATIVE, **asked)
        if label == "reference":
            np.save(f"{OUT}/wan_vace/frames_reference.npy", (2 * frames[0] - 1).astype(np.float32))
    given("wan_vace", reference_image_reference=person, reference_image_references=person, reference_image_2_references=thing)
    for name, frames in ("control", control), ("mask", mask):
        for label in "", "_weak", "_reference":
            frames[0].save(f"{OUT}/wan_vace/{name}{label}.png", save_all=True, append_images=frames[1:], duration=100)


class CopyingUniPC(UniPCMultistepScheduler):
    """The pipeline gives its scheduler a view of the latents and overwrites it, so that the corrector of the second step
    would take the new sample for the last one."""

    def step(self, model_output, timestep, sample, **more):
        return super().step(model_output, timestep, sample.clone(), **more)


def skyreels():
    transformer = weights(SkyReelsV2Transformer3DModel(patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=12, in_channels=4,
                                                       out_channels=4, text_dim=16, freq_dim=16, ffn_dim=32, num_layers=1,
                                                       inject_sample_info=True, num_frame_per_block=2), 1)
    pipe = SkyReelsV2DiffusionForcingPipeline(tokenizer=unigram(), text_encoder=umt5(), transformer=transformer, vae=wan_vae(),
                                              scheduler=CopyingUniPC.from_config(unipc().config))
    asked = dict(height=32, width=32, num_frames=13, num_inference_steps=4, guidance_scale=3.0)
    made = pipe(prompt=PROMPT, negative_prompt=NEGATIVE, generator=torch.Generator().manual_seed(7), output_type="latent", fps=16,
                **asked).frames
    pipe.register_modules(scheduler=unipc())
    save(pipe, "skyreels", noise(4, 4, 4, 4), made, prompt=PROMPT, negative=NEGATIVE, frame_rate=16, **asked)


def chronoedit_made(frames=5, **more):
    from diffusers import ChronoEditPipeline, ChronoEditTransformer3DModel
    transformer = weights(ChronoEditTransformer3DModel(patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=12, in_channels=12,
                                                       out_channels=4, text_dim=16, freq_dim=16, ffn_dim=32, num_layers=1, image_dim=8,
                                                       added_kv_proj_dim=24), 1)
    encoder = weights(CLIPVisionModel(CLIPVisionConfig(hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
                                                       image_size=28, patch_size=14)), 5)
    processor = CLIPImageProcessor(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28})
    if more:
        pipe = ChronoEditPipeline.from_pretrained(f"{OUT}/chronoedit")
        pipe.image_processor = processor
    else:
        pipe = ChronoEditPipeline(tokenizer=unigram(), text_encoder=umt5(), transformer=transformer, vae=wan_vae(), scheduler=unipc(),
                                  image_encoder=encoder, image_processor=processor)
    begin, image = noise(4, (frames + 3) // 4, 4, 4), picture(50, 39, 1)
    asked = dict(height=32, width=32, num_inference_steps=5, guidance_scale=3.0)
    made = pipe(prompt=PROMPT, negative_prompt=NEGATIVE, image=image, latents=begin.clone(), output_type="latent", num_frames=frames,
                **asked, **more).frames
    return pipe, begin, made, image, dict(prompt=PROMPT, negative=NEGATIVE, num_frames=5, **asked)


def chronoedit():
    pipe, begin, made, image, asked = chronoedit_made()
    save(pipe, "chronoedit", begin, made, **asked)
    given("chronoedit", image=image)


def chronoedit_variants():
    _, begin, made, image, asked = chronoedit_made(17, enable_temporal_reasoning=True, num_temporal_reasoning_steps=3)
    variant("chronoedit", "reasoning", made, reasoning_frames=17, reasoning_steps=3, **asked)
    np.save(f"{OUT}/chronoedit/noise_reasoning.npy", begin[0].permute(1, 2, 3, 0).contiguous().numpy())
    given("chronoedit", image_reasoning=image)


def skyreels_variants():
    from diffusers import SkyReelsV2DiffusionForcingImageToVideoPipeline as FromImage, SkyReelsV2DiffusionForcingVideoToVideoPipeline as FromVideo
    from diffusers.pipelines.skyreels_v2 import (pipeline_skyreels_v2_diffusion_forcing, pipeline_skyreels_v2_diffusion_forcing_i2v,
                                                 pipeline_skyreels_v2_diffusion_forcing_v2v)
    modules = (pipeline_skyreels_v2_diffusion_forcing, pipeline_skyreels_v2_diffusion_forcing_i2v, pipeline_skyreels_v2_diffusion_forcing_v2v)
    drawn, size, image = modules[0].randn_tensor, dict(height=32, width=32, guidance_scale=3.0), picture(50, 39, 1)
    long = noise(4, 8, 4, 4)
    for label, kind, given_files, own, theirs in (
            ("lag", SkyReelsV2DiffusionForcingPipeline, {}, dict(frame_lag=2), dict(ar_step=2)),
            ("image", FromImage, {"image": image}, dict(frame_lag=1, block_frames=1), dict(ar_step=1, causal_block_size=1)),
            ("image2", FromImage, {"image": image}, {}, {}),
            ("long", SkyReelsV2DiffusionForcingPipeline, {}, dict(window=13, window_overlap=5, window_mode="history"),
             dict(base_num_frames=13, overlap_history=5)),
            ("long_lag", SkyReelsV2DiffusionForcingPipeline, {}, dict(window=13, window_overlap=5, window_mode="history", frame_lag=3),
             dict(base_num_frames=13, overlap_history=5, ar_step=3)),
            ("video", FromVideo, {"video": image}, dict(window=13, window_overlap=5, window_mode="history"),
             dict(base_num_frames=13, overlap_history=5))):
        pipe = SkyReelsV2DiffusionForcingPipeline.from_pretrained(f"{OUT}/skyreels")
        pipe = kind(**{**pipe.components, "scheduler": CopyingUniPC.from_config(unipc().config)})
        frames = 29 if "base_num_frames" in theirs else 13
        begin = long if frames == 29 else noise(4, 4, 4, 4)
        sections = iter(range(0, begin.shape[2], 2))
        if begin is long:
            np.save(f"{OUT}/skyreels/noise_{label}.npy", long[0].permute(1, 2, 3, 0).contiguous().numpy())

        def draw(shape, **_):
            first = next(sections)
            return begin[:, :, first:first + shape[2]].clone()
        for module in modules:
            module.randn_tensor = draw
        pictures = {"video": [image.resize((32, 32), Image.LANCZOS)] * 5} if kind is FromVideo else given_files
        made = pipe(prompt=PROMPT, negative_prompt=NEGATIVE, output_type="latent", fps=16, num_frames=frames, num_inference_steps=4, **size,
                    **pictures, **theirs).frames
        variant("skyreels", label, made, prompt=PROMPT, negative=NEGATIVE, frame_rate=16, num_frames=frames, num_inference_steps=4, **size, **own)
        given("skyreels", **{f"{what}_{label}": file for what, file in given_files.items()})
    for module in modules:
        module.randn_tensor = drawn


def ltx_i2v():
    transformer = weights(LTXVideoTransformer3DModel(in_channels=8, out_channels=8, num_attention_heads=2, attention_head_dim=12,
                                                     cross_attention_dim=24, num_layers=1, caption_channels=16), 1)
    vae = weights(AutoencoderKLLTXVideo(latent_channels=8, block_out_channels=(8, 8, 8, 8), decoder_block_out_channels=(8, 8, 8, 8),
                                        layers_per_block=(1, 1, 1, 1, 1), decoder_layers_per_block=(1, 1, 1, 1, 1),
                                        spatio_temporal_scaling=(True, True, True, False),
                                        decoder_spatio_temporal_scaling=(True, True, True, False),
                                        decoder_inject_noise=(False,) * 5, upsample_residual=(False,) * 4, upsample_factor=(1,) * 4), 4)
    pipe = LTXImageToVideoPipeline(tokenizer=unigram(), text_encoder=umt5(T5EncoderModel, T5Config), transformer=transformer, vae=vae,
                                   scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True, base_shift=0.95, max_shift=2.05,
                                                                             base_image_seq_len=1024, max_image_seq_len=4096))
    begin, image = noise(8, 3, 2, 3), picture(96, 64, 1)
    asked = dict(height=64, width=96, num_frames=17, num_inference_steps=4, guidance_scale=3.0, frame_rate=12)
    pixels = pipe.video_processor.preprocess(image, height=64, width=96)
    first = pipe._normalize_latents(vae.encode(pixels.unsqueeze(2)).latent_dist.mode(), vae.latents_mean, vae.latents_std)
    placed = torch.cat([first, begin[:, :, 1:]], dim=2)
    made = pipe(prompt=PROMPT, negative_prompt=NEGATIVE, latents=pipe._pack_latents(placed), output_type="latent", **asked).frames
    made = pipe._unpack_latents(made, 3, 2, 3)
    save(pipe, "ltx_i2v", begin, made, prompt=PROMPT, negative=NEGATIVE, **asked)
    given("ltx_i2v", image=image)


def ltx_timed():
    """A picture: the decoder is modulated by a timestep, and noise of the seed (weft's) is mixed into the latents."""
    from diffusers import LTXPipeline
    from diffusers.pipelines.ltx import pipeline_ltx
    from weft_noise import DECODED, normal
    transformer = weights(LTXVideoTransformer3DModel(in_channels=8, out_channels=8, num_attention_heads=2, attention_head_dim=12,
                                                     cross_attention_dim=24, num_layers=1, caption_channels=16), 1)
    kind = "LTXVideo095DownBlock3D"
    vae = weights(AutoencoderKLLTXVideo(latent_channels=8, block_out_channels=(4, 8, 8, 8), down_block_types=(kind,) * 3,
                                        decoder_block_out_channels=(8, 8, 8), layers_per_block=(1,) * 4,
                                        decoder_layers_per_block=(1,) * 4, spatio_temporal_scaling=(True,) * 3,
                                        decoder_spatio_temporal_scaling=(True,) * 3, decoder_inject_noise=(False,) * 4,
                                        downsample_type=("spatiotemporal",) * 3, upsample_residual=(True,) * 3,
                                        upsample_factor=(1,) * 3, timestep_conditioning=True), 4)
    vae.decoder.timestep_scale_multiplier.data = torch.tensor(1000.0)
    vae.latents_std.data = torch.linspace(0.5, 2, 8)
    pipe = LTXPipeline(tokenizer=unigram(), text_encoder=umt5(T5EncoderModel, T5Config), transformer=transformer, vae=vae,
                       scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True, base_shift=0.95, max_shift=2.05,
                                                                 base_image_seq_len=1024, max_image_seq_len=4096))
    begin = noise(8, 1, 2, 3)
    asked = dict(height=64, width=96, num_frames=1, num_inference_steps=3, guidance_scale=1.0, frame_rate=12)
    pack = pipe._pack_latents(begin)
    made = pipe(prompt=PROMPT, latents=pack, output_type="latent", **asked).frames
    save(pipe, "ltx_timed", begin, pipe._unpack_latents(made, 1, 2, 3), prompt=PROMPT, **asked)
    own = torch.tensor([normal(0, i, DECODED) for i in range(48)]).reshape(1, 1, 2, 3, 8).permute(0, 4, 1, 2, 3)
    pipeline_ltx.randn_tensor = lambda *_, **__: own  # with given latents the decoder's noise is the only one
    for name, more in ("plain", {}), ("timed", dict(decode_timestep=0.3, decode_noise_scale=0.1)):
        frames = pipe(prompt=PROMPT, latents=pack, output_type="np", **asked, **more).frames[0]
        Image.fromarray(np.round(frames[0] * 255).astype(np.uint8)).save(f"{OUT}/ltx_timed/{name}.png")


def mochi():
    transformer = weights(MochiTransformer3DModel(num_attention_heads=2, attention_head_dim=12, num_layers=2, pooled_projection_dim=16,
                                                  in_channels=4, text_embed_dim=16, time_embed_dim=16, max_sequence_length=256), 1)
    vae = weights(AutoencoderKLMochi(latent_channels=4, encoder_block_out_channels=(32, 32), decoder_block_out_channels=(32, 32),
                                     layers_per_block=(1, 1, 1), temporal_expansions=(3,), spatial_expansions=(2,),
                                     add_attention_block=(False, True, True), latents_mean=(0.0,) * 4, latents_std=(1.0,) * 4), 4)
    pipe = MochiPipeline(tokenizer=unigram(), text_encoder=umt5(T5EncoderModel, T5Config), transformer=transformer, vae=vae,
                         scheduler=FlowMatchEulerDiscreteScheduler(invert_sigmas=True))
    begin, asked = noise(4, 3, 4, 6), dict(num_inference_steps=6, guidance_scale=3.0)
    made = pipe(prompt=PROMPT, negative_prompt=NEGATIVE, latents=begin, output_type="latent", height=32, width=48, num_frames=13, **asked)
    vae.to(torch.bfloat16)  # it is not looked at, and a smaller file
    # of this small autoencoder's own factors, which the pipeline does not look at
    save(pipe, "mochi", begin, made.frames, prompt=PROMPT, negative=NEGATIVE, height=8, width=12, num_frames=7, **asked)


def cog_vae(**more):
    return weights(AutoencoderKLCogVideoX(down_block_types=("CogVideoXDownBlock3D",) * 4, up_block_types=("CogVideoXUpBlock3D",) * 4,
                                          block_out_channels=(4, 4, 4, 4), latent_channels=4, layers_per_block=1, norm_num_groups=2,
                                          temporal_compression_ratio=4, **more), 4)


def cog_levels():
    return CogVideoXDDIMScheduler(rescale_betas_zero_snr=True, snr_shift_scale=1.0, prediction_type="v_prediction",
                                  timestep_spacing="trailing")


def cog_i2v():
    transformer = weights(CogVideoXTransformer3DModel(num_attention_heads=2, attention_head_dim=16, in_channels=8, out_channels=4,
                                                      time_embed_dim=16, text_embed_dim=16, num_layers=1, sample_width=4, sample_height=4,
                                                      sample_frames=9, patch_size=2, max_text_seq_length=226,
                                                      use_rotary_positional_embeddings=True), 1)
    vae = cog_vae()
    pipe = CogVideoXImageToVideoPipeline(tokenizer=unigram(), text_encoder=umt5(T5EncoderModel, T5Config), transformer=transformer,
                                         vae=vae, scheduler=cog_levels())
    vae.encode = (lambda encode: lambda x: type("Encoded", (), {"latents": encode(x).latent_dist.mode()})())(vae.encode)
    begin, image = noise(4, 3, 4, 4), picture(32, 32, 1)
    asked = dict(height=32, width=32, num_frames=9, num_inference_steps=4, guidance_scale=3.0)
    made = pipe(image=image, prompt=PROMPT, negative_prompt=NEGATIVE, latents=begin.clone().permute(0, 2, 1, 3, 4),
                output_type="latent", **asked).frames
    del vae.encode
    save(pipe, "cog_i2v", begin, made.permute(0, 2, 1, 3, 4), prompt=PROMPT, negative=NEGATIVE, **asked)
    given("cog_i2v", image=image)


def cog15():
    transformer = weights(CogVideoXTransformer3DModel(num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=4,
                                                      time_embed_dim=16, text_embed_dim=16, num_layers=1, sample_width=12, sample_height=12,
                                                      sample_frames=9, patch_size=2, patch_size_t=2, patch_bias=False,
                                                      max_text_seq_length=226, use_rotary_positional_embeddings=True), 1)
    pipe = CogVideoXPipeline(tokenizer=unigram(), text_encoder=umt5(T5EncoderModel, T5Config), transformer=transformer, vae=cog_vae(),
                             scheduler=cog_levels())
    begin = noise(4, 4, 4, 4)
    asked = dict(height=32, width=32, num_frames=9, num_inference_steps=4, guidance_scale=3.0)
    made = pipe(prompt=PROMPT, negative_prompt=NEGATIVE, latents=begin.clone().permute(0, 2, 1, 3, 4), output_type="latent", **asked).frames
    save(pipe, "cog15", begin, made.permute(0, 2, 1, 3, 4), prompt=PROMPT, negative=NEGATIVE, **asked)


def cog15_i2v():
    transformer = weights(CogVideoXTransformer3DModel(num_attention_heads=2, attention_head_dim=16, in_channels=8, out_channels=4,
                                                      time_embed_dim=16, ofs_embed_dim=16, text_embed_dim=16, num_layers=1, sample_width=12,
                                                      sample_height=12, sample_frames=9, patch_size=2, patch_size_t=2, patch_bias=False,
                                                      max_text_seq_length=226, use_rotary_positional_embeddings=True), 1)
    pipe = CogVideoXImageToVideoPipeline(tokenizer=unigram(), text_encoder=umt5(T5EncoderModel, T5Config), transformer=transformer,
                                         vae=cog_vae(invert_scale_latents=True), scheduler=cog_levels())
    pipe.vae.encode = (lambda encode: lambda x: type("Encoded", (), {"latents": encode(x).latent_dist.mode()})())(pipe.vae.encode)
    begin, image = noise(4, 4, 4, 4), picture(32, 32, 1)
    asked = dict(height=32, width=32, num_frames=9, num_inference_steps=4, guidance_scale=3.0)
    made = pipe(image=image, prompt=PROMPT, negative_prompt=NEGATIVE, latents=begin.clone().permute(0, 2, 1, 3, 4),
                output_type="latent", **asked).frames
    del pipe.vae.encode
    save(pipe, "cog15_i2v", begin, made.permute(0, 2, 1, 3, 4), prompt=PROMPT, negative=NEGATIVE, **asked)
    given("cog15_i2v", image=image)


def cog_control():
    transformer = weights(CogVideoXTransformer3DModel(num_attention_heads=2, attention_head_dim=16, in_channels=8, out_channels=4,
                                                      time_embed_dim=16, text_embed_dim=16, num_layers=1, sample_width=4, sample_height=4,
                                                      sample_frames=9, patch_size=2, max_text_seq_length=226,
                                                      use_rotary_positional_embeddings=True), 1)
    pipe = CogVideoXFunControlPipeline(tokenizer=unigram(), text_encoder=umt5(T5EncoderModel, T5Config), transformer=transformer,
                                       vae=cog_vae(), scheduler=cog_levels())
    begin, control = noise(4, 3, 4, 4), [picture(32, 32, seed) for seed in range(9)]
    asked = dict(height=32, width=32, num_inference_steps=4, guidance_scale=3.0)
    made = pipe(control_video=control, prompt=PROMPT, negative_prompt=NEGATIVE, latents=begin.clone().permute(0, 2, 1, 3, 4),
                output_type="latent", **asked).frames
    save(pipe, "cog_control", begin, made.permute(0, 2, 1, 3, 4), prompt=PROMPT, negative=NEGATIVE, num_frames=9, **asked)
    control[0].save(f"{OUT}/cog_control/control.png", save_all=True, append_images=control[1:], duration=100)


class Anything:
    """In the place of a checker of prompts and pictures, which only the pipeline of Cosmos has."""
    def to(self, device):
        return self

    def check_text_safety(self, prompt):
        return True


def cosmos2():
    transformer = weights(CosmosTransformer3DModel(in_channels=5, out_channels=4, num_attention_heads=2, attention_head_dim=16, num_layers=1,
                                                   mlp_ratio=2.0, text_embed_dim=16, adaln_lora_dim=4, max_size=(8, 32, 32),
                                                   patch_size=(1, 2, 2), rope_scale=(2.0, 1.0, 1.0), concat_padding_mask=True,
                                                   extra_pos_embed_type=None), 1)
    cosmos = pipeline_cosmos2_video2world
    cosmos.retrieve_latents = lambda encoded, *_, **__: encoded.latent_dist.mode()
    cosmos.Cosmos2VideoToWorldPipeline._execution_device = property(lambda self: torch.device("cpu"))
    pipe = cosmos.Cosmos2VideoToWorldPipeline(text_encoder=umt5(T5EncoderModel, T5Config), tokenizer=unigram(), transformer=transformer,
                                             vae=wan_vae(), scheduler=FlowMatchEulerDiscreteScheduler(use_karras_sigmas=True),
                                             safety_checker=Anything())
    begin, image = noise(4, 3, 4, 4), picture(32, 32, 1)
    asked = dict(height=32, width=32, num_frames=9, num_inference_steps=4, guidance_scale=3.0)
    made = pipe(image=image, prompt=PROMPT, negative_prompt=NEGATIVE, latents=begin.clone(), fps=12, output_type="latent", **asked).frames
    first = pipe.vae.encode(pipe.video_processor.preprocess(image, 32, 32).unsqueeze(2)).latent_dist.mode()
    mean, std = (torch.tensor(x).view(1, 4, 1, 1, 1) for x in (pipe.vae.config.latents_mean, pipe.vae.config.latents_std))
    made[:, :, :1] = (first - mean) / std
    pipe.save_pretrained = lambda folder: [getattr(pipe, part).save_pretrained(f"{folder}/{part}")
                                           for part in ("text_encoder", "tokenizer", "transformer", "vae", "scheduler")]
    save(pipe, "cosmos2", begin, made.detach(), prompt=PROMPT, negative=NEGATIVE, frame_rate=12, **asked)
    given("cosmos2", image=image)


def flux_picture(pipe, **asked):
    packed = FluxPipeline._pack_latents(noise(4, 1, 8, 12)[:, :, 0], 1, 4, 8, 12)
    made = pipe(prompt=PROMPT, latents=packed, output_type="latent", height=64, width=96, **asked).images
    return FluxPipeline._unpack_latents(made, 64, 96, pipe.vae_scale_factor)[:, :, None]


def flux_variants():
    pipe = FluxPipeline.from_pretrained(f"{OUT}/flux")
    size = dict(prompt=PROMPT, num_frames=1, height=64, width=96)
    asked = dict(num_inference_steps=4, guidance_scale=3.5, true_cfg_scale=2.5)
    variant("flux", "true_cfg", flux_picture(pipe, negative_prompt=NEGATIVE, **asked), negative=NEGATIVE, **size, **asked)
    asked = dict(guidance_scale=3.5, sigmas=[1.0, 0.7, 0.45, 0.1], max_sequence_length=24)
    variant("flux", "sigmas", flux_picture(pipe, num_inference_steps=4, **asked), **size, **asked)


def flux_schnell():
    """Distilled to a few steps: no guidance, and 256 tokens of text."""
    pipe = FluxPipeline.from_pretrained(f"{OUT}/flux")
    config = {k: v for k, v in pipe.transformer.config.items() if not k.startswith("_")} | {"guidance_embeds": False}
    pipe.register_modules(transformer=weights(FluxTransformer2DModel(**config), 1), scheduler=FlowMatchEulerDiscreteScheduler())
    made = flux_picture(pipe, num_inference_steps=4, guidance_scale=0.0, max_sequence_length=256)
    save(pipe, "flux_schnell", noise(4, 1, 8, 12), made, prompt=PROMPT, num_frames=1, height=64, width=96, num_inference_steps=4)


def hunyuan_variants():
    pipe = HunyuanVideoPipeline.from_pretrained(f"{OUT}/hunyuan")
    asked = dict(height=32, width=32, num_frames=5, num_inference_steps=4, guidance_scale=6.0, true_cfg_scale=3.0)
    made = pipe(prompt=PROMPT, negative_prompt=NEGATIVE, latents=noise(4, 2, 4, 4), output_type="latent", **asked).frames
    variant("hunyuan", "true_cfg", made, prompt=PROMPT, negative=NEGATIVE, **asked)


def cog15_variants():
    pipe = CogVideoXPipeline.from_pretrained(f"{OUT}/cog15")
    asked = dict(height=32, width=32, num_frames=9, num_inference_steps=5, guidance_scale=3.0)
    made = pipe(prompt=PROMPT, negative_prompt=NEGATIVE, latents=noise(4, 4, 4, 4).permute(0, 2, 1, 3, 4), output_type="latent",
                use_dynamic_cfg=True, **asked).frames
    variant("cog15", "dynamic_cfg", made.permute(0, 2, 1, 3, 4), prompt=PROMPT, negative=NEGATIVE, guide="dynamic_cfg", **asked)


def latte_variants():
    """The scheduler of Stable Diffusion's folders in the place of Latte's; those that draw no noise."""
    pipe = LattePipeline.from_pretrained(f"{OUT}/latte")
    levels = dict(beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012)
    size = dict(height=64, width=64, guidance_scale=3.0)
    for label, scheduler, settings in (
            ("pndm", PNDMScheduler(skip_prk_steps=True, steps_offset=1, **levels), dict(num_inference_steps=6)),
            ("pndm_prk", PNDMScheduler(**levels), dict(num_inference_steps=5)),
            ("euler", EulerDiscreteScheduler(timestep_spacing="leading", steps_offset=1, **levels), dict(num_inference_steps=5)),
            ("timesteps", EulerDiscreteScheduler(**levels), dict(timesteps=[999, 740.5, 500, 260, 60])),
            ("lms", LMSDiscreteScheduler(use_karras_sigmas=True, **levels), dict(num_inference_steps=6)),
            ("singlestep", DPMSolverSinglestepScheduler(**levels), dict(num_inference_steps=6))):
        pipe.register_modules(scheduler=scheduler)
        made = pipe(prompt=PROMPT, negative_prompt=NEGATIVE, latents=noise(4, 4, 8, 8), video_length=4, output_type="latent", **size,
                    **({"num_inference_steps": 5} | settings)).frames
        variant("latte", label, made, scheduler, prompt=PROMPT, negative=NEGATIVE, num_frames=4, **size, **settings)


os.makedirs(OUT, exist_ok=True)
for make in framepack, framepack_variants, wan22, hunyuan, kandinsky5, kandinsky5_i2v, kandinsky5_nabla, hunyuan_i2v, hunyuan_replace, flux, chroma, z_image, qwen_image, hidream, hunyuan_dit, latte, wan_i2v, wan_flf, wan_ti2v, wan_over, wan_vace, skyreels, skyreels_variants, chronoedit, chronoedit_variants, ltx_i2v, ltx_timed, mochi, cog_i2v, cog_control, flux_control, cog15, cog15_i2v, cosmos2, \
        hunyuan_dit_11, hunyuan15, hunyuan15_i2v, flux_schnell, flux_variants, hunyuan_variants, cog15_variants, latte_variants:
    if not sys.argv[1:] or make.__name__ in sys.argv[1:]:
        torch.manual_seed(0)  # weights() adds to the initial vectors
        make()

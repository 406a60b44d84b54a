#!/usr/bin/env python3
"""Makes tests/golden/pipelines/qwen_edit and qwen_edit_plus: tiny published folders of Qwen-Image-Edit with the
latents of the reference pipelines from the same noise. Needs PyTorch, diffusers and transformers; run from the
root of the checkout.

    qwen_edit       one image, which the vision encoder sees in the autoencoder's area
    qwen_edit_plus  two images of different sizes, which have the timestep 0 ("zero_cond_t")

Qwen2.5-VL has three-dimensional positions of image tokens, as in the version of transformers of the model's release.
"""
import json
import os
import re
import sys

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from diffusers import (AutoencoderKLQwenImage, FlowMatchEulerDiscreteScheduler, FluxPipeline, QwenImageEditPipeline, QwenImageEditPlusPipeline,
                       QwenImagePipeline, QwenImageTransformer2DModel)
from golden_parts import NEGATIVE, OUT, given, noise, picture, save, weights, words
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

VISION = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]


class Processor:
    """The call of Qwen2VLProcessor, whose video processor needs another library."""

    def __init__(self, images, letters):
        self.images, self.letters = images, letters

    def __call__(self, text, images, **more):
        made = self.images(images=images, return_tensors="pt")
        counts = iter([int(grid.prod()) // self.images.merge_size**2 for grid in made.image_grid_thw] * len(text))
        text = [re.sub(re.escape(VISION[2]), lambda match: match[0] * next(counts), part) for part in text]
        made.update(self.letters(text, **more))
        return made


def letters(before):
    """Letters, and one long token, so that the template before the images has 64 tokens."""
    own = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "system", "user", "assistant", "\n", *VISION]
    start = before.index("Describe")
    count = lambda n: len(re.findall("|".join(map(re.escape, own + [before[start:start + n]])) + "|.", before, re.S))
    return words(own + [before[start:start + next(n for n in range(1, len(before)) if count(n) == 64)]],
                 {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False})


def parts(before, **transformer):
    made = letters(before)
    ids = {name: made.convert_tokens_to_ids(token) for name, token in zip(
        ("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id"), VISION)}
    text = weights(Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(
        text_config=dict(vocab_size=len(made), hidden_size=16, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2,
                         num_key_value_heads=1, rope_parameters={"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 1, 1]}),
        vision_config=dict(depth=2, hidden_size=16, intermediate_size=24, num_heads=2, out_hidden_size=16, patch_size=16, window_size=64,
                           fullatt_block_indexes=[1]), **ids)), 3)
    return dict(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=1.0, use_dynamic_shifting=True, base_shift=0.5, max_shift=0.9, shift_terminal=0.02,
                                                  base_image_seq_len=256, max_image_seq_len=8192),
        vae=weights(AutoencoderKLQwenImage(base_dim=4, z_dim=4, dim_mult=[1, 1, 1, 1], num_res_blocks=1,
                                           latents_mean=[0.1, -0.2, 0.3, 0.0], latents_std=[1.5, 2.0, 0.5, 1.0]), 2),
        text_encoder=text, tokenizer=made, processor=None,
        transformer=weights(QwenImageTransformer2DModel(in_channels=16, out_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=2,
                                                        joint_attention_dim=16, axes_dims_rope=(4, 2, 2), **transformer), 1))


def make(name, kind, images, **transformer):
    template = kind.__init__.__code__.co_consts
    before = next(c for c in template if isinstance(c, str) and c.startswith("<|im_start|>system")).split("user\n")[0] + "user\n"
    torch.manual_seed(0)
    pipe = kind(**parts(before, **transformer))
    seen = Qwen2VLImageProcessorPil(patch_size=16, size={"shortest_edge": 32 * 32, "longest_edge": 160 * 160})
    pipe.processor = Processor(seen, pipe.tokenizer)
    # the pipelines call the model as earlier versions of transformers had it; version 5 has positions of images only with this input
    pipe.text_encoder.register_forward_pre_hook(lambda model, args, inputs: (args, inputs | {
        "mm_token_type_ids": (inputs["input_ids"] == model.config.image_token_id).int()}), with_kwargs=True)
    begin, prompt = noise(4, 1, 8, 12), "make the left half red"
    size = dict(height=64, width=96, num_inference_steps=3)
    assert len(pipe.tokenizer(before).input_ids) == pipe.prompt_template_encode_start_idx
    made = pipe(image=images if len(images) > 1 else images[0], prompt=prompt, negative_prompt=NEGATIVE,
                latents=FluxPipeline._pack_latents(begin[:, :, 0], 1, 4, 8, 12), output_type="latent", true_cfg_scale=4.0, **size).images
    save(pipe, name, begin, QwenImagePipeline._unpack_latents(made, 64, 96, pipe.vae_scale_factor), prompt=prompt, negative=NEGATIVE, num_frames=1,
         guidance_scale=4.0, **size)
    seen.save_pretrained(f"{OUT}/{name}/processor")
    index = json.load(open(f"{OUT}/{name}/model_index.json"))
    json.dump(index | {"processor": ["transformers", "Qwen2VLProcessor"]}, open(f"{OUT}/{name}/model_index.json", "w"), indent=2)
    given(name, **{("image", "image2")[i]: image for i, image in enumerate(images)})


if __name__ == "__main__":
    make("qwen_edit", QwenImageEditPipeline, [picture(640, 480, 5)])
    make("qwen_edit_plus", QwenImageEditPlusPipeline, [picture(640, 480, 5), picture(300, 400, 6)], zero_cond_t=True)

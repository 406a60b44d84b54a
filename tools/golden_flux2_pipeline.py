#!/usr/bin/env python3
"""Makes tests/golden/pipelines/flux2 and flux2_klein: folders as diffusers writes them, with random
weights, and the latents of Flux 2's pipelines. Needs diffusers and transformers; run from the root of
the checkout, with tools in PYTHONPATH.

    flux2        an image: three layers of Mistral in a template, with padding before the text, embedded
                 guidance, statistics of 2x2 latents, a shift by tokens and steps
    flux2_edit   a variant of the same folder with an image to edit
    flux2_edits  a variant of the same folder with two images to edit
    flux2_klein  three layers of Qwen3, guidance with an empty negative prompt; also with one and two
                 images"""
import torch
from diffusers import (AutoencoderKLFlux2, FlowMatchEulerDiscreteScheduler, Flux2KleinPipeline, Flux2Pipeline,
                       Flux2Transformer2DModel)
from transformers import Mistral3Config, Mistral3ForConditionalGeneration, Qwen3Config, Qwen3ForCausalLM

from golden_parts import OUT, PROMPT, given, noise, picture, save, tekken, variant, weights, words


def image_parts(**more):
    """Transformer, autoencoder and noise levels."""
    torch.manual_seed(0)  # weights() adds to the initial vectors
    transformer = weights(Flux2Transformer2DModel(in_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=8, num_attention_heads=2,
                                                  joint_attention_dim=24, timestep_guidance_channels=8, axes_dims_rope=(2, 2, 2, 2),
                                                  **more), 1)
    vae = weights(AutoencoderKLFlux2(block_out_channels=(4, 4, 4, 4), layers_per_block=1, latent_channels=4, norm_num_groups=2), 2)
    vae.bn.running_mean, vae.bn.running_var = 0.2 * torch.randn(16), 1 + torch.rand(16)
    levels = FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True, base_shift=0.5, max_shift=1.15,
                                             base_image_seq_len=256, max_image_seq_len=4096)
    return dict(transformer=transformer, vae=vae, scheduler=levels)


def rows_of(made):
    """Latents of tokens in rows and columns."""
    return made.unflatten(1, (4, 6)).permute(0, 3, 1, 2)[:, :, None]


def flux2():
    parts = image_parts()
    text = weights(Mistral3ForConditionalGeneration(Mistral3Config(
        text_config=dict(model_type="mistral", vocab_size=272, hidden_size=8, intermediate_size=16, num_hidden_layers=31, num_attention_heads=2,
                         num_key_value_heads=1, head_dim=4, rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 1e9}),
        vision_config=dict(model_type="pixtral", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, head_dim=8,
                           patch_size=14, image_size=28), image_token_index=7)), 3)
    pipe = Flux2Pipeline(**parts, text_encoder=text, tokenizer=tekken())
    begin, prompt = noise(16, 1, 4, 6), "a red caB, aBle caf\u00e9s: 12 ../x"
    asked = dict(height=64, width=96, num_inference_steps=4, guidance_scale=2.5)
    made = pipe(prompt=prompt, latents=begin[:, :, 0], output_type="latent", **asked).images
    save(pipe, "flux2", begin, rows_of(made), prompt=prompt, num_frames=1, **asked)


def flux2_edit():
    """After flux2: images to edit, of the size of the image that is made."""
    pipe = Flux2Pipeline.from_pretrained(f"{OUT}/flux2", tokenizer=tekken())
    images, begin, prompt = [picture(96, 64, 5), picture(96, 64, 6)], noise(16, 1, 4, 6), "Blue caB"
    asked = dict(height=64, width=96, num_inference_steps=4, guidance_scale=2.5)
    for label, count in ("edit", 1), ("edits", 2):
        made = pipe(image=images[:count], prompt=prompt, latents=begin[:, :, 0], output_type="latent", **asked).images
        variant("flux2", label, rows_of(made), prompt=prompt, num_frames=1, **asked)
    given("flux2", image_edit=images[0], image_edits=images[0], image2_edits=images[1])


def flux2_klein():
    """Qwen3's three layers in a template without thinking, guidance with an empty negative prompt."""
    parts = image_parts(guidance_embeds=False)
    text = weights(Qwen3ForCausalLM(Qwen3Config(vocab_size=264, hidden_size=8, intermediate_size=16, num_hidden_layers=28, num_attention_heads=2,
                                                num_key_value_heads=1, head_dim=4)), 3)
    letters_of = words(["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"],
                       {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False})
    letters_of.chat_template = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                                "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is false %}"
                                "<think>\n\n</think>\n\n{% endif %}{% endif %}")
    pipe = Flux2KleinPipeline(**parts, text_encoder=text, tokenizer=letters_of)
    both, begin, steps = [picture(96, 64, 5), picture(96, 64, 6)], noise(16, 1, 4, 6), []

    def keep(pipe, step, time, values):
        steps.append(values["latents"])
        return values
    asked = dict(height=64, width=96, num_inference_steps=4, guidance_scale=3.0)
    for label, images in ("", None), ("edit", both[:1]), ("edits", both):
        pipe(image=images, prompt=PROMPT, latents=begin[:, :, 0], output_type="latent", callback_on_step_end=keep, **asked)
        made = rows_of(steps[-1])
        if label:
            variant("flux2_klein", label, made, prompt=PROMPT, num_frames=1, **asked)
        else:
            save(pipe, "flux2_klein", begin, made, prompt=PROMPT, num_frames=1, **asked)
    given("flux2_klein", image_edit=both[0], image_edits=both[0], image2_edits=both[1])


if __name__ == "__main__":
    flux2()
    flux2_edit()
    flux2_klein()

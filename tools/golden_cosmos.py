#!/usr/bin/env python3
"""Makes the folders of Cosmos Predict 2.5 in tests/golden/pipelines: tiny random models as diffusers
saves its pipeline, and the latents that the pipeline computes from a given noise; and
tests/golden/cosmos25_train30. Needs PyTorch, diffusers, safetensors and transformers; run from the
root of the checkout. Two functions replace torchvision's.

    cosmos25  from text: all layers of Qwen2.5-VL in a template, levels up to a noise of 200, times
              from 0 to 1
        image     an image as the first frame; a prompt that is too long
        video     the last 5 frames of a video as the first two latent frames
        video1    the last frame of a video
    train30   30 training steps with a given first frame"""
import json
import os
from types import SimpleNamespace

import diffusers
import numpy as np
import torch
from diffusers import Cosmos2_5_PredictBasePipeline, CosmosTransformer3DModel, UniPCMultistepScheduler
from diffusers.models.transformers import transformer_cosmos
from diffusers.pipelines.cosmos import pipeline_cosmos2_5_predict
from golden_parts import NEGATIVE, OUT, PROMPT, given, noise, picture, save, variant, wan_vae, weights, words
from golden_training import ITEMS, normal_of, samples, train
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

SIZE = dict(height=32, width=48, num_frames=9, num_inference_steps=4, guidance_scale=3.0)
TRANSFORMER = dict(in_channels=5, out_channels=4, num_attention_heads=2, attention_head_dim=12, num_layers=2, mlp_ratio=2.0, text_embed_dim=14,
                   adaln_lora_dim=6, max_size=(8, 16, 12), rope_scale=(1.0, 3.0, 3.0), extra_pos_embed_type=None, use_crossattn_projection=True,
                   crossattn_proj_in_channels=48, encoder_hidden_states_channels=14)
LONG = "a long prompt " * 40
SYSTEM = "You are a helpful assistant who will provide prompts to an image generator."


def without_torchvision(*modules):
    """The masks of the pipelines are zeros, and their images have the size of the video."""
    functional = SimpleNamespace(
        resize=lambda x, size, interpolation: torch.nn.functional.interpolate(x, size, mode="nearest"),
        to_tensor=lambda image: torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255)
    for module in modules:
        module.transforms = SimpleNamespace(functional=functional, InterpolationMode=SimpleNamespace(NEAREST=None))
        module.torchvision = SimpleNamespace(transforms=module.transforms)


class Unchecked:
    """In the place of the checker of prompts and videos."""
    def to(self, device):
        return self

    def check_text_safety(self, prompt):
        return True


def letters():
    """A tokenizer of letters with the chat template of Qwen2.5-VL."""
    made = words(["<|endoftext|>", "<|im_start|>", "<|im_end|>", "system", "user", "\n", SYSTEM],
                 {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False})
    made.chat_template = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{% for part in m.content %}{{ part.text }}{% endfor %}<|im_end|>\n"
                          "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
    return made


def encoder():
    return weights(Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(
        text_config=dict(vocab_size=264, hidden_size=16, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1,
                         rope_parameters={"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 1, 1]}),
        vision_config=dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=1, out_hidden_size=16, fullatt_block_indexes=[0]),
        image_token_id=3, video_token_id=4, vision_start_token_id=5, vision_end_token_id=6)), 3)


def parts():
    """All parts of the pipeline but its transformer, by name."""
    vae = wan_vae()
    levels = UniPCMultistepScheduler(use_karras_sigmas=True, use_flow_sigmas=True, prediction_type="flow_prediction", sigma_max=200.0,
                                     sigma_min=0.01)
    return dict(text_encoder=encoder(), tokenizer=letters(), vae=vae, scheduler=levels, safety_checker=Unchecked())


def save_parts(pipe, names):
    """The checker is not saved."""
    def save_pretrained(folder):
        classes = {name: getattr(pipe, name) for name in names}
        for name, part in classes.items():
            part.save_pretrained(f"{folder}/{name}")
        index = {name: [type(part).__module__.split(".")[0], type(part).__name__] for name, part in classes.items()}
        json.dump({"_class_name": type(pipe).__name__, "_diffusers_version": diffusers.__version__, **index},
                  open(f"{folder}/model_index.json", "w"), indent=2)
    pipe.save_pretrained = save_pretrained


def film(pictures):
    """A video of 9 frames, which weft reads from a PNG file of several images."""
    return [picture(48, 32, seed) for seed in range(pictures)]


def cosmos25():
    without_torchvision(transformer_cosmos, pipeline_cosmos2_5_predict)
    torch.manual_seed(0)  # weights() adds to the initial vectors
    pipe = Cosmos2_5_PredictBasePipeline(transformer=weights(CosmosTransformer3DModel(**TRANSFORMER), 1), **parts())
    begin, image, video = noise(4, 3, 4, 6), picture(48, 32, 1), film(7)

    def latents(prompt=PROMPT, **asked):
        return pipe(prompt=prompt, negative_prompt=NEGATIVE, latents=begin.clone(), output_type="latent", **SIZE, **asked).frames
    save_parts(pipe, ("text_encoder", "tokenizer", "transformer", "vae", "scheduler"))
    save(pipe, "cosmos25", begin, latents(), prompt=PROMPT, negative=NEGATIVE, **SIZE)
    variant("cosmos25", "image", latents(image=image, prompt=LONG), prompt=LONG, negative=NEGATIVE, **SIZE)
    given("cosmos25", image_image=image)
    for label, frames, latent in ("video", 5, 2), ("video1", 1, 1):
        variant("cosmos25", label, latents(video=video, num_latent_conditional_frames=latent), prompt=PROMPT, negative=NEGATIVE,
                given_frames=frames, **SIZE)
        video[0].save(f"{OUT}/cosmos25/video_{label}.png", save_all=True, append_images=video[1:], duration=100)


def train30():
    without_torchvision(transformer_cosmos)
    torch.manual_seed(0)
    model = weights(CosmosTransformer3DModel(**TRANSFORMER), 1)
    draw = torch.Generator().manual_seed(51)
    sampled, text = samples(draw, 4, 3, 4, 6), normal_of(draw)(ITEMS, 5, 48)
    marks = torch.zeros(ITEMS, 1, 3, 4, 6)
    marks[:, :, :1] = 1

    def predict(x, t, items):
        return model(x, t, text[items], condition_mask=marks[items], padding_mask=torch.zeros(1, 1, 32, 48), return_dict=False)[0]
    train("cosmos25", model, TRANSFORMER, sampled, {"encoder_hidden_states": text, "condition_mask": marks}, predict,
          "flow matching: x = (1-t) data + t noise, target = noise - data, the model takes t")


if __name__ == "__main__":
    os.makedirs(OUT, exist_ok=True)
    cosmos25()
    train30()

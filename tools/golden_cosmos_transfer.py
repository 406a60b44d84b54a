#!/usr/bin/env python3
"""Makes the golden files of Cosmos Transfer 2.5: tiny random models with their control branch. Needs
PyTorch, diffusers, safetensors and transformers; run from the root of the checkout. Two functions
replace torchvision's, and latents of control videos are the means.

    tests/golden/cosmos25_control       outputs and gradients of transformer and control branch with
                                        image tokens, a given first frame and a scale for each block
    tests/golden/cosmos25_control_train30
    tests/golden/pipelines/cosmos25_transfer   the folder as diffusers saves its pipeline, a control
                                        video and the pipeline's latents
    tests/golden/names/cosmos_transfer  names and shapes of the published size"""
import json
import os

import diffusers.models.controlnets.controlnet_cosmos as controlnet_cosmos
import torch
from diffusers import Cosmos2_5_TransferPipeline, CosmosControlNetModel, CosmosTransformer3DModel
from diffusers.models.transformers import transformer_cosmos
from diffusers.pipelines.cosmos import pipeline_cosmos2_5_transfer
from golden_cosmos import SIZE, film, parts, save_parts, without_torchvision
from golden_parts import NEGATIVE, OUT, PROMPT, noise, save, variant, weights
from golden_training import ITEMS, normal_of, samples, train
from safetensors.torch import save_file

BOTH = dict(num_attention_heads=2, attention_head_dim=12, mlp_ratio=2.0, text_embed_dim=14, adaln_lora_dim=6, max_size=(16, 16, 12),
            rope_scale=(1.0, 3.0, 3.0), extra_pos_embed_type=None, use_crossattn_projection=True, encoder_hidden_states_channels=14,
            img_context_dim_in=10, img_context_dim_out=24)
TRANSFORMER = dict(in_channels=5, out_channels=4, num_layers=3, controlnet_block_every_n=2, img_context_num_tokens=3, **BOTH)
CONTROL = dict(n_controlnet_blocks=2, in_channels=10, latent_channels=6, model_channels=24, **BOTH)
SIZES = {"num_attention_heads": 16, "rope_scale": (1.0, 3.0, 3.0), "extra_pos_embed_type": None, "use_crossattn_projection": True,
         "crossattn_proj_in_channels": 100352, "img_context_dim_in": 1152}


def transformer(text):
    return weights(CosmosTransformer3DModel(**TRANSFORMER, crossattn_proj_in_channels=text), 1)


def control(text):
    return weights(CosmosControlNetModel(**CONTROL, crossattn_proj_in_channels=text), 2)


def config(text):
    return {**TRANSFORMER, "crossattn_proj_in_channels": text, "controlnet": {**CONTROL, "crossattn_proj_in_channels": text}}


def together(text):
    """The control branch as a part of the transformer, and a call of both."""
    torch.manual_seed(0)  # weights() adds to the initial vectors
    model = transformer(text)
    model.controlnet = control(text)

    def call(x, t, text, image, controls, marks, padding, scales):
        given = dict(timestep=t, encoder_hidden_states=(text, image), condition_mask=marks, padding_mask=padding, return_dict=False)
        hints = model.controlnet(controls_latents=controls, latents=x, conditioning_scale=scales, **given)[0]
        return model(x, block_controlnet_hidden_states=hints, **given)[0]
    return model, call


def once():
    model, call = together(20)
    normal = normal_of(torch.Generator().manual_seed(61))
    marks, padding = torch.zeros(2, 1, 3, 4, 6), torch.zeros(1, 1, 32, 48)
    marks[:, :, :1] = 1
    padding[:, :, :, 40:] = 1
    given = {"hidden_states": normal(2, 4, 3, 4, 6), "timestep": torch.tensor([[0.1, 0.7, 0.7], [0.1, 0.3, 0.3]]).view(2, 1, 3, 1, 1),
             "encoder_hidden_states": normal(2, 5, 20), "image_context": normal(2, 3, 10), "controls_latents": normal(2, 4, 3, 4, 6),
             "condition_mask": marks, "padding_mask": padding, "conditioning_scale": torch.tensor([0.75, 1.25])}
    made = call(*list(given.values())[:-1], given["conditioning_scale"].tolist())
    target = normal(*made.shape)
    loss = ((made - target) ** 2).mean()
    loss.backward()
    tensors = {f"in.{name}": tensor for name, tensor in given.items()} | {"in.target": target, "out.sample": made.detach(),
                                                                         "out.loss": loss.detach().view(1)}
    for name, parameter in model.named_parameters():
        tensors |= {f"param.{name}": parameter.data, f"grad.{name}": parameter.grad}
    save_file({k: v.contiguous() for k, v in tensors.items()}, "tests/golden/cosmos25_control.safetensors")
    json.dump({"_class_name": "CosmosTransformer3DModel", **config(20)}, open("tests/golden/cosmos25_control.json", "w"), indent=1)


def train30():
    model, call = together(20)
    draw = torch.Generator().manual_seed(62)
    sampled, normal = samples(draw, 4, 3, 4, 6), normal_of(draw)
    given = {"encoder_hidden_states": normal(ITEMS, 5, 20), "image_context": normal(ITEMS, 3, 10), "controls_latents": normal(ITEMS, 4, 3, 4, 6)}

    def predict(x, t, items):
        return call(x, t, *(tensor[items] for tensor in given.values()), torch.zeros(len(items), 1, 3, 4, 6), torch.zeros(1, 1, 32, 48), 1.0)
    train("cosmos25_control", model, config(20), sampled, given, predict,
          "flow matching: x = (1-t) data + t noise, target = noise - data, the model takes t")


def pipeline():
    pipeline_cosmos2_5_transfer.retrieve_latents = lambda encoded, *_, **__: encoded.latent_dist.mode()
    torch.manual_seed(0)
    made = parts()
    pipe = Cosmos2_5_TransferPipeline(transformer=transformer(48), controlnet=control(48), **made)
    begin, video = noise(4, 3, 4, 6), film(9)
    latents = pipe(controls=video, prompt=PROMPT, negative_prompt=NEGATIVE, latents=begin.clone(), output_type="latent",
                   num_frames_per_chunk=SIZE["num_frames"], **SIZE).frames
    save_parts(pipe, ("text_encoder", "tokenizer", "transformer", "vae", "scheduler", "controlnet"))
    save(pipe, "cosmos25_transfer", begin, latents, prompt=PROMPT, negative=NEGATIVE, **SIZE)
    weak = pipe(controls=video, controls_conditioning_scale=0.4, prompt=PROMPT, negative_prompt=NEGATIVE, latents=begin.clone(),
                output_type="latent", num_frames_per_chunk=SIZE["num_frames"], **SIZE).frames
    variant("cosmos25_transfer", "weak", weak, prompt=PROMPT, negative=NEGATIVE, control_scale=0.4, **SIZE)
    for label in "", "_weak":
        video[0].save(f"{OUT}/cosmos25_transfer/control{label}.png", save_all=True, append_images=video[1:], duration=100)


def names():
    """The config is that of the script that converts the authors' file to diffusers' folders."""
    own = {**SIZES, "in_channels": 17, "controlnet_block_every_n": 7}
    branch = {**SIZES, "n_controlnet_blocks": 4}
    with torch.device("meta"):
        model = CosmosTransformer3DModel(**own)
        model.controlnet = CosmosControlNetModel(**branch)
    written = {"_class_name": "CosmosTransformer3DModel"} | {k: v for k, v in model.config.items() if not k.startswith("_")}
    written["controlnet"] = {k: v for k, v in model.controlnet.config.items() if not k.startswith("_")}
    json.dump(written, open("tests/golden/names/cosmos_transfer.config.json", "w"), indent=1)
    with open("tests/golden/names/cosmos_transfer.tensors.txt", "w") as f:
        for tensor, parameter in sorted(model.named_parameters()):
            print(tensor, ",".join(map(str, parameter.shape)) or 1, file=f)


if __name__ == "__main__":
    os.makedirs(OUT, exist_ok=True)
    without_torchvision(transformer_cosmos, controlnet_cosmos, pipeline_cosmos2_5_transfer)
    once()
    train30()
    pipeline()
    names()

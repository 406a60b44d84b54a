#!/usr/bin/env python3
"""Makes tests/golden/helios_train30, 30 training steps of a small random HeliosTransformer3DModel with a
history, and tests/golden/helios_switches, outputs and gradients of one with the other values of its
switches and a history that larger tokens do not divide. Needs PyTorch, diffusers and safetensors; run
from the root of the checkout."""
import json

import torch
from diffusers import HeliosTransformer3DModel
from golden_training import ITEMS, normal_of, samples, train
from safetensors.torch import save_file

CONFIG = dict(in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=8, text_dim=10, freq_dim=16, ffn_dim=24,
              num_layers=2, rope_dim=[4, 2, 2])
SWITCHES = CONFIG | dict(cross_attn_norm=False, guidance_cross_attn=False, zero_history_timestep=False, is_amplify_history=True,
                         history_scale_mode="scalar")


def model_of(config, normal):
    model = HeliosTransformer3DModel(**config)
    for name, parameter in model.named_parameters():
        fan = parameter[0].numel() if parameter.dim() > 1 else 100
        parameter.data = normal(*parameter.shape) / fan ** 0.5 + ("norm" in name and name.endswith(".weight") and parameter.dim() == 1)
    return model


def history(normal, batch, rows, columns, short, mid, long):
    """Latents and time positions of a history, as the pipeline has them."""
    at = torch.arange(1, 1 + long + mid + short + 10)
    frames = {"short": torch.cat([torch.tensor([0]), at[long + mid:long + mid + short - 1]]), "mid": at[long:long + mid], "long": at[:long]}
    latents = {f"latents_history_{k}": normal(batch, 4, len(v), rows, columns) for k, v in frames.items()}
    places = {f"indices_latents_history_{k}": v.expand(batch, -1) for k, v in frames.items()}
    return latents, places | {"indices_hidden_states": at[long + mid + short - 1:][:3].expand(batch, -1)}


def training():
    draw = torch.Generator().manual_seed(61)
    normal = normal_of(draw)
    model = model_of(CONFIG, normal)
    sampled = samples(draw, 4, 3, 4, 4)
    latents, places = history(normal, ITEMS, 4, 4, 2, 2, 4)
    given = {"encoder_hidden_states": normal(ITEMS, 5, 10)} | latents | places
    train("helios", model, CONFIG, sampled, {k: v.float() for k, v in given.items()},
          lambda x, t, items: model(x, 1000 * t, **{k: v[items] for k, v in given.items()}, return_dict=False)[0],
          "flow matching: x = (1-t)*data + t*noise, target = noise - data, model timestep = 1000*t")


def switches():
    draw = torch.Generator().manual_seed(62)
    normal = normal_of(draw)
    model = model_of(SWITCHES, normal)
    latents, places = history(normal, 2, 6, 10, 3, 3, 5)
    given = {"hidden_states": normal(2, 4, 3, 6, 10), "timestep": torch.tensor([310, 900]), "encoder_hidden_states": normal(2, 5, 10)} \
        | latents | places
    target = normal(2, 4, 3, 6, 10)
    sample = model(**given, return_dict=False)[0]
    loss = ((sample - target) ** 2).mean()
    loss.backward()
    tensors = {f"in.{k}": v.float() for k, v in given.items()} | {"in.target": target, "out.sample": sample, "out.loss": loss.reshape(1)}
    for name, parameter in model.named_parameters():
        tensors |= {f"param.{name}": parameter.data, f"grad.{name}": parameter.grad}
    save_file({k: v.detach().contiguous() for k, v in tensors.items()}, "tests/golden/helios_switches.safetensors")
    json.dump({"_class_name": type(model).__name__, **SWITCHES}, open("tests/golden/helios_switches.json", "w"), indent=1)


training()
switches()

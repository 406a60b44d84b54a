#!/usr/bin/env python3
"""Makes tests/golden/skyreels_train30 and chronoedit_train30: 30 training steps of small random models,
with blocks of two frames, and with an image's tokens and two latent frames. The reference takes all
but the last 512 tokens for those of the image. Needs PyTorch, diffusers and safetensors; run from the
root of the checkout."""
import torch
from diffusers import ChronoEditTransformer3DModel, SkyReelsV2Transformer3DModel
from golden_training import ITEMS, normal_of, samples, train

common = dict(patch_size=[1, 2, 2], num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=10, freq_dim=8,
              ffn_dim=20, num_layers=1)


def make(name, kind, frames, text, given, **config):
    draw = torch.Generator().manual_seed(48)
    normal, model = normal_of(draw), kind(**common, **config)
    for parameter in model.parameters():
        parameter.data = normal(*parameter.shape) / parameter[0].numel() ** 0.5 if parameter.dim() > 1 else 0.1 * normal(*parameter.shape)
    for key, parameter in model.named_parameters():
        if "norm" in key and key.endswith(".weight"):
            parameter.data += 1
    sampled = samples(draw, 4, frames, 4, 4)
    inputs = {"encoder_hidden_states": normal(ITEMS, text, 10)} | {k: normal(ITEMS, *shape) for k, shape in given.items()}

    def predict(x, t, items):
        return model(x, 1000 * t, **{k: v[items] for k, v in inputs.items()}, return_dict=False)[0]
    train(name, model, common | config, sampled, inputs, predict,
          "flow matching: x = (1-t)*data + t*noise, target = noise - data, model timestep = 1000*t")


make("skyreels", SkyReelsV2Transformer3DModel, 4, 5, {}, num_frame_per_block=2)
make("chronoedit", ChronoEditTransformer3DModel, 2, 512, {"encoder_hidden_states_image": (3, 6)}, image_dim=6, added_kv_proj_dim=24)

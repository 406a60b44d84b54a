#!/usr/bin/env python3
"""Makes tests/golden/suv, suv_normed and suv_train30: outputs, gradients and 30 training steps of small random SUV
models (Open-Sora-Plan 1.5) by suv_reference.py, and tests/golden/names/suv: names and shapes of the 8.5B by the
authors' config. Needs PyTorch and safetensors; run from the root of the checkout."""
import json

import torch
from golden_training import ITEMS, normal_of, samples, train
from safetensors.torch import save_file
from suv_reference import SparseUMMDiT

# stages of full attention, three and two subsequences; 30 tokens, which are padded to 36 and to 32
CONFIG = dict(num_layers=[2, 2, 2], sparse_n=[1, 3, 2], num_heads=2, head_dim=16, in_channels=4, out_channels=4, timestep_embed_dim=12,
              caption_channels=10, pooled_projection_dim=8)
SIZE, WORDS = (2, 6, 10), 5
# two nested skips, with norms
NORMED = CONFIG | dict(num_layers=[2, 2, 2, 2, 2], sparse_n=[1, 2, 3, 2, 1], num_heads=1, skip_connection_zero_init=False, attention_bias=False)


def model_of(config, seed):
    draw = torch.Generator().manual_seed(seed)
    model, normal = SparseUMMDiT(**config).double(), normal_of(draw)
    for name, parameter in model.named_parameters():
        drawn = normal(*parameter.shape).double()
        parameter.data = drawn / parameter[0].numel() ** 0.5 if parameter.dim() > 1 else 0.1 * drawn + (1 if "norm" in name and "weight" in name else 0)
    return model, draw, normal


def masks(batch):
    """The first sample lacks its last columns and the last word."""
    latent, text = torch.ones(batch, *SIZE), torch.ones(batch, WORDS)
    latent[0, :, :, 8:], text[0, -1] = 0, 0
    return latent, text


def once(name, config, seed):
    model, _, normal = model_of(config, seed)
    inputs = {"hidden_states": normal(2, 4, *SIZE), "encoder_hidden_states": normal(2, WORDS, 10), "pooled_projections": normal(2, 8),
              "timestep": torch.tensor([812.0, 94.0]), "target": normal(2, 4, *SIZE)}
    latent_mask, text_mask = masks(2)
    given = {key: value.double().requires_grad_(key in ("hidden_states", "encoder_hidden_states", "pooled_projections")) for key, value in inputs.items()}
    made = model(given["hidden_states"], given["timestep"], given["encoder_hidden_states"], given["pooled_projections"], latent_mask, text_mask)
    loss = ((made - given["target"]) ** 2).mean()
    loss.backward()
    tensors = {f"in.{key}": value for key, value in inputs.items()} | {"in.attention_mask": latent_mask.int(), "in.encoder_attention_mask": text_mask.int(),
                                                                       "out.sample": made.detach(), "out.loss": loss.detach().view(1)}
    tensors |= {f"grad.in.{key}": value.grad for key, value in given.items() if value.grad is not None}
    for key, parameter in model.named_parameters():
        tensors |= {f"param.{key}": parameter.data, f"grad.{key}": parameter.grad}
    save_file({key: (value.float() if value.is_floating_point() else value).contiguous() for key, value in tensors.items()}, f"tests/golden/{name}.safetensors")
    json.dump({"_class_name": "SparseUMMDiT", **config}, open(f"tests/golden/{name}.json", "w"), indent=1)


def steps():
    model, draw, normal = model_of(CONFIG, 152)
    sampled = samples(draw, 4, *SIZE)
    text, pooled = normal(ITEMS, WORDS, 10), normal(ITEMS, 8)
    latent_mask, text_mask = torch.ones(2, *SIZE), torch.ones(2, WORDS)

    def predict(x, t, items):
        return model(x.double(), 1000 * t, text[items].double(), pooled[items].double(), latent_mask, text_mask)
    train("suv", model, CONFIG, sampled, {"encoder_hidden_states": text, "pooled_projections": pooled}, predict,
          "flow matching: x = (1-t) data + t noise, target = noise - data, the model takes 1000 t")


def names():
    config = dict(num_layers=[2, 4, 6, 8, 6, 4, 2], sparse_n=[1, 2, 4, 8, 4, 2, 1], num_heads=24, head_dim=128, in_channels=32, out_channels=32,
                  timestep_embed_dim=1024, caption_channels=2048, pooled_projection_dim=1280)
    with torch.device("meta"):
        model = SparseUMMDiT(**config)
    same = dict(double_ff=True, sparse1d=True, skip_connection=True, skip_connection_zero_init=True, dropout=0.0, attention_bias=True, patch_size=2,
                patch_size_t=1, activation_fn="gelu-approximate", norm_elementwise_affine=True, norm_eps=1e-06)
    json.dump({"_class_name": "SparseUMMDiT", **config, **same}, open("tests/golden/names/suv.config.json", "w"), indent=1)
    with open("tests/golden/names/suv.tensors.txt", "w") as file:
        for tensor, parameter in sorted(model.named_parameters()):
            print(tensor, ",".join(map(str, parameter.shape)) or 1, file=file)


names()
once("suv", CONFIG, 150)
once("suv_normed", NORMED, 151)
steps()

#!/usr/bin/env python3
"""Makes tests/golden/longcat, longcat_padded, longcat_blocks, longcat_train30 and longcat_blocks_train30: outputs, gradients and
30 training steps of small random LongCat-Video models, the last and the third with attention over chosen blocks, by longcat_reference.py, and tests/golden/names/longcat: names and shapes of the 13.6B. Its published
config is the authors' default config with text_tokens_zero_pad. Needs PyTorch and safetensors; run from the root of the
checkout."""
import json

import torch
from golden_training import ITEMS, normal_of, samples, train
from longcat_reference import LongCatVideoTransformer3DModel
from safetensors.torch import save_file

CONFIG = dict(in_channels=4, out_channels=4, hidden_size=32, depth=2, num_heads=2, caption_channels=10, adaln_tembed_dim=12, frequency_embedding_size=8)
PADDED = CONFIG | dict(text_tokens_zero_pad=True)
SPARSE = PADDED | dict(enable_bsa=True, bsa_params=dict(sparsity=0.6, chunk_3d_shape_q=[2, 2, 1], chunk_3d_shape_k=[2, 2, 1]))
SIZE, WORDS = (4, 4, 6), 5


def model_of(config, seed):
    draw = torch.Generator().manual_seed(seed)
    model, normal = LongCatVideoTransformer3DModel(**config).double(), normal_of(draw)
    for name, parameter in model.named_parameters():
        drawn = normal(*parameter.shape).double()
        parameter.data = drawn / parameter[0].numel() ** 0.5 if parameter.dim() > 1 else 0.1 * drawn + (1 if "norm" in name and "weight" in name else 0)
    return model, draw, normal


def once(name, config, seed, given, size=SIZE):
    """The first sample lacks its last two words. Given frames have the timestep 0."""
    model, _, normal = model_of(config, seed)
    inputs = {"hidden_states": normal(2, 4, *size), "encoder_hidden_states": normal(2, WORDS, 10), "target": normal(2, 4, *size)}
    mask, time, frames = torch.ones(2, WORDS), torch.tensor([812.0, 94.0]), torch.ones(2, size[0])
    mask[0, -2:], frames[:, :given] = 0, 0
    if given:
        time = time[:, None] * frames
    double = {key: value.double().requires_grad_(key != "target") for key, value in inputs.items()}
    made = model(double["hidden_states"], time, double["encoder_hidden_states"], mask, given)
    loss = ((made - double["target"]) ** 2).mean()
    loss.backward()
    tensors = {f"in.{key}": value for key, value in inputs.items()} | {"in.timestep": time, "in.encoder_attention_mask": mask.int(),
                                                                       "out.sample": made.detach(), "out.loss": loss.detach().view(1)}
    if given:
        tensors |= {"in.frame_mask": frames.int()}
    tensors |= {f"grad.in.{key}": value.grad for key, value in double.items() if value.grad is not None}
    for key, parameter in model.named_parameters():
        tensors |= {f"param.{key}": parameter.data, f"grad.{key}": parameter.grad}
    save_file({key: (value.float() if value.is_floating_point() else value).contiguous() for key, value in tensors.items()}, f"tests/golden/{name}.safetensors")
    json.dump({"_class_name": "LongCatVideoTransformer3DModel", **config}, open(f"tests/golden/{name}.json", "w"), indent=1)


def steps(name, config, seed):
    model, draw, normal = model_of(config, seed)
    sampled, text = samples(draw, 4, *SIZE), normal(ITEMS, WORDS, 10)
    mask = torch.tensor([[int(i < n) for i in range(WORDS)] for n in (5, 3, 4, 1)])

    def predict(x, t, items):
        return -model(x.double(), 1000 * t, text[items].double(), mask[items])
    train(name, model, config, sampled, {"encoder_hidden_states": text, "encoder_attention_mask": mask}, predict,
          "flow matching: x = (1-t) data + t noise, target = data - noise, the model takes 1000 t")


def names():
    config = dict(in_channels=16, out_channels=16, hidden_size=4096, depth=48, num_heads=32, caption_channels=4096, mlp_ratio=4,
                  adaln_tembed_dim=512, frequency_embedding_size=256, patch_size=[1, 2, 2], text_tokens_zero_pad=True)
    with torch.device("meta"):
        model = LongCatVideoTransformer3DModel(**config)
    same = dict(enable_flashattn3=False, enable_flashattn2=True, enable_xformers=False, enable_bsa=False, cp_split_hw=None,
                bsa_params=dict(sparsity=0.9375, chunk_3d_shape_q=[4, 4, 4], chunk_3d_shape_k=[4, 4, 4]))
    json.dump({"_class_name": "LongCatVideoTransformer3DModel", **config, **same}, open("tests/golden/names/longcat.config.json", "w"), indent=1)
    with open("tests/golden/names/longcat.tensors.txt", "w") as file:
        for tensor, parameter in sorted(model.named_parameters()):
            print(tensor, ",".join(map(str, parameter.shape)) or 1, file=file)
    print(sum(parameter.numel() for parameter in model.parameters()), "parameters")


if __name__ == "__main__":
    names()
    once("longcat", CONFIG, 160, 2)
    once("longcat_padded", PADDED, 161, 0)
    once("longcat_blocks", SPARSE, 163, 4, (8, 8, 6))
    steps("longcat", PADDED, 162)
    steps("longcat_blocks", SPARSE, 164)

#!/usr/bin/env python3
"""Makes tests/golden/flux2_train30 and chroma_train30: 30 training steps of small random
Flux2Transformer2DModel and ChromaTransformer2DModel. Needs PyTorch, diffusers and safetensors; run
from the root of the checkout."""
import json

import torch
from diffusers import ChromaTransformer2DModel, Flux2Transformer2DModel
from golden_training import BATCH, ITEMS, normal_of, samples, train

ROWS, COLUMNS, CHANNELS, WORDS, GUIDANCE = 2, 3, 8, 5, 3.5
OBJECTIVE = "flow matching: x = (1-t)*data + t*noise, target = noise - data, the model takes t; data are packed tokens (item, tokens, channels)"


def positions(axes, words):
    """Positions of the image's tokens and of the text's."""
    image = torch.zeros(ROWS, COLUMNS, axes)
    image[..., 1] += torch.arange(ROWS)[:, None]
    image[..., 2] += torch.arange(COLUMNS)[None]
    text = torch.zeros(WORDS, axes)
    if words:
        text[:, axes - 1] = torch.arange(WORDS)
    return {"img_ids": image.view(-1, axes), "txt_ids": text}


def prepared(model, draw):
    normal = normal_of(draw)
    for parameter in model.parameters():
        parameter.data = normal(*parameter.shape) / parameter[0].numel() ** 0.5 if parameter.dim() > 1 else 1 + 0.1 * normal(*parameter.shape)
    model.double()
    return [x.double() for x in samples(draw, ROWS * COLUMNS, CHANNELS)]


def add(name, **more):
    """Fields of the file that the training itself does not have."""
    path = f"tests/golden/{name}_train30.json"
    with open(path) as f:
        golden = json.load(f)
    with open(path, "w") as f:
        json.dump(golden | {"img_shapes": [[1, ROWS, COLUMNS]], **more}, f, indent=1)


def flux2():
    config = dict(in_channels=CHANNELS, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2, joint_attention_dim=12,
                  timestep_guidance_channels=16, axes_dims_rope=[4, 4, 4, 4])
    draw = torch.Generator().manual_seed(61)
    model, places = Flux2Transformer2DModel(**config), positions(4, True)
    sampled = prepared(model, draw)
    text = normal_of(draw)(ITEMS, WORDS, 12).double()
    train("flux2", model, config, sampled, {"encoder_hidden_states": text}, lambda x, t, items: model(
        x, text[items], t, **places, guidance=torch.full((BATCH,), GUIDANCE, dtype=torch.float64), return_dict=False)[0], OBJECTIVE)
    add("flux2", guidance=1000 * GUIDANCE)  # the number that the model embeds


def chroma():
    config = dict(in_channels=CHANNELS, num_layers=1, num_single_layers=1, attention_head_dim=12, num_attention_heads=2, joint_attention_dim=10,
                  axes_dims_rope=[4, 4, 4], approximator_num_channels=16, approximator_hidden_dim=20, approximator_layers=1)
    draw = torch.Generator().manual_seed(62)
    model, places = ChromaTransformer2DModel(**config), positions(3, False)
    sampled = prepared(model, draw)
    text = normal_of(draw)(ITEMS, WORDS, 10).double()
    mask = torch.tensor([[int(i < n) for i in range(WORDS)] for n in (5, 3, 4, 2)])
    seen = torch.cat([mask, torch.ones(ITEMS, ROWS * COLUMNS, dtype=mask.dtype)], 1).bool()
    train("chroma", model, config, sampled, {"encoder_hidden_states": text, "text_mask": mask}, lambda x, t, items: model(
        x, text[items], t, **places, attention_mask=seen[items], return_dict=False)[0], OBJECTIVE)
    add("chroma")


flux2()
chroma()

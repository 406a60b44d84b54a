#!/usr/bin/env python3
"""Makes tests/golden/sana_video_train30: 30 training steps of a small random
SanaVideoTransformer3DModel. Needs PyTorch, diffusers and safetensors; run from the root of the
checkout."""
import torch
from diffusers import SanaVideoTransformer3DModel
from golden_training import ITEMS, normal_of, samples, train

config = dict(in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=12, num_layers=1, num_cross_attention_heads=2,
              cross_attention_head_dim=12, cross_attention_dim=24, caption_channels=10, mlp_ratio=1.5, sample_size=30)
model = SanaVideoTransformer3DModel(**config)
draw = torch.Generator().manual_seed(51)
normal = normal_of(draw)
for parameter in model.parameters():
    parameter.data = normal(*parameter.shape) / parameter[0].numel() ** 0.5 if parameter.dim() > 1 else 1 + 0.1 * normal(*parameter.shape)
sampled, text = samples(draw, 4, 3, 4, 6), normal(ITEMS, 7, 10)
mask = torch.tensor([[int(i < n) for i in range(7)] for n in (7, 3, 5, 6)])


def predict(x, t, items):
    return model(x, text[items], 1000 * t, encoder_attention_mask=mask[items], return_dict=False)[0]


train("sana_video", model, config, sampled, {"encoder_hidden_states": text, "encoder_attention_mask": mask}, predict,
      "flow matching: x = (1-t) data + t noise, target = noise - data, the model takes 1000 t")

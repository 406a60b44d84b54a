#!/usr/bin/env python3
"""Makes tests/golden/motif_video_train30: 30 training steps of a small random
MotifVideoTransformer3DModel with decoder blocks, attention to the text alone and the tokens of an
image. Needs PyTorch, diffusers and safetensors; run from the root of the checkout."""
import torch
from diffusers import MotifVideoTransformer3DModel
from golden_training import ITEMS, normal_of, samples, train

config = dict(in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=12, num_layers=1, num_single_layers=2,
              num_decoder_layers=1, mlp_ratio=2.0, text_embed_dim=10, image_embed_dim=8, rope_axes_dim=(4, 4, 4),
              enable_text_cross_attention_dual=True, enable_text_cross_attention_single=True)
model = MotifVideoTransformer3DModel(**config)
draw = torch.Generator().manual_seed(57)
normal = normal_of(draw)
for parameter in model.parameters():
    parameter.data = normal(*parameter.shape) / parameter[0].numel() ** 0.5 if parameter.dim() > 1 else 1 + 0.1 * normal(*parameter.shape)
sampled, text, image = samples(draw, 4, 2, 4, 6), normal(ITEMS, 7, 10), normal(ITEMS, 3, 8)
mask = torch.tensor([[int(i < n) for i in range(7)] for n in (7, 3, 5, 6)])


def predict(x, t, items):
    return model(x, 1000 * t, text[items], mask[items], image[items], return_dict=False)[0]


train("motif_video", model, config, sampled, {"encoder_hidden_states": text, "encoder_attention_mask": mask, "image_embeds": image},
      predict, "flow matching: x = (1-t) data + t noise, target = noise - data, the model takes 1000 t")

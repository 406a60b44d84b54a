#!/usr/bin/env python3
"""Makes tests/golden/framepack_train30: 30 training steps of a small random
HunyuanVideoFramepackTransformer3DModel with a history. Needs PyTorch, diffusers and safetensors; run
from the root of the checkout."""
import torch
from diffusers import HunyuanVideoFramepackTransformer3DModel
from golden_training import ITEMS, normal_of, samples, train

config = dict(in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=8, num_layers=1, num_single_layers=1,
              num_refiner_layers=1, mlp_ratio=2.0, patch_size=2, patch_size_t=1, guidance_embeds=True, text_embed_dim=10,
              pooled_projection_dim=6, rope_axes_dim=[4, 2, 2], has_image_proj=True, image_proj_dim=6, has_clean_x_embedder=True)
model = HunyuanVideoFramepackTransformer3DModel(**config)
draw = torch.Generator().manual_seed(47)
normal = normal_of(draw)
for parameter in model.parameters():
    parameter.data = normal(*parameter.shape) / parameter[0].numel() ** 0.5 if parameter.dim() > 1 else 0.1 * normal(*parameter.shape)
for name, parameter in model.named_parameters():
    if "norm" in name and name.endswith(".weight") and parameter.dim() == 1:
        parameter.data += 1
sampled = samples(draw, 4, 3, 4, 4)
masks = torch.tensor([[int(i < n) for i in range(5)] for n in (5, 3, 4, 2)])
places = {"indices_latents": torch.arange(1, 4), "indices_latents_clean": torch.tensor([0, 4]), "indices_latents_history_2x": torch.arange(5, 7),
          "indices_latents_history_4x": torch.arange(7, 23)}
given = {"encoder_hidden_states": normal(ITEMS, 5, 10), "pooled_projections": normal(ITEMS, 6), "image_embeds": normal(ITEMS, 3, 6),
         "guidance": 1000 * torch.tensor([6.0, 1.0, 3.0, 9.0]), "latents_clean": normal(ITEMS, 4, 2, 4, 4),
         "latents_history_2x": normal(ITEMS, 4, 2, 4, 4), "latents_history_4x": normal(ITEMS, 4, 16, 4, 4)}


def predict(x, t, items):
    return model(x, 1000 * t, encoder_attention_mask=masks[items], **{k: v[items] for k, v in given.items()}, **places,
                 return_dict=False)[0]


inputs = given | {k: v.float().expand(ITEMS, -1) for k, v in places.items()} | {"encoder_attention_mask": masks}
train("framepack", model, config, sampled, inputs, predict,
      "flow matching: x = (1-t)*data + t*noise, target = noise - data, model timestep = 1000*t")

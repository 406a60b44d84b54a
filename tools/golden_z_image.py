#!/usr/bin/env python3
"""Makes tests/golden/z_image_train30: 30 training steps of a small random ZImageTransformer2DModel.
Needs PyTorch, diffusers and safetensors; run from the root of the checkout."""
import torch
from diffusers import ZImageTransformer2DModel
from diffusers.models.transformers import transformer_z_image as source
from golden_training import ITEMS, normal_of, samples, train

INNER = 8
made_by = source.TimestepEmbedder  # the class has 1024, which no field of the config changes
source.TimestepEmbedder = lambda *given, **named: made_by(*given, **{**named, "mid_size": INNER})
config = dict(all_patch_size=[2], all_f_patch_size=[1], in_channels=4, dim=24, n_layers=1, n_refiner_layers=1, n_heads=2, n_kv_heads=2,
              cap_feat_dim=10, axes_dims=[4, 4, 4], axes_lens=[128, 64, 64])
model = ZImageTransformer2DModel(**config)
draw = torch.Generator().manual_seed(46)
normal = normal_of(draw)
for parameter in model.parameters():
    parameter.data = normal(*parameter.shape) / parameter[0].numel() ** 0.5 if parameter.dim() > 1 else 1 + 0.1 * normal(*parameter.shape)
sampled, text = samples(draw, 4, 1, 4, 6), normal(ITEMS, 7, 10)
lengths = [7, 3, 5, 6]
mask = torch.tensor([[int(i < n) for i in range(7)] for n in lengths])


def predict(x, t, items):
    return torch.stack(list(model(list(x), t, [text[k, :lengths[k]] for k in items], return_dict=False)[0]))


train("z_image", model, config | {"t_embedder_mid_dim": INNER}, sampled, {"cap_feats": text, "text_mask": mask}, predict,
      "flow matching: x = (1-t)noise + t data, target = data - noise, the model takes t", to_noise=False)

#!/usr/bin/env python3
"""Makes tests/golden/kandinsky5_train30: 30 training steps of a small random
Kandinsky5Transformer3DModel with a condition. Needs PyTorch, diffusers and safetensors; run from the
root of the checkout."""
import inspect
import textwrap

import torch
from diffusers import Kandinsky5Transformer3DModel
from diffusers.models.transformers import transformer_kandinsky as source
from golden_training import ITEMS, normal_of, samples, train


def keep_f32():
    """The class rounds queries and keys to bf16 after their rotation, also in f32. A file of an f32
    run cannot have this rounding without the order of the reference's sums."""
    if hasattr(source, "keeps_f32"):
        return
    source.keeps_f32 = True
    text = textwrap.dedent(inspect.getsource(source.Kandinsky5AttnProcessor.__call__))
    assert text.count(".to(torch.bfloat16)") == 1
    names = {}
    exec(text.replace(".to(torch.bfloat16)", ""), vars(source), names)
    source.Kandinsky5AttnProcessor.__call__ = names["__call__"]


def main():
    config = dict(in_visual_dim=4, out_visual_dim=4, in_text_dim=10, in_text_dim2=8, time_dim=12, model_dim=24, ff_dim=40, num_text_blocks=1,
                  num_visual_blocks=2, axes_dims=(4, 4, 4))
    keep_f32()
    model = Kandinsky5Transformer3DModel(**config)
    draw = torch.Generator().manual_seed(50)
    normal = normal_of(draw)
    for parameter in model.parameters():
        parameter.data = normal(*parameter.shape) / parameter[0].numel() ** 0.5 if parameter.dim() > 1 else 1 + 0.1 * normal(*parameter.shape)
    size = (2, 4, 6)
    sampled = samples(draw, *size, 4)
    text, pooled = normal(ITEMS, 5, 10), normal(ITEMS, 8)

    def predict(x, t, items):
        return model(x, text[items], 1000 * t, pooled[items], [torch.arange(size[0]), torch.arange(size[1] // 2), torch.arange(size[2] // 2)],
                     torch.arange(5), (1.0, 3.16, 3.16), return_dict=False)
    train("kandinsky5", model, config, sampled, {"encoder_hidden_states": text, "pooled_projections": pooled}, predict,
          "flow matching: x = (1-t) data + t noise, target = noise - data, the model takes 1000 t")


if __name__ == "__main__":
    main()

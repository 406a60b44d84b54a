#!/usr/bin/env python3
"""Makes tests/golden/kandinsky5_train30: 30 training steps of a small random
Kandinsky5Transformer3DModel with a condition. Needs PyTorch, diffusers and safetensors; run from the
root of the checkout."""
import inspect
import json
import textwrap

import torch
from diffusers import Kandinsky5Transformer3DModel
from diffusers.models.transformers import transformer_kandinsky as source
from safetensors.torch import save_file


def keep_f32():
    """The class rounds queries and keys to bf16 after their rotation, also in f32. A file of an f32
    run cannot have this rounding without the order of the reference's sums."""
    text = textwrap.dedent(inspect.getsource(source.Kandinsky5AttnProcessor.__call__))
    assert text.count(".to(torch.bfloat16)") == 1
    names = {}
    exec(text.replace(".to(torch.bfloat16)", ""), vars(source), names)
    source.Kandinsky5AttnProcessor.__call__ = names["__call__"]


def main():
    out, steps, batch, items = "tests/golden/kandinsky5_train30", 30, 2, 4
    config = dict(in_visual_dim=4, out_visual_dim=4, in_text_dim=10, in_text_dim2=8, time_dim=12, model_dim=24, ff_dim=40, num_text_blocks=1,
                  num_visual_blocks=2, axes_dims=(4, 4, 4))
    torch.set_num_threads(1)
    keep_f32()
    model = Kandinsky5Transformer3DModel(**config)
    draw = torch.Generator().manual_seed(50)

    def normal(*shape):
        return torch.randn(shape, generator=draw)

    for parameter in model.parameters():
        parameter.data = normal(*parameter.shape) / parameter[0].numel() ** 0.5 if parameter.dim() > 1 else 1 + 0.1 * normal(*parameter.shape)
    tensors = {f"param.{n}": p.data.clone() for n, p in model.named_parameters()}
    size = (2, 4, 6)
    data, noise, t = normal(items, *size, 4), normal(steps, batch, *size, 4), torch.rand((steps, batch), generator=draw)
    text, pooled = normal(items, 5, 10), normal(items, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.002, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.01)
    losses, norms = [], []
    for step in range(steps):
        of = [(step * batch + i) % items for i in range(batch)]
        clean, level = data[of], t[step].view(-1, 1, 1, 1, 1)
        made = model((1 - level) * clean + level * noise[step], text[of], 1000 * t[step], pooled[of],
                     [torch.arange(size[0]), torch.arange(size[1] // 2), torch.arange(size[2] // 2)], torch.arange(5), (1.0, 3.16, 3.16),
                     return_dict=False)
        loss = ((made - (noise[step] - clean)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        losses.append(loss.item())
        optimizer.step()
    tensors |= {f"final.{n}": p.data for n, p in model.named_parameters()}
    tensors |= {"data": data, "noise": noise, "t": t, "encoder_hidden_states": text, "pooled_projections": pooled}
    save_file({k: v.contiguous() for k, v in tensors.items()}, f"{out}.safetensors")
    json.dump({"config": {"_class_name": "Kandinsky5Transformer3DModel", **config},
               "optimizer": {"name": "AdamW", "lr": 0.002, "betas": [0.9, 0.95], "eps": 1e-08, "weight_decay": 0.01, "clip_grad_norm": 1.0},
               "batch": batch, "objective": "flow matching: x = (1-t) data + t noise, target = noise - data, the model takes 1000 t",
               "losses": losses, "grad_norms_before_clip": norms,
               "params_without_gradient_in_reference": [n for n, p in model.named_parameters() if p.grad is None]},
              open(f"{out}.json", "w"), indent=1)


if __name__ == "__main__":
    main()

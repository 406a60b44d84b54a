#!/usr/bin/env python3
"""Makes tests/golden/kandinsky5_train30 and kandinsky5_nabla_train30: 30 training steps of a small
random Kandinsky5Transformer3DModel. Needs PyTorch, diffusers and safetensors; run from the root of
the checkout."""
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


MARGIN = []  # least distance of a cumulated share from the threshold


def mask_densely():
    """Makes the class attend with a dense mask in place of a BlockMask of the same blocks, since
    flex_attention has no gradient on CPUs. The reference itself computes the choice of blocks."""
    import math
    from torch.nn.attention.flex_attention import BlockMask
    chosen = source.nablaT_v2
    if chosen.__name__ == "dense":
        return

    def from_kv_blocks(counts, indices, full_counts, full_indices, BLOCK_SIZE, mask_mod):
        blocks = full_indices.shape[-1]
        mask = torch.zeros(*full_indices.shape[:3], blocks, dtype=torch.bool)
        kept = torch.arange(blocks) < full_counts[..., None]
        mask.scatter_(-1, full_indices.long(), kept)
        return mask.repeat_interleave(BLOCK_SIZE, -1).repeat_interleave(BLOCK_SIZE, -2)

    def dense(q, k, sta, thr):
        with torch.no_grad():
            means = [x.transpose(1, 2).unflatten(2, (-1, 64)).mean(-2).double() for x in (q, k)]
            share = torch.softmax(means[0] @ means[1].transpose(-2, -1) / math.sqrt(q.shape[-1]), -1).sort(-1).values.cumsum(-1)
            MARGIN.append((share - (1 - thr)).abs().min().item())
            own, BlockMask.from_kv_blocks = BlockMask.from_kv_blocks, from_kv_blocks
            try:
                return chosen(q, k, sta, thr)
            finally:
                BlockMask.from_kv_blocks = own
    source.nablaT_v2 = dense


def nabla():
    from diffusers import Kandinsky5T2VPipeline
    config = dict(in_visual_dim=4, out_visual_dim=4, in_text_dim=10, in_text_dim2=8, time_dim=12, model_dim=24, ff_dim=40, num_text_blocks=1,
                  num_visual_blocks=2, axes_dims=(4, 4, 4), attention_type="nabla", attention_P=0.5, attention_wT=1, attention_wH=1,
                  attention_wW=3, attention_add_sta=True, attention_method="topcdf")
    mask_densely()
    size = (3, 16, 32)

    def predict_with(model, text, pooled):
        pipe = type("pipe", (), {"transformer": model, "fast_sta_nabla": staticmethod(Kandinsky5T2VPipeline.fast_sta_nabla)})()

        def predict(x, t, items):
            return model(x, text[items], 1000 * t, pooled[items], [torch.arange(size[0]), torch.arange(size[1] // 2), torch.arange(size[2] // 2)],
                         torch.arange(5), (1.0, 3.16, 3.16), sparse_params=Kandinsky5T2VPipeline.get_sparse_params(pipe, x, "cpu"),
                         return_dict=False)
        return predict
    train_one("kandinsky5_nabla", config, 51, size, predict_with)
    print("least distance from the threshold", min(MARGIN))


def train_one(name, config, seed, size, predict_with):
    keep_f32()
    model = Kandinsky5Transformer3DModel(**config)
    draw = torch.Generator().manual_seed(seed)
    normal = normal_of(draw)
    for parameter in model.parameters():
        parameter.data = normal(*parameter.shape) / parameter[0].numel() ** 0.5 if parameter.dim() > 1 else 1 + 0.1 * normal(*parameter.shape)
    sampled = samples(draw, *size, 4)
    text, pooled = normal(ITEMS, 5, 10), normal(ITEMS, 8)
    train(name, model, config, sampled, {"encoder_hidden_states": text, "pooled_projections": pooled}, predict_with(model, text, pooled),
          "flow matching: x = (1-t) data + t noise, target = noise - data, the model takes 1000 t")


def main():
    config = dict(in_visual_dim=4, out_visual_dim=4, in_text_dim=10, in_text_dim2=8, time_dim=12, model_dim=24, ff_dim=40, num_text_blocks=1,
                  num_visual_blocks=2, axes_dims=(4, 4, 4))
    size = (2, 4, 6)

    def predict_with(model, text, pooled):
        def predict(x, t, items):
            return model(x, text[items], 1000 * t, pooled[items], [torch.arange(size[0]), torch.arange(size[1] // 2), torch.arange(size[2] // 2)],
                         torch.arange(5), (1.0, 3.16, 3.16), return_dict=False)
        return predict
    train_one("kandinsky5", config, 50, size, predict_with)
    nabla()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes tests/golden/gemma2: outputs and gradients of a small random Gemma2Model. Needs PyTorch,
transformers and safetensors; run from the root of the checkout."""
import json

import torch
from safetensors.torch import save_file
from transformers import Gemma2Config, Gemma2Model

OUT = "tests/golden/gemma2"
config = dict(vocab_size=24, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
              query_pre_attn_scalar=8, attn_logit_softcapping=2.0, sliding_window=16)
torch.set_num_threads(1)
model = Gemma2Model(Gemma2Config(**config, attn_implementation="eager"))  # other implementations have no limit of the scores
draw = torch.Generator().manual_seed(52)
for parameter in model.parameters():
    parameter.data = torch.randn(parameter.shape, generator=draw) * (parameter[0].numel() ** -0.5 if parameter.dim() > 1 else 0.2)
model.eval()
ids, mask = torch.randint(1, 24, (2, 7), generator=draw), torch.ones(2, 7, dtype=torch.int64)
ids[1, 5:], mask[1, 5:] = 0, 0
made = model(input_ids=ids, attention_mask=mask).last_hidden_state
target = torch.randn(made.shape, generator=draw)
loss = ((made - target) ** 2).mean()
loss.backward()
tensors = {"in.input_ids": ids, "in.attention_mask": mask, "in.target": target, "out.last_hidden_state": made.detach(), "out.loss": loss.detach().view(1)}
for name, parameter in model.named_parameters():
    tensors |= {f"param.{name}": parameter.data, f"grad.{name}": parameter.grad}
save_file({k: v.contiguous() for k, v in tensors.items()}, f"{OUT}.safetensors")
json.dump({"_class_name": "Gemma2Model", **config}, open(f"{OUT}.json", "w"), indent=1)

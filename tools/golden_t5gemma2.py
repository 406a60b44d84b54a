#!/usr/bin/env python3
"""Makes tests/golden/t5gemma2: outputs and gradients of a small random T5Gemma2TextEncoder, whose
window is shorter than the texts. Needs PyTorch, transformers and safetensors; run from the root of
the checkout."""
import json

import torch
from safetensors.torch import save_file
from transformers.models.t5gemma2.configuration_t5gemma2 import T5Gemma2TextConfig
from transformers.models.t5gemma2.modeling_t5gemma2 import T5Gemma2TextEncoder

OUT = "tests/golden/t5gemma2"
config = dict(vocab_size=24, hidden_size=16, intermediate_size=24, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
              query_pre_attn_scalar=8, sliding_window=6, layer_types=["sliding_attention", "full_attention", "sliding_attention"])
ROPE = dict(rope_theta=1000.0, rope_local_base_freq=100.0, rope_scaling={"factor": 8.0, "rope_type": "linear"})
torch.set_num_threads(1)
model = T5Gemma2TextEncoder(T5Gemma2TextConfig(**config, dropout_rate=0.0, rope_parameters={
    "full_attention": {**ROPE["rope_scaling"], "rope_theta": ROPE["rope_theta"]},
    "sliding_attention": {"rope_type": "default", "rope_theta": ROPE["rope_local_base_freq"]}}))
draw = torch.Generator().manual_seed(64)
for parameter in model.parameters():
    parameter.data = torch.randn(parameter.shape, generator=draw) * (parameter[0].numel() ** -0.5 if parameter.dim() > 1 else 0.2)
model.eval()
ids, mask = torch.randint(1, 24, (2, 9), generator=draw), torch.ones(2, 9, dtype=torch.int64)
ids[1, 7:], mask[1, 7:] = 0, 0
made = model(input_ids=ids, attention_mask=mask).last_hidden_state
target = torch.randn(made.shape, generator=draw)
loss = ((made - target) ** 2).mean()
loss.backward()
tensors = {"in.input_ids": ids, "in.attention_mask": mask, "in.target": target, "out.last_hidden_state": made.detach(), "out.loss": loss.detach().view(1)}
for name, parameter in model.named_parameters():
    tensors |= {f"param.{name}": parameter.data, f"grad.{name}": parameter.grad}
save_file({k: v.contiguous() for k, v in tensors.items()}, f"{OUT}.safetensors")
json.dump({"_class_name": "T5Gemma2TextEncoder", **config, **ROPE}, open(f"{OUT}.json", "w"), indent=1)

#!/usr/bin/env python3
"""Makes tests/golden/bert.json and .safetensors: outputs and gradients of a small random BertModel.
Also writes the ids of tests/golden/tok_bert.json, whose texts and vocabulary stay unchanged. Needs
PyTorch, transformers and safetensors; run from the root of the checkout."""
import json

import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertModel, BertTokenizerFast

GOLDEN = "tests/golden"
torch.manual_seed(5)
config = BertConfig(vocab_size=60, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40, max_position_embeddings=20,
                    hidden_dropout_prob=0, attention_probs_dropout_prob=0)
model = BertModel(config, add_pooling_layer=False).train()
for parameter in model.parameters():
    parameter.data = torch.randn_like(parameter) * (parameter[0].numel() ** -0.5 if parameter.dim() > 1 else 0.1) + (parameter.data.mean() > 0.5)
ids, mask = torch.randint(1, 60, (2, 17)), torch.ones(2, 17, dtype=torch.int64)
mask[0, 11:] = 0
target = torch.randn(2, 17, 24)


def run(dtype):
    made = model.to(dtype)
    made.zero_grad()
    out = made(input_ids=ids, attention_mask=mask).last_hidden_state
    loss = ((out - target.to(dtype)) ** 2).mean()
    loss.backward()
    return out.detach(), loss.detach(), {n: p.grad.clone() for n, p in made.named_parameters()}


out, loss, exact = run(torch.float64)
largest = max(g.abs().max() for g in exact.values())
tiny = {n: [g.abs().max().item()] for n, g in exact.items() if g.abs().max() < 1e-6 * largest}
out, loss, grad = run(torch.float32)
for n in tiny:
    tiny[n].append(grad[n].abs().max().item())
save_file({"in.input_ids": ids, "in.attention_mask": mask, "in.target": target, "out.last_hidden_state": out, "out.loss": loss.reshape(1)}
          | {f"param.{n}": p.data.contiguous() for n, p in model.named_parameters()} | {f"grad.{n}": g.contiguous() for n, g in grad.items()},
          f"{GOLDEN}/bert.safetensors")
json.dump({"_class_name": "BertModel", "architectures": ["BertModel"], "model_type": "bert"}
          | {k: getattr(config, k) for k in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
                                             "max_position_embeddings", "type_vocab_size", "layer_norm_eps", "hidden_act")}
          | {"loss": "mean squared error of out.last_hidden_state against in.target", "params_without_gradient_in_reference": [],
             "gradients_mostly_rounding": {"what": "name: [largest magnitude in f64, in f32]", **tiny}},
          open(f"{GOLDEN}/bert.json", "w"), indent=1)

words = json.load(open(f"{GOLDEN}/tok_bert.json"))
tokenizer = BertTokenizerFast(f"{GOLDEN}/tokenizers/bert/vocab.txt")
for case in words["cases"]:
    case["ids"] = tokenizer(case["text"]).input_ids
json.dump(words, open(f"{GOLDEN}/tok_bert.json", "w"), indent=0)

#!/usr/bin/env python3
"""Makes tests/golden/llava.json and .safetensors: outputs and gradients of a small random
LlavaForConditionalGeneration with two images and two texts as input. Needs PyTorch, transformers
and safetensors; run from the root of the checkout."""
import json

import torch
from safetensors.torch import save_file
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

GOLDEN = "tests/golden"
torch.manual_seed(5)
vision = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=3, num_attention_heads=2, image_size=12, patch_size=4)
text = dict(vocab_size=50, hidden_size=24, intermediate_size=40, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
            rms_norm_eps=1e-5)
model = LlavaForConditionalGeneration(LlavaConfig(vision_config=CLIPVisionConfig(**vision), text_config=LlamaConfig(**text),
                                                  image_token_index=7)).train()
for parameter in model.parameters():
    parameter.data = torch.randn_like(parameter) * (parameter[0].numel() ** -0.5 if parameter.dim() > 1 else 0.1) + (parameter.data.mean() > 0.5)
ids, mask = torch.randint(8, 50, (2, 19)), torch.ones(2, 19, dtype=torch.int64)
ids[:, 3:12] = 7
mask[0, 15:] = 0
pixels, target, target_last = torch.randn(2, 3, 12, 12), torch.randn(2, 19, 24), torch.randn(2, 19, 24)


def run(dtype):
    made = model.to(dtype)
    made.zero_grad()
    out = made(input_ids=ids, attention_mask=mask, pixel_values=pixels.to(dtype), output_hidden_states=True).hidden_states
    loss = ((out[-3] - target.to(dtype)) ** 2).mean() + ((out[-1] - target_last.to(dtype)) ** 2).mean()
    loss.backward()
    return [out[-3].detach(), out[-1].detach()], loss.detach(), {n: p.grad.clone() for n, p in made.named_parameters() if p.grad is not None}


_, _, exact = run(torch.float64)
largest = max(g.abs().max() for g in exact.values())
tiny = {n: [g.abs().max().item()] for n, g in exact.items() if g.abs().max() < 1e-6 * largest}
(early, last), loss, grad = run(torch.float32)
for n in tiny:
    tiny[n].append(grad[n].abs().max().item())
kept = {n: p for n, p in model.named_parameters() if "lm_head" not in n}
save_file({"in.input_ids": ids, "in.attention_mask": mask, "in.pixel_values": pixels, "in.target": target, "in.target_last": target_last,
           "out.prompt_embeds_uncropped": early, "out.last_hidden_state": last, "out.loss": loss.reshape(1)}
          | {f"param.{n}": p.data.contiguous() for n, p in kept.items()}
          | {f"grad.{n}": grad[n].contiguous() for n in kept if n in grad}, f"{GOLDEN}/llava.safetensors")
json.dump({"_class_name": "LlavaForConditionalGeneration", "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava",
           "vision_config": {"model_type": "clip_vision_model", **vision}, "text_config": {"model_type": "llama", **text},
           "image_token_index": 7,
           "loss": "mean squared error of out.prompt_embeds_uncropped against in.target + that of out.last_hidden_state against in.target_last",
           "params_without_gradient_in_reference": [n for n in kept if n not in grad],
           "gradients_mostly_rounding": {"what": "name: [largest magnitude in f64, in f32]", **tiny}},
          open(f"{GOLDEN}/llava.json", "w"), indent=1)

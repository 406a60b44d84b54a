#!/usr/bin/env python3
"""Makes tests/golden/t5_buckets.* and cogvideox_narrow.*: outputs and gradients of a T5 encoder
whose number of buckets 4 does not divide, and of a CogVideoX transformer with heads narrower than
16. Needs PyTorch, transformers, diffusers and safetensors; run from the root of the checkout."""
import json

import torch
from diffusers import CogVideoXTransformer3DModel
from safetensors.torch import save_file
from transformers import T5Config, T5EncoderModel

GOLDEN = "tests/golden"
torch.manual_seed(9)


def randomize(model):
    for name, parameter in model.named_parameters():
        noise = torch.randn_like(parameter)
        parameter.data = noise * parameter[0].numel() ** -0.5 if parameter.dim() > 1 else parameter.data + 0.1 * noise
    return model.train()


def write(file, model, config, inputs, target, output, tolerance):
    def run(dtype):
        made = model.to(dtype)
        made.zero_grad()
        out = output(made(**{k: v.to(dtype) if v.is_floating_point() else v for k, v in inputs.items()}))
        loss = ((out - target.to(dtype)) ** 2).mean()
        loss.backward()
        return out.detach(), loss.detach(), {n: p.grad.clone() for n, p in made.named_parameters() if p.grad is not None}

    wide, _, exact = run(torch.float64)
    largest = max(g.abs().max() for g in exact.values())
    tiny = {n: [g.abs().max().item()] for n, g in exact.items() if g.abs().max() < 1e-6 * largest}
    out, loss, grad = run(torch.float32)
    for n in tiny:
        tiny[n].append(grad[n].abs().max().item())
    name = "out.sample" if "sample_width" in config else "out.last_hidden_state"
    save_file({f"in.{k}": v for k, v in inputs.items()} | {"in.target": target, name: out.contiguous(), "out.loss": loss.reshape(1)}
              | {f"param.{n}": p.data.contiguous() for n, p in model.named_parameters()}
              | {f"grad.{n}": g.contiguous() for n, g in grad.items()}, f"{GOLDEN}/{file}.safetensors")
    json.dump(config | {"loss": f"mean squared error of {name} against in.target", "params_without_gradient_in_reference": [],
                        "gradients_mostly_rounding": {"what": "name: [largest magnitude in f64, in f32]", **tiny},
                        "golden": {"suggested_tolerance": {"out": tolerance, "grad": tolerance},
                                   "difference_from_f64_run": {"out": ((out - wide).norm() / wide.norm()).item()}}},
              open(f"{GOLDEN}/{file}.json", "w"), indent=1)


config = T5Config(vocab_size=20, d_model=12, d_kv=4, d_ff=20, num_layers=2, num_heads=3, feed_forward_proj="gated-gelu", dropout_rate=0,
                  relative_attention_num_buckets=10, relative_attention_max_distance=7)
mask = torch.ones(2, 19, dtype=torch.int64)
mask[0, 15:] = 0
keep = ("vocab_size", "d_model", "d_kv", "d_ff", "num_layers", "num_heads", "feed_forward_proj", "relative_attention_num_buckets",
        "relative_attention_max_distance", "layer_norm_epsilon")
write("t5_buckets", randomize(T5EncoderModel(config)),
      {"_class_name": "T5EncoderModel", "architectures": ["T5EncoderModel"], "model_type": "t5"} | {k: getattr(config, k) for k in keep},
      {"input_ids": torch.randint(1, 20, (2, 19)), "attention_mask": mask}, torch.randn(2, 19, 12), lambda r: r.last_hidden_state, 1e-5)

model = randomize(CogVideoXTransformer3DModel(num_attention_heads=4, attention_head_dim=4, in_channels=4, out_channels=4, time_embed_dim=8,
                                              text_embed_dim=8, num_layers=1, sample_width=6, sample_height=4, sample_frames=5, patch_size=2,
                                              max_text_seq_length=5))
write("cogvideox_narrow", model, {"_class_name": "CogVideoXTransformer3DModel"} | {k: v for k, v in model.config.items() if not k.startswith("_")},
      {"hidden_states": torch.randn(2, 2, 4, 4, 6), "encoder_hidden_states": torch.randn(2, 5, 8), "timestep": torch.tensor([700, 20])},
      torch.randn(2, 2, 4, 4, 6), lambda r: r.sample, 2e-5)

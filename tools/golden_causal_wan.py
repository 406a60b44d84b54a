#!/usr/bin/env python3
"""Makes tests/golden/causal_wan*: forwards and gradients of small random models by tools/causal_wan.py, 30 training steps
with and without teacher forcing, and a file as Self-Forcing publishes its models. Needs PyTorch and safetensors; run from the root of the checkout."""
import json

import torch
from causal_wan import CausalWanTransformer3DModel
from golden_training import ITEMS, normal_of, samples, train
from safetensors.torch import save_file

common = dict(patch_size=[1, 2, 2], num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=10, freq_dim=8,
              ffn_dim=20)


def model_of(draw, **config):
    normal, model = normal_of(draw), CausalWanTransformer3DModel(**common, **config)
    for key, parameter in model.named_parameters():
        parameter.data = normal(*parameter.shape) / parameter[0].numel() ** 0.5 if parameter.dim() > 1 else 0.1 * normal(*parameter.shape)
        if "norm" in key and key.endswith(".weight"):
            parameter.data += 1
    return model


def once(name, frames, teacher, **config):
    """One forward and the gradients of a model in f64, of inputs and parameters that f32 holds."""
    draw = torch.Generator().manual_seed(51)
    normal, model = normal_of(draw), model_of(draw, **config)
    inputs = {"hidden_states": normal(2, 4, frames, 4, 6), "timestep": 1000 * torch.rand((2, frames), generator=draw),
              "encoder_hidden_states": normal(2, 5, 10)}
    if teacher:
        inputs["clean_x"] = normal(2, 4, frames, 4, 6)
    params = {n: p.data.clone() for n, p in model.named_parameters()}
    made = model.double()(**{k: v.double() for k, v in inputs.items()})
    target = normal(*made.shape)
    loss = ((made - target.double()) ** 2).mean()
    loss.backward()
    tensors = {f"in.{k}": v for k, v in inputs.items()} | {"out.sample": made, "out.loss": loss, "in.target": target}
    tensors |= {f"param.{k}": v for k, v in params.items()} | {f"grad.{n}": p.grad for n, p in model.named_parameters()}
    save_file({k: v.detach().float().contiguous() for k, v in tensors.items()}, f"tests/golden/{name}.safetensors")
    json.dump({"config": {"_class_name": "CausalWanTransformer3DModel", **common, **config},
               "loss": "mean((out - target)**2)"}, open(f"tests/golden/{name}.json", "w"), indent=1)


def published():
    """The generator of Self-Forcing as FSDP saves it, with the names of Wan's authors: the parameters of causal_wan."""
    names = (("condition_embedder.time_embedder.linear_1", "time_embedding.0"), ("condition_embedder.time_embedder.linear_2", "time_embedding.2"),
             ("condition_embedder.text_embedder.linear_1", "text_embedding.0"), ("condition_embedder.text_embedder.linear_2", "text_embedding.2"),
             ("condition_embedder.time_proj", "time_projection.1"), ("proj_out", "head.head"), ("attn1.to_out.0", "self_attn.o"),
             ("attn2.to_out.0", "cross_attn.o"), ("attn1.to_", "self_attn."), ("attn2.to_", "cross_attn."), ("attn1", "self_attn"),
             ("attn2", "cross_attn"), ("ffn.net.0.proj", "ffn.0"), ("ffn.net.2", "ffn.2"), ("norm2", "norm3"))
    draw = torch.Generator().manual_seed(51)
    own = {}
    for name, parameter in model_of(draw, num_layers=2, num_frames_per_block=2).named_parameters():
        theirs = "head.modulation" if name == "scale_shift_table" else name.replace("scale_shift_table", "modulation")
        for here, there in names:
            theirs = theirs.replace(here, there)
        own["model._fsdp_wrapped_module." + theirs] = parameter.data
    torch.save({"generator": {k: torch.zeros_like(v) for k, v in list(own.items())[:1]}, "generator_ema": own}, "tests/golden/causal_wan_generator.pt")


def trained(name, teacher, **config):
    draw = torch.Generator().manual_seed(52)
    normal, model = normal_of(draw), model_of(draw, **config)
    sampled, inputs = samples(draw, 4, 4, 4, 4), {"encoder_hidden_states": normal(ITEMS, 5, 10)}
    if teacher:
        inputs["clean_x"] = sampled[0].clone()

    def predict(x, t, items):
        return model(x, 1000 * t, **{k: v[items] for k, v in inputs.items()})
    train(name, model, common | config, sampled, inputs, predict,
          "flow matching: x = (1-t)*data + t*noise, target = noise - data, model timestep = 1000*t"
          + (", clean_x = data" if teacher else ""))


if __name__ == "__main__":
    once("causal_wan", 6, False, num_layers=2, num_frames_per_block=2)
    once("causal_wan_window", 8, False, num_layers=2, num_frames_per_block=2, local_attn_size=5, sink_size=1)
    once("causal_wan_teacher", 6, True, num_layers=2, num_frames_per_block=2, local_attn_size=4, cross_attn_norm=False)
    published()
    trained("causal_wan", False, num_layers=1, num_frames_per_block=2)
    trained("causal_wan_teacher", True, num_layers=1, num_frames_per_block=2)

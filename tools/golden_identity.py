#!/usr/bin/env python3
"""Makes tests/golden/distill/identity*: 20 steps of a tiny Wan transformer with an identity encoder of image features, in PyTorch
(f64). Run from the root of the checkout; needs PyTorch and diffusers.

    identity            hidden states of patches, up to three images of a sample, a dropped share of the samples
    identity_lora       the same with LoRA of the transformer; the identity encoder is trained completely
    identity_embedding  projected vectors

A sample has one to three images; the tokens of others, up to the four of the encoder, are zeros, as the tokens of dropped samples
are. Draws and items as in golden_distill.py."""
import json

import torch
from diffusers import WanTransformer3DModel
from golden_distill import BATCH, CONFIG, LORA, OPTIMIZER, SAMPLES, SHAPE, SHIFT, STEPS, TEXT, add_lora, each, named, noise_of, random_weights, shifted
from golden_draws import normal, uniform
from safetensors.torch import save_file
from torch.nn import functional

TIMESTEP, IDENTITY = 3, 12  # purposes of the draws
IMAGES, PATCHES, WIDTH, DROPOUT = 3, 5, 6, 0.3
GIVEN = [3, 1, 2, 3, 2]  # images of each sample
ENCODER = {"_class_name": "WeftIdentityEncoder", "num_images": 4, "in_channels": WIDTH, "text_dim": CONFIG["text_dim"], "num_tokens": 3,
           "dim": 8, "num_heads": 2, "num_layers": 2, "ffn_dim": 12}
# f32 misses 1e-4 at the usual eps: gradients near 0 of the queries and norms have the size of its rounding
EPS = 1e-2
torch.set_num_threads(1)


class Layer(torch.nn.Module):
    def __init__(self, dim, heads, inner):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = (torch.nn.LayerNorm(dim, eps=1e-6) for _ in range(2))
        self.to_q, self.to_k, self.to_v, self.to_out = (torch.nn.Linear(dim, dim) for _ in range(4))
        self.ff = torch.nn.Module()
        self.ff.net = torch.nn.ModuleDict({"0": torch.nn.ModuleDict({"proj": torch.nn.Linear(dim, inner)}), "2": torch.nn.Linear(inner, dim)})

    def forward(self, x, q):
        h = self.norm1(q)
        both = torch.cat([x, h], 1)

        def split(y):
            return y.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        seen = functional.scaled_dot_product_attention(split(self.to_q(h)), split(self.to_k(both)), split(self.to_v(both)))
        q = q + self.to_out(seen.transpose(1, 2).flatten(-2))
        inner = functional.gelu(self.ff.net["0"]["proj"](self.norm2(q)), approximate="tanh")
        return q + self.ff.net["2"](inner)


class Encoder(torch.nn.Module):
    """Tokens (B,T K,W) of features (B,T,P,C), or of latents (B,T,Y,X,C): each image alone."""

    def __init__(self, c):
        super().__init__()
        self.count, self.width = c["num_tokens"], c["text_dim"]
        self.norm_out = torch.nn.LayerNorm(c["text_dim"], eps=1e-6)
        if c["features"] == "embedding":
            self.proj_embedding = torch.nn.Linear(c["in_channels"], self.count * self.width)
            return
        self.norm_in = torch.nn.LayerNorm(c["dim"], eps=1e-6)
        if c["features"] == "latents":
            self.conv_in, self.conv_out = (torch.nn.Conv3d(n, c["dim"], (1, 3, 3), padding=(0, 1, 1)) for n in (c["in_channels"], c["dim"]))
        else:
            self.proj_in = torch.nn.Linear(c["in_channels"], c["dim"])
        self.queries = torch.nn.Parameter(torch.zeros(self.count, c["dim"]))
        self.layers = torch.nn.ModuleList(Layer(c["dim"], c["num_heads"], c["ffn_dim"]) for _ in range(c["num_layers"]))
        self.proj_out = torch.nn.Linear(c["dim"], c["text_dim"])

    def of_image(self, x):
        if hasattr(self, "proj_embedding"):
            return self.norm_out(self.proj_embedding(x[:, 0]).unflatten(-1, (self.count, self.width)))
        if hasattr(self, "conv_in"):
            x = self.conv_out(functional.silu(self.conv_in(x.permute(0, 3, 1, 2)[:, :, None]))).flatten(2).transpose(1, 2)
        else:
            x = self.proj_in(x)
        x, q = self.norm_in(x), self.queries.expand(len(x), -1, -1)
        for layer in self.layers:
            q = layer(x, q)
        return self.norm_out(self.proj_out(q))

    def forward(self, images):
        return torch.cat([self.of_image(images[:, t]) for t in range(images.shape[1])], 1)


def groups(modules):
    """weft decays matrices and kernels only."""
    trained = [p for m in modules for p in m.parameters() if p.requires_grad]
    return [{"params": [p for p in trained if p.dim() > 1], "weight_decay": OPTIMIZER["weight_decay"]},
            {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0}]


def make(name, features, lora):
    torch.manual_seed(3)
    encoder_config = {**ENCODER, "features": features}
    model, encoder = WanTransformer3DModel(**CONFIG), Encoder(encoder_config)
    for network in model, encoder:
        random_weights(network)
    model, encoder = model.double(), encoder.double()
    rows = 1 if features == "embedding" else PATCHES
    data, text = torch.randn(SAMPLES, *SHAPE).double(), torch.randn(SAMPLES, TEXT, CONFIG["text_dim"]).double()
    images = torch.randn(SAMPLES, IMAGES, rows, WIDTH).double()
    given = torch.tensor([[float(t < count) for t in range(IMAGES)] for count in GIVEN]).double()
    images = images * given[..., None, None]
    if lora:
        add_lora(model, LORA["rank"], LORA["alpha"], LORA["targets"])
    tensors = {**named(model, "param."), **named(encoder, "param_identity."), "in.latents": data.permute(0, 2, 3, 4, 1).float(), "in.text": text.float(),
               "in.identity": images[:, :, None].float(), "in.identity_given": given.float()}
    optimizer = torch.optim.AdamW(groups([model, encoder]), lr=OPTIMIZER["lr"], betas=OPTIMIZER["betas"], eps=EPS)
    losses, norms = [], []
    for step in range(STEPS):
        items, keys = [(step * BATCH + i) % SAMPLES for i in range(BATCH)], [1000 * step + i + 1 for i in range(BATCH)]
        tokens = encoder(images[items]).unflatten(1, (IMAGES, -1)) * given[items][..., None, None]
        kept = torch.tensor([float(uniform(key, IDENTITY, 0) >= DROPOUT) for key in keys]).double()
        tokens = tokens.flatten(1, 2) * kept[:, None, None]
        absent = torch.zeros(BATCH, (ENCODER["num_images"] - IMAGES) * ENCODER["num_tokens"], CONFIG["text_dim"]).double()
        s = shifted(torch.sigmoid(torch.tensor([float(normal(key, TIMESTEP, 0)) for key in keys]).double()))
        noise, clean = noise_of(keys), data[items]
        made = model((1 - each(s)) * clean + each(s) * noise, 1000 * s, torch.cat([tokens, absent, text[items]], 1), return_dict=False)[0]
        loss = ((made - (noise - clean)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        trained = [p for m in (model, encoder) for p in m.parameters() if p.grad is not None]
        norms.append(torch.nn.utils.clip_grad_norm_(trained, OPTIMIZER["clip_norm"]).item())
        losses.append(loss.item())
        optimizer.step()
    tensors |= {**named(model, "final.", lora), **named(encoder, "final_identity.")}
    save_file({k: v.contiguous() for k, v in tensors.items()}, f"tests/golden/distill/{name}.safetensors")
    with open(f"tests/golden/distill/{name}.json", "w") as f:
        json.dump({"config": {**CONFIG, "_class_name": "WanTransformer3DModel"}, "kind": name, "identity": encoder_config, "dropout": DROPOUT,
                   "batch": BATCH, "shift": SHIFT, "optimizer": {**OPTIMIZER, "eps": EPS}, "lora": LORA if lora else None, "losses": losses,
                   "grad_norms": norms, "reference": f"torch {torch.__version__}, f64"}, f, indent=1)


if __name__ == "__main__":
    make("identity", "patches", False)
    make("identity_lora", "patches", True)
    make("identity_embedding", "embedding", False)

#!/usr/bin/env python3
"""The shapes of bench/models in PyTorch with diffusers' modules, eager, f32 or bf16, on the CPU. Prints
lines "peer NAME SECONDS", the best run."""
import os
import sys
import time

import torch
from diffusers import AutoencoderKLWan, WanTransformer3DModel

RUNS = 5
torch.manual_seed(0)
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))


def best(run):
    run()
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def dit(bf16=False):
    model = WanTransformer3DModel(num_attention_heads=12, attention_head_dim=32, in_channels=16, out_channels=16, text_dim=512,
                                  freq_dim=256, ffn_dim=1536, num_layers=12, rope_max_seq_len=1024)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.99), weight_decay=0.01)
    x, text, t = torch.randn(2, 16, 6, 32, 32), torch.randn(2, 64, 512), torch.tensor([100.0, 700.0])
    target = torch.randn(2, 16, 6, 32, 32)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            prediction = model(x, t, text, return_dict=False)[0]
        loss = (prediction.float() - target).pow(2).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    print(f"PyTorch {torch.__version__}\npeer dit_step {best(step):.4f}")


def vae(bf16=False):
    dtype = torch.bfloat16 if bf16 else torch.float32
    model = AutoencoderKLWan(base_dim=32, z_dim=16).to(dtype)
    video = (torch.rand(1, 3, 17, 128, 128) * 2 - 1).to(dtype)
    with torch.no_grad():
        z = model.encode(video).latent_dist.mean
        encode = best(lambda: model.encode(video).latent_dist.mean)
        decode = best(lambda: model.decode(z).sample)
    print(f"PyTorch {torch.__version__}\npeer encode {encode:.4f}\npeer decode {decode:.4f}\npeer both {encode + decode:.4f}")


part = sys.argv[1]
{"dit": dit, "vae": vae}[part.removesuffix("_bf16")](part.endswith("_bf16"))

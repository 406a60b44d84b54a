#!/usr/bin/env python3
"""Times attention, products and training steps of Wan 1.3B's blocks in PyTorch on a GPU: the peer of
bench/gpu.md. Usage: gpu_peer.py [LAYERS]. Eager and compiled steps with flash attention and cuDNN."""
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

TOKENS, TEXT, HEADS, HEAD, HIDDEN, FFN = 32760, 512, 12, 128, 1536, 8960
BF16 = {"device": "cuda", "dtype": torch.bfloat16}


def milliseconds(run, rounds=5):
    """Median time of the GPU over some rounds, after two."""
    times = []
    for i in range(rounds + 2):
        begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times[2:])[rounds // 2]


def rotate(x, cosine, sine):
    even, odd = x[..., 0::2], x[..., 1::2]
    pairs = torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), -1)
    return pairs.flatten(-2).to(x.dtype)


class RmsNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x):
        return F.rms_norm(x, (HIDDEN,), self.weight.to(x.dtype), 1e-6)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(HIDDEN, HIDDEN) for _ in range(4))
        self.norm_q, self.norm_k = RmsNorm(), RmsNorm()

    def forward(self, x, source, rotation=None):
        q = self.norm_q(self.q(x)).unflatten(-1, (HEADS, HEAD))
        k = self.norm_k(self.k(source)).unflatten(-1, (HEADS, HEAD))
        v = self.v(source).unflatten(-1, (HEADS, HEAD))
        if rotation:
            q, k = rotate(q, *rotation), rotate(k, *rotation)
        y = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)))
        return self.out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attention, self.cross_attention = Attention(), Attention()
        self.norm = nn.LayerNorm(HIDDEN, 1e-6)
        self.up, self.down = nn.Linear(HIDDEN, FFN), nn.Linear(FFN, HIDDEN)
        self.table = nn.Parameter(torch.randn(1, 6, HIDDEN) / HIDDEN**0.5)

    def forward(self, x, text, time, rotation):
        shift, scale, gate, shift_ff, scale_ff, gate_ff = (self.table + time).to(x.dtype).chunk(6, 1)
        h = F.layer_norm(x, (HIDDEN,), eps=1e-6) * (1 + scale) + shift
        x = x + self.self_attention(h, h, rotation) * gate
        x = x + self.cross_attention(self.norm(x), text)
        h = F.layer_norm(x, (HIDDEN,), eps=1e-6) * (1 + scale_ff) + shift_ff
        return x + self.down(F.gelu(self.up(h), approximate="tanh")) * gate_ff


def time_attention(name, backend):
    q, k, v = (torch.randn(1, HEADS, TOKENS, HEAD, requires_grad=True, **BF16) for _ in range(3))
    flops = 4 * TOKENS**2 * HEADS * HEAD
    with sdpa_kernel(backend):
        y = F.scaled_dot_product_attention(q, k, v)
        dy = torch.randn_like(y)
        forward = milliseconds(lambda: F.scaled_dot_product_attention(q, k, v))
        backward = milliseconds(lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True))
    print(f"attention, {name}: forward {forward:.2f} ms, {flops / forward / 1e9:.0f} TFLOP/s; "
          f"backward {backward:.2f} ms, {2.5 * flops / backward / 1e9:.0f} TFLOP/s")


def time_products():
    for columns, terms in ((HIDDEN, HIDDEN), (FFN, HIDDEN), (HIDDEN, FFN)):
        x, weight = torch.randn(TOKENS, terms, **BF16), torch.randn(columns, terms, **BF16)
        ms = milliseconds(lambda: F.linear(x, weight))
        print(f"linear, {TOKENS} x {columns} x {terms}: {ms:.3f} ms, "
              f"{2 * TOKENS * columns * terms / ms / 1e9:.0f} TFLOP/s")


def time_step(layers, name, backend, compiled):
    torch._dynamo.reset()  # a compiled block keeps the attention it was compiled with
    blocks = nn.ModuleList(Block() for _ in range(layers)).cuda()
    optimizer = torch.optim.AdamW(blocks.parameters(), 1e-4, fused=True)
    x, text = torch.randn(1, TOKENS, HIDDEN, **BF16), torch.randn(1, TEXT, HIDDEN, **BF16)
    time, angle = torch.randn(1, 6, HIDDEN).cuda(), torch.rand(TOKENS, 1, HEAD // 2).cuda()
    rotation = angle.cos().bfloat16(), angle.sin().bfloat16()
    run = [torch.compile(block) if compiled else block for block in blocks]

    def step():
        with torch.autocast("cuda", torch.bfloat16), sdpa_kernel(backend):
            h = x
            for block in run:
                h = block(h, text, time, rotation)
            h.float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    ms = milliseconds(step, 3)
    print(f"step of {layers} blocks, {'compiled' if compiled else 'eager'}, {name}: {ms:.0f} ms, "
          f"peak {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB", flush=True)


def main():
    torch.manual_seed(0)
    backends = (("flash", SDPBackend.FLASH_ATTENTION), ("cuDNN", SDPBackend.CUDNN_ATTENTION))
    for name, backend in backends:
        time_attention(name, backend)
    time_products()
    for compiled in (False, True):
        for name, backend in backends:
            time_step(int(sys.argv[1]) if len(sys.argv) > 1 else 8, name, backend, compiled)


main()

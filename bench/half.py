#!/usr/bin/env python3
"""bench/half.py BUILD [kernels] [models] [generation] [memory] [bounds]: half precision next to f32 and next to PyTorch in bf16, on one thread.

Calls bench/kernels, bench/models and weft generate, which measure each work in f32 and in bf16, and
their peers ($WEFT_PEER_PYTHON: a Python with torch, diffusers and transformers; without it the columns
of PyTorch and the denoising step are empty). Then predicts the memory of training steps. A goal is the
least ratio; for memory the largest share."""
import csv
import json
import math
import os
import re
import sys
import tempfile

from half_runs import ROOT, number, output, rows, step_of

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
PEER = os.environ.get("WEFT_PEER_PYTHON", "")


PEER_MS = {} # work -> milliseconds of PyTorch in this run


def ratio(a, b):
    return f"{a / b:.2f}" if a and b else "-"


def shown(ms):
    return f"{ms:.4g}" if ms else "-"


def show(work, f32, narrow, goal, peer, peer_goal):
    """Milliseconds in f32 and in the narrow type, and PyTorch's in bf16; 0: not measured."""
    if peer:
        PEER_MS[work] = peer
    print(f"| {work} | {shown(f32)} | {shown(narrow)} | {ratio(f32, narrow)} | {goal} | {shown(peer)} | "
          f"{ratio(peer, narrow)} | {peer_goal} |", flush=True)


def kernels():
    table = rows(f"{BUILD}/bench/kernels", "--bf16", "products")
    table.update(rows(f"{BUILD}/bench/kernels", "--bf16", "1x12x1536x64"))
    for work, label, goal, peer_goal in (
            ("product 3072x1536x1536, bf16", "linear 3072x1536 -> 1536", "1.8", "1.0"),
            ("attention 12x1536x64, bf16", "attention 1x12x1536x64", "1.5", "3"),
            ("attention 12x1536x64 backward, bf16", "attention_grad 1x12x1536x64", "1.4", "3")):
        row = table.get(label, {})
        show(work, number(row.get("f32 ms")), number(row.get("bf16 ms")), goal,
             number(row.get("PyTorch bf16 ms")), peer_goal)
        if row.get("int8 ms", "-") != "-":
            show(work.replace("bf16", "int8"), number(row.get("f32 ms")), number(row.get("int8 ms")), "3",
                 number(row.get("PyTorch bf16 ms")), "1.0")


def models():
    table = {}
    for part in ("dit", "dit_bf16", "vae", "vae_bf16"):
        table.update(rows(f"{BUILD}/bench/models", part))
    for work, goal, peer_goal in (("DiT training step", "1.5", "2"), ("VAE encode", "1.5", "2.5"),
                                  ("VAE decode", "1.5", "2.5")):
        wide, narrow = table.get(work, {}), table.get(f"{work}, bf16", {})
        show(f"{work}, bf16", 1e3 * number(wide.get("weft s")), 1e3 * number(narrow.get("weft s")), goal,
             1e3 * number(narrow.get("PyTorch s")), peer_goal)


def generation():
    if not PEER:
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = f"{scratch}/wan"
        output([PEER, "bench/peer_generate.py", "make", "wan", folder])
        wide = step_of(BUILD, folder)
        bf16 = step_of(BUILD, folder, "--precision", "bf16", "--weights", "bf16")
        int8 = step_of(BUILD, folder, "--precision", "bf16", "--weights", "int8")
        peer = float(output([PEER, "bench/peer_generate.py", "run", folder, "17", "192", "320", "4", "bf16"]).split()[0])
    show("Wan denoising step 17x320x192, bf16", 1e3 * wide, 1e3 * bf16, "1.5", 1e3 * peer, "2")
    show("Wan denoising step 17x320x192, int8", 1e3 * wide, 1e3 * int8, "2", 1e3 * peer, "-")


RUN = """out: none
autoencoder: {{weights: {folder}}}
data: {{path: none, latents: none}}
transformer: {{class: WanTransformer3DModel, config: {{{config}}}}}
text_encoders: [{{class: WeftBytesEncoder, config: {{dim: 128, num_heads: 4, num_layers: 2, max_length: 40}}}}]
stages: [{{steps: 1, {size}}}]
"""


def memory():
    """Bytes that a run reserves for the programs of a step: activations, gradients and workspace."""
    print("\n| training step | f32 MiB | bf16 MiB | share | largest share |\n|---|---|---|---|---|")
    for step, config, size in (
            ("DiT, 12 layers of 384, batch 8 of 13x128x128", "num_layers: 12, num_attention_heads: 6, "
             "attention_head_dim: 64, ffn_dim: 1536", "batch: 8, frames: 13, height: 128, width: 128"),
            ("8 layers of Wan 1.3B, 17x320x192", "num_layers: 8, num_attention_heads: 12, attention_head_dim: 128, "
             "ffn_dim: 8960", "batch: 1, frames: 17, height: 320, width: 192")):
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
                json.dump({"_class_name": "AutoencoderKLWan", "base_dim": 4, "dim_mult": [1, 1, 2, 2], "num_res_blocks": 1}, file)
            with open(f"{folder}/run.yaml", "w", encoding="utf-8") as file:
                file.write(RUN.format(folder=folder, config=config, size=size))
            mib = [json.loads(output([f"{BUILD}/weft", "estimate", f"{folder}/run.yaml", "--json", "--set", f"precision={p}"]))
                   ["stages"][0]["program_bytes"] / 2**20 for p in ("f32", "bf16")]
        print(f"| {step} | {mib[0]:.1f} | {mib[1]:.1f} | {mib[1] / mib[0]:.3f} | 0.55 |", flush=True)


CYCLES_PER_MS = 3.67e6 # of a Zen 4 under this load; a vdpbf16ps of 64 FLOP per cycle
# Instructions on the ports of vdpbf16ps for 16 scores. Softmax: scale, polynomial of degree 4 less its first term
# (exp2_of_bf16 in src/kernel/cpu/attention_bf16.inc). Backward also: dS. The maximum of the clamp uses other ports.
SOFTMAX = {"attention": 5, "attention_grad": 6}
FLOPS_PER_SCORE = {"attention": 4, "attention_grad": 10} # times the width of a head
WAN = {"_class_name": "WanTransformer3DModel"}


def least(products, attention, head):
    """Millions of scores and least milliseconds. `attention`: FLOPs by kind of node."""
    cycles = (products + sum(attention.values())) / 64
    scores = 0
    for kind, flops in attention.items():
        scores += flops / (FLOPS_PER_SCORE[kind] * head)
        cycles += flops / (FLOPS_PER_SCORE[kind] * head) / 16 * SOFTMAX[kind]
    return scores / 1e6, cycles / CYCLES_PER_MS


def inspected(config, *options):
    """The lines of weft inspect model."""
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
            json.dump(config, file)
        return output([f"{BUILD}/weft", "inspect", "model", f"{folder}/config.json", "--bf16", *options]).splitlines()


def flops_of(config, *options):
    """FLOPs of products, and of attention by kind, as weft inspect model counts them."""
    lines = inspected(config, *options)
    kinds = {cells[0]: float(cells[3]) for line in lines if len(cells := line.split()) == 6 and cells[2] == "nodes"}
    return (sum(kinds.get(kind, 0) for kind in ("matmul", "linear", "conv3d", "conv3d_dw")),
            {kind: kinds[kind] for kind in FLOPS_PER_SCORE if kind in kinds})


def inside(outputs, inputs, taps, stride, before):
    """Positions of a dim's windows that are inside the input."""
    return sum(0 <= o * stride - before + t < inputs for o in range(outputs) for t in range(taps))


def vae_flops():
    """FLOPs of the convolutions of the encoder and of the decoder, without the padding. weft inspect counts positions
    in the padding, too, as usual: 426 GFLOP in place of 386. Kernels need not compute them."""
    config = {"_class_name": "AutoencoderKLWan", "base_dim": 32}
    shapes, flops = {}, {"encoder": 0, "decoder": 0}
    for line in inspected(config, "--graph", "--frames", "17", "--height", "128", "--width", "128"):
        for value, dims in re.findall(r"(%\d+) \w+\[([\d,]+)\]", line):
            shapes[value] = [int(dim) for dim in dims.split(",")]
        conv = re.match(r"(%\d+) .* = conv3d\((%\d+), (%\d+)(.*)", line)
        if not conv:
            continue
        y, x, w = (shapes[value] for value in conv.groups()[:3])
        stride, before = ([int(n) for n in found[1].split(",")] if found else 3 * [default] for found, default in (
            (re.search(r"stride=([\d,]+)", conv[4]), 1), (re.search(r"before=([\d,]+)", conv[4]), 0)))
        part = "decoder" if "decoder" in conv[4] or "post_quant" in conv[4] else "encoder"
        flops[part] += 2 * y[0] * w[0] * w[1] * math.prod(
            inside(y[1 + d], x[1 + d], w[2 + d], stride[d], before[d]) for d in range(3))
    return flops


def wan_flops():
    """FLOPs of the Wan step that a program must compute. The prompts have few tokens, and their padding is one key. Both
    halves of guidance are equal up to the first attention to the text: five products and a self-attention."""
    tokens, width, layers = 5 * 12 * 20, 512, 8
    products, attention = flops_of(
        dict(WAN, num_attention_heads=8, attention_head_dim=64, ffn_dim=2048, num_layers=layers, text_dim=16),
        "--batch-size", "2", "--frames", "17", "--height", "192", "--width", "320", "--text-tokens", "2")
    return (products - 5 * 2 * tokens * width**2,
            {kind: flops - flops / (2 * layers) for kind, flops in attention.items()})


def peer_times():
    """Milliseconds of PyTorch by work: the recorded ones, replaced by those of this run."""
    with open(f"{ROOT}/bench/results/half.csv", encoding="utf-8") as file:
        return {row["work"]: number(row["PyTorch bf16 ms"]) for row in csv.DictReader(file)} | PEER_MS


def bounds():
    """The ratio to PyTorch that is possible if a kernel uses the ports of vdpbf16ps in each cycle."""
    print("\n| work | products GFLOP | attention GFLOP | million scores | least ms | at most, PyTorch over narrow | "
          "goal over PyTorch |\n|---|---|---|---|---|---|---|")
    one = 12 * 1536 * 1536 * 64 # scores times the width of a head
    step = flops_of(dict(WAN, num_attention_heads=12, attention_head_dim=32, text_dim=512, ffn_dim=1536, num_layers=12),
                    "--training-step", "--batch-size", "2", "--frames", "21", "--height", "256", "--width", "256",
                    "--text-tokens", "64")
    wan = wan_flops()
    vae = vae_flops()
    times = peer_times()
    for work, (products, attention), head, goal in (
            ("attention 12x1536x64, bf16", (0, {"attention": 4 * one}), 64, "3"),
            ("attention 12x1536x64 backward, bf16", (0, {"attention_grad": 10 * one}), 64, "3"),
            ("DiT training step, bf16", step, 32, "2"), ("VAE encode, bf16", (vae["encoder"], {}), 1, "2.5"),
            ("VAE decode, bf16", (vae["decoder"], {}), 1, "2.5"), ("Wan denoising step 17x320x192, bf16", wan, 64, "2")):
        scores, ms = least(products, attention, head)
        print(f"| {work} | {products / 1e9:.1f} | {sum(attention.values()) / 1e9:.1f} | {scores:.1f} | {ms:.4g} | "
              f"{ratio(times.get(work, 0), ms)} | {goal} |", flush=True)


PARTS = {"kernels": kernels, "models": models, "generation": generation, "memory": memory, "bounds": bounds}
chosen = sys.argv[2:] or list(PARTS)
if unknown := [part for part in chosen if part not in PARTS]:
    sys.exit(f"bench/half.py: no part {unknown[0]}; the parts are {', '.join(PARTS)}")
print("| work | f32 ms | narrow ms | f32 over narrow | goal over f32 | PyTorch bf16 ms | PyTorch over narrow | goal over PyTorch |")
print("|---|---|---|---|---|---|---|---|")
for part in chosen:
    PARTS[part]()

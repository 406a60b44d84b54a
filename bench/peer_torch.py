"""Times PyTorch on the shapes of bench/kernels.c: lines "label<TAB>milliseconds" on standard output.

    peer_torch.py [--bf16] [PATTERN]   only labels that contain PATTERN; --bf16: all operands are bf16

bench/kernels runs this if WEFT_PEER_PYTHON names a Python with PyTorch. OMP_NUM_THREADS sets the threads;
with one thread the processor time counts, as in bench/kernels."""
import os
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit("no torch")

threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
torch.set_num_threads(threads)
bf16 = sys.argv[1:2] == ["--bf16"]
pattern = (sys.argv[1 + bf16:] or [""])[0]
torch.set_default_dtype(torch.bfloat16 if bf16 else torch.float32)
group = pattern if pattern in ("attention", "attention128", "dit", "linear", "products", "conv", "norm") else ""
pattern = "" if group else pattern  # a group of bench/kernels.c: all labels of the functions below
clock = time.process_time if threads == 1 else time.perf_counter


def measure(label, run, seconds=0.4):
    if pattern not in label:
        return
    run()
    best, stop, n = 1e9, clock() + seconds, 0
    while n < 3 or (clock() < stop and n < 200):
        start = clock()
        run()
        best = min(best, clock() - start)
        n += 1
    print(f"{label}\t{best * 1e3:.4f}", flush=True)


def rand(*shape, grad=False):
    return torch.randn(*shape, requires_grad=grad)


def attention(label, b, sq, sk, h, d):
    if pattern not in "attention " + label and pattern not in "attention_grad " + label:
        return
    q = rand(b, sq, h, d, grad=True)
    k, v = rand(b, sk, h, d, grad=True), rand(b, sk, h, d, grad=True)
    dout = rand(b, h, sq, d)

    def forward():
        return F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))

    with torch.no_grad():
        measure("attention " + label, forward)
    out = forward()
    measure("attention_grad " + label, lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True))


def gradient(label, forward, inputs):
    if pattern not in label:
        return
    with torch.no_grad():
        out = forward()
    dout = torch.randn_like(out)
    out = forward()
    measure(label, lambda: torch.autograd.grad(out, inputs, dout, retain_graph=True))


@torch.no_grad()
def products():
    for m, k, n in ((3072, 384, 384), (3072, 384, 1536), (3072, 1536, 384), (128, 384, 384), (512, 5120, 5120),
                    (3072, 1536, 1536), (2112, 512, 512), (2112, 512, 2048), (2112, 2048, 512), (2, 384, 2304),
                    (1, 4096, 4096), (226, 4096, 4096)):
        x, w, b = rand(m, k), rand(n, k), rand(n)
        measure(f"linear {m}x{k} -> {n}", lambda: F.linear(x, w, b))
        if n in (1536, 2048):
            measure(f"linear gelu {m}x{k} -> {n}", lambda: F.gelu(F.linear(x, w, b), approximate="tanh"))
    for m, k, n in ((3072, 384, 384), (3072, 384, 1536), (3072, 1536, 384), (3072, 1536, 1536), (2112, 512, 512),
                    (2, 2304, 384)):
        a, b = rand(m, k), rand(k, n)
        measure(f"matmul nn {m}x{k} . {k}x{n}", lambda: a @ b)
    for m, k, n in ((384, 3072, 384), (1536, 3072, 384), (384, 3072, 1536), (1536, 3072, 1536), (512, 2112, 512),
                    (2048, 2112, 512), (2304, 2, 384)):
        a, b = rand(k, m), rand(k, n)
        measure(f"matmul tn {m}x{k} . {k}x{n}", lambda: a.T @ b)
    a, b = rand(24, 1536, 32), rand(24, 1536, 32)
    measure("matmul 24 x 1536x32 . 32x1536", lambda: a @ b.transpose(1, 2))


def rows():
    x, g = rand(2, 1536, 384, grad=True), rand(384, grad=True)
    mod = rand(2, 1, 384)
    wide = rand(3072, 1536, grad=True)
    with torch.no_grad():
        measure("layer_norm 3072x384", lambda: F.layer_norm(x, (384,)))
        measure("rms_norm 3072x384", lambda: F.rms_norm(x, (384,), g))
        measure("modulate 2x1536x384", lambda: x * (1 + mod) + mod)
        measure("gated_add 2x1536x384", lambda: x + x * mod)
        measure("gelu 3072x1536", lambda: F.gelu(wide, approximate="tanh"))
        measure("add 3072x384", lambda: x + x)
        measure("sum rows 3072x384", lambda: x[0].sum(0))
    gradient("layer_norm_grad 3072x384", lambda: F.layer_norm(x, (384,)), (x,))
    gradient("rms_norm_grad 3072x384", lambda: F.rms_norm(x, (384,), g), (x, g))
    gradient("gelu_grad 3072x1536", lambda: F.gelu(wide, approximate="tanh"), (wide,))


def convolutions():
    for t, y, i, o, k in ((17, 128, 3, 32, 3), (17, 128, 32, 32, 3), (9, 64, 64, 64, 3), (5, 32, 128, 128, 3),
                          (17, 128, 32, 3, 3), (17, 128, 64, 32, 1)):
        x, w, b = rand(1, i, t, y, y, grad=True), rand(o, i, k, k, k, grad=True), rand(o, grad=True)

        def forward():  # the causal padding of the public modules: a copy in front
            padded = F.pad(x, (k // 2, k // 2, k // 2, k // 2, k - 1, 0)) if k > 1 else x
            return F.conv3d(padded, w, b)

        label = f"{i}->{o} {t}x{y}x{y} k{k}"
        with torch.no_grad():
            measure("conv3d " + label, forward)
        gradient("conv3d_dx " + label, forward, (x,))
        gradient("conv3d_dw " + label, forward, (w,))


if group in ("", "attention", "attention128", "dit"):
    attention("1x12x1536x64", 1, 1536, 1536, 12, 64)
    attention("1x12x2048x128", 1, 2048, 2048, 12, 128)
    attention("2x12x1536x32", 2, 1536, 1536, 12, 32)
    attention("cross 2x12x1536x32 / 64", 2, 1536, 64, 12, 32)
if group in ("", "linear", "products", "dit"):
    products()
if group in ("", "norm", "dit"):
    rows()
if group in ("", "conv"):
    convolutions()

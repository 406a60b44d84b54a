#!/usr/bin/env python3
"""Memory of `weft generate` with one layer of published width and random weights, in memory and streamed.

usage: stream.py WEFT [SIZE...]

The small pipelines of tests/golden get a transformer of one layer with the width of the published size,
in bf16. Two steps with weights in memory and two with `--weights stream` make the same video. The table has the
predicted and the measured peaks, and whether the latents are bitwise identical.
"""
import array
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

GOLDEN = Path(__file__).resolve().parent.parent / "tests/golden/pipelines"
FAMILIES = {  # size: pipeline, folder of the transformer, its config
    "qwen-image": ("qwen_image", "transformer", {"num_layers": 1, "num_attention_heads": 24, "attention_head_dim": 128, "axes_dims_rope": [16, 56, 56]}),
    "hunyuanvideo-1.5": ("hunyuan15", "transformer", {"num_layers": 1, "num_attention_heads": 16, "attention_head_dim": 128, "mlp_ratio": 4.0,
                                                      "rope_axes_dim": [16, 56, 56]}),
    "wan2.2-animate-14b": ("wan_animate", "transformer", {"num_layers": 1, "num_attention_heads": 40, "attention_head_dim": 128, "ffn_dim": 13824, "added_kv_proj_dim": 5120}),
    "longcat-video": ("longcat", "dit", {"depth": 1, "num_heads": 32, "hidden_size": 4096, "adaln_tembed_dim": 512}),
}


def write_weights(weft, folder):
    """Random bf16 values below 0.03 for every parameter of the graph. Returns the bytes of the file."""
    graph = subprocess.run([weft, "inspect", "model", str(folder / "config.json"), "--graph"], check=True, text=True, stdout=subprocess.PIPE).stdout
    shapes = {}
    for name, dims in re.findall(r"= param ([^ ]+) .*global=\[([\d,]*)\]", graph):
        shapes[name.split(".", 1)[1]] = [int(d) for d in dims.split(",")]
    assert len(shapes) > 20, shapes
    rng = random.Random(1)
    block = b"".join(struct.pack("<H", rng.getrandbits(1) << 15 | 0x3C00 | rng.getrandbits(8)) for _ in range(65537))
    for old in folder.glob("*.safetensors*"):
        old.unlink()
    header, at = {}, 0
    for name, shape in shapes.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 2 * math.prod(shape)]}
        at += 2 * math.prod(shape)
    text = json.dumps(header).encode()
    with open(folder / "diffusion_pytorch_model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for start in range(0, at, len(block)):
            file.write(block[:at - start])
    return at


def generate(weft, model, asked, weights):
    """Runs two steps. Returns predicted and measured peak in MiB, and the latents."""
    options = {k: v for k, v in asked["options"].items() if k != "--steps"}
    words = [word for pair in options.items() for word in pair]
    for key, files in asked.get("files", {}).items():
        words += [word for f in files for word in (key, str(model / f))]
    command = [weft, "generate", "--model", str(model), "--steps", "2", "--weights", weights, "--latents-npy", "--out", f"{weights}.mp4", *words]
    pid = os.spawnvpe(os.P_NOWAIT, "sh", ["sh", "-c", 'exec "$@" >log 2>&1', "sh", *command], os.environ | {"WEFT_LOG_FORMAT": "json", "OMP_NUM_THREADS": "1"})
    _, status, usage = os.wait4(pid, 0)
    messages = [json.loads(line) for line in open("log") if line.startswith("{")]
    if status:
        sys.exit(f"{' '.join(command)}\n{Path('log').read_text()}")
    predicted = next(m["value"] for m in messages if m.get("id") == "job-report" and "value" in m)
    latents = Path(f"{weights}.latents.npy").read_bytes()
    values = array.array("f", latents[10 + struct.unpack("<H", latents[8:10])[0]:])
    assert all(map(math.isfinite, values)), model
    return predicted / 2**20, usage.ru_maxrss / 1024, latents


def main():
    weft = os.path.abspath(sys.argv[1])
    os.chdir(tempfile.mkdtemp())
    folder = os.getcwd()
    print("| one layer of | file MiB | weights | predicted MiB | measured MiB | latents |\n|---|---|---|---|---|---|")
    for name in sys.argv[2:] or FAMILIES:
        pipeline, part, config = FAMILIES[name]
        model = Path(name)
        shutil.copytree(GOLDEN / pipeline, model)
        path = model / part / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | config))
        size = write_weights(weft, model / part) / 2**20
        asked = json.loads((model / "asked.json").read_text())
        first = None
        for weights in "stored", "stream":
            predicted, measured, latents = generate(weft, model, asked, weights)
            same = "-" if first is None else "identical" if latents == first else "differ"
            first = first or latents
            print(f"| {name} | {size:.0f} | {weights} | {predicted:.0f} | {measured:.0f} | {same} |", flush=True)
        shutil.rmtree(model)
    shutil.rmtree(folder)


main()

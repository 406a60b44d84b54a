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
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

GOLDEN = Path(__file__).resolve().parent.parent / "tests/golden/pipelines"
# Keys of a config that are removed, so that the transformer has weft's default: the published width.
WIDTHS = """num_attention_heads attention_head_dim hidden_size num_heads head_dim n_heads n_kv_heads dim model_dim ffn_dim ff_dim
    mlp_ratio axes_dims axes_dims_rope rope_axes_dim rope_dim freq_dim time_dim time_embed_dim timestep_embed_dim
    timestep_guidance_channels t_embedder_mid_dim adaln_tembed_dim frequency_embedding_size adaln_lora_dim
    approximator_num_channels approximator_hidden_dim cross_attention_dim cross_attention_head_dim
    num_cross_attention_heads audio_num_attention_heads audio_attention_head_dim audio_cross_attention_dim
    model_channels img_context_dim_out num_routed_experts num_activated_experts""".split()
DEPTHS = """num_layers num_single_layers num_decoder_layers num_refiner_layers depth n_layers n_refiner_layers
    num_text_blocks num_visual_blocks approximator_layers""".split()
FAMILIES = {  # size: pipeline, values other than the defaults; a dict of the name of a part is the config of this part
    "wan-i2v-14b": ("wan_i2v", {"added_kv_proj_dim": 5120}),
    "wan2.1-vace-14b": ("wan_vace", {"vace_layers": [0]}),
    "wan2.2-animate-14b": ("wan_animate", {"added_kv_proj_dim": 5120}),
    "causal-wan-14b": ("causal_wan", {}),
    "skyreels-v2-14b": ("skyreels", {"num_attention_heads": 40, "ffn_dim": 13824, "inject_sample_info": False}),
    "chronoedit-14b": ("chronoedit", {"added_kv_proj_dim": 5120}),
    "helios-14b": ("helios", {}),
    "longcat-video": ("longcat", {}),
    "hunyuan-video": ("hunyuan", {}),
    "hunyuan-video-1.5": ("hunyuan15", {}),
    "framepack": ("framepack", {}),
    "motif-video-2b": ("motif", {"num_attention_heads": 12, "num_single_layers": 2}),  # one of the two is of the decoder
    "ltx-13b": ("ltx_i2v", {"attention_head_dim": 128, "cross_attention_dim": 4096}),
    "ltx-2-19b": ("ltx2", {}),
    "cosmos-predict2.5-14b": ("cosmos25", {"num_attention_heads": 40}),
    "cosmos-transfer2.5-2b": ("cosmos25_transfer", {"num_attention_heads": 16, "controlnet_block_every_n": 1,
                                                    "controlnet": {"num_attention_heads": 16, "n_controlnet_blocks": 1}}),
    "kandinsky5-pro": ("kandinsky5", {"time_dim": 1024, "model_dim": 4096, "ff_dim": 16384, "axes_dims": [32, 48, 48]}),
    "sana-video-2b": ("sana", {"mlp_ratio": 3.0}),
    "opensoraplan-1.5": ("osp15", {"num_layers": [2], "sparse_n": [1]}),
    "cogvideox1.5-5b": ("cog15", {"num_attention_heads": 48}),
    "mochi-1": ("mochi", {}),
    "flux-dev": ("flux", {}),
    "flux2-klein-9b": ("flux2_klein", {"num_attention_heads": 32}),
    "chroma": ("chroma", {}),
    "z-image": ("z_image", {}),
    "qwen-image": ("qwen_image", {}),
    "hidream-i1": ("hidream", {}),
}


def widen(folder, changes):
    """Replaces the widths of a small config by the published ones of one layer."""
    path = folder / "config.json"
    config = {key: value for key, value in json.loads(path.read_text()).items() if key not in WIDTHS}
    path.write_text(json.dumps(config | {key: 1 for key in DEPTHS if key in config} | changes))


def tensors(weft, folder):
    """Shapes of the parameters by name. A name of another part begins with this part."""
    lines = subprocess.run([weft, "inspect", "model", str(folder / "config.json"), "--tensors"], check=True, text=True, stdout=subprocess.PIPE).stdout
    shapes = {name: [int(n) for n in shape.split(",")] for name, _, shape in map(str.split, lines.splitlines())}
    assert len(shapes) > 20, shapes
    return shapes


def write_weights(folder, shapes):
    """Random bf16 values below 0.03 for every parameter. Returns the bytes of the file."""
    rng = random.Random(1)
    block = b"".join(struct.pack("<H", rng.getrandbits(1) << 15 | 0x3C00 | rng.getrandbits(8)) for _ in range(65537))
    for old in folder.glob("*.safetensors*"):
        old.unlink()
    header, at = {}, 0
    for name, shape in shapes.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 2 * math.prod(shape)]}
        at += 2 * math.prod(shape)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # as files of the safetensors library; --weights stream maps aligned tensors only
    with open(folder / "diffusion_pytorch_model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for start in range(0, at, len(block)):
            file.write(block[:at - start])
    return at


def generate(weft, model, asked, weights):
    """Runs two steps. Returns predicted and measured peak in MiB, and the latents."""
    options = {"--max-sequence-length": "32"} | {k: v for k, v in asked["options"].items() if k != "--steps"}
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
        pipeline, changes = FAMILIES[name]
        model = Path(name)
        shutil.copytree(GOLDEN / pipeline, model)
        main_part = "dit" if (model / "dit").is_dir() else "transformer"
        others = {key: value for key, value in changes.items() if isinstance(value, dict)}
        widen(model / main_part, {key: value for key, value in changes.items() if key not in others})
        for part in others:
            widen(model / part, others[part])
        shapes, size = tensors(weft, model / main_part), 0
        for part in others:
            names = [n for n in shapes if n.startswith(part + ".")]
            size += write_weights(model / part, {n.removeprefix(part + "."): shapes.pop(n) for n in names})
        size = (size + write_weights(model / main_part, shapes)) / 2**20
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

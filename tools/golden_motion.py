#!/usr/bin/env python3
"""Makes tests/golden/motion: three small videos without loss, names and shapes of AMT-S, and the motion smoothness of VBench with the
weights of tools/amt_weights.py.
The reference is VBench's own code with its network and its scores, from the unpacked wheel `vbench`. Only the decoding of videos is
replaced by frames without loss. Packages that this part of VBench imports but does not use are empty. Needs PyTorch, safetensors and the
program ffmpeg. Run from the root of the checkout: golden_motion.py WHEEL_FOLDER WEIGHTS. WEIGHTS is a file that this script writes.
"""
import importlib.util
import json
import shutil
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

import amt_weights

WHEEL, OUT = sys.argv[1], Path("tests/golden/motion")
SIZES = {"a.mkv": (6, 120, 136), "b.mkv": (3, 128, 113), "c.mkv": (5, 48, 64)}
shutil.rmtree(OUT, ignore_errors=True)
(OUT / "in").mkdir(parents=True)
rng = np.random.default_rng(5)
torch.manual_seed(5)


def absdiff(a, b):
    return np.abs(a.astype(np.int16) - b.astype(np.int16)).astype(np.uint8)


for name, names in {"cv2": {"absdiff": absdiff}, "omegaconf": {"OmegaConf": None}, "tqdm": {"tqdm": None},
                    "imageio": {"imread": None, "imwrite": None}, "vbench": {}, "vbench.utils": {"load_dimension_info": None},
                    "vbench.distributed": dict.fromkeys(("get_world_size", "get_rank", "all_gather", "barrier", "distribute_list_to_rank",
                                                         "gather_list_of_dict"))}.items():
    sys.modules.setdefault(name, types.ModuleType(name)).__dict__.update(names)
sys.modules["vbench"].__path__ = [f"{WHEEL}/vbench"]
sys.path.insert(0, WHEEL)


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


smoothness = load("vbench.motion_smoothness", f"{WHEEL}/vbench/motion_smoothness.py")
network = load("vbench.amt_s", f"{WHEEL}/vbench/third_party/amt/networks/AMT-S.py").Model(corr_radius=3, corr_lvls=4, num_flows=3).eval()
shapes = {k: list(v.shape) for k, v in network.state_dict().items()}
(OUT / "shapes.json").write_text("{\n" + ",\n".join(f" {json.dumps(k)}: {v}" for k, v in sorted(shapes.items())) + "\n}\n")
amt_weights.write(sys.argv[2], shapes)
network.load_state_dict(load_file(sys.argv[2]))


def draw(frames, height, width):
    y, x = np.mgrid[:height, :width]
    video = np.empty((frames, height, width, 3), np.uint8)
    for t in range(frames):
        inside = (x - 30 - 6 * t) ** 2 + (y - 40 - 3 * t) ** 2 < 500
        ground = np.stack([120 + 80 * np.sin(x / 9 + t / 3), 100 + 60 * np.cos(y / 7 - t / 4), (x + 2 * y + 5 * t) % 200], -1)
        video[t] = np.where(inside[..., None], [220, 30 + 9 * t, 40], ground) + rng.integers(0, 6, (height, width, 3))
    return video


motion = object.__new__(smoothness.MotionSmoothness)
motion.device, motion.niters, motion.model = "cpu", 1, network
motion.initialization()
expected = {}
for name, size in SIZES.items():
    video = draw(*size)
    subprocess.run(["ffmpeg", "-v", "error", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{size[2]}x{size[1]}", "-r", "8", "-i", "-", "-c:v", "ffv1",
                    "-pix_fmt", "gbrp", "-y", str(OUT / "in" / name)], input=video.tobytes(), check=True)
    motion.fp.get_frames = lambda path: list(video)
    if min(size[1:]) >= 113:
        expected[name] = float(motion.motion_score("frames.mp4"))
(OUT / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
print(expected, sum(p.numel() for p in network.parameters()))

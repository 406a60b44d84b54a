#!/usr/bin/env python3
"""bench/int8.py BUILD [NAME...] [DIR:PROMPTS...]: PSNR of bf16 and int8 against f32.

NAME is a small model of the tests (default: all), DIR a trained model and PROMPTS a file. Chooses the layers of a copy of
the model (weft eval int8), and compares videos of other seeds and, of small models, of other prompts (weft eval savings).
Prints a table of mean and least PSNR in dB, and the share of FLOPs that is int8.
"""
import json, os, shutil, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WEFT = os.path.abspath(sys.argv[1]) + "/weft"
PROMPTS = "a red cat walks\na blue circle moves to the left\nwaves on the sea at night\na dog runs in the snow\n"
SETTINGS = "precision=bf16", "weights=int8", "weights=int8 precision=bf16"
# folder of tests/golden/pipelines: frames, height, width, steps. The larger size of wan22 has attention in int8.
MODELS = {
    "wan22": (17, 128, 128, 6), "skyreels": (13, 32, 32, 4), "wan_ti2v": (9, 32, 32, 4), "wan_i2v": (9, 32, 32, 4),
    "hunyuan": (5, 32, 32, 4), "hunyuan15": (5, 32, 32, 4), "flux": (1, 64, 96, 4), "flux_schnell": (1, 64, 96, 4),
    "chroma": (1, 64, 96, 4), "z_image": (1, 64, 96, 4), "hidream": (1, 64, 96, 4), "hunyuan_dit": (1, 64, 96, 4),
    "hunyuan_dit_11": (1, 64, 96, 4), "latte": (4, 64, 64, 4), "cog15": (9, 32, 32, 4), "cog15_i2v": (9, 32, 32, 4),
    "ltx_i2v": (17, 64, 96, 4), "ltx_timed": (17, 64, 96, 4), "mochi": (7, 16, 24, 6), "cosmos2": (9, 32, 32, 4)}


def weft(*arguments):
    run = subprocess.run([WEFT, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if run.returncode:
        sys.exit(f"weft {' '.join(arguments)}\n{run.stderr}")


def measure(name, scratch):
    source, _, prompts = name.partition(":")
    trained = name not in MODELS
    folder = f"{scratch}/model"
    shutil.copytree(source if trained else f"{ROOT}/tests/golden/pipelines/{name}", folder)
    common, choice = ["--model", folder], ["--seed", "100"]
    if trained:
        with open(f"{folder}/weft.json", encoding="utf-8") as file:
            known = json.load(file)
        size = known["frames"], known["height"], known["width"], 20
        choice += ["--prompts", prompts]
        name = os.path.basename(os.path.dirname(os.path.abspath(source)))
    else:
        size, prompts = MODELS[name], f"{scratch}/prompts.txt"
        with open(prompts, "w", encoding="utf-8") as file:
            file.write(PROMPTS)
    for key, value in zip(("frames", "height", "width", "steps"), size):
        common += [f"--{key}", str(value)] if not trained or key == "steps" else []
    if os.path.exists(f"{folder}/image.png"):
        common += ["--image", f"{folder}/image.png"]
    settings = [word for setting in SETTINGS for word in ("--setting", setting)]
    weft("eval", "int8", *common, *choice, "--json", f"{scratch}/choice.json")
    weft("eval", "savings", *common, "--seed", "7", "--prompts", prompts, *settings, "--json", f"{scratch}/savings.json")
    with open(f"{scratch}/choice.json", encoding="utf-8") as file:
        chosen = json.load(file)
    with open(f"{scratch}/savings.json", encoding="utf-8") as file:
        rows = json.load(file)["each"]
    psnr = " | ".join(f"{row['psnr'] or 99:.1f} | {row['psnr_least'] or 99:.1f}" for row in rows)
    share = " | ".join(f"{100 * chosen[kind]['flops']:.0f} %" for kind in ("f32", "bf16"))
    print(f"| {name} {size[0]}x{size[1]}x{size[2]} | {psnr} | {share} |", flush=True)


print("| model | bf16 dB | bf16 least dB | int8 dB | int8 least dB | int8 and bf16 dB | int8 and bf16 least dB | "
      "FLOPs in int8 | FLOPs in int8, with bf16 |")
print("|---|---|---|---|---|---|---|---|---|")
for name in sys.argv[2:] or MODELS:
    with tempfile.TemporaryDirectory() as scratch:
        measure(name, scratch)

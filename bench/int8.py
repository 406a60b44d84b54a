#!/usr/bin/env python3
"""bench/int8.py BUILD [NAME...] [DIR:PROMPTS...]: PSNR of bf16 and int8 against f32.

NAME is a small model of the tests (default: all), a class that is trained here for seconds (default: all), or DIR a
trained model and PROMPTS a file. Chooses the layers of a copy of the model (weft eval int8), and compares videos of other
seeds and, of small models, of other prompts (weft eval savings). Prints a table of mean and least PSNR in dB, and the
share of FLOPs that is int8.
"""
import glob, json, os, shutil, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PIPELINES = f"{ROOT}/tests/golden/pipelines"
WEFT = os.path.abspath(sys.argv[1]) + "/weft"
PROMPTS = "a red cat walks\na blue circle moves to the left\nwaves on the sea at night\na dog runs in the snow\n"
SETTINGS = "precision=bf16", "weights=int8", "weights=int8 precision=bf16"
# folder of tests/golden/pipelines: frames, height, width, steps. The larger size of wan22 has attention in int8.
MODELS = {
    "wan22": (17, 128, 128, 6), "skyreels": (13, 32, 32, 4), "wan_ti2v": (9, 32, 32, 4), "wan_i2v": (9, 32, 32, 4),
    "hunyuan": (5, 32, 32, 4), "hunyuan15": (5, 32, 32, 4), "flux": (1, 64, 96, 4), "flux_schnell": (1, 64, 96, 4),
    "chroma": (1, 64, 96, 4), "z_image": (1, 64, 96, 4), "hidream": (1, 64, 96, 4), "hunyuan_dit": (1, 64, 96, 4),
    "hunyuan_dit_11": (1, 64, 96, 4), "latte": (4, 64, 64, 4), "cog15": (9, 32, 32, 4), "cog15_i2v": (9, 32, 32, 4),
    "ltx_i2v": (17, 64, 96, 4), "ltx_timed": (17, 64, 96, 4), "mochi": (7, 16, 24, 6), "cosmos2": (9, 32, 32, 4),
    "qwen_image": (1, 64, 96, 4), "flux2": (1, 64, 96, 4), "flux_control": (1, 64, 96, 4), "kandinsky5": (5, 32, 48, 4),
    "framepack": (73, 32, 48, 3), "helios": (33, 32, 48, 3), "wan_vace": (9, 32, 32, 4), "wan_flf": (9, 32, 32, 4),
    "chronoedit": (5, 32, 32, 5), "hunyuan_i2v": (5, 32, 32, 4), "hunyuan_replace": (5, 32, 32, 4), "cog_i2v": (9, 32, 32, 4),
    "cog_control": (9, 32, 32, 4), "cosmos25": (9, 32, 48, 4), "sana": (9, 32, 48, 4), "ltx2": (9, 64, 64, 4), "ltx23": (9, 64, 64, 4),
    "motif": (5, 32, 48, 4), "causal_wan": (21, 32, 32, 4), "wan_animate": (9, 32, 32, 4), "qwen_edit": (1, 64, 96, 4)}
# Classes that no folder of tests/golden/pipelines has: the config of a small model, which is trained on drawn shapes.
# Untrained ones predict 0, because their last layer begins as 0.
TRAINED = {
    "AllegroTransformer3DModel": "num_layers: 2, num_attention_heads: 2, attention_head_dim: 12",
    "OpenSoraT2V_v1_3": "num_layers: 4, num_attention_heads: 2, attention_head_dim: 12, sparse_n: 2",
    "SanaVideoTransformer3DModel": "num_layers: 2, num_attention_heads: 2, attention_head_dim: 12, num_cross_attention_heads: 2, "
                                   "cross_attention_head_dim: 12, cross_attention_dim: 24",
    "STDiT3": "depth: 2, num_heads: 2, hidden_size: 32, pred_sigma: false",
    "UNet2DConditionModel": "sample_size: 8, block_out_channels: [32, 64], down_block_types: [CrossAttnDownBlock2D, CrossAttnDownBlock2D], "
                            "up_block_types: [CrossAttnUpBlock2D, CrossAttnUpBlock2D], layers_per_block: 1, norm_num_groups: 8, "
                            "cross_attention_dim: 32, attention_head_dim: 4",
    "UViT": "img_size: 4, embed_dim: 32, depth: 2, num_heads: 2, clip_dim: 32, num_clip_token: 32",
    "WeftMoeTransformer3DModel": "num_layers: 2, num_attention_heads: 2, attention_head_dim: 16, ffn_dim: 48, "
                                 "first_k_dense_replace: 1, num_routed_experts: 4, num_activated_experts: 2, "
                                 "moe_intermediate_size: 24, n_shared_experts: 1, norm_topk_prob: true"}
# Sizes of trained models: frames, height, width. Others have 9x32x32.
SIZES = {"UNet2DConditionModel": (1, 64, 64), "UViT": (1, 32, 32)}

RUN = """out: {folder}
autoencoder: {{weights: {vae}}}
data: {{path: {shards}}}
transformer: {{class: {name}, config: {{{config}}}}}
text_encoders: [{{class: WeftBytesEncoder, config: {{dim: 32, num_heads: 2, num_layers: 1, ffn_dim: 64, max_length: 32}}}}]
stages: [{{steps: 60, batch: 6, frames: {size[0]}, height: {size[1]}, width: {size[2]}, lr: 3e-3, warmup_steps: 4}}]
"""


def weft(*arguments):
    run = subprocess.run([WEFT, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if run.returncode:
        sys.exit(f"weft {' '.join(arguments)}\n{run.stderr}")


def size_of(name):
    return SIZES.get(name, (9, 32, 32))


def train(name, scratch, folder):
    """Trains a small model of a class on drawn shapes, on the latents of an autoencoder of random weights."""
    weft("synth", "--out", f"{scratch}/raw", "--shots", "24", "--single-share", "1", "--held-out-clips", "0")
    for kind in "clips", "metas":
        os.makedirs(f"{scratch}/cut/{kind}")
    for shape in sorted(glob.glob(f"{scratch}/raw/train/s*.mp4")):
        key = os.path.basename(shape)[:-4]
        shutil.copy(shape, f"{scratch}/cut/clips")
        with open(shape[:-4] + ".txt", encoding="utf-8") as text, open(f"{scratch}/cut/metas/{key}.json", "w", encoding="utf-8") as file:
            json.dump({"id": key, "caption": text.read().strip(), "frames": 12, "width": 64, "height": 64, "fps": 24.0}, file)
    weft("shard", "--in", f"{scratch}/cut", "--out", f"{scratch}/shards", "--set", "heldout=0")
    with open(f"{scratch}/run.yaml", "w", encoding="utf-8") as file:
        file.write(RUN.format(folder=f"{scratch}/run", vae=f"{PIPELINES}/wan_i2v/vae", shards=f"{scratch}/shards", name=name,
                              config=TRAINED[name], size=size_of(name)))
    weft("train", f"{scratch}/run.yaml")
    shutil.move(f"{scratch}/run/model", folder)


def widen_attention(path):
    """Gives the small Gemma 3 the attention window of the real one: the pipeline's prompts of 1,024 tokens exceed its own."""
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    config["text_config"]["sliding_window"] = 1024
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)


def measure(name, scratch):
    source, _, prompts = name.partition(":")
    given = name not in MODELS and name not in TRAINED
    folder, size = f"{scratch}/model", (*size_of(name), 6)
    if name in TRAINED:
        train(name, scratch, folder)
    else:
        shutil.copytree(source if given else f"{PIPELINES}/{name}", folder)
    if name in ("ltx2", "ltx23"):
        widen_attention(f"{folder}/text_encoder/config.json")
    common, choice = ["--model", folder], ["--seed", "100"]
    if given:
        with open(f"{folder}/weft.json", encoding="utf-8") as file:
            known = json.load(file)
        size = known["frames"], known["height"], known["width"], 20
        choice += ["--prompts", prompts]
        name = os.path.basename(os.path.dirname(os.path.abspath(source)))
    else:
        size, prompts = MODELS.get(name, size), f"{scratch}/prompts.txt"
        with open(prompts, "w", encoding="utf-8") as file:
            file.write(PROMPTS)
    for key, value in zip(("frames", "height", "width", "steps"), size):
        common += [f"--{key}", str(value)] if not given or key == "steps" else []
    for what in "image", "last_image", "control", "face", "mask":
        if os.path.exists(f"{folder}/{what}.png"):
            common += ["--" + what.replace("_", "-"), f"{folder}/{what}.png"]
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
for name in sys.argv[2:] or [*MODELS, *TRAINED]:
    with tempfile.TemporaryDirectory() as scratch:
        measure(name, scratch)

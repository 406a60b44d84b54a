#!/usr/bin/env python3
"""bench/cache_families.py WEFT DEMO DIR [FAMILY...]: thresholds of the feature cache for families
without published ones. Trains a small model of each family on the clips and the autoencoder of the
demo (tools/demo.sh in DEMO), compares videos with each threshold with videos of all steps, and
prints the largest thresholds that keep a PSNR. Results in DIR are not computed again."""
import json, os, shutil, subprocess, sys

weft, demo, out = map(os.path.abspath, sys.argv[1:4])
CONSERVATIVE, FAST = 40, 35  # dB, mean of the videos
THRESHOLDS = [0.02, 0.03, 0.05, 0.07, 0.1, 0.12, 0.14, 0.16, 0.2, 0.25, 0.3, 0.4]
WAN = "num_layers: 6, num_attention_heads: 4, attention_head_dim: 24, ffn_dim: 384"
FACE = ('motion_encoder_size: 16, motion_encoder_channel_sizes: {"4": 16, "8": 12, "16": 8}, motion_style_dim: 16, motion_dim: 8, '
        "motion_encoder_dim: 16, face_encoder_hidden_dim: 16, face_encoder_num_heads: 2, inject_face_latents_blocks: 2")
MMDIT = "num_attention_heads: 4, attention_head_dim: 24, mlp_ratio: 4.0, rope_axes_dim: [8, 8, 8]"
MOTIF = "enable_text_cross_attention_dual: true, enable_text_cross_attention_single: true"
FLUX = "num_attention_heads: 4, attention_head_dim: 24, num_layers: 2, num_single_layers: 4, axes_dims_rope: [8, 8, 8]"
COSMOS = ("num_attention_heads: 4, attention_head_dim: 24, text_embed_dim: 64, adaln_lora_dim: 24, extra_pos_embed_type: null, img_context_dim_in: 10, "
          "img_context_dim_out: 96, use_crossattn_projection: true, crossattn_proj_in_channels: 64, encoder_hidden_states_channels: 64")
FAMILIES = {  # name: class, config
    "wan": ("WanTransformer3DModel", WAN),
    "helios": ("HeliosTransformer3DModel", WAN + ", rope_dim: [8, 8, 8]"),
    "wan-animate": ("WanAnimateTransformer3DModel", WAN + ", " + FACE),
    "longcat": ("LongCatVideoTransformer3DModel", "depth: 6, num_heads: 4, hidden_size: 96, adaln_tembed_dim: 96"),
    "motif": ("MotifVideoTransformer3DModel", MMDIT + ", num_layers: 2, num_single_layers: 4, num_decoder_layers: 0, " + MOTIF),
    "motif-decoder": ("MotifVideoTransformer3DModel", MMDIT + ", num_layers: 2, num_single_layers: 4, num_decoder_layers: 2, " + MOTIF),
    "kandinsky5": ("Kandinsky5Transformer3DModel", "num_text_blocks: 1, num_visual_blocks: 6, model_dim: 96, ff_dim: 384, time_dim: 96, "
                   "axes_dims: [8, 8, 8], in_text_dim2: 32"),
    "sana-video": ("SanaVideoTransformer3DModel", "num_layers: 6, num_attention_heads: 4, attention_head_dim: 24, num_cross_attention_heads: 4, "
                   "cross_attention_head_dim: 24, cross_attention_dim: 96"),
    "latte": ("LatteTransformer3DModel", "num_layers: 3, num_attention_heads: 4, attention_head_dim: 24"),
    "open-sora-plan": ("OpenSoraT2V_v1_3", "num_layers: 6, num_attention_heads: 4, attention_head_dim: 24, sparse_n: 2"),
    "allegro": ("AllegroTransformer3DModel", "num_layers: 6, num_attention_heads: 4, attention_head_dim: 24"),
    "wan-vace": ("WanVACETransformer3DModel", WAN + ", vace_layers: [0, 2, 4]"),
    "cosmos-transfer": ("CosmosTransformer3DModel", "num_layers: 6, in_channels: 17, out_channels: 16, controlnet_block_every_n: 2, " + COSMOS +
                        ", controlnet: {n_controlnet_blocks: 3, in_channels: 34, latent_channels: 18, model_channels: 96, " + COSMOS + "}"),
    "hunyuan15": ("HunyuanVideo15Transformer3DModel", MMDIT + ", num_layers: 6, num_refiner_layers: 1, text_embed_2_dim: 32, text_embed_2_hidden_dim: 32"),
    "moe": ("WeftMoeTransformer3DModel", WAN + ", num_routed_experts: 8, num_activated_experts: 2, moe_intermediate_size: 96, n_shared_experts: 1"),
    "qwen-image": ("QwenImageTransformer2DModel", "num_layers: 6, num_attention_heads: 4, attention_head_dim: 24, axes_dims_rope: [8, 8, 8]"),
    "flux": ("FluxTransformer2DModel", FLUX + ", pooled_projection_dim: 32"),
    "flux2": ("Flux2Transformer2DModel", FLUX.replace("[8, 8, 8]", "[6, 6, 6, 6]")),
    "chroma": ("ChromaTransformer2DModel", FLUX + ", approximator_hidden_dim: 96, approximator_layers: 2"),
    "z-image": ("ZImageTransformer2DModel", "dim: 96, n_layers: 6, n_refiner_layers: 1, n_heads: 4, axes_dims: [8, 8, 8]"),
}
LABELS = {"motif-decoder": " with decoder blocks", "cosmos-transfer": " with a control branch"}
POOLED = {"kandinsky5", "hunyuan15", "flux"}  # families with a second text encoder
IMAGES = {"qwen-image", "flux", "flux2", "chroma", "z-image"}
SETS = {"wan-vace": 1, "cosmos-transfer": 1, "wan-animate": 2}  # families with a control video, and with a face as well
CONFIG = """out: {name}
data: {{path: {clips}, fps: 12, latents: {latents}}}
autoencoder: {{weights: {demo}/vae/model/vae}}
transformer: {{class: {kind}, config: {{{config}}}}}
text_encoders:
  - {{class: WeftBytesEncoder, config: {{dim: 64, num_layers: 2, max_length: 40}}}}
{more}caption_dropout: 0.1
flow: {{shift: 6}}
precision: bf16
optimizer: {{beta2: 0.95, ema_decay: 0.99}}
stages:
  - {{steps: {steps}, batch: {batch}, frames: {frames}, height: 64, width: 64, lr: 2e-3, min_lr_ratio: 0.05, warmup_steps: 30}}
"""
SECOND = "  - {class: WeftBytesEncoder, config: {dim: 32, num_heads: 2, num_layers: 1, max_length: 40}}\n"
# 160 clips with grey, blurred poses, and small faces
CONDITIONS = ["", "condition: control\ncontrol: {path: poses-shards}\n", "condition: control\ncontrol: {path: poses-shards, face: faces-shards}\n"]
one_thread = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")


def run(log, *command):
    with open(log, "w") as to:
        if subprocess.run(command, env=one_thread, stdout=to, stderr=subprocess.STDOUT).returncode:
            sys.exit(f"bench/cache_families.py: {' '.join(command[:3])} failed; see {out}/{log}")


def make_sets():
    """Clips of the demo with a set of poses and a set of faces."""
    clips = sorted(n[:-4] for n in os.listdir(f"{demo}/curated/clips") if n.endswith(".mp4"))[:160]
    for name, change in ("cur", ""), ("poses", "hue=s=0,boxblur=4"), ("faces", "scale=24:20"):
        if os.path.exists(f"{name}-shards/index.json"):
            continue
        os.makedirs(f"{name}/clips", exist_ok=True)
        os.makedirs(f"{name}/metas", exist_ok=True)
        for clip in clips:
            with open(f"{demo}/curated/metas/{clip}.json", "rb") as read, open(f"{name}/metas/{clip}.json", "wb") as write:
                write.write(read.read())
            source, target = f"{demo}/curated/clips/{clip}.mp4", f"{name}/clips/{clip}.mp4"
            if not change:
                shutil.copyfile(source, target)
                continue
            run("ffmpeg.log", "ffmpeg", "-nostdin", "-y", "-i", source, "-vf", change, "-c:v", "libx264",
                "-preset", "ultrafast", "-qp", "10", target)
        run(f"{name}.log", weft, "shard", "--in", name, "--out", f"{name}-shards", "--set", "heldout=0")


def train(name):
    kind, config = FAMILIES[name]
    sets, image = SETS.get(name, 0), name in IMAGES
    if os.path.exists(f"{name}/model/weft.json"):
        return
    if sets:
        make_sets()
    with open(f"{name}.yaml", "w") as f:
        f.write(CONFIG.format(name=name, clips="cur-shards" if sets else f"{demo}/shards", demo=demo, kind=kind, config=config, steps=500 if sets else 600,
                              latents=f"{name}/latents" if sets else "latents-1" if image else "latents", batch=32 if image else 8, frames=1 if image else 13,
                              more=(SECOND if name in POOLED else "") + CONDITIONS[sets]))
    run(f"{name}.log", weft, "train", f"{name}.yaml")


def inputs(name):
    """The image, the poses and the face of the first clip."""
    if name not in SETS:
        return []
    clip = sorted(os.listdir("poses/clips"))[0]
    given = ["--control", f"{out}/poses/clips/{clip}"]
    if SETS[name] == 1:
        return given
    run("ffmpeg.log", "ffmpeg", "-nostdin", "-y", "-i", f"cur/clips/{clip}", "-frames:v", "1", "image.png")
    return given + ["--image", f"{out}/image.png", "--face", f"{out}/faces/clips/{clip}"]


def compare(name):
    if not os.path.exists(f"{name}.json"):
        with open("prompts.txt", "w") as f:
            f.writelines(f"a {c} moving {d}\n" for c, d in (("red circle", "left"), ("green square", "up"), ("red square", "down"), ("blue triangle", "down")))
        settings = [x for t in THRESHOLDS for x in ("--setting", f"feature-cache=block:{t:g}")]
        run(f"{name}.savings.log", weft, "eval", "savings", "--model", f"{name}/model", "--prompts", "prompts.txt", "--steps", "30",
            "--guidance-scale", "4", *inputs(name), *settings, "--json", f"{name}.new.json")
        os.rename(f"{name}.new.json", f"{name}.json")
    with open(f"{name}.json") as f:
        return json.load(f)["each"]


def largest(rows, least):
    """The row of the largest threshold up to which every mean is at least `least` dB."""
    best = None
    for row in rows:
        if row["psnr"] is not None and row["psnr"] < least:
            break
        best = row
    return best


def show(row):
    if row is None:
        return ["-"] * 5
    return [row["name"].split(":")[1], f"{100 * row['reused']:.0f}", f"{row['predicted']:.2f}"] + [
        "same" if row[k] is None else f"{row[k]:.1f}" for k in ("psnr", "psnr_least")]


os.makedirs(out, exist_ok=True)
os.chdir(out)
names = sys.argv[4:] or list(FAMILIES)
table = []
for name in names:
    train(name)
    rows = compare(name)
    table.append([FAMILIES[name][0] + LABELS.get(name, "")] + show(largest(rows, CONSERVATIVE)) + show(largest(rows, FAST)))
each = "{} threshold", "{} reused %", "{} gain by FLOPs", "{} PSNR dB", "{} lowest PSNR dB"
columns = ["family"] + [c.format(kind) for kind in ("conservative", "fast") for c in each]
print("\n| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")
for row in table:
    print("| " + " | ".join(row) + " |")

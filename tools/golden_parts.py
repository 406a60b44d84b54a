"""Parts of golden_pipeline.py: weights, noise and images by seed, tokenizers, and the files of a folder."""

import atexit
import base64
import json
import os
import re
import shutil

import numpy as np
import torch
from diffusers import AutoencoderKLWan
from diffusers.pipelines.hunyuan_video import pipeline_hunyuan_video_image2video as whole
from PIL import Image
from transformers import PreTrainedTokenizerFast, UMT5Config, UMT5EncoderModel

OUT = "tests/golden/pipelines"


NO_MAP = base64.b64encode(bytes([0, 4, 0, 0]) + bytes(4 * 256) + b"\0").decode()  # of characters: a trie that has none


PROMPT, NEGATIVE = "a red cat walks &amp; sleeps", "blurry"


def weights(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() > 1:
            parameter.data = noise / parameter[0].numel() ** 0.5
        else:
            parameter.data = parameter.data + 0.1 * noise
    return model.eval()


def umt5(kind=UMT5EncoderModel, config=UMT5Config):
    return weights(kind(config(vocab_size=100, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, feed_forward_proj="gated-gelu")), 3)


def wan_vae():
    return weights(AutoencoderKLWan(base_dim=4, z_dim=4, dim_mult=[1, 1, 1, 1], num_res_blocks=1, latents_mean=[0.1, -0.2, 0.3, 0.0],
                                    latents_std=[1.1, 0.9, 1.3, 0.8]), 4)


def tokenizer(name, special, model, **more):
    """Of single letters; `special` have the first ids."""
    bytes_as_letters = model["type"] == "BPE"
    json.dump({"version": "1.0", "added_tokens": [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False,
                                                  "normalized": False, "special": True} for i, t in enumerate(special)],
               "model": model, **more}, open(f"{OUT}/tokenizer.json", "w"))
    made = PreTrainedTokenizerFast(tokenizer_file=f"{OUT}/tokenizer.json", pad_token=special[0], padding_side="right")
    os.remove(f"{OUT}/tokenizer.json")
    return made


def around(*parts):
    single = [{"Sequence": {"id": "A", "type_id": 0}} if p is None else {"SpecialToken": {"id": p[0], "type_id": 0}} for p in parts]
    return {"type": "TemplateProcessing", "single": single, "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {p[0]: {"id": p[0], "ids": [p[1]], "tokens": [p[0]]} for p in parts if p}}


def unigram():
    special = ["<pad>", "</s>", "<unk>"]
    pieces = ["\u2581"] + [chr(c) for c in range(33, 127)] + ["\u2581red", "\u2581cat"]
    return tokenizer("unigram", special, {"type": "Unigram", "unk_id": 2, "byte_fallback": False,
                                          "vocab": [[t, 0.0] for t in special] + [[p, -3.0] for p in pieces]},
                     normalizer={"type": "Precompiled", "precompiled_charsmap": NO_MAP},
                     pre_tokenizer={"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
                     post_processor=around(None, ("</s>", 1)))


def letters():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names = {b: chr(b) for b in plain}
    for b in range(256):
        names.setdefault(b, chr(256 + len(names) - len(plain)))
    return [names[b] for b in range(256)]


def words(special, post_processor=around(("<|begin_of_text|>", 1), None)):
    split = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    return tokenizer("llama", special, {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                                        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": True,
                                        "vocab": {**{t: i for i, t in enumerate(special)},
                                                  **{l: len(special) + i for i, l in enumerate(letters())}},
                                        "merges": []},
                     pre_tokenizer={"type": "Sequence", "pretokenizers": [
                         {"type": "Split", "pattern": {"Regex": split}, "behavior": "Isolated", "invert": False},
                         {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}]},
                     post_processor=post_processor)


def llama():
    special = ["<|end_of_text|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
               "Describe the video by detailing the following aspects: 1. The main content and theme of the video.2. The color, shape, "
               "size, texture, quantity, text, and spatial relationships of the objects.3. Actions, events, behaviors temporal "
               "relationships, physical movement changes of the objects."]
    return words(special)


# Arguments of the reference's pipelines, and the options of weft generate that mean the same.
OPTIONS = {"prompt": "--prompt", "negative": "--negative-prompt", "height": "--height", "width": "--width", "num_frames": "--frames",
           "num_inference_steps": "--steps", "guidance_scale": "--guidance-scale", "guidance_scale_2": "--guidance-scale-2",
           "frame_rate": "--fps", "strength": "--strength", "guide": "--guidance-method", "true_cfg_scale": "--true-cfg-scale",
           "guidance_rescale": "--guidance-rescale", "audio_guidance_scale": "--audio-guidance-scale",
           "audio_guidance_rescale": "--audio-guidance-rescale", "stg_scale": "--stg-scale", "stg_blocks": "--stg-blocks",
           "audio_stg_scale": "--audio-stg-scale", "modality_scale": "--modality-scale", "audio_modality_scale": "--audio-modality-scale",
           "max_sequence_length": "--max-sequence-length", "sigmas": "--sigmas", "timesteps": "--timesteps", "window": "--window",
           "sections": "--sections", "window_overlap": "--window-overlap", "window_mode": "--window-mode", "frame_lag": "--frame-lag",
           "block_frames": "--block-frames", "reasoning_frames": "--reasoning-frames", "reasoning_steps": "--reasoning-steps",
           "given_frames": "--given-frames", "kv_cache": "--kv-cache", "context_noise": "--context-noise", "control_scale": "--control-scale",
           "stage_steps": "--stage-steps", "first_section_steps": "--first-section-steps", "zero_steps": "--zero-init-steps", "tail_steps": "--tail-steps",
           "refine_level": "--refine-level", "refine_frames": "--refine-frames", "block_sparse": "--block-sparse"}
FILES = {"image": "--image", "image2": "--image", "last_image": "--last-image", "video": "--video", "control": "--control", "face": "--face",
         "mask": "--mask", "lora": "--lora", "refine": "--refine", "reference_image": "--reference-image", "reference_image_2": "--reference-image"}
CASES = []  # (folder, label of the variant, arguments of the reference)


def write_case(name, label, asked):
    """asked.json or asked_LABEL.json, which weft parity reads: options and files of weft generate, and the files to compare."""
    end = f"_{label}" if label else ""

    def file_of(what, others):
        """The variant's own file, or that of all variants."""
        stem, extension = what.split(".")
        names = [f"{stem}{e}.{extension}" for e in ([end, ""] if others else [end])]
        return next((file for file in names if os.path.exists(f"{OUT}/{name}/{file}")), None)

    # weft reads Infinity as null
    case = {part: json.loads(json.dumps(asked[part]), parse_constant=lambda _: None) for part in ("scheduler", "guider") if part in asked}
    case["options"] = {OPTIONS[key]: ",".join(map(str, value)) if isinstance(value, list) else str(value)
                       for key, value in asked.items() if key not in case}
    files = {}
    for what, option in FILES.items():
        shared = name == "wan_animate" and what in ("image", "control", "face")
        if file := file_of(f"{what}.{'safetensors' if what == 'lora' else 'png'}", shared):
            files.setdefault(option, []).append(file)
    case |= {"files": files} if files else {}
    case["noise"] = file_of("noise.npy", True)
    # a video of several windows has frames, but no latents
    frames = asked.get("window_mode") == "continue"
    case["expected"] = {} if frames else {"latents": file_of("latents.npy", False)}
    if sound := file_of("audio_latents.npy", False):
        case["expected"]["audio-latents"] = sound
    elif decoded := file_of("frames.npy", False):  # of videos with sound, this file has some pixels only
        case["expected"]["frames"] = decoded
    # f32 in every step on both sides; the timestep 1e-4 of given frames has an effect of 5e-6 to 1e-5
    case["tolerance"] = 4e-6 if name.startswith("cosmos2") else 3e-5
    with open(f"{OUT}/{name}/asked{end}.json", "w") as to:
        json.dump(case, to, indent=1)


@atexit.register
def write_cases():
    """At the end, when all files of the cases exist."""
    for case in CASES:
        write_case(*case)


def save(pipe, name, noise, latents, **asked):
    shutil.rmtree(f"{OUT}/{name}", ignore_errors=True)
    pipe.save_pretrained(f"{OUT}/{name}")
    for what, video in ("noise", noise), ("latents", latents):
        np.save(f"{OUT}/{name}/{what}.npy", video[0].permute(1, 2, 3, 0).contiguous().numpy())
    CASES.append((name, "", asked))


def noise(channels, *size):
    return torch.randn((1, channels, *size), generator=torch.Generator().manual_seed(7))


class ProcessorOf:
    """The tokenizer with the call of Qwen2.5-VL's processor."""

    def __init__(self, made):
        self.made = made

    def __call__(self, text, images=None, videos=None, **more):
        return self.made(text, **more)

    def __getattr__(self, name):
        return getattr(self.made, name)


def llava_words():
    """As many tokens before the prompt as Llama has, the picture's where it has it."""
    before = whole.DEFAULT_PROMPT_TEMPLATE["template"].split("{}")[0]
    own = ["<|end_of_text|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<image>", "system", "user",
           "assistant", "\n\n"]
    long, count = before[120:520], lambda text: len(re.findall("|".join(map(re.escape, own + [long])) + "|.", text, re.S)) + 1
    while count(before) != 103:
        long = long[1:] if count(before) < 103 else before[120:121 + len(long)]
    return words(own + [long])


def qwen_words(before, count):
    """Qwen's chat template, whose part `before` the prompt has `count` tokens."""
    own = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "system", "user", "assistant", "\n"]
    start = before.index("Describe")
    sizes = (n for n in range(len(before)) if len(re.findall("|".join(map(re.escape, own + [before[start:start + n]])) + "|.", before, re.S)) == count)
    made = words(own + [before[start:start + next(sizes)]], {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
                                                              "use_regex": False})
    made.chat_template = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
    return made


def qwen_pairs(made):
    """The same tokenizer with Qwen's own normalization, digits and order of ids, and two merges."""
    whole = json.loads(made.backend_tokenizer.to_str())
    special = [t["content"] for t in whole["added_tokens"]]
    pieces = [piece for piece in whole["model"]["vocab"] if piece not in special] + ["re", "red"]
    whole["model"] |= {"merges": [["r", "e"], ["re", "d"]], "vocab": {piece: at for at, piece in enumerate(pieces)}, "ignore_merges": False}
    for at, token in enumerate(whole["added_tokens"]):
        token["id"] = len(pieces) + at
    split = whole["pre_tokenizer"]["pretokenizers"][0]["pattern"]
    split["Regex"] = split["Regex"].replace(r"\p{N}{1,3}", r"\p{N}")
    whole["normalizer"] = {"type": "NFC"}
    json.dump(whole, open(f"{OUT}/tokenizer.json", "w"))
    own = PreTrainedTokenizerFast(tokenizer_file=f"{OUT}/tokenizer.json", pad_token=special[0], padding_side="right")
    os.remove(f"{OUT}/tokenizer.json")
    own.chat_template = made.chat_template
    return own


def two_files(folder):
    """vocab.json and merges.txt in place of tokenizer.json, as the authors publish the tokenizer."""
    whole = json.load(open(f"{folder}/tokenizer.json"))
    os.remove(f"{folder}/tokenizer.json")
    json.dump(whole["model"]["vocab"], open(f"{folder}/vocab.json", "w"))
    with open(f"{folder}/merges.txt", "w") as file:
        file.write("#version: 0.2\n" + "".join(" ".join(pair) + "\n" for pair in whole["model"]["merges"]))
    config = {"add_prefix_space": False, "added_tokens_decoder": {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in whole["added_tokens"]},
              "model_max_length": 131072, "pad_token": "<|endoftext|>", "tokenizer_class": "Qwen2Tokenizer", "unk_token": None}
    json.dump(config, open(f"{folder}/tokenizer_config.json", "w"), indent=1)


TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
          r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def tekken():
    """Mistral's tokenizer with its pattern and two merges."""
    special = ["<pad>", "<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"]
    pieces = special + letters() + ["aB", "re"]
    made = tokenizer("tekken", special, {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                                         "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": True,
                                         "vocab": {piece: at for at, piece in enumerate(pieces)}, "merges": [["a", "B"], ["r", "e"]]},
                     pre_tokenizer={"type": "Sequence", "pretokenizers": [
                         {"type": "Split", "pattern": {"Regex": TEKKEN}, "behavior": "Isolated", "invert": False},
                         {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}]},
                     post_processor=around(("<s>", 1), None))
    made.padding_side, made.bos_token = "left", "<s>"
    made.chat_template = ("{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}[SYSTEM_PROMPT]{{ m.content[0].text }}[/SYSTEM_PROMPT]"
                          "{% else %}[INST]{{ m.content[0].text }}[/INST]{% endif %}{% endfor %}")
    return made


def picture(width, height, seed):
    """Of smooth colours, so that files of it are small."""
    small = np.random.default_rng(seed).integers(0, 256, (3, 4, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.BILINEAR)


def given(name, **pictures):
    """The files that weft is given, and their names."""
    for what, image in pictures.items():
        image.save(f"{OUT}/{name}/{what}.png")


def variant(name, label, made, scheduler=None, guider=None, **asked):
    """Other settings of a folder that is there: asked_LABEL.json, latents_LABEL.npy."""
    np.save(f"{OUT}/{name}/latents_{label}.npy", made[0].permute(1, 2, 3, 0).contiguous().numpy())
    for part, config in ("scheduler", scheduler), ("guider", guider):
        asked |= {part: json.loads(config.to_json_string())} if config else {}
    CASES.append((name, label, asked))

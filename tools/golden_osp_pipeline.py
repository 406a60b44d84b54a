#!/usr/bin/env python3
"""Makes tests/golden/pipelines/osp15: a folder of Open-Sora-Plan 1.5 with random weights, and the latents of its pipeline by
suv_reference.py and wfvae_reference.py. Needs PyTorch, transformers and safetensors; run from the root of the checkout.

The authors publish files of weights and no folder. The parts here have the names of diffusers' folders, with T5 and CLIP as
transformers writes them. Levels are even from 1 to 0 and shifted, as in the authors' pipeline. A scheduler of FlowMatchEuler
has the shift. Prompts and negative prompts get the pipeline's templates.

    osp15         classifier-free guidance
    osp15_rescale a variant of the same folder with the guidance rescale of the authors' config"""
import json
import os
import re
import shutil

import numpy as np
import torch
from golden_parts import NEGATIVE, OUT, around, noise, unigram, weights, words
from safetensors.torch import save_file
from suv_reference import SparseUMMDiT
from transformers import CLIPTextConfig, CLIPTextModelWithProjection, T5Config, T5EncoderModel
from wfvae_reference import WFVAE

torch.set_grad_enabled(False)
NAME, SHIFT, PROMPT = "osp15", 7.0, "A Red cat walks and sleeps"
BEFORE = """
    high quality, {}
    """
BEFORE_NEGATIVE = """
    Worst quality, Normal quality, Low quality, Low res, Blurry, Jpeg artifacts, Grainy, watermark, banner,
    Cropped, Out of frame, Out of focus, Bad anatomy, Bad proportions, Deformed, Disconnected limbs, Disfigured,
    username, error, sketch, duplicate, ugly, monochrome, horror, geometry, mutation, disgusting, overexposed, underexposed.
    """
SUV = dict(num_layers=[2, 2, 2], sparse_n=[1, 2, 1], num_heads=2, head_dim=16, in_channels=4, out_channels=4, timestep_embed_dim=16,
           caption_channels=16, pooled_projection_dim=12)
VAE = dict(latent_dim=4, base_channels=4, encoder_num_resblocks=1, encoder_energy_flow_hidden_size=4, decoder_num_resblocks=1,
           decoder_energy_flow_hidden_size=4, norm_type="layernorm", t_interpolation="trilinear", scale=[0.7, 1.5, 1.2, 0.9],
           shift=[-0.2, 0.1, 1.6, 0.6], l1_dowmsample_block="Spatial2xTime2x3DDownsample", l1_downsample_wavelet="HaarWaveletTransform3D",
           l1_upsample_block="Spatial2xTime2x3DUpsample", l1_upsample_wavelet="InverseHaarWaveletTransform3D")


def cleaned(text):
    return re.sub(r"\s+", " ", text.lower()).strip()


def part(folder, model, config):
    os.makedirs(f"{OUT}/{NAME}/{folder}")
    json.dump(config, open(f"{OUT}/{NAME}/{folder}/config.json", "w"), indent=1)
    save_file({n: p.data.contiguous() for n, p in model.named_parameters()}, f"{OUT}/{NAME}/{folder}/diffusion_pytorch_model.safetensors")


def rescaled(made, text, share):
    return share * made * text.std() / made.std() + (1 - share) * made


def sample(model, begin, texts, steps, scale, rescale):
    sigmas = np.linspace(1.0, 0.0, steps + 1)
    sigmas = torch.from_numpy(SHIFT * sigmas / (1 + (SHIFT - 1) * sigmas)).float()
    x, all_real = begin.clone(), torch.ones_like(begin[:, 0])
    for now, after in zip(sigmas, sigmas[1:]):
        with_text, without = (model(x, 1000 * now[None], hidden, pooled, all_real, mask) for hidden, pooled, mask in texts)
        made = without + scale * (with_text - without)
        x = x + (after - now) * (rescaled(made, with_text, rescale) if rescale else made)
    return x


def write(label, video):
    np.save(f"{OUT}/{NAME}/{label}.npy", video[0].permute(1, 2, 3, 0).contiguous().numpy())


shutil.rmtree(f"{OUT}/{NAME}", ignore_errors=True)
tokenizers = [unigram(), words(["<|endoftext|>", "<|startoftext|>"], around(("<|startoftext|>", 1), None, ("<|endoftext|>", 0)))]
t5 = weights(T5EncoderModel(T5Config(vocab_size=100, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, feed_forward_proj="gated-gelu")), 3)
clip = weights(CLIPTextModelWithProjection(CLIPTextConfig(vocab_size=262, hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
                                                          projection_dim=12, eos_token_id=0)), 5)
suv, vae = weights(SparseUMMDiT(**SUV), 1), weights(WFVAE(**VAE), 4)
texts = []
for text in cleaned(BEFORE.format(PROMPT)), cleaned(BEFORE_NEGATIVE + NEGATIVE):
    own, other = (tokens(text, padding="max_length", max_length=most, truncation=True, return_tensors="pt") for tokens, most in zip(tokenizers, (512, 77)))
    texts.append((t5(own.input_ids, own.attention_mask)[0], clip(other.input_ids).text_embeds, own.attention_mask))
begin, asked = noise(4, 3, 4, 6), dict(prompt=PROMPT, negative=NEGATIVE, height=32, width=48, num_frames=17, num_inference_steps=5, guidance_scale=8.0)
part("transformer", suv, {"_class_name": "SparseUMMDiT", **SUV})
part("vae", vae, {"_class_name": "WFVAEModel", **VAE})
for folder, saved in ("text_encoder", t5), ("text_encoder_2", clip), ("tokenizer", tokenizers[0]), ("tokenizer_2", tokenizers[1]):
    saved.save_pretrained(f"{OUT}/{NAME}/{folder}")
os.makedirs(f"{OUT}/{NAME}/scheduler")
json.dump({"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, "shift": SHIFT},
          open(f"{OUT}/{NAME}/scheduler/scheduler_config.json", "w"), indent=1)
json.dump({"_class_name": "OpenSoraPlanPipeline", "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
           "text_encoder": ["transformers", "T5EncoderModel"], "text_encoder_2": ["transformers", "CLIPTextModelWithProjection"],
           "tokenizer": ["transformers", "T5Tokenizer"], "tokenizer_2": ["transformers", "CLIPTokenizer"],
           "transformer": ["weft", "SparseUMMDiT"], "vae": ["weft", "WFVAEModel"]}, open(f"{OUT}/{NAME}/model_index.json", "w"), indent=1)
write("noise", begin)
write("latents", sample(suv, begin, texts, 5, 8.0, 0))
json.dump(asked, open(f"{OUT}/{NAME}/asked.json", "w"), indent=1)
write("latents_rescale", sample(suv, begin, texts, 5, 8.0, 0.7))
json.dump(asked | dict(guidance_rescale=0.7), open(f"{OUT}/{NAME}/asked_rescale.json", "w"), indent=1)
scale, shift = (torch.tensor(VAE[key]).view(1, -1, 1, 1, 1) for key in ("scale", "shift"))
write("frames", vae.decode(sample(suv, begin, texts, 5, 8.0, 0) / scale + shift).clamp(-1, 1))

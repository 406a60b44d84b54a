#!/usr/bin/env python3
"""Makes tests/golden/pipelines/osp15 and osp13: folders of Open-Sora-Plan 1.5 and 1.3 with random weights, and the latents and
frames of their pipelines by references of this project and diffusers. Needs PyTorch, diffusers, transformers and safetensors;
run from the root of the checkout, with tools in PYTHONPATH.

The authors publish files of weights and no folders. The parts here have the names of diffusers' folders, with T5 and CLIP as
transformers writes them. Prompts and negative prompts get the templates of the authors' pipeline (MindSpeed-MM's
OpenSoraPlanPipeline), cleaned.

    osp15         suv_reference.py, wfvae_reference.py; levels are even from 1 to 0 and shifted, as in the authors' pipeline
    osp15_rescale a variant of the same folder with the guidance rescale of the authors' config
    osp13         the dense blocks of 1.3 are those of diffusers' Allegro without a scale of positions; one mT5, v-prediction
                  with DDIM on rescaled betas, which draws no noise
    osp13_empty   a variant of the same folder without a negative prompt, which has its template only"""
import json
import os
import re
import shutil
import sys

import numpy as np
import torch
from diffusers import AllegroTransformer3DModel, DDIMScheduler
from diffusers.models.embeddings import get_3d_rotary_pos_embed_allegro
from golden_parts import NEGATIVE, OUT, around, noise, unigram, weights, words
from safetensors.torch import save_file
from suv_reference import SparseUMMDiT
from transformers import CLIPTextConfig, CLIPTextModelWithProjection, MT5Config, MT5EncoderModel, T5Config, T5EncoderModel
from wfvae_reference import WFVAE

torch.set_grad_enabled(False)
SHIFT, PROMPT, STEPS = 7.0, "A Red cat walks and sleeps", 5
TEMPLATES = {"osp15": ("""
    high quality, {}
    """, """
    Worst quality, Normal quality, Low quality, Low res, Blurry, Jpeg artifacts, Grainy, watermark, banner,
    Cropped, Out of frame, Out of focus, Bad anatomy, Bad proportions, Deformed, Disconnected limbs, Disfigured,
    username, error, sketch, duplicate, ugly, monochrome, horror, geometry, mutation, disgusting, overexposed, underexposed.
    """), "osp13": ("""
    high quality, high aesthetic, {}
    """, """
    nsfw, lowres, bad anatomy, bad hands, text, error, missing fingers, extra digit, fewer digits, cropped, worst quality,
    low quality, normal quality, jpeg artifacts, signature, watermark, username, blurry.
    """)}
SUV = dict(num_layers=[2, 2, 2], sparse_n=[1, 2, 1], num_heads=2, head_dim=16, in_channels=4, out_channels=4, timestep_embed_dim=16,
           caption_channels=16, pooled_projection_dim=12)
DENSE = dict(num_layers=2, num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, cross_attention_dim=24, caption_channels=16,
             interpolation_scale_h=1.0, interpolation_scale_w=1.0, interpolation_scale_t=1.0)
VAE = dict(latent_dim=4, base_channels=4, encoder_num_resblocks=1, encoder_energy_flow_hidden_size=4, decoder_num_resblocks=1,
           decoder_energy_flow_hidden_size=4, norm_type="layernorm", t_interpolation="trilinear", scale=[0.7, 1.5, 1.2, 0.9], shift=[-0.2, 0.1, 1.6, 0.6])
IN_TIME = dict(l1_dowmsample_block="Spatial2xTime2x3DDownsample", l1_downsample_wavelet="HaarWaveletTransform3D",
               l1_upsample_block="Spatial2xTime2x3DUpsample", l1_upsample_wavelet="InverseHaarWaveletTransform3D")
T5 = dict(vocab_size=100, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, feed_forward_proj="gated-gelu")


def texts_of(name, negative=NEGATIVE):
    before, before_negative = TEMPLATES[name]
    return [re.sub(r"\s+", " ", text.lower()).strip() for text in (before.format(PROMPT), before_negative + negative)]


def tokens_of(tokenizer, text, most):
    return tokenizer(text, padding="max_length", max_length=most, truncation=True, return_tensors="pt")


def part(name, folder, model, config):
    os.makedirs(f"{OUT}/{name}/{folder}")
    json.dump(config, open(f"{OUT}/{name}/{folder}/config.json", "w"), indent=1)
    save_file({n: p.data.contiguous() for n, p in model.named_parameters()}, f"{OUT}/{name}/{folder}/diffusion_pytorch_model.safetensors")


def write(name, label, video):
    np.save(f"{OUT}/{name}/{label}.npy", video[0].permute(1, 2, 3, 0).contiguous().numpy())


def asked_of(name, label="asked", **more):
    json.dump(dict(prompt=PROMPT, negative=NEGATIVE, height=32, width=48, num_inference_steps=STEPS) | more,
              open(f"{OUT}/{name}/{label}.json", "w"), indent=1)


def folder(name, denoiser, vae, vae_config, scheduler, begin, latents, **parts):
    """Writes all parts but the denoiser, and the frames of the latents."""
    part(name, "vae", vae, {"_class_name": "WFVAEModel", **vae_config})
    for where, saved in parts.items():
        saved.save_pretrained(f"{OUT}/{name}/{where}")
    os.makedirs(f"{OUT}/{name}/scheduler")
    json.dump(scheduler, open(f"{OUT}/{name}/scheduler/scheduler_config.json", "w"), indent=1)
    index = {where: ["transformers", type(saved).__name__] for where, saved in parts.items()}
    json.dump({"_class_name": "OpenSoraPlanPipeline", "scheduler": ["diffusers", scheduler["_class_name"]], **index,
               "transformer": ["weft", denoiser], "vae": ["weft", "WFVAEModel"]}, open(f"{OUT}/{name}/model_index.json", "w"), indent=1)
    write(name, "noise", begin)
    write(name, "latents", latents)
    scale, shift = (torch.tensor(vae_config[key]).view(1, -1, 1, 1, 1) for key in ("scale", "shift"))
    write(name, "frames", vae.decode(latents / scale + shift).clamp(-1, 1))


def rescaled(made, text, share):
    return share * made * text.std() / made.std() + (1 - share) * made


def sample_flow(model, begin, texts, scale, rescale):
    sigmas = np.linspace(1.0, 0.0, STEPS + 1)
    sigmas = torch.from_numpy(SHIFT * sigmas / (1 + (SHIFT - 1) * sigmas)).float()
    x, all_real = begin.clone(), torch.ones_like(begin[:, 0])
    for now, after in zip(sigmas, sigmas[1:]):
        with_text, without = (model(x, 1000 * now[None], hidden, pooled, all_real, mask) for hidden, pooled, mask in texts)
        made = without + scale * (with_text - without)
        x = x + (after - now) * (rescaled(made, with_text, rescale) if rescale else made)
    return x


def osp15():
    name, config = "osp15", VAE | IN_TIME
    shutil.rmtree(f"{OUT}/{name}", ignore_errors=True)
    tokenizers = [unigram(), words(["<|endoftext|>", "<|startoftext|>"], around(("<|startoftext|>", 1), None, ("<|endoftext|>", 0)))]
    t5 = weights(T5EncoderModel(T5Config(**T5)), 3)
    clip = weights(CLIPTextModelWithProjection(CLIPTextConfig(vocab_size=262, hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
                                                              projection_dim=12, bos_token_id=1, eos_token_id=0, pad_token_id=0)), 5)
    suv, vae = weights(SparseUMMDiT(**SUV), 1), weights(WFVAE(**config), 4)
    texts = []
    for text in texts_of(name):
        own, other = (tokens_of(tokenizer, text, most) for tokenizer, most in zip(tokenizers, (512, 77)))
        texts.append((t5(own.input_ids, own.attention_mask)[0], clip(other.input_ids).text_embeds, own.attention_mask))
    begin, more = noise(4, 3, 4, 6), dict(num_frames=17, guidance_scale=8.0)
    part(name, "transformer", suv, {"_class_name": "SparseUMMDiT", **SUV})
    folder(name, "SparseUMMDiT", vae, config, {"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, "shift": SHIFT}, begin,
           sample_flow(suv, begin, texts, 8.0, 0), text_encoder=t5, text_encoder_2=clip, tokenizer=tokenizers[0], tokenizer_2=tokenizers[1])
    asked_of(name, **more)
    write(name, "latents_rescale", sample_flow(suv, begin, texts, 8.0, 0.7))
    asked_of(name, "asked_rescale", guidance_rescale=0.7, **more)


def osp13():
    name, config = "osp13", VAE | dict(connect_res_layer_num=2)
    shutil.rmtree(f"{OUT}/{name}", ignore_errors=True)
    tokenizer, t5 = unigram(), weights(MT5EncoderModel(MT5Config(**T5)), 3)
    dense, vae = weights(AllegroTransformer3DModel(**DENSE), 1), weights(WFVAE(**config), 4)
    scheduler = DDIMScheduler(prediction_type="v_prediction", rescale_betas_zero_snr=True, timestep_spacing="trailing", clip_sample=False)
    scheduler.set_timesteps(STEPS)
    begin = noise(4, 3, 4, 6)

    def sample(negative):
        x, texts, all_real = begin * scheduler.init_noise_sigma, [], torch.ones_like(begin[:, 0])
        for text in texts_of(name, negative):
            own = tokens_of(tokenizer, text, 512)
            texts.append((t5(own.input_ids, own.attention_mask)[0], own.attention_mask))
        for t in scheduler.timesteps:
            with_text, without = (dense(x, encoder_hidden_states=hidden, timestep=t[None], attention_mask=all_real, encoder_attention_mask=mask,
                                        image_rotary_emb=positions(x)).sample for hidden, mask in texts)
            x = scheduler.step(without + 7.5 * (with_text - without), t, x).prev_sample
        return x
    part(name, "transformer", dense, {"_class_name": "OpenSoraT2V_v1_3", **DENSE})
    folder(name, "OpenSoraT2V_v1_3", vae, config, json.loads(scheduler.to_json_string()), begin, sample(NEGATIVE), text_encoder=t5,
           tokenizer=tokenizer)
    asked_of(name, num_frames=9, guidance_scale=7.5)
    write(name, "latents_empty", sample(""))
    asked_of(name, "asked_empty", negative="", num_frames=9, guidance_scale=7.5)


def positions(x):
    """Rotary tables of all tokens, and their places, as AllegroPipeline gives them."""
    frames, rows, columns = x.shape[2], x.shape[3] // 2, x.shape[4] // 2
    *angles, grid_t, grid_h, grid_w = get_3d_rotary_pos_embed_allegro(
        embed_dim=DENSE["attention_head_dim"], crops_coords=((0, 0), (rows, columns)), grid_size=(rows, columns), temporal_size=frames,
        interpolation_scale=(1.0, 1.0, 1.0), device="cpu")
    places = torch.cartesian_prod(*(torch.as_tensor(grid).long() for grid in (grid_t, grid_h, grid_w)))
    t, h, w = (places[:, i].reshape(1, -1).contiguous() for i in range(3))
    return tuple(angles), (t, h, w)


if __name__ == "__main__":
    for name in sys.argv[1:] or ("osp15", "osp13"):
        torch.manual_seed(0)  # weights() adds to the initial vectors
        {"osp15": osp15, "osp13": osp13}[name]()

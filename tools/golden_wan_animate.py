#!/usr/bin/env python3
"""Makes tests/golden/wan_animate_train30 (30 training steps of a small random WanAnimateTransformer3DModel), and
tests/golden/pipelines/wan_animate: a folder as diffusers saves its pipeline, and the latents that the pipeline computes from a
given noise. Needs PyTorch, diffusers and transformers; run from the root of the checkout with `train` or `pipeline` (none: both).

    wan_animate  a character's image of another aspect, videos of poses and of a face in other sizes
    guided       with a negative prompt, for which the face is black
    replace      a background with a mask of grey levels, in which the character is replaced
    long, long5  segments that share one frame, or five; the last one is longer than the videos. They have frames, not latents"""
import json
import sys

import numpy as np
import torch
from diffusers import UniPCMultistepScheduler, WanAnimatePipeline, WanAnimateTransformer3DModel
from golden_parts import CASES, NEGATIVE, OUT, PROMPT, noise, picture, save, umt5, unigram, variant, wan_vae, weights
from golden_training import ITEMS, normal_of, samples, train
from PIL import Image
from transformers import CLIPImageProcessor, CLIPVisionConfig, CLIPVisionModel

SMALL = dict(patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=12, in_channels=12, latent_channels=4, out_channels=4, freq_dim=16,
             ffn_dim=32, added_kv_proj_dim=24, motion_encoder_size=16, motion_encoder_channel_sizes={"4": 6, "8": 5, "16": 4}, motion_style_dim=8,
             motion_dim=3, motion_encoder_dim=6, face_encoder_hidden_dim=6, face_encoder_num_heads=2)


def make_training():
    config = SMALL | dict(text_dim=6, image_dim=6, num_layers=2, inject_face_latents_blocks=2)
    draw = torch.Generator().manual_seed(53)
    normal, model = normal_of(draw), WanAnimateTransformer3DModel(**config)
    for parameter in model.parameters():
        parameter.data = normal(*parameter.shape) / parameter[0].numel() ** 0.5 if parameter.dim() > 1 else 0.1 * normal(*parameter.shape)
    for key, parameter in model.named_parameters():
        if "norm" in key and key.endswith(".weight"):
            parameter.data += 1
        if key.startswith("motion_encoder") and parameter.dim() > 1:  # a deviation of 1, as in training from scratch
            parameter.data = normal(*parameter.shape)
    sampled = samples(draw, 4, 3, 4, 4)
    inputs = {"encoder_hidden_states": normal(ITEMS, 512, 6), "encoder_hidden_states_image": normal(ITEMS, 3, 6),
              "pose_hidden_states": normal(ITEMS, 4, 2, 4, 4), "face_pixel_values": 2 * torch.rand((ITEMS, 3, 5, 16, 16), generator=draw) - 1,
              "given_channels": normal(ITEMS, 8, 3, 4, 4)}

    def predict(x, t, items):
        rest = {k: v[items] for k, v in inputs.items() if k != "given_channels"}
        return model(torch.cat([x, inputs["given_channels"][items]], dim=1), 1000 * t, **rest, return_dict=False)[0]
    train("wan_animate", model, config, sampled, inputs, predict,
          "flow matching: x = (1-t)*data + t*noise, target = noise - data, model timestep = 1000*t")


def film(name, frames):
    frames[0].save(f"{OUT}/wan_animate/{name}.png", save_all=True, append_images=frames[1:], duration=100)


class GivenNoise(WanAnimatePipeline):
    """Takes the noise of every segment from a list."""
    noises = ()

    def prepare_latents(self, *ignored, latents=None, **more):
        self.noises, first = self.noises[1:], self.noises[0]
        return first.clone()


def pipeline():
    transformer = weights(WanAnimateTransformer3DModel(**SMALL, text_dim=16, image_dim=8, num_layers=2, inject_face_latents_blocks=1), 1)
    for key, parameter in transformer.named_parameters():
        if key.startswith("motion_encoder") and parameter.dim() > 1:
            parameter.data = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(8))
    text = umt5()
    vae = wan_vae()
    encoder = weights(CLIPVisionModel(CLIPVisionConfig(hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
                                                       image_size=28, patch_size=14)), 5)
    return GivenNoise(tokenizer=unigram(), text_encoder=text, vae=vae, transformer=transformer, image_encoder=encoder,
                      scheduler=UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=5.0),
                      image_processor=CLIPImageProcessor(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}))


def grey_mask(step):
    """Grey levels, darker to the right; white where the character is."""
    levels = np.tile(np.linspace(120, 0, 40, dtype=np.uint8)[None, :, None], (32, 1, 3))
    levels[5:25, 2 * step:2 * step + 11] = 255
    return Image.fromarray(levels)


def make_pipeline():
    pipe, image = pipeline(), picture(50, 39, 1)
    pose, face = [picture(40, 32, 20 + i) for i in range(17)], [picture(20, 18, 40 + i) for i in range(17)]
    background, mask = [picture(36, 36, 60 + i) for i in range(9)], [grey_mask(i) for i in range(9)]
    mean, deviation = (torch.tensor(v).view(1, 4, 1, 1, 1) for v in (pipe.vae.config.latents_mean, pipe.vae.config.latents_std))
    asked = dict(height=32, width=32, num_inference_steps=4)
    begin = noise(4, 4, 4, 4)

    def run(frames, guidance, window=9, noises=(begin,), kind="latent", **more):
        pipe.noises = noises
        return pipe(image=image, prompt=PROMPT, pose_video=pose[:frames], face_video=face[:frames], negative_prompt=NEGATIVE,
                    segment_frame_length=window, guidance_scale=guidance, output_type=kind, **(asked | more)).frames

    def latents(*args, **more):
        return (run(*args, **more) - mean) / deviation

    def told(frames, guidance):
        negative = {"negative": NEGATIVE} if guidance > 1 else {}
        return dict(prompt=PROMPT, **negative, num_frames=frames, guidance_scale=guidance, **asked)
    with torch.no_grad():
        save(pipe, "wan_animate", begin, latents(9, 1.0), **told(9, 1.0))
        variant("wan_animate", "guided", latents(9, 3.0), **told(9, 3.0))
        variant("wan_animate", "replace", latents(9, 1.0, mode="replace", background_video=background, mask_video=mask), **told(9, 1.0))
        for name, frames, window, shared in ("long", 13, 9, 1), ("long5", 17, 13, 5):
            both = torch.randn((2, 1, 4, window // 4 + 2, 4, 4), generator=torch.Generator().manual_seed(9))
            made = run(frames, 1.0, window, list(both), "np", prev_segment_conditioning_frames=shared)[0]
            np.save(f"{OUT}/wan_animate/frames_{name}.npy", (2 * made - 1).astype(np.float32))
            np.save(f"{OUT}/wan_animate/noise_{name}.npy", both[:, 0].permute(0, 2, 3, 4, 1).contiguous().numpy())
            CASES.append(("wan_animate", name, told(frames, 1.0) | dict(window=window, window_overlap=shared, window_mode="continue")))
    image.save(f"{OUT}/wan_animate/image.png")
    for name, frames in ("control", pose), ("face", face), ("video_replace", background), ("mask_replace", mask):
        film(name, frames)
    for name, frames in ("control_long", pose), ("face_long", face):  # the last segment is longer than these
        film(name, frames[:13])


for made in make_training, make_pipeline:
    if not sys.argv[1:] or made.__name__.removeprefix("make_").startswith(sys.argv[1]):
        torch.manual_seed(0)
        made()

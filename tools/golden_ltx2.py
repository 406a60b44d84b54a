#!/usr/bin/env python3
"""Makes tests/golden/ltx2_train30, ltx23_train30 and ltx23_sound_train30: 30 training steps of small
random LTX2VideoTransformer3DModels, of video and audio, as LTX-2 and as LTX-2.3. In the last file each
stream has times of its own, and sample 3 has no audio: its video is predicted without attention between
the streams, and it has no loss of audio. It is computed in f64: some gradients of its feed-forward are so
small that AdamW turns their rounding in f32 into 1e-4 of the weights. Needs PyTorch, diffusers and safetensors; run from the root of
the checkout."""
import torch
from diffusers import LTX2VideoTransformer3DModel
from golden_training import BATCH, ITEMS, STEPS, normal_of, samples, train

COMMON = dict(in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=12, cross_attention_dim=24, audio_in_channels=3,
              audio_out_channels=3, audio_num_attention_heads=2, audio_attention_head_dim=8, audio_cross_attention_dim=16, num_layers=1,
              caption_channels=10, rope_type="split", rope_theta=100.0)
LTX23 = dict(gated_attn=True, cross_attn_mod=True, audio_gated_attn=True, audio_cross_attn_mod=True, use_prompt_embeddings=False)
SIZE, AUDIO = (2, 2, 3), 5


def make(name, config, seed, apart=False):
    model = LTX2VideoTransformer3DModel(**config)
    draw = torch.Generator().manual_seed(seed)
    normal = normal_of(draw)
    for parameter in model.parameters():
        parameter.data = normal(*parameter.shape) / parameter[0].numel() ** 0.5 if parameter.dim() > 1 else 1 + 0.1 * normal(*parameter.shape)
    precise = (lambda x: x.double()) if apart else (lambda x: x)
    precise(model)
    sampled = tuple(map(precise, samples(draw, *SIZE, 4)))
    audio = precise(normal(ITEMS, AUDIO, 3)), precise(normal(STEPS, BATCH, AUDIO, 3))
    widths = (10, 10) if config.get("use_prompt_embeddings", True) else (24, 16)
    text = [precise(normal(ITEMS, 4, width)) for width in widths]
    mask = torch.tensor([[int(i < n) for i in range(4)] for n in (4, 2, 3, 1)])
    newer = "cross_attn_mod" in config

    def predict(x, sound, t, items, **more):
        made = model(x.flatten(1, 3), sound, text[0][items], text[1][items], 1000 * t, sigma=1000 * t, num_frames=SIZE[0], height=SIZE[1],
                     width=SIZE[2], fps=24.0, audio_num_frames=AUDIO, encoder_attention_mask=mask[items],
                     audio_encoder_attention_mask=mask[items], use_cross_timestep=newer, return_dict=False, **more)
        return made[0].unflatten(1, SIZE), made[1]

    def predict_apart(x, sound, t, items, audio_t):
        """Each sample alone, because diffusers isolates the streams of a whole batch."""
        made = [predict(x[i:i + 1], sound[i:i + 1], t[i:i + 1], items[i:i + 1], audio_timestep=1000 * audio_t[i:i + 1],
                        audio_sigma=1000 * audio_t[i:i + 1], isolate_modalities=not joined[item]) for i, item in enumerate(items)]
        return [torch.cat(part) for part in zip(*made)]
    joined = precise(torch.tensor([1.0, 1, 1, 0]))
    train(name, model, config, sampled,
          {"encoder_hidden_states": text[0], "audio_encoder_hidden_states": text[1], "encoder_attention_mask": mask,
           "audio_encoder_attention_mask": mask.clone()} | ({"joined": joined} if apart else {}), predict_apart if apart else predict,
          "flow matching: x = (1-t) data + t noise, target = noise - data, the model takes 1000 t", audio=audio,
          apart=(precise(torch.rand((STEPS, BATCH), generator=draw)), joined) if apart else None)


make("ltx2", COMMON, 60)
make("ltx23", COMMON | LTX23, 61)
make("ltx23_sound", COMMON | LTX23, 62, apart=True)

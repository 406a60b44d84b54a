#!/usr/bin/env python3
"""Makes tests/golden/ltx2_connectors, ltx23_connectors, ltx2_vocoder and ltx23_vocoder: outputs and
gradients of small random models of the parts of LTX-2 around its transformer. Needs PyTorch,
diffusers and safetensors; run from the root of the checkout.

The connectors' hidden states are those of all layers, (N,B,L,D), and a text comes before its padding:
the reference moves it there."""
import json
import math

import torch
from diffusers.pipelines.ltx2.connectors import LTX2TextConnectors
from diffusers.pipelines.ltx2.vocoder import LTX2Vocoder, LTX2VocoderWithBWE
from safetensors.torch import save_file

OUT = "tests/golden"
TEXT = dict(caption_channels=12, text_proj_in_factor=4, video_connector_num_layers=2, video_connector_num_learnable_registers=4,
            audio_connector_num_layers=1, audio_connector_num_learnable_registers=2, connector_rope_base_seq_len=64)
CONNECTORS = {
    "ltx2_connectors": TEXT | dict(video_connector_num_attention_heads=2, video_connector_attention_head_dim=6, audio_connector_num_attention_heads=2,
                                   audio_connector_attention_head_dim=6, rope_type="split"),
    "ltx23_connectors": TEXT | dict(video_connector_num_attention_heads=2, video_connector_attention_head_dim=8, video_gated_attn=True,
                                    audio_connector_num_attention_heads=1, audio_connector_attention_head_dim=8, audio_gated_attn=True,
                                    per_modality_projections=True, video_hidden_dim=16, audio_hidden_dim=8, proj_bias=True)}
SYNTH = dict(in_channels=8, hidden_channels=16, upsample_kernel_sizes=[7, 4], upsample_factors=[3, 2], resnet_kernel_sizes=[3, 5],
             resnet_dilations=[[1, 3, 5], [1, 3, 5]])
VOCODERS = {
    "ltx2_vocoder": (LTX2Vocoder, SYNTH),
    "ltx23_vocoder": (LTX2VocoderWithBWE, SYNTH | {"bwe_" + k: v for k, v in SYNTH.items()} |
                      dict(bwe_upsample_factors=[3, 4], bwe_upsample_kernel_sizes=[7, 8], filter_length=8, hop_length=6, window_length=8,
                           num_mel_channels=4, input_sampling_rate=800, output_sampling_rate=1600))}


def fill(model, normal):
    for parameter in model.parameters():
        parameter.data = normal(*parameter.shape) / parameter[0].numel() ** 0.5 if parameter.dim() > 1 else 0.3 * normal(*parameter.shape)
    return model.eval()


def save(name, model, config, tensors):
    kept = [*model.named_parameters(), *((k, v) for k, v in model.named_buffers() if k in model.state_dict())]
    tensors |= {f"param.{k}": v.detach() for k, v in kept}
    save_file({k: v.contiguous() for k, v in tensors.items()}, f"{OUT}/{name}.safetensors")
    json.dump({"_class_name": type(model).__name__, **config}, open(f"{OUT}/{name}.json", "w"), indent=1)


def connectors(name, config, seed):
    draw = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(shape, generator=draw)
    model = fill(LTX2TextConnectors(**config), normal)
    states = 3 * normal(4, 2, 8, 12) + 0.5
    mask = torch.tensor([[1] * 8, [1] * 3 + [0] * 5])
    video, audio, seen = model(states.permute(1, 2, 3, 0), mask, padding_side="right")
    assert seen.min() == 1
    targets = [normal(*video.shape), normal(*audio.shape)]
    loss = sum(((made - target) ** 2).mean() for made, target in zip((video, audio), targets))
    loss.backward()
    tensors = {"in.text_encoder_hidden_states": states, "in.attention_mask": mask, "in.target_video_text_embedding": targets[0],
               "in.target_audio_text_embedding": targets[1], "out.video_text_embedding": video.detach(), "out.audio_text_embedding": audio.detach(),
               "out.loss": loss.detach().view(1)}
    save(name, model, config, tensors | {f"grad.{k}": p.grad for k, p in model.named_parameters()})


def bases(model, filter_length, bins):
    """Sines and cosines of a Hann window, and triangles, as in the files of LTX-2.3."""
    at = torch.arange(filter_length, dtype=torch.float64)
    waves = torch.arange(filter_length // 2 + 1, dtype=torch.float64)[:, None] * at * 2 * math.pi / filter_length
    window = torch.hann_window(filter_length, dtype=torch.float64)
    model.stft_fn.forward_basis.copy_(torch.cat([waves.cos(), -waves.sin()])[:, None] * window)
    middle = torch.linspace(0.5, len(waves) - 1.5, bins)[:, None]
    model.mel_basis.copy_((1 - (torch.arange(len(waves))[None] - middle).abs()).clamp(min=0))


def vocoder(name, kind, config, seed):
    draw = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(shape, generator=draw)
    model = fill(kind(**config), normal)
    if kind is LTX2VocoderWithBWE:
        bases(model.mel_stft, config["filter_length"], config["num_mel_channels"])
        for synth in model.vocoder, model.bwe_generator:
            synth.conv_out.weight.data *= 0.1  # few samples beyond 1
    spectrogram = normal(2, 2, 7, 4)
    made = model(spectrogram)
    target = normal(*made.shape)
    loss = ((made - target) ** 2).mean()
    loss.backward()
    made = made.detach()
    assert 0.05 < made.std() < 1 and (made.abs() == 1).float().mean() < 0.2, (made.std(), (made.abs() == 1).float().mean())
    save(name, model, config, {"in.hidden_states": spectrogram, "in.target": target, "out.sample": made, "out.loss": loss.detach().view(1)} |
         {f"grad.{k}": p.grad for k, p in model.named_parameters()})


if __name__ == "__main__":
    for i, (name, config) in enumerate(CONNECTORS.items()):
        connectors(name, config, 70 + i)
    for i, (name, (kind, config)) in enumerate(VOCODERS.items()):
        vocoder(name, kind, config, 80 + i)

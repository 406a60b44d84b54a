#!/usr/bin/env python3
"""Makes tests/golden/ltx2_sound.safetensors: waveforms, their mel spectrograms (channels, steps, bins) as
AudioProcessor of Lightricks' LTX-2 computes them, and the latents of the autoencoder in
tests/golden/pipelines/ltx2/audio_vae (steps, channels x mel bins). Needs PyTorch, diffusers and
transformers; run from the root of the checkout."""
import torch
from diffusers import AutoencoderKLLTX2Audio
from safetensors.torch import save_file
from transformers.audio_utils import mel_filter_bank

WINDOW = 1024
torch.set_num_threads(1)


def mel(sound, rate, hop, bins):
    """As torchaudio's MelSpectrogram with power 1 and Slaney's scale and areas."""
    filters = mel_filter_bank(WINDOW // 2 + 1, bins, 0.0, rate / 2, rate, norm="slaney", mel_scale="slaney")
    lines = torch.stft(sound.double(), WINDOW, hop, window=torch.hann_window(WINDOW, dtype=torch.float64), center=True, pad_mode="reflect",
                       return_complex=True).abs()
    return torch.log(torch.clamp(lines.transpose(1, 2) @ torch.tensor(filters), min=1e-5))


def sound(rate, count, seed):
    """Tones and noise."""
    time = torch.arange(count) / rate
    draw = torch.Generator().manual_seed(seed)
    tones = torch.stack([0.4 * torch.sin(2 * torch.pi * rate / 9 * time), 0.2 * torch.sin(2 * torch.pi * rate / 31 * time)])
    return tones + 0.05 * torch.randn((2, count), generator=draw)


wide, narrow = sound(16000, 16000 + 77, 1), sound(400, 720, 2)
vae = AutoencoderKLLTX2Audio.from_pretrained("tests/golden/pipelines/ltx2/audio_vae").double()
spectrogram = mel(narrow, 400, 10, vae.config.mel_bins)
with torch.no_grad():
    latents = vae.encode(spectrogram[None]).latent_dist.mean[0]
save_file({"wide": wide, "wide_mel": mel(wide, 16000, 160, 64).float(), "narrow": narrow, "narrow_mel": spectrogram.float(),
           "latents": latents.permute(1, 0, 2).flatten(1).float().contiguous()}, "tests/golden/ltx2_sound.safetensors")

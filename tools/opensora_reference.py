"""The autoencoder and the transformer of Open-Sora 1.2 in PyTorch, for golden_opensora_vae.py and golden_opensora_pipeline.py. No
package has the models. The references are written from the report of Open-Sora 1.2, the names of the authors' parameters and
the definitions of their layers (hpcaitech/Open-Sora, opensora/models/vae and opensora/models/stdit of the tag v1.2.0).

Values are (batch, channels, frames, rows, columns)."""
import torch
from diffusers import AutoencoderKL
from torch import nn
from torch.nn import functional

IMAGES_SCALE = 0.18215


# ---- the autoencoder -------------------------------------------------------------------------------------------------

class Causal(nn.Module):
    """Convolution whose last tap in time is on its own frame, with zeros before the first frame."""

    def __init__(self, given, out, kernel, stride=1, bias=True):
        super().__init__()
        self.before = kernel - stride
        self.conv = nn.Conv3d(given, out, kernel, (stride, 1, 1), (0, kernel // 2, kernel // 2), bias=bias)

    def forward(self, x):
        return self.conv(functional.pad(x, (0, 0, 0, 0, self.before, 0)))


class Residual(nn.Module):
    def __init__(self, given, out, groups):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(groups, given), nn.GroupNorm(groups, out)
        self.conv1, self.conv2 = Causal(given, out, 3, bias=False), Causal(out, out, 3, bias=False)
        if given != out:
            self.conv3 = Causal(given, out, 1, bias=False)

    def forward(self, x):
        made = self.conv2(functional.silu(self.norm2(self.conv1(functional.silu(self.norm1(x))))))
        return made + (self.conv3(x) if hasattr(self, "conv3") else x)


def residuals(given, out, count, groups):
    return nn.ModuleList(Residual(given if i == 0 else out, out, groups) for i in range(count))


class FrameEncoder(nn.Module):
    def __init__(self, channels, out, widths, blocks, halves, groups):
        super().__init__()
        self.conv_in = Causal(channels, widths[0], 3, bias=False)
        self.block_res_blocks = nn.ModuleList(residuals(widths[max(i - 1, 0)], width, blocks, groups) for i, width in enumerate(widths))
        self.conv_blocks = nn.ModuleList(Causal(width, width, 3, 2) if half else nn.Identity() for width, half in zip(widths, halves))
        self.res_blocks = residuals(widths[-1], widths[-1], blocks, groups)
        self.norm1, self.conv2 = nn.GroupNorm(groups, widths[-1]), Causal(widths[-1], out, 1)

    def forward(self, x):
        x = self.conv_in(x)
        for i, level in enumerate(self.block_res_blocks):
            for block in level:
                x = block(x)
            if i < len(self.conv_blocks):
                x = self.conv_blocks[i](x)
        for block in self.res_blocks:
            x = block(x)
        return self.conv2(functional.silu(self.norm1(x)))


class FrameDecoder(nn.Module):
    def __init__(self, channels, given, widths, blocks, halves, groups):
        super().__init__()
        self.conv1 = Causal(given, widths[-1], 3)
        self.res_blocks = residuals(widths[-1], widths[-1], blocks, groups)
        above = widths[1:] + widths[-1:]  # of the level before, which is the next wider one
        self.block_res_blocks = nn.ModuleList(residuals(above[i], width, blocks, groups) for i, width in enumerate(widths))
        self.conv_blocks = nn.ModuleList(Causal(width, 2 * width, 3) if half else nn.Identity() for width, half in zip(widths[1:], halves))
        self.norm1, self.conv_out = nn.GroupNorm(groups, widths[0]), Causal(widths[0], channels, 3)

    def forward(self, x):
        x = self.conv1(x)
        for block in self.res_blocks:
            x = block(x)
        for i in reversed(range(len(self.block_res_blocks))):
            for block in self.block_res_blocks[i]:
                x = block(x)
            if i and not isinstance(self.conv_blocks[i - 1], nn.Identity):
                x = self.conv_blocks[i - 1](x)
                x = x.unflatten(1, (-1, 2)).permute(0, 1, 3, 2, 4, 5).flatten(2, 3)
        return self.conv_out(functional.silu(self.norm1(x)))


class FrameAutoencoder(nn.Module):
    def __init__(self, channels, filters=128, num_res_blocks=4, channel_multipliers=(1, 2, 2, 4), temporal_downsample=(False, True, True), num_groups=32):
        super().__init__()
        widths = [filters * times for times in channel_multipliers]
        self.time = 2 ** sum(temporal_downsample)
        self.encoder = FrameEncoder(channels, 2 * channels, widths, num_res_blocks, temporal_downsample, num_groups)
        self.quant_conv, self.post_quant_conv = Causal(2 * channels, 2 * channels, 1), Causal(channels, channels, 1)
        self.decoder = FrameDecoder(channels, channels, widths, num_res_blocks, temporal_downsample, num_groups)

    def encode(self, x):
        return self.quant_conv(self.encoder(functional.pad(x, (0, 0, 0, 0, -x.shape[2] % self.time, 0))))

    def decode(self, z, frames):
        return self.decoder(self.post_quant_conv(z))[:, :, -frames % self.time:]


class Images(nn.Module):
    """A holder with the name of the authors' module."""

    def __init__(self, **config):
        super().__init__()
        self.module = AutoencoderKL(**config)


def in_frames(apply, x):
    made = apply(x.transpose(1, 2).flatten(0, 1))
    return made.unflatten(0, (x.shape[0], -1)).transpose(1, 2)


class VideoAutoencoder(nn.Module):
    """Images by AutoencoderKL, and clips of `micro_frame_size` frames by an autoencoder of frames."""

    def __init__(self, images, frames, micro_frame_size=None, **_):
        super().__init__()
        self.spatial_vae = Images(**images)
        self.temporal_vae = FrameAutoencoder(images["latent_channels"], **frames)
        self.clip = micro_frame_size

    def encode(self, video):
        """Mean and log variance. The latents of the images are their means."""
        x = IMAGES_SCALE * in_frames(lambda x: self.spatial_vae.module.encode(x).latent_dist.mode(), video)
        clips = x.split(self.clip or x.shape[2], 2)
        mean, logvar = torch.cat([self.temporal_vae.encode(clip) for clip in clips], 2).chunk(2, 1)
        return mean, logvar.clamp(-30, 20)

    def decode(self, z, frames):
        clip = self.clip or frames
        clips = zip(z.split(-(-clip // self.temporal_vae.time), 2), range(0, frames, clip))
        x = torch.cat([self.temporal_vae.decode(z, min(clip, frames - at)) for z, at in clips], 2)
        return in_frames(lambda x: self.spatial_vae.module.decode(x).sample, x / IMAGES_SCALE)


# ---- the transformer -------------------------------------------------------------------------------------------------

def sinusoid(t, width=256):
    angle = t[:, None] * torch.exp(-torch.arange(width // 2) / (width // 2) * torch.log(torch.tensor(10000.0)))
    return torch.cat([angle.cos(), angle.sin()], -1)


class Scalar(nn.Module):
    """MLP of the sinusoid of a number per sample."""

    def __init__(self, width):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, t):
        return self.mlp(sinusoid(t))


class TwoLayers(nn.Module):
    def __init__(self, given, inner, out):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(given, inner), nn.Linear(inner, out)

    def forward(self, x):
        return self.fc2(functional.gelu(self.fc1(x), approximate="tanh"))


class SelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.q_norm, self.k_norm = (nn.RMSNorm(width // heads, eps=1e-6) for _ in range(2))

    def forward(self, x, freqs=None):
        """x (groups, tokens, width); freqs: rotary embedding of the tokens' positions."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = self.q_norm(q), self.k_norm(k)
        if freqs is not None:
            angle = torch.arange(x.shape[1])[:, None] * freqs
            q, k = (turned(part, angle) for part in (q, k))
        return self.proj(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def turned(x, angle):
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack([even * angle.cos() - odd * angle.sin(), odd * angle.cos() + even * angle.sin()], -1).flatten(-2)


class TextAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q_linear, self.kv_linear, self.proj = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)

    def forward(self, x, text, mask):
        q = self.q_linear(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.kv_linear(text).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.proj(functional.scaled_dot_product_attention(q, k, v, mask[:, None, None].bool()).transpose(1, 2).flatten(2))


def plain_norm(x):
    return functional.layer_norm(x, x.shape[-1:], eps=1e-6)


class Block(nn.Module):
    def __init__(self, width, heads, ratio, temporal):
        super().__init__()
        self.temporal = temporal
        self.attn, self.cross_attn = SelfAttention(width, heads), TextAttention(width, heads)
        self.mlp = TwoLayers(width, int(width * ratio), width)
        self.scale_shift_table = nn.Parameter(torch.randn(6, width) / width ** 0.5)

    def forward(self, x, text, mask, modulation, freqs):
        """x (batch, frames, tokens, width); modulation (batch, frames, 6, width)."""
        shift1, scale1, gate1, shift2, scale2, gate2 = (modulation + self.scale_shift_table)[:, :, None].unbind(3)
        h = plain_norm(x) * (1 + scale1) + shift1
        if self.temporal:
            h = self.attn(h.transpose(1, 2).flatten(0, 1), freqs).unflatten(0, (x.shape[0], -1)).transpose(1, 2)
        else:
            h = self.attn(h.flatten(0, 1)).unflatten(0, x.shape[:2])
        x = x + gate1 * h
        x = x + self.cross_attn(x.flatten(1, 2), text, mask).view_as(x)
        return x + gate2 * self.mlp(plain_norm(x) * (1 + scale2) + shift2)


class Text(nn.Module):
    def __init__(self, given, width, length):
        super().__init__()
        self.y_proj = TwoLayers(given, width, width)
        self.register_buffer("y_embedding", torch.randn(length, given) / given ** 0.5)  # of an absent text


class Rope(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.freqs = nn.Parameter(10000 ** -(torch.arange(0, width, 2) / width), requires_grad=False)


class Patch(nn.Module):
    def __init__(self, channels, width, patch):
        super().__init__()
        self.proj = nn.Conv3d(channels, width, patch, patch)


class Last(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.linear, self.scale_shift_table = nn.Linear(width, out), nn.Parameter(torch.randn(2, width) / width ** 0.5)


class STDiT3(nn.Module):
    def __init__(self, hidden_size=1152, depth=28, num_heads=16, in_channels=4, caption_channels=4096, model_max_length=300, input_sq_size=512,
                 mlp_ratio=4.0, **_):
        super().__init__()
        self.square, self.channels = input_sq_size, in_channels
        self.x_embedder = Patch(in_channels, hidden_size, (1, 2, 2))
        self.t_embedder, self.fps_embedder = Scalar(hidden_size), Scalar(hidden_size)
        self.t_block = nn.Sequential(nn.SiLU(), nn.Linear(hidden_size, 6 * hidden_size))
        self.y_embedder, self.rope = Text(caption_channels, hidden_size, model_max_length), Rope(hidden_size // num_heads)
        self.spatial_blocks, self.temporal_blocks = (
            nn.ModuleList(Block(hidden_size, num_heads, mlp_ratio, temporal) for _ in range(depth)) for temporal in (False, True))
        self.final_layer = Last(hidden_size, 4 * 2 * in_channels)

    def positions(self, rows, columns, height, width, channels):
        zoom, base = (height * width) ** 0.5 / self.square, round((rows * columns) ** 0.5)
        frequencies = 1.0 / 10000 ** (torch.arange(0, channels // 2, 2).float() / (channels // 2))

        def side(count):
            angle = torch.arange(count)[:, None] / zoom * (base / count) * frequencies
            return torch.cat([angle.sin(), angle.cos()], -1)
        return torch.cat([side(columns).expand(rows, -1, -1), side(rows)[:, None].expand(-1, columns, -1)], -1).flatten(0, 1)

    def forward(self, x, t, text, mask, fps, height, width, noisy=None):
        """x (batch, channels, frames, rows, columns), text (batch, tokens, width), mask (batch, tokens); noisy (batch, frames):
        false for given frames. Returns the velocity from noise to data, without the variance."""
        size = x.shape[2:]
        x = self.x_embedder.proj(functional.pad(x, (0, -size[2] % 2, 0, -size[1] % 2)))
        rows, columns = x.shape[3:]
        x = x.flatten(3).permute(0, 2, 3, 1)
        x = x + self.positions(rows, columns, height, width, x.shape[-1])
        rate = self.fps_embedder(fps)
        times = torch.stack([self.t_embedder(t) + rate, self.t_embedder(0 * t) + rate], 1)
        of_frame = torch.zeros(x.shape[:2], dtype=torch.long) if noisy is None else (~noisy).long()
        modulation = torch.stack([m[i] for m, i in zip(self.t_block(times).unflatten(-1, (6, -1)), of_frame)])
        text = self.y_embedder.y_proj(text)
        for spatial, temporal in zip(self.spatial_blocks, self.temporal_blocks):
            x = spatial(x, text, mask, modulation, None)
            x = temporal(x, text, mask, modulation, self.rope.freqs)
        last = self.final_layer
        (shift, scale), (shift0, scale0) = ((times[:, i, None, None, None] + last.scale_shift_table).unbind(3) for i in range(2))
        x = plain_norm(x) * (1 + scale) + shift
        clean = plain_norm(x) * (1 + scale0) + shift0  # the authors normalise given frames twice
        x = torch.where(of_frame[:, :, None, None] == 1, clean, x)
        x = last.linear(x).unflatten(-1, (2, 2, -1)).unflatten(2, (rows, columns))  # batch, frames, rows, columns, 2, 2, channels
        x = x.permute(0, 6, 1, 2, 4, 3, 5).flatten(5).flatten(3, 4)
        return x[:, :self.channels, :, :size[1], :size[2]]

"""WFVAE of Open-Sora-Plan 1.3 and 1.5 in PyTorch, for golden_wfvae.py and golden_osp_pipeline.py. No package has the
model. This reference is written from the paper (WF-VAE, arXiv 2411.17459) and the names of the authors' parameters
(PKU-YuanGroup/Open-Sora-Plan, opensora/models/causalvideovae). A video is always computed as a whole.

Values are (batch, channels, frames, rows, columns). The filters of the wavelets are no parameters here."""
import torch
from torch import nn
from torch.nn import functional

PUBLISHED_SHARE = 0.3536  # the published filters have this value in place of 8 ** -0.5


def in_frames(layer, x):
    """Applies a layer of images to each frame."""
    batch = x.shape[0]
    made = layer(x.transpose(1, 2).flatten(0, 1))
    return made.unflatten(0, (batch, -1)).transpose(1, 2)


class FrameConv(nn.Conv2d):
    def __init__(self, given, out):
        super().__init__(given, out, 3, padding=1)

    def forward(self, x):
        return in_frames(super().forward, x)


class CausalConv(nn.Module):
    def __init__(self, given, out, kernel=3, stride=1):
        super().__init__()
        self.kernel = kernel
        self.conv = nn.Conv3d(given, out, kernel, stride, (0, kernel // 2, kernel // 2) if stride == 1 else 0)

    def forward(self, x):
        return self.conv(torch.cat([x[:, :, :1]] * (self.kernel - 1) + [x], 2))


class ChannelNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width, 1e-6)

    def forward(self, x):
        return self.norm(x.movedim(1, -1)).movedim(-1, 1)


class Residual(nn.Module):
    def __init__(self, given, out, images=False):
        super().__init__()
        conv = FrameConv if images else CausalConv
        self.norm1, self.conv1, self.norm2, self.conv2 = ChannelNorm(given), conv(given, out), ChannelNorm(out), conv(out, out)
        if given != out:
            self.nin_shortcut = CausalConv(given, out, 1)

    def forward(self, x):
        h = x
        for norm, conv in (self.norm1, self.conv1), (self.norm2, self.conv2):
            h = conv(functional.silu(norm(h)))
        return h + (self.nin_shortcut(x) if hasattr(self, "nin_shortcut") else x)


class Attention(nn.Module):
    """One head, inside each frame."""

    def __init__(self, width):
        super().__init__()
        self.norm = ChannelNorm(width)
        self.q, self.k, self.v, self.proj_out = (CausalConv(width, width, 1) for _ in range(4))

    def forward(self, x):
        h = self.norm(x)
        q, k, v = (layer(h).permute(0, 2, 3, 4, 1).flatten(2, 3) for layer in (self.q, self.k, self.v))
        scores = torch.einsum("btic,btjc->btij", q, k) / q.shape[-1] ** 0.5
        made = torch.einsum("btij,btjc->btic", scores.softmax(-1), v)
        return x + self.proj_out(made.unflatten(2, x.shape[3:]).permute(0, 4, 1, 2, 3))


class Halve(nn.Module):
    """Every second frame, row and column."""

    def __init__(self, width):
        super().__init__()
        self.conv = CausalConv(width, width, 3, 2)

    def forward(self, x):
        return self.conv(functional.pad(x, (0, 1, 0, 1)))


class HalveImages(nn.Module):
    """Every second row and column."""

    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, 2)

    def forward(self, x):
        return in_frames(self.conv, functional.pad(x, (0, 1, 0, 1)))


class Double(nn.Module):
    """Interpolates rows and columns, and frames after the first."""

    def __init__(self, width, mode):
        super().__init__()
        self.mode, self.conv = mode, CausalConv(width, width)

    def forward(self, x):
        first, rest = x[:, :, :1], x[:, :, 1:]
        if rest.shape[2]:
            rest = functional.interpolate(rest, scale_factor=(2, 1, 1), mode=self.mode)
        return self.conv(functional.interpolate(torch.cat([first, rest], 2), scale_factor=(1, 2, 2), mode="trilinear"))


class DoubleImages(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, 1, 1)

    def forward(self, x):
        return in_frames(self.conv, functional.interpolate(x, scale_factor=(1, 2, 2), mode="nearest"))


def filters(time):
    """Haar filters (n, 2, 2, 2), or (n, 1, 2, 2) in space only; their order is the published one."""
    low, high = torch.tensor([1.0, 1.0]), torch.tensor([1.0, -1.0])
    if time:
        return torch.stack([torch.einsum("t,y,x->tyx", t, y, x) for t in (low, high) for y in (low, high) for x in (low, high)]) * PUBLISHED_SHARE
    return torch.stack([torch.einsum("y,x->yx", y, x)[None] for x in (low, high) for y in (low, high)]) / 2


def to_bands(x, time=True):
    """(B, C, T, Y, X) to (B, bands * C, ...): band after band. With `time`, the first frame is counted twice."""
    f, n = filters(time).to(x), x.shape[1]
    if time:
        x = torch.cat([x[:, :, :1], x], 2)
    made = [functional.conv3d(x[:, c:c + 1], f[:, None], stride=f.shape[1:]) for c in range(n)]
    return torch.stack(made, 2).flatten(1, 2)


def from_bands(bands, time=True):
    f = filters(time).to(bands)
    parts = bands.unflatten(1, (f.shape[0], -1))
    made = [functional.conv_transpose3d(parts[:, :, c], f[:, None], stride=f.shape[1:]) for c in range(parts.shape[2])]
    made = torch.cat(made, 1)
    return made[:, :, 1:] if time else made


class Encoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        b, e, n = c["base_channels"], c["encoder_energy_flow_hidden_size"], c["encoder_num_resblocks"]
        self.time = c["l1_downsample_wavelet"] == "HaarWaveletTransform3D"
        self.down1 = nn.Sequential(FrameConv(24, b), *(Residual(b, b, True) for _ in range(n)), Halve(b) if self.time else HalveImages(b))
        self.down2 = nn.Sequential(FrameConv(b + e, 2 * b), *(Residual(2 * b, 2 * b) for _ in range(n)), Halve(2 * b))
        self.connect_l1, self.connect_l2 = FrameConv(24 if self.time else 12, e), FrameConv(24, e)
        attention = [Attention(4 * b)] if c["use_attention"] else []
        self.mid = nn.Sequential(Residual(2 * b + e, 4 * b), *attention, Residual(4 * b, 4 * b))
        self.norm_out, self.conv_out = ChannelNorm(4 * b), CausalConv(4 * b, 2 * c["latent_dim"])

    def forward(self, x):
        bands = to_bands(x)
        energy1 = to_bands(bands[:, :3], self.time)
        energy2 = to_bands(energy1[:, :3])
        h = self.down2(torch.cat([self.down1(bands), self.connect_l1(energy1)], 1))
        h = self.mid(torch.cat([h, self.connect_l2(energy2)], 1))
        return self.conv_out(functional.silu(self.norm_out(h)))


class Decoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        b, n, mode = c["base_channels"], c["decoder_num_resblocks"], c["t_interpolation"]
        e = self.energy = c["decoder_energy_flow_hidden_size"]
        self.time = c["l1_upsample_wavelet"] == "InverseHaarWaveletTransform3D"
        self.conv_in = CausalConv(c["latent_dim"], 4 * b)
        attention = [Attention(4 * b)] if c["use_attention"] else []
        self.mid = nn.Sequential(Residual(4 * b, 4 * b), *attention, Residual(4 * b, 4 * b + e))
        self.up2 = nn.Sequential(*(Residual(4 * b, 4 * b) for _ in range(n)), Double(4 * b, mode), Residual(4 * b, 4 * b + e))
        self.up1 = nn.Sequential(*(Residual((2 if i else 4) * b, 2 * b) for i in range(n)),
                                 Double(2 * b, mode) if self.time else DoubleImages(2 * b), Residual(2 * b, 2 * b))
        self.layer = nn.Sequential(Residual(2 * b, b), Residual(b, b))

        def connect(bands):
            return nn.Sequential(*(Residual(e, e) for _ in range(c["connect_res_layer_num"])), FrameConv(e, bands))
        self.connect_l1, self.connect_l2 = connect(24 if self.time else 12), connect(24)
        self.norm_out, self.conv_out = ChannelNorm(b), FrameConv(b, 24)

    @staticmethod
    def add_low(bands, low):
        return torch.cat([bands[:, :3] + low, bands[:, 3:]], 1)

    def forward(self, z):
        h, energy2 = self.mid(self.conv_in(z)).split([self.conv_in.conv.out_channels, self.energy], 1)
        low1 = from_bands(self.connect_l2(energy2))
        h, energy1 = self.up2(h).split([h.shape[1], self.energy], 1)
        low = from_bands(self.add_low(self.connect_l1(energy1), low1), self.time)
        h = self.conv_out(functional.silu(self.norm_out(self.layer(self.up1(h)))))
        return from_bands(self.add_low(h, low))


DEFAULTS = dict(latent_dim=8, base_channels=128, encoder_num_resblocks=2, encoder_energy_flow_hidden_size=64, decoder_num_resblocks=2,
                decoder_energy_flow_hidden_size=128, use_attention=True, norm_type="groupnorm", t_interpolation="nearest",
                connect_res_layer_num=1, l1_downsample_wavelet="HaarWaveletTransform2D", l1_upsample_wavelet="InverseHaarWaveletTransform2D")


class WFVAE(nn.Module):
    def __init__(self, **config):
        super().__init__()
        c = DEFAULTS | config
        assert c["norm_type"] == "layernorm"
        self.encoder, self.decoder = Encoder(c), Decoder(c)

    def encode(self, x):
        """Mean and log variance."""
        mean, logvar = self.encoder(x).chunk(2, 1)
        return mean, logvar.clamp(-30, 20)

    def decode(self, z):
        return self.decoder(z)

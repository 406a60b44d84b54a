"""LongCat-Video's transformer in PyTorch, for golden_longcat.py and golden_longcat_pipeline.py. No package has the model.
This reference is written from the description and the names of its authors (meituan-longcat/LongCat-Video,
longcat_video/modules/longcat_video_dit.py, attention.py, blocks.py and rope_3d.py).

Attention with given frames, and attention over chosen blocks (block_sparse_attention/bsa_interface.py), is full attention with
a mask here, and texts keep their padding, so that an error of a cut of tokens in the program that is compared cannot be
repeated."""
import math

import torch
from torch import nn
from torch.nn import functional

EPS = 1e-6


class Unit(nn.Module):
    """RMS norm of a head."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * self.weight


class Attention(nn.Module):
    """Of the video to itself, and of the video to the text."""

    def __init__(self, width, heads, cross):
        super().__init__()
        self.heads, self.cross = heads, cross
        if cross:
            self.q_linear, self.kv_linear = nn.Linear(width, width), nn.Linear(width, 2 * width)
        else:
            self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.q_norm, self.k_norm = Unit(width // heads), Unit(width // heads)

    def forward(self, x, other, seen, angle=None, blocks=None):
        """seen (B,1 or S,keys): the keys of every query. blocks: chooses among them."""
        parts = [self.q_linear(x), *self.kv_linear(other).chunk(2, -1)] if self.cross else self.qkv(x).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        q, k = self.q_norm(q), self.k_norm(k)
        if angle is not None:
            q, k = rotate(q, angle), rotate(k, angle)
        seen = seen[:, None] if blocks is None else seen[:, None] & blocks(q, k, seen)
        scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(~seen, -torch.inf)
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Blocks:
    """Chooses blocks of keys for every block of queries: of the blocks that are seen, a share with the largest products of the
    means of queries and keys."""

    def __init__(self, size, sides, share):
        place = torch.cartesian_prod(*[torch.arange(side) for side in size]) // torch.tensor(sides)
        counts = [side // own for side, own in zip(size, sides)]
        assert all(count * own == side for count, own, side in zip(counts, sides, size)), "whole blocks"
        self.share, self.of = share, (place[:, 0] * counts[1] + place[:, 1]) * counts[2] + place[:, 2]
        self.mean = functional.one_hot(self.of).T.double() / math.prod(sides)

    def __call__(self, q, k, seen):
        """q, k (B,H,S,D), seen (B,S,S) -> (B,H,S,S)"""
        scores = (self.mean @ q.detach().double()) @ (self.mean @ k.detach().double()).transpose(-1, -2)
        first = [int((self.of == block).nonzero()[0]) for block in range(len(self.mean))]
        scores = scores.masked_fill(~seen[:, first][:, :, first][:, None], -torch.inf)
        chosen = torch.zeros_like(scores, dtype=torch.bool)
        for at in torch.cartesian_prod(*[torch.arange(side) for side in scores.shape[:3]]).tolist():
            row = scores[tuple(at)]
            count = max(1, int(self.share * int((row > -torch.inf).sum())))
            order = row.topk(min(count + 1, len(row)))
            if count < len(row):
                self.gap = min(getattr(self, "gap", math.inf), float(order.values[count - 1] - order.values[count]))
            chosen[tuple(at)][order.indices[:count]] = True
        return chosen[:, :, self.of][..., self.of]


def angles(size, head):
    """Angles of all tokens and of all pairs of neighbours in a head: frames, rows, columns."""
    places = torch.cartesian_prod(*[torch.arange(side) for side in size]).double()
    widths = [head - 4 * (head // 6), 2 * (head // 6), 2 * (head // 6)]
    return torch.cat([places[:, axis, None] * 10000.0 ** (-torch.arange(0, width, 2).double() / width) for axis, width in enumerate(widths)], -1)


def rotate(x, angle):
    turned = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous()) * torch.polar(torch.ones_like(angle), angle)
    return torch.view_as_real(turned).flatten(-2).to(x)


class Gated(nn.Module):
    """SwiGLU."""

    def __init__(self, width, ratio):
        super().__init__()
        inner = -(-int(2 * width * ratio / 3) // 256) * 256
        self.w1, self.w2, self.w3 = nn.Linear(width, inner, False), nn.Linear(inner, width, False), nn.Linear(width, inner, False)

    def forward(self, x):
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


def plain(x):
    return functional.layer_norm(x, x.shape[-1:], eps=EPS)


def of_tokens(rows, tokens, count):
    """Rows of frames (B,T,count C) as rows of tokens, count times (B,S,C)."""
    return rows.repeat_interleave(tokens // rows.shape[1], 1).chunk(count, -1)


class Block(nn.Module):
    def __init__(self, width, heads, ratio, time_width):
        super().__init__()
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(time_width, 6 * width))
        self.pre_crs_attn_norm = nn.LayerNorm(width, EPS)
        self.attn, self.cross_attn, self.ffn = Attention(width, heads, False), Attention(width, heads, True), Gated(width, ratio)

    def forward(self, x, text, time, seen, words, noised, angle, blocks):
        shift, scale, gate, shift2, scale2, gate2 = of_tokens(self.adaLN_modulation(time), x.shape[1], 6)
        x = x + gate * self.attn(plain(x) * (1 + scale) + shift, None, seen, angle, blocks)
        x = x + noised * self.cross_attn(self.pre_crs_attn_norm(x), text, words)
        return x + gate2 * self.ffn(plain(x) * (1 + scale2) + shift2)


class Last(nn.Module):
    def __init__(self, width, out, time_width):
        super().__init__()
        self.linear = nn.Linear(width, out)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(time_width, 2 * width))

    def forward(self, x, time):
        shift, scale = of_tokens(self.adaLN_modulation(time), x.shape[1], 2)
        return self.linear(plain(x) * (1 + scale) + shift)


def inside(name, *layers):
    """A module whose layers have the parameters NAME.0, NAME.2."""
    made = nn.Module()
    setattr(made, name, nn.Sequential(*layers))
    return made


class LongCatVideoTransformer3DModel(nn.Module):
    def __init__(self, in_channels=16, out_channels=16, hidden_size=4096, depth=48, num_heads=32, caption_channels=4096, mlp_ratio=4,
                 adaln_tembed_dim=512, frequency_embedding_size=256, patch_size=(1, 2, 2), text_tokens_zero_pad=False,
                 enable_bsa=False, bsa_params=None):
        super().__init__()
        self.sides, self.heads, self.width, self.out = patch_size, num_heads, hidden_size, out_channels
        self.frequencies, self.zero_pad = frequency_embedding_size, text_tokens_zero_pad
        self.sparse = bsa_params if enable_bsa else None
        self.x_embedder = nn.Module()
        self.x_embedder.proj = nn.Conv3d(in_channels, hidden_size, patch_size, patch_size)
        self.t_embedder = inside("mlp", nn.Linear(frequency_embedding_size, adaln_tembed_dim), nn.SiLU(), nn.Linear(adaln_tembed_dim, adaln_tembed_dim))
        self.y_embedder = inside("y_proj", nn.Linear(caption_channels, hidden_size), nn.GELU("tanh"), nn.Linear(hidden_size, hidden_size))
        self.blocks = nn.ModuleList(Block(hidden_size, num_heads, mlp_ratio, adaln_tembed_dim) for _ in range(depth))
        self.final_layer = Last(hidden_size, math.prod(patch_size) * out_channels, adaln_tembed_dim)

    def embed_time(self, time):
        half = self.frequencies // 2
        at = time[..., None].float() * torch.exp(-math.log(10000) * torch.arange(half, dtype=torch.float32) / half)
        return self.t_embedder.mlp(torch.cat([at.cos(), at.sin()], -1).to(self.final_layer.linear.weight.dtype))

    def forward(self, latents, timestep, text, text_mask=None, given=0):
        """latents (B,C,T,Y,X), timestep (B) or (B,T), text (B,L,D), `given`: the first frames, a number."""
        batch, _, *size = latents.shape
        size = [side // patch for side, patch in zip(size, self.sides)]
        tokens, of_given = math.prod(size), given * size[1] * size[2]
        if timestep.dim() == 1:
            timestep = timestep[:, None].expand(-1, size[0])
        time, text = self.embed_time(timestep), self.y_embedder.y_proj(text)
        words = torch.ones(text.shape[:2]) if text_mask is None else text_mask
        if self.zero_pad:
            text, words = text * words[..., None], torch.ones_like(words)
        x = self.x_embedder.proj(latents).flatten(2).transpose(1, 2)
        late = torch.arange(tokens) >= of_given
        seen = (late[:, None] | ~late[None])[None].expand(batch, -1, -1)
        angle = angles(size, self.width // self.heads)
        blocks = None
        if self.sparse and size[0] > 1:
            blocks = Blocks(size, self.sparse["chunk_3d_shape_q"], 1 - self.sparse["sparsity"])
        for block in self.blocks:
            x = block(x, text, time, seen, words.bool()[:, None], late[:, None].to(x), angle, blocks)
        x = self.final_layer(x, time).unflatten(-1, (*self.sides, self.out)).unflatten(1, size)
        return x.permute(0, 7, 1, 4, 2, 5, 3, 6).flatten(6, 7).flatten(4, 5).flatten(2, 3)


# ---- refinement of a coarse video ---------------------------------------------------------------


def enlarge(coarse, size):
    """Coarse pictures (N,Y,X,3) of bytes as a video (1,3,T,Y,X) in [-1,1]: the corners of both are the same pixels."""
    video = functional.interpolate(torch.as_tensor(coarse).double().permute(0, 3, 1, 2), size[1:], mode="bilinear", align_corners=True)
    video = functional.interpolate(video.transpose(0, 1)[None] / 255, size, mode="trilinear", align_corners=True)
    return video * 2 - 1


def repeat_ends(video, front, back):
    return torch.cat([video[:, :, :1]] * front + [video] + [video[:, :, -1:]] * back, 2)


def whole(count, factor=4):
    return -(-count // factor) * factor


def padding(frames, given, factor=4):
    """Frames before and after a refined video, and the latent frames that are given: whole groups of four latent frames."""
    known = whole(1 + math.ceil((given - 1) / factor)) if given else 0
    front = 1 + (known - 1) * factor - given if given else 0
    rest = frames - given
    return front, whole(math.ceil(rest / factor)) * factor - rest, known


def levels_from(level, levels):
    return [level] + [other for other in levels if other < level]

"""SUV of Open-Sora-Plan 1.5 in PyTorch, for golden_suv.py. No package has the model. This reference is written from its
authors' description and the names of their parameters (PKU-YuanGroup/Open-Sora-Plan, branch mindspeed_mmdit, SparseUMMDiT).

Sparse attention here is full attention with a mask: two video tokens see each other if they are in the same subsequence,
and the text has one copy for each subsequence. Sequences are not rearranged, so that an error of an order of tokens in
the program that is compared cannot be repeated here."""
import torch
from torch import nn
from torch.nn import functional


class Embedder(nn.Module):
    def __init__(self, given, width):
        super().__init__()
        self.linear_1, self.linear_2 = nn.Linear(given, width), nn.Linear(width, width)

    def forward(self, x):
        return self.linear_2(functional.silu(self.linear_1(x)))


class Modulated(nn.Module):
    """Norms of video and text with shift, scale and gate of each."""

    def __init__(self, embedding, width, eps, text):
        super().__init__()
        self.linear, self.norm = nn.Linear(embedding, 6 * width), nn.LayerNorm(width, eps)
        if text:
            self.norm_enc = nn.LayerNorm(width, eps)

    def forward(self, video, text, embedding):
        rows = self.linear(functional.silu(embedding))[:, None].chunk(6, -1)
        made = self.norm(video) * (1 + rows[1]) + rows[0]
        return made, self.norm_enc(text) * (1 + rows[4]) + rows[3] if hasattr(self, "norm_enc") else None, rows[2], rows[5]


class Gelu(nn.Module):
    def __init__(self, given, width):
        super().__init__()
        self.proj = nn.Linear(given, width, bias=False)

    def forward(self, x):
        return functional.gelu(self.proj(x), approximate="tanh")


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.ModuleList([Gelu(width, 4 * width), nn.Identity(), nn.Linear(4 * width, width, bias=False)])

    def forward(self, x):
        return self.net[2](self.net[0](x))


def subsequence(tokens, n, grouped):
    """The number of the subsequence of each token."""
    at = torch.arange(tokens)
    return at // n % n if grouped else at % n


def angles(size, head):
    """Angles of all tokens (S, 3 axes): the channels of an axis are rotated in pairs (i, i + half)."""
    places = torch.cartesian_prod(*[torch.arange(side) for side in size]).double()
    widths = [head // 16 * 4, head // 16 * 6, head // 16 * 6]
    return [(places[:, axis, None] * 10000.0 ** (-torch.arange(0, width, 2).double() / width)) for axis, width in enumerate(widths)]


def rotate(x, of):
    parts, first = [], 0
    for angle in of:
        pairs = angle.shape[1]
        a, b = x[..., first:first + pairs], x[..., first + pairs:first + 2 * pairs]
        cos, sin = angle.cos()[None, :, None].to(x), angle.sin()[None, :, None].to(x)
        parts += [a * cos - b * sin, b * cos + a * sin]
        first += 2 * pairs
    return torch.cat(parts, -1)


class Attention(nn.Module):
    def __init__(self, heads, head, bias, eps, last):
        super().__init__()
        width, self.heads = heads * head, heads
        for name in "to_q", "to_k", "to_v", "add_q_proj", "add_k_proj", "add_v_proj":
            setattr(self, name, nn.Linear(width, width, bias=bias))
        for name in "norm_q", "norm_k", "norm_added_q", "norm_added_k":
            setattr(self, name, nn.RMSNorm(head, eps))
        self.to_out = nn.ModuleList([nn.Linear(width, width)])
        if not last:
            self.to_add_out = nn.Linear(width, width)

    def forward(self, video, text, place, n, grouped, real_video, real_text):
        def split(x):
            return x.unflatten(-1, (self.heads, -1))
        q, k, v = rotate(self.norm_q(split(self.to_q(video))), place), rotate(self.norm_k(split(self.to_k(video))), place), split(self.to_v(video))
        text_q, text_k, text_v = self.norm_added_q(split(self.add_q_proj(text))), self.norm_added_k(split(self.add_k_proj(text))), split(self.add_v_proj(text))
        tokens, words = video.shape[1], text.shape[1]
        # all copies of the text after the video; copy c belongs to subsequence c
        q, k, v = (torch.cat([own, other.repeat(1, n, 1, 1)], 1).transpose(1, 2) for own, other in ((q, text_q), (k, text_k), (v, text_v)))
        member = torch.cat([subsequence(tokens, n, grouped), torch.arange(n).repeat_interleave(words)])
        real = torch.cat([real_video, real_text.repeat(1, n)], 1).bool()
        seen = (member[:, None] == member[None])[None] & real[:, None]
        scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(~seen[:, None], -torch.inf)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        words_mixed = mixed[:, tokens:].unflatten(1, (n, words)).mean(1)
        return self.to_out[0](mixed[:, :tokens]), self.to_add_out(words_mixed) if hasattr(self, "to_add_out") else words_mixed


class Block(nn.Module):
    def __init__(self, heads, head, embedding, bias, eps, n, grouped, last):
        super().__init__()
        width, self.n, self.grouped, self.last = heads * head, n, grouped, last
        self.norm1, self.norm2 = Modulated(embedding, width, eps, True), Modulated(embedding, width, eps, not last)
        self.attn1, self.ff = Attention(heads, head, bias, eps, last), FeedForward(width)
        if not last:
            self.ff_enc = FeedForward(width)

    def forward(self, video, text, embedding, place, real_video, real_text):
        h, words, gate, text_gate = self.norm1(video, text, embedding)
        h, words = self.attn1(h, words, place, self.n, self.grouped, real_video, real_text)
        # the text of the last block has no effect; its gradients are zeros
        video, text = video + gate * h + (0 * words.sum(1, keepdim=True) if self.last else 0), text if self.last else text + text_gate * words
        h, words, gate, text_gate = self.norm2(video, text, embedding)
        return video + gate * self.ff(h), text if self.last else text + text_gate * self.ff_enc(words)


class FinalNorm(nn.Module):
    def __init__(self, embedding, width, eps):
        super().__init__()
        self.linear, self.norm = nn.Linear(embedding, 2 * width), nn.LayerNorm(width, eps)

    def forward(self, x, embedding):
        shift, scale = self.linear(functional.silu(embedding))[:, None].chunk(2, -1)
        return self.norm(x) * (1 + scale) + shift


class SparseUMMDiT(nn.Module):
    def __init__(self, num_layers, sparse_n, num_heads, head_dim, in_channels, out_channels, timestep_embed_dim, caption_channels,
                 pooled_projection_dim, patch_size=2, skip_connection=True, skip_connection_zero_init=True, attention_bias=True, norm_eps=1e-6):
        super().__init__()
        width, self.head, self.patch, self.channels, self.time = num_heads * head_dim, head_dim, patch_size, out_channels, timestep_embed_dim
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(in_channels, width, patch_size, patch_size)})
        self.time_text_embed = nn.ModuleDict({"timestep_embedder": Embedder(timestep_embed_dim, timestep_embed_dim),
                                              "text_embedder": Embedder(pooled_projection_dim, timestep_embed_dim)})
        self.caption_projection = nn.Linear(caption_channels, width)
        stages, self.half = len(num_layers), len(num_layers) // 2
        self.transformer_blocks = nn.ModuleList([nn.ModuleList([
            Block(num_heads, head_dim, timestep_embed_dim, attention_bias, norm_eps, n, n > 1 and i % 2 == 1, stage == stages - 1 and i == count - 1)
            for i in range(count)]) for stage, (count, n) in enumerate(zip(num_layers, sparse_n))])
        self.skips = skip_connection
        if skip_connection:
            for name in "skip_norm_linear", "skip_norm_linear_enc":
                setattr(self, name, nn.ModuleList([nn.Sequential(nn.Identity() if skip_connection_zero_init else nn.LayerNorm(2 * width, norm_eps),
                                                                 nn.Linear(2 * width, width)) for _ in range(self.half)]))
        self.norm_final, self.norm_out = nn.LayerNorm(width, norm_eps), FinalNorm(timestep_embed_dim, width, norm_eps)
        self.proj_out = nn.Linear(width, patch_size * patch_size * out_channels)

    def embed(self, timestep, pooled):
        half = self.time // 2
        wave = timestep[:, None].double() * 10000.0 ** (-torch.arange(half).double() / half)
        sinusoid = torch.cat([wave.cos(), wave.sin()], -1).to(pooled)
        return self.time_text_embed["timestep_embedder"](sinusoid) + self.time_text_embed["text_embedder"](pooled)

    def forward(self, latents, timestep, text, pooled, latent_mask, text_mask):
        """latents (B,C,T,Y,X), text (B,L,D), pooled (B,P), masks (B,T,Y,X) and (B,L), 1: real."""
        batch, _, frames, rows, columns = latents.shape
        size = frames, rows // self.patch, columns // self.patch
        x = self.patch_embed["proj"](latents.transpose(1, 2).flatten(0, 1)).unflatten(0, (batch, frames)).permute(0, 1, 3, 4, 2).flatten(1, 3)
        y, embedding, place = self.caption_projection(text), self.embed(timestep, pooled), angles(size, self.head)
        real = functional.max_pool2d(latent_mask.float(), self.patch).flatten(1)
        kept = []
        for index, stage in enumerate(self.transformer_blocks):
            if self.skips and index > self.half:
                old_x, old_y = kept.pop()
                x = self.skip_norm_linear[index - self.half - 1](torch.cat([x, old_x], -1))
                y = self.skip_norm_linear_enc[index - self.half - 1](torch.cat([y, old_y], -1))
            for block in stage:
                x, y = block(x, y, embedding, place, real, text_mask)
            if index < self.half:
                kept.append((x, y))
        x = self.proj_out(self.norm_out(self.norm_final(x), embedding))
        x = x.unflatten(1, size).unflatten(-1, (self.patch, self.patch, self.channels))
        return x.permute(0, 6, 1, 2, 4, 3, 5).reshape(batch, self.channels, frames, rows, columns)

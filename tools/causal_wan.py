"""A reference of causal Wan (CausVid, Yin et al. 2025; Self-Forcing, Huang et al. 2025) in PyTorch: the transformer with the
parameter names of diffusers' Wan, in one call with the block-causal mask or block by block with a cache of keys and values,
and the generation of a video in few steps. The config's names are those of FastVideo's CausalWanTransformer3DModel."""
import torch
from torch import nn
from torch.nn import functional as F


class Names(nn.Module):
    """Modules with the given names."""

    def __init__(self, **modules):
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)


class RMSNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Block(nn.Module):
    def __init__(self, heads, width, inner, norms_text, eps):
        super().__init__()

        def attention():
            return Names(to_q=nn.Linear(width, width), to_k=nn.Linear(width, width), to_v=nn.Linear(width, width),
                         to_out=nn.ModuleList([nn.Linear(width, width)]), norm_q=RMSNorm(width, eps), norm_k=RMSNorm(width, eps))
        self.attn1, self.attn2, self.heads, self.eps = attention(), attention(), heads, eps
        self.norm2 = nn.LayerNorm(width, eps) if norms_text else nn.Identity()
        self.ffn = Names(net=nn.ModuleList([Names(proj=nn.Linear(width, inner)), nn.Identity(), nn.Linear(inner, width)]))
        self.scale_shift_table = nn.Parameter(torch.randn(1, 6, width) / width ** 0.5)

    def project(self, part, x, context):
        q, k, v = part.norm_q(part.to_q(x)), part.norm_k(part.to_k(context)), part.to_v(context)
        return [y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in (q, k, v)]

    def forward(self, x, six, text, rope, attend):
        """six: (B,S,6,C); attend(q, k, v), each (B,H,S,D), with rotated q and k."""
        shift1, scale1, gate1, shift2, scale2, gate2 = (self.scale_shift_table[:, None] + six).unbind(2)
        q, k, v = self.project(self.attn1, F.layer_norm(x, x.shape[-1:], eps=self.eps) * (1 + scale1) + shift1,
                               F.layer_norm(x, x.shape[-1:], eps=self.eps) * (1 + scale1) + shift1)
        x = x + self.attn1.to_out[0](attend(rotate(q, rope), rotate(k, rope), v).transpose(1, 2).flatten(2)) * gate1
        q, k, v = self.project(self.attn2, self.norm2(x), text)
        x = x + self.attn2.to_out[0](F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        h = F.layer_norm(x, x.shape[-1:], eps=self.eps) * (1 + scale2) + shift2
        return x + self.ffn.net[2](F.gelu(self.ffn.net[0].proj(h), approximate="tanh")) * gate2


def rotate(x, angle):
    """Rotates the pairs of x (B,H,S,D) by the angles (S,D/2)."""
    pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2).to(x.dtype)


class CausalWanTransformer3DModel(nn.Module):
    def __init__(self, patch_size, num_attention_heads, attention_head_dim, in_channels, out_channels, text_dim, freq_dim, ffn_dim, num_layers,
                 cross_attn_norm=True, eps=1e-6, num_frames_per_block=3, local_attn_size=-1, sink_size=0):
        super().__init__()
        width = num_attention_heads * attention_head_dim
        self.patch, self.head, self.freq, self.width, self.eps = tuple(patch_size), attention_head_dim, freq_dim, width, eps
        self.block, self.window, self.sink = num_frames_per_block, local_attn_size, sink_size
        self.patch_embedding = nn.Conv3d(in_channels, width, self.patch, self.patch)
        self.condition_embedder = Names(time_embedder=Names(linear_1=nn.Linear(freq_dim, width), linear_2=nn.Linear(width, width)),
                                        time_proj=nn.Linear(width, 6 * width),
                                        text_embedder=Names(linear_1=nn.Linear(text_dim, width), linear_2=nn.Linear(width, width)))
        self.blocks = nn.ModuleList(Block(num_attention_heads, width, ffn_dim, cross_attn_norm, eps) for _ in range(num_layers))
        self.scale_shift_table = nn.Parameter(torch.randn(1, 2, width) / width ** 0.5)
        self.proj_out = nn.Linear(width, out_channels * self.patch[0] * self.patch[1] * self.patch[2])

    def angles(self, frames, rows, columns, first):
        """(S,D/2) for frames from `first` on. Frames get the pairs that rows and columns leave."""
        side = self.head // 6
        parts = []
        for pairs, places in ((self.head // 2 - 2 * side, torch.arange(first, first + frames)), (side, torch.arange(rows)),
                              (side, torch.arange(columns))):
            parts.append(torch.outer(places.double(), 10000 ** (-torch.arange(pairs).double() / max(pairs, 1))))
        grid = torch.meshgrid(*(torch.arange(n) for n in (frames, rows, columns)), indexing="ij")
        return torch.cat([part[at.flatten()] for part, at in zip(parts, grid)], 1)

    def times(self, timestep, tokens):
        """Embedding (B,T,C) and six modulations (B,S,6,C) of the timesteps (B,T) of frames of `tokens` tokens."""
        c = self.condition_embedder
        angle = timestep.double()[..., None] * 10000 ** (-torch.arange(self.freq // 2).double() / (self.freq // 2))
        time = c.time_embedder.linear_2(F.silu(c.time_embedder.linear_1(torch.cat([angle.cos(), angle.sin()], -1).to(self.proj_out.weight.dtype))))
        return time, c.time_proj(F.silu(time)).unflatten(-1, (6, -1)).repeat_interleave(tokens, 1)

    def sees(self, query, key):
        """Whether a query of block `query` sees the keys of frames `key`, of this block and earlier ones."""
        end = (query + 1) * self.block
        seen = key < end
        return seen if self.window < 0 or end <= self.window else seen & ((key < self.sink) | (key >= end - self.window + self.sink))

    def mask(self, frames, teacher):
        """(frames, frames), or with the clean frames first (2 frames, 2 frames)."""
        at = torch.arange(frames)
        whole = torch.stack([self.sees(int(q) // self.block, at) for q in at])
        if not teacher:
            return whole
        own = at[:, None] // self.block == at[None] // self.block
        return torch.cat([torch.cat([whole, torch.zeros_like(whole)], 1), torch.cat([whole & ~own, own], 1)])

    def run(self, latents, timestep, text, first, attend):
        """latents (B,C,T,Y,X), timestep (B,T); attend(layer, q, k, v)."""
        b = latents.shape[0]
        x = self.patch_embedding(latents)
        t, rows, columns = x.shape[2:]
        tokens = rows * columns
        rope = self.angles(t, rows, columns, first) if isinstance(first, int) else torch.cat([self.angles(t // 2, rows, columns, 0)] * 2)
        time, six = self.times(timestep, tokens)
        embed = self.condition_embedder.text_embedder
        text = embed.linear_2(F.gelu(embed.linear_1(text), approximate="tanh"))
        x = x.flatten(2).transpose(1, 2)
        for i, block in enumerate(self.blocks):
            x = block(x, six, text, rope, lambda q, k, v: attend(i, q, k, v))
        shift, scale = (self.scale_shift_table[:, None] + time[:, :, None]).repeat_interleave(tokens, 1).unbind(2)
        x = self.proj_out(F.layer_norm(x, x.shape[-1:], eps=self.eps) * (1 + scale) + shift)
        x = x.view(b, t, rows, columns, *self.patch, -1).permute(0, 7, 1, 4, 2, 5, 3, 6)
        return x.flatten(6, 7).flatten(4, 5).flatten(2, 3)

    def forward(self, hidden_states, timestep, encoder_hidden_states, clean_x=None):
        """All blocks in one call; timestep (B) or (B,T). clean_x: the video without noise, for teacher forcing."""
        frames = hidden_states.shape[2] // self.patch[0]
        timestep = timestep[:, None].expand(-1, frames) if timestep.dim() == 1 else timestep
        teacher = clean_x is not None
        if teacher:
            hidden_states = torch.cat([clean_x, hidden_states], 2)
            timestep = torch.cat([torch.zeros_like(timestep), timestep], 1)
        tokens = hidden_states.shape[3] // self.patch[1] * (hidden_states.shape[4] // self.patch[2])
        mask = self.mask(frames, teacher).repeat_interleave(tokens, 0).repeat_interleave(tokens, 1)
        made = self.run(hidden_states, timestep, encoder_hidden_states, None if teacher else 0,
                        lambda _, q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
        return made[:, :, -frames * self.patch[0]:]

    def forward_block(self, hidden_states, timestep, encoder_hidden_states, at, cache, keep):
        """Block `at` after the keys and values of earlier blocks, cache[layer] (2,B,H,S,D). keep: adds those of this block."""
        def attend(layer, q, k, v):
            tokens = k.shape[2] // self.block
            past = cache[layer]
            frames = torch.arange(at * self.block)
            seen = self.sees(at, frames).repeat_interleave(tokens)
            keys, values = (torch.cat([old[:, :, seen], new], 2) for old, new in zip(past, (k, v)))
            if keep:
                cache[layer] = [torch.cat([old, new], 2) for old, new in zip(past, (k, v))]
            return F.scaled_dot_product_attention(q, keys, values)
        return self.run(hidden_states, timestep[:, None].expand(-1, self.block), encoder_hidden_states, at * self.block, attend)

    def empty_cache(self, batch, heads):
        return [[self.proj_out.weight.new_zeros(batch, heads, 0, self.head)] * 2 for _ in self.blocks]


def generate(model, heads, noise, texts, sigmas, fresh, scale=1.0, cached=True, context_time=0.0):
    """A video from noise (1,C,T,Y,X), block by block. texts: of the prompt, and with scale > 1 of the negative prompt.
    sigmas: noise levels of the steps; a model's timestep is 1000 times the level. fresh(block, step, shape): the noise that
    is added after a step but the last. Without `cached`, each call has the whole video with the block-causal mask."""
    size, done = model.block * model.patch[0], torch.zeros_like(noise)
    branches = texts[:2 if scale > 1 else 1]
    caches = [model.empty_cache(1, heads) for _ in branches]

    def predict(x, at, time, keep):
        made = []
        for text, cache in zip(branches, caches):
            if cached:
                made.append(model.forward_block(x, torch.tensor([time]), text, at, cache, keep))
                continue
            whole = torch.cat([done[:, :, :at * size], x, noise[:, :, (at + 1) * size:]], 2)
            times = torch.full((1, whole.shape[2] // model.patch[0]), float(context_time))
            times[:, at * model.block:] = time
            made.append(model(whole, times, text)[:, :, at * size:(at + 1) * size])
        return made[0] if len(made) == 1 else made[1] + scale * (made[0] - made[1])
    for at in range(noise.shape[2] // size):
        x = noise[:, :, at * size:(at + 1) * size]
        for step, sigma in enumerate(sigmas):
            clean = x - sigma * predict(x, at, 1000 * sigma, False)
            if step + 1 < len(sigmas):
                x = (1 - sigmas[step + 1]) * clean + sigmas[step + 1] * fresh(at, step, clean.shape)
        done[:, :, at * size:(at + 1) * size] = clean
        if cached:
            predict(clean, at, context_time, True)
    return done

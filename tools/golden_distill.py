#!/usr/bin/env python3
"""Makes a golden file of step distillation, preference tuning or training with control videos: steps of a tiny Wan
transformer in PyTorch (f64). _sizes: the teacher is larger than the student, and the fake score has a third size. _ltx: a tiny
LTX-Video transformer, whose pipeline sets even noise levels. _ltx2: a tiny LTX-2, with a clip without sound. _high, _low: an expert of
the levels above or below 0.8.

_vace, _channels, _character: with a control video, which all networks have, on a port, on channels or as a character's poses.

usage: golden_distill.py OUT_PREFIX lcm|dmd2|self_forcing|lcm_sizes|dmd2_sizes|self_forcing_sizes|dmd2_ltx|lcm_ltx2|dmd2_ltx2|
                         lcm_high|dmd2_high|dmd2_low|lcm_vace|dmd2_vace|lcm_channels|dmd2_channels|lcm_character|dmd2_character|
                         dpo[_ltx2|_low|_control|_clean|_grey]|control|vace|animate|replace[_drop][_lora] [SEED]
Writes OUT_PREFIX.safetensors (param.*, in.*, final.*) and OUT_PREFIX.json (losses, norms, settings).

Item i of step s is sample (s B + i) % N with key 1000 s + i + 1. Noise and levels are the draws of
weft (Philox 4x32-10; src/base/rng.h), so that the test trains with the step of `weft train`.
_drop: some samples have no control, or a black face and given first frames."""
import copy
import json
import sys

import numpy as np
import torch
from causal_wan import CausalWanTransformer3DModel
from diffusers import (LTX2VideoTransformer3DModel, LTXVideoTransformer3DModel, WanAnimateTransformer3DModel, WanTransformer3DModel,
                       WanVACETransformer3DModel)
from golden_draws import mix, normal, uniform
from safetensors.torch import save_file

NOISE, TIMESTEP, SCORE, FAKE, ROLLOUT, NO_CONTROL, NO_FACE, OVERLAP = 2, 3, 14, 15, 17, 19, 20, 21  # purposes of the draws
CONFIG = {"patch_size": [1, 2, 2], "num_attention_heads": 2, "attention_head_dim": 12, "in_channels": 4, "out_channels": 4,
          "text_dim": 8, "freq_dim": 8, "ffn_dim": 24, "num_layers": 2, "cross_attn_norm": True,
          "qk_norm": "rms_norm_across_heads", "eps": 1e-6, "rope_max_seq_len": 32}
LTX = {"in_channels": 4, "out_channels": 4, "num_attention_heads": 2, "attention_head_dim": 12, "cross_attention_dim": 24,
       "num_layers": 2, "caption_channels": 8}
LTX_SPACING = (8 / 25, 32, 32)  # of latents, in seconds and pixels: what LTXPipeline gives
LTX2 = {"in_channels": 4, "out_channels": 4, "num_attention_heads": 2, "attention_head_dim": 6, "cross_attention_dim": 12,
        "audio_in_channels": 3, "audio_out_channels": 3, "audio_num_attention_heads": 2, "audio_attention_head_dim": 4,
        "audio_cross_attention_dim": 8, "num_layers": 1, "caption_channels": 8, "rope_type": "split", "rope_theta": 100.0}
SOUND = {"latents": 6, "channels": 3, "loss_weight": 0.5, "fps": 24.0, "key": 0x736f756e}
SHAPE, TEXT, SAMPLES, BATCH, STEPS = (4, 2, 4, 4), 8, 5, 2, 20  # C,T,Y,X of a latent; tokens of a text
# A larger eps than usual: it keeps rounding of gradients near 0 out of the steps.
OPTIMIZER = {"lr": 5e-3, "betas": [0.9, 0.95], "eps": 1e-4, "weight_decay": 0.01, "clip_norm": 1.0}
# One element of a lora_B of the fake score has a first gradient of 6.4e-6, 1/700 of the median and less than eps. Rounding the time of the
# levels to f32 changes that gradient by 6.5e-7, in f64 as in f32. The first update amplifies the change by lr / eps. The matrix is off by
# 7e-4 after one step and by 1.45e-4 after 20. With this eps the difference is 1.4e-5.
LARGER_EPS = {"dmd2_low_lora": 1e-2}
SHIFT = 3.0


# ---- draws ---------------------------------------------------------------------------------------

def noise_of(keys, purpose=NOISE, times=1):
    """(B,C,times T,Y,X); weft counts the elements of a sample channels last."""
    c, t, y, x = SHAPE
    t *= times
    rows = [np.array([normal(k, purpose, i) for i in range(c * t * y * x)]).reshape(t, y, x, c) for k in keys]
    return torch.tensor(np.stack(rows)).permute(0, 4, 1, 2, 3).double()


def sound_noise_of(keys, purpose=NOISE):
    count = SOUND["latents"] * SOUND["channels"]
    rows = [np.array([normal(mix(k, SOUND["key"]), purpose, i) for i in range(count)]).reshape(SOUND["latents"], -1) for k in keys]
    return torch.tensor(np.stack(rows)).double()


def draws_of(keys, purpose=TIMESTEP):
    return torch.tensor([uniform(k, purpose, 0) for k in keys], dtype=torch.float64)


CONTROLLED = []  # the kind of a distillation's control


def rounded(levels):
    """weft's levels and timesteps are f32. Their spacing of 6e-5 at 1000 would change the networks with a control by 1e-4 in 20 steps."""
    return levels.float().double() if CONTROLLED and torch.is_tensor(levels) else levels


def shifted(sigma):
    sigma = sigma.float() if CONTROLLED and torch.is_tensor(sigma) else sigma
    return rounded(SHIFT * sigma / (1 + (SHIFT - 1) * sigma))


def each(sigma):
    return sigma.reshape(-1, 1, 1, 1, 1)


RANGE = [0.0, 1.0]  # levels of an expert, after the shift


def ranged(u, low=0.0, high=1.0):
    """u of 0 to 1, as a level before the shift in the range."""
    ends = [sigma / (SHIFT - (SHIFT - 1) * sigma) for sigma in RANGE]
    low, high = max(low, ends[0]), min(high, ends[1])
    return low + (high - low) * u


class Streams:
    """Values of the video and of its sound; joined (B): 1 for clips with sound."""

    def __init__(self, video, sound, joined=None):
        self.video, self.sound, self.joined = video, sound, joined

    def each(self, act, other=None):
        if isinstance(other, Streams):
            return Streams(act(self.video, other.video), act(self.sound, other.sound), self.joined)
        sound = other.reshape(-1, 1, 1) if torch.is_tensor(other) else other  # one number for a sample
        return Streams(act(self.video, other), act(self.sound, sound), self.joined)

    def __add__(self, other): return self.each(lambda a, b: a + b, other)
    def __sub__(self, other): return self.each(lambda a, b: a - b, other)
    def __mul__(self, other): return self.each(lambda a, b: a * b, other)
    def __truediv__(self, other): return self.each(lambda a, b: a / b, other)
    def __pow__(self, other): return self.each(lambda a, b: a ** b, other)
    __rmul__, sub = __mul__, __sub__
    def sqrt(self): return self.each(lambda a, b: a.sqrt())
    def abs(self): return self.each(lambda a, b: a.abs())
    def detach(self): return self.each(lambda a, b: a.detach())
    def double(self): return self.each(lambda a, b: a.double())
    def expand(self, *size): return self.each(lambda a, b: a.expand(*size))
    def __getitem__(self, items): return Streams(self.video[items], self.sound[items], None if self.joined is None else self.joined[items])

    def mean(self, dim=None, keepdim=False):
        """Of each sample, or the loss."""
        if dim:
            return self.each(lambda a, b: a.mean(dim=tuple(range(1, a.dim())), keepdim=keepdim))
        return self.video.mean() + SOUND["loss_weight"] * (self.sound * self.joined.reshape(-1, 1, 1)).mean()


# ---- networks ------------------------------------------------------------------------------------

class Lora(torch.nn.Module):
    """A linear layer with low-rank matrices; `on`: they count."""

    def __init__(self, base, rank, alpha):
        super().__init__()
        self.base, self.scale, self.on = base, alpha / rank, True
        self.lora_A = torch.nn.Parameter(torch.randn(rank, base.in_features, dtype=torch.float64) / 4)
        self.lora_B = torch.nn.Parameter(torch.zeros(base.out_features, rank, dtype=torch.float64))

    def forward(self, x):
        y = self.base(x)
        return y + (x @ self.lora_A.T * self.scale) @ self.lora_B.T if self.on else y


def add_lora(model, rank, alpha, ends):
    model.requires_grad_(False)
    for name, module in list(model.named_modules()):
        if isinstance(module, torch.nn.Linear) and any(name.endswith("." + end) for end in ends):
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, Lora(module, rank, alpha))


GIVEN = []  # the Control of a distillation


def velocity(model, x, sigma, text, captioned=True, sound_sigma=None):
    """`captioned`: not the call with the empty caption. `sound_sigma`: by default the video's."""
    if not GIVEN:
        return plain_velocity(model, x, sigma, text, sound_sigma)
    return GIVEN[0].predict(model, x, rounded(1000 * sigma) / 1000, text, captioned)


def plain_velocity(model, x, sigma, text, sound_sigma=None):
    if isinstance(x, Streams):
        heard = sigma if sound_sigma is None else sound_sigma
        b, c, t, h, w = x.video.shape
        made = [model(x.video[i:i + 1].permute(0, 2, 3, 4, 1).reshape(1, -1, c), x.sound[i:i + 1], text.video[i:i + 1], text.sound[i:i + 1],
                      1000 * sigma[i:i + 1], audio_timestep=1000 * heard[i:i + 1], sigma=1000 * sigma[i:i + 1],
                      audio_sigma=1000 * heard[i:i + 1], num_frames=t, height=h, width=w, fps=SOUND["fps"],
                      audio_num_frames=SOUND["latents"], encoder_attention_mask=torch.ones(1, TEXT, dtype=torch.long),
                      audio_encoder_attention_mask=torch.ones(1, TEXT, dtype=torch.long), isolate_modalities=not x.joined[i],
                      return_dict=False) for i in range(b)]
        video, sound = [torch.cat(part) for part in zip(*made)]
        return Streams(video.reshape(b, t, h, w, c).permute(0, 4, 1, 2, 3), sound, x.joined)
    if isinstance(model, LTXVideoTransformer3DModel):
        b, c, t, h, w = x.shape
        y = model(x.permute(0, 2, 3, 4, 1).reshape(b, -1, c), text, 1000 * sigma, torch.ones(text.shape[:2], dtype=torch.long), t, h, w,
                  LTX_SPACING, return_dict=False)[0]
        return y.reshape(b, t, h, w, c).permute(0, 4, 1, 2, 3)
    return model(x, (1000 * sigma), text, return_dict=False)[0]


def guided(model, x, sigma, text, empty, scale):
    v, u = velocity(model, x, sigma, text), velocity(model, x, sigma, empty, False)
    return u + (v - u) * scale


def random_weights(model):
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() > 1 and "scale_shift_table" not in name:
                p.normal_(0, p[0].numel() ** -0.5)
            else:
                p.add_(0.1 * torch.randn_like(p))


TEACHER, FAKE_SCORE = {**CONFIG, "num_attention_heads": 4, "num_layers": 3}, {**CONFIG, "num_layers": 1}


def another(config):
    model = WanTransformer3DModel(**config)
    random_weights(model)
    return model.double()


# ---- consistency ---------------------------------------------------------------------------------

DISTILL = {"guidance": 2.5, "solver_steps": 8, "huber_c": 0.1, "target_decay": 0.9}
LORA = {"rank": 3, "alpha": 6.0, "targets": ["to_q", "to_out.0"]}


class Lcm:
    interval = 1  # steps for one update of the student

    def __init__(self, model, lora):
        self.student, self.lora = model, lora
        self.others = {}
        self.teacher = model if lora else copy.deepcopy(model)
        self.target = model if lora else copy.deepcopy(model)

    def take_sizes(self):
        self.teacher = another(TEACHER)

    def switch(self, on):
        for module in self.student.modules():
            if isinstance(module, Lora):
                module.on = on

    def loss(self, x0, noise, keys, text, empty):
        c = DISTILL
        u, end = ranged(draws_of(keys)), RANGE[0]
        s, r = shifted(u), shifted((u - 1 / c["solver_steps"]).clamp(min=ranged(0)))
        x = x0 * (1 - each(s)) + noise * each(s)
        own = x + velocity(self.student, x, s, text) * each(end - s)
        with torch.no_grad():
            self.switch(False)
            y = x + guided(self.teacher, x, s, text, empty, c["guidance"]) * each(r - s)
            self.switch(True)
            target = y + velocity(self.target, y, r, text) * each(end - r)
        return ((own - target) ** 2 + c["huber_c"] ** 2).sqrt().sub(c["huber_c"]).mean()

    def stepped(self):
        if not self.lora:
            self.others = {"target": self.target}
            with torch.no_grad():
                for t, p in zip(self.target.parameters(), self.student.parameters()):
                    t.mul_(DISTILL["target_decay"]).add_(p, alpha=1 - DISTILL["target_decay"])


# ---- distribution matching -----------------------------------------------------------------------

MATCH = {"student_steps": 3, "interval": 2, "fake": {"lr": 0.5, "betas": [0.8, 0.9], "weight_decay": 0.02, "clip_norm": 0.7}}


def levels(steps, even):
    """The levels of the finished model's scheduler, or even ones that a pipeline sets."""
    if even:
        return [shifted(1 - k / steps) for k in range(steps)]
    last = shifted(0.001)
    return [shifted(1 + (last - 1) * i / (steps - 1)) for i in range(steps)]


class Dmd2:
    """The student's gradient is (fake - real) / mean |y - real| of a sample; the fake score learns the student's samples."""

    interval = MATCH["interval"]

    def __init__(self, model, lora):
        self.student, self.lora = model, lora
        self.teacher, self.fake = copy.deepcopy(model), copy.deepcopy(model)
        if lora:
            for module in self.teacher.modules():
                if isinstance(module, Lora):
                    module.on = False
            with torch.no_grad():
                for name, p in self.fake.named_parameters():
                    if name.endswith("lora_A"):
                        p.copy_(torch.randn_like(p) / 4)
        self.others = {"fake": self.fake}
        self.fake_optimizer = adamw(self.fake, MATCH["fake"])

    def take_sizes(self):
        self.teacher, self.fake = another(TEACHER), another(FAKE_SCORE)
        if self.lora:
            add_lora(self.fake, LORA["rank"], LORA["alpha"], LORA["targets"])
        self.others = {"fake": self.fake}
        self.fake_optimizer = adamw(self.fake, MATCH["fake"])

    def sample(self, x0, noise, keys, text):
        sigma = levels(MATCH["student_steps"], isinstance(self.student, (LTXVideoTransformer3DModel, LTX2VideoTransformer3DModel)))
        sigma = [level for level in sigma if RANGE[0] <= level < RANGE[1] or RANGE[1] == 1 == level]
        s = torch.tensor([sigma[int(u * len(sigma))] for u in draws_of(keys).tolist()], dtype=torch.float64)
        x = x0 * (1 - each(s)) + noise * each(s)
        return x - velocity(self.student, x, s, text) * each(s)

    def noise(self, keys, purpose):
        video = noise_of(keys, purpose)
        return Streams(video, sound_noise_of(keys, purpose)) if isinstance(self.student, LTX2VideoTransformer3DModel) else video

    def loss(self, x0, noise, keys, text, empty):
        y = self.sample(x0, noise, keys, text)
        seen = y.detach()
        r, other = shifted(ranged(draws_of(keys, FAKE))), self.noise(keys, FAKE)
        v = velocity(self.fake, seen * (1 - each(r)) + other * each(r), r, text)
        self.fake_loss = ((v - (other - seen)) ** 2).mean()
        with torch.no_grad():
            r, other = shifted(ranged(draws_of(keys, SCORE), 0.02, 0.98)), self.noise(keys, SCORE)
            x = seen * (1 - each(r)) + other * each(r)
            real = x - guided(self.teacher, x, r, text, empty, DISTILL["guidance"]) * each(r)
            fake = x - velocity(self.fake, x, r, text) * each(r)
            direction = (fake - real) / (seen - real).abs().mean(dim=(1, 2, 3, 4), keepdim=True)
        return 0.5 * ((y - (seen - direction)) ** 2).mean()

    def stepped(self):
        self.fake_optimizer.zero_grad()
        self.fake_loss.backward()
        self.fake_norm = clip(self.fake, MATCH["fake"]["clip_norm"])
        self.fake_optimizer.step()


# ---- self-forcing --------------------------------------------------------------------------------

CAUSAL = {"num_frames_per_block": 2, "local_attn_size": 4, "sink_size": 1}
ROLL = {"shape": (4, 6, 4, 4), "context_noise": 100.0}  # a context timestep; three blocks, of which the last has a window


class SelfForcing(Dmd2):
    """Distribution matching of videos that the causal student generates block by block. The teacher and the fake score see
    all frames. The last step of a sample's blocks, which alone has a gradient, is drawn."""

    def __init__(self, model, lora):
        self.student, self.lora = model, lora
        self.teacher = WanTransformer3DModel(**CONFIG)
        random_weights(self.teacher)
        self.teacher = self.teacher.double()
        self.fake = copy.deepcopy(self.teacher)
        if lora:
            add_lora(self.fake, LORA["rank"], LORA["alpha"], LORA["targets"])
        self.others = {"fake": self.fake}
        self.fake_optimizer = adamw(self.fake, MATCH["fake"])

    def clean(self, x, s, text, at, cache, keep=False):
        return x - each(s) * self.student.forward_block(x, 1000 * s, text, at, cache, keep)

    def sample(self, x0, noise, keys, text):
        steps, size = MATCH["student_steps"], CAUSAL["num_frames_per_block"]
        level = [shifted(1 - k / steps) for k in range(steps)]
        last = [int(u * steps) for u in draws_of(keys).tolist()]
        fresh = noise_of(keys, ROLLOUT, steps)
        sigma = torch.tensor([level[k] for k in last], dtype=torch.float64)
        context = torch.full((len(keys),), ROLL["context_noise"] / 1000, dtype=torch.float64)
        cache, made = self.student.empty_cache(len(keys), CONFIG["num_attention_heads"]), []

        def mix(x, step, at, s):
            first = step * SHAPE[1] + at * size
            return (1 - s) * x + s * fresh[:, :, first:first + size]
        for at in range(SHAPE[1] // size):
            x = [noise[:, :, at * size:(at + 1) * size]]
            with torch.no_grad():
                for k in range(steps - 1):
                    clean = self.clean(x[k], torch.full((len(keys),), level[k], dtype=torch.float64), text, at, cache)
                    x.append(mix(clean, k, at, level[k + 1]))
            chosen = torch.stack([x[k][i] for i, k in enumerate(last)])
            made.append(self.clean(chosen, sigma, text, at, cache))
            with torch.no_grad():
                self.clean(mix(made[-1], steps - 1, at, ROLL["context_noise"] / 1000), context, text, at, cache, True)
        return torch.cat(made, 2)


# ---- preferences ---------------------------------------------------------------------------------

BETA = 2.0


def dpo_level(keys):
    return shifted(torch.sigmoid(torch.tensor([float(normal(k, TIMESTEP, 0)) for k in keys]).double()))


class Dpo:
    """Diffusion-DPO. Both clips of a pair have the same noise and level, of the video and of its sound, and the same control. The
    error of a clip with sound is the one of the video plus loss_weight times the one of the sound, each a mean over the elements of the
    sample."""

    interval = 1

    def __init__(self, model, lora, how=""):
        self.student, self.how = model, how
        self.reference = copy.deepcopy(model)  # lora_B is 0
        self.others = {}
        self.inputs = {"rejected": torch.randn(SAMPLES, *SHAPE)}
        if how == "control":
            self.inputs["control"] = torch.randn(SAMPLES, *SHAPE)
        if how == "grey":
            self.inputs |= {name: torch.randn(SAMPLES, *SHAPE) for name in ("first_frame", "rejected_first_frame")}
        self.rejected_sound = torch.randn(SAMPLES, SOUND["latents"], SOUND["channels"])

    def predict(self, model, x, s, text, data, first):
        """`first`: input with the first frames of the clips, which are followed by grey ones."""
        if self.how == "clean":
            return model(x, 1000 * s, text, clean_x=data)
        if self.how == "control":
            x = torch.cat([x, self.inputs["control"][self.items].double()], 1)
        if self.how == "grey":
            marks = torch.zeros(len(x), 4, *SHAPE[1:]).double()
            marks[:, :, 0] = 1
            x = torch.cat([x, marks, self.inputs[first][self.items].double()], 1)
        return velocity(model, x, s, text)

    def sound_errors(self, model, video, sound, noise, s, text, keys):
        """Of each sample. The sound has a level of its own."""
        own = dpo_level([mix(k, SOUND["key"]) for k in keys])
        noisy = Streams((1 - each(s)) * video + each(s) * noise.video,
                        (1 - own.reshape(-1, 1, 1)) * sound + own.reshape(-1, 1, 1) * noise.sound, text.joined)
        v = velocity(model, noisy, s, text, sound_sigma=own)
        picture = ((v.video - (noise.video - video)) ** 2).mean(dim=(1, 2, 3, 4))
        heard = ((v.sound - (noise.sound - sound)) ** 2).mean(dim=(1, 2))
        return picture + SOUND["loss_weight"] * text.joined * heard

    def loss(self, x0, noise, keys, text, empty):
        s = shifted(ranged(draws_of(keys))) if RANGE != [0.0, 1.0] else dpo_level(keys)

        def error(model, data, first="first_frame"):
            if isinstance(data, Streams):
                text.joined = x0.joined
                return self.sound_errors(model, data.video, data.sound, noise, s, text, keys)
            x = (1 - each(s)) * data + each(s) * noise
            return ((self.predict(model, x, s, text, data, first) - (noise - data)) ** 2).mean(dim=(1, 2, 3, 4))

        bad, other = self.inputs["rejected"][self.items].double(), "rejected_first_frame"
        if isinstance(x0, Streams):
            bad = Streams(bad, self.rejected_sound[self.items].double() * x0.joined.reshape(-1, 1, 1))
        with torch.no_grad():
            before = error(self.reference, x0) - error(self.reference, bad, other)
        z = -BETA / 2 * (error(self.student, x0) - error(self.student, bad, other) - before)
        return -torch.nn.functional.logsigmoid(z).mean()

    def stepped(self):
        pass


# ---- control videos ------------------------------------------------------------------------------

PIXELS = 64  # of a latent, 8x8; the mask has one channel for each
DROP = {"dropout": 0.4}
DROP_CHARACTER = {"face_dropout": 0.4, "window_overlap": 1, "overlap_share": 0.6}


class Control:
    """Flow matching with a control video, as channels of the input or on the port of VACE."""

    interval = 1

    def __init__(self, model, lora, drops=False):
        self.student, self.others = model, {}
        self.drop = DROP if drops else {}
        self.inputs = {"control": torch.randn(SAMPLES, *SHAPE)}
        if isinstance(model, WanVACETransformer3DModel):
            self.inputs["grey"] = torch.randn(1, *SHAPE)

    def begin(self, x0, keys, items):
        self.x0, self.keys, self.items = x0, keys, items

    def predict(self, model, x, s, text, captioned=True):
        control = self.inputs["control"][self.items].double()
        dropped = [i for i, u in enumerate(draws_of(self.keys, NO_CONTROL)) if u < self.drop.get("dropout", 0)]
        if "grey" not in self.inputs:
            control[dropped] = 0
            return plain_velocity(model, torch.cat([x, control], 1), s, text)
        mask = torch.ones(len(self.items), PIXELS, *SHAPE[1:]).double()
        grey = self.inputs["grey"].double().expand(len(self.items), -1, -1, -1, -1)
        control[dropped] = grey[dropped]
        return model(x, 1000 * s, text, control_hidden_states=torch.cat([grey, control, mask], 1), return_dict=False)[0]

    def loss(self, x0, noise, keys, text, empty):
        self.begin(x0, keys, self.items)
        s = shifted(torch.sigmoid(torch.tensor([float(normal(k, TIMESTEP, 0)) for k in keys]).double()))
        v = self.predict(self.student, (1 - each(s)) * x0 + each(s) * noise, s, text)
        return ((v - (noise - x0)) ** 2).mean()

    def stepped(self):
        pass


# ---- a character ---------------------------------------------------------------------------------

ANIMATE = {"in_channels": 2 * SHAPE[0] + 4, "latent_channels": SHAPE[0], "out_channels": SHAPE[0], "image_dim": 6,
           "added_kv_proj_dim": 24, "motion_encoder_size": 16, "motion_encoder_channel_sizes": {"4": 6, "8": 5, "16": 4},
           "motion_style_dim": 8, "motion_dim": 3, "motion_encoder_dim": 6, "face_encoder_hidden_dim": 6, "face_encoder_num_heads": 2,
           "inject_face_latents_blocks": 1}


class Animate(Control):
    """Flow matching of the character's image and the clip. The inputs are assembled as WanAnimatePipeline does: marks and latents of
    what is given after the noisy latents, poses of the clip, pixels of the face. `replaces`: with a background and its marks. `drops`:
    some samples have the face of the unconditional branch of guidance, and some begin with frames of the segment before."""

    def __init__(self, model, lora, replaces=False, drops=False):
        self.student, self.others, self.replaces = model, {}, replaces
        self.drop = DROP_CHARACTER if drops else {}
        c, t, y, x = SHAPE
        clip = (c, t - 1, y, x)
        self.inputs = {"control": torch.randn(SAMPLES, *clip), "face": 2 * torch.rand(SAMPLES, 3, 4 * (t - 2) + 1, 16, 16) - 1}
        self.inputs |= {"background": torch.randn(SAMPLES, *clip), "marks": torch.rand(SAMPLES, 4, *clip[1:])} if replaces else {
            "grey": torch.randn(1, *clip)}
        self.tokens = torch.randn(SAMPLES, 3, 6)
        if drops:
            self.inputs["overlap"] = torch.randn(SAMPLES, *clip)

    def predict(self, model, noised, s, text, captioned=True):
        count = len(self.items)
        taken = {k: (v[self.items] if len(v) > 1 else v.expand(count, -1, -1, -1, -1)).double() for k, v in self.inputs.items()}
        image, clip, face = self.x0[:, :, :1], taken["control"], taken["face"].clone()
        ones = torch.ones(count, 4, 1, *SHAPE[2:]).double()
        marks = taken["marks"].clone() if self.replaces else torch.zeros(count, 4, *clip.shape[2:]).double()
        latents = taken["background" if self.replaces else "grey"].clone()
        for i, key in enumerate(self.keys):
            if not captioned or self.drop and uniform(key, NO_FACE, 0) < self.drop["face_dropout"]:
                face[i] = face[i] * 0 - 1
            if self.drop and uniform(key, OVERLAP, 0) < self.drop["overlap_share"]:
                latents[i] = taken["overlap"][i]
                marks[i, :, :1 + (self.drop["window_overlap"] - 1) // 4] = 1
        given = torch.cat([torch.cat([ones, image], 1), torch.cat([marks, latents], 1)], 2)
        return model(torch.cat([noised, given], 1), 1000 * s, text, encoder_hidden_states_image=self.tokens[self.items].double(),
                            pose_hidden_states=clip, face_pixel_values=face, return_dict=False)[0]


# ---- training ------------------------------------------------------------------------------------

def groups(model, decay):
    """weft decays matrices and kernels only."""
    trained = [p for p in model.parameters() if p.requires_grad]
    return [{"params": [p for p in trained if p.dim() > 1], "weight_decay": decay},
            {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0}]


def adamw(model, other=None):
    """`other`: lr as a multiple of the student's, betas and weight decay of another network."""
    c = {**OPTIMIZER, **other, "lr": OPTIMIZER["lr"] * other["lr"]} if other else OPTIMIZER
    return torch.optim.AdamW(groups(model, c["weight_decay"]), lr=c["lr"], betas=c["betas"], eps=c["eps"])


def clip(model, most=OPTIMIZER["clip_norm"]):
    return torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.grad is not None], most).item()


def plain_name(name):
    return name.replace(".base.", ".").replace("lora_A", "lora_A.weight").replace("lora_B", "lora_B.weight")


def named(model, prefix, trained_only=False):
    return {prefix + plain_name(k): v.detach().float().clone() for k, v in model.named_parameters()
            if v.requires_grad or not trained_only}


def main():
    global SHAPE, TEXT
    kinds = {"lcm": Lcm, "dmd2": Dmd2, "self_forcing": SelfForcing, "dpo": Dpo, "control": Control, "vace": Control, "animate": Animate,
             "replace": lambda model, lora: Animate(model, lora, True),
             "lcm_sizes": Lcm, "dmd2_sizes": Dmd2, "self_forcing_sizes": SelfForcing, "dmd2_ltx": Dmd2,
             "lcm_ltx2": Lcm, "dmd2_ltx2": Dmd2, "lcm_high": Lcm, "dmd2_high": Dmd2, "dmd2_low": Dmd2, "dpo_ltx2": Dpo, "dpo_low": Dpo,
             "lcm_vace": Lcm, "dmd2_vace": Dmd2, "lcm_channels": Lcm, "dmd2_channels": Dmd2, "lcm_character": Lcm, "dmd2_character": Dmd2}
    kinds |= {"dpo_" + how: lambda *given, how=how: Dpo(*given, how) for how in ("control", "clean", "grey")}
    kinds |= {"control_drop": lambda *given: Control(*given, True), "vace_drop": lambda *given: Control(*given, True),
              "animate_drop": lambda *given: Animate(*given, False, True), "replace_drop": lambda *given: Animate(*given, True, True)}
    if len(sys.argv) < 3 or sys.argv[2].removesuffix("_lora") not in kinds:
        sys.exit(__doc__)
    prefix, kind = sys.argv[1], sys.argv[2]
    torch.manual_seed(int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    more = {"control": {"in_channels": 2 * SHAPE[0]}, "dpo_control": {"in_channels": 2 * SHAPE[0]}, "dpo_grey": {"in_channels": 2 * SHAPE[0] + 4},
            "vace": {"vace_layers": [0, 1], "vace_in_channels": 2 * SHAPE[0] + PIXELS},
            "animate": ANIMATE, "replace": ANIMATE}
    controls = {"vace": "vace", "channels": "control", "character": "animate"}.get(kind.removesuffix("_lora").partition("_")[2])
    more = more.get(controls or kind.removesuffix("_lora").removesuffix("_drop"), {})
    if controls:
        CONTROLLED.append(controls)
    if controls == "vace":
        more["vace_layers"] = [0]  # a small file
    make = WanVACETransformer3DModel if "vace_layers" in more else WanTransformer3DModel
    if "latent_channels" in more:
        make, SHAPE = WanAnimateTransformer3DModel, (SHAPE[0], 3, *SHAPE[2:])  # the image, then the clip
        TEXT = 512  # the reference takes the tokens after 512 as those of the image
    config = {**CONFIG, **more, "_class_name": make.__name__}
    if kind.startswith("self_forcing") or "_clean" in kind:
        SHAPE = ROLL["shape"] if kind.startswith("self_forcing") else SHAPE
        config = {k: v for k, v in CONFIG.items() if k not in ("qk_norm", "rope_max_seq_len")} | CAUSAL
        config["_class_name"] = "CausalWanTransformer3DModel"
        make = CausalWanTransformer3DModel
    OPTIMIZER["eps"] = LARGER_EPS.get(kind, OPTIMIZER["eps"])
    if "_high" in kind or "_low" in kind:
        RANGE[:] = [0.8, 1.0] if "_high" in kind else [0.0, 0.8]
    if "_ltx2" in kind:
        make, config = LTX2VideoTransformer3DModel, {**LTX2, "_class_name": "LTX2VideoTransformer3DModel"}
    elif "_ltx" in kind:
        make, config = LTXVideoTransformer3DModel, {**LTX, "_class_name": "LTXVideoTransformer3DModel"}
    model = make(**{k: v for k, v in config.items() if k != "_class_name"})
    random_weights(model)
    model = model.double()
    data = torch.randn(SAMPLES, *SHAPE).double()
    text, empty = torch.randn(SAMPLES, TEXT, 8).double(), torch.randn(1, TEXT, 8).double()
    sounds = "_ltx2" in kind
    if sounds:
        joined = torch.tensor([1.0, 1, 1, 0, 1]).double()
        data = Streams(data, torch.randn(SAMPLES, SOUND["latents"], SOUND["channels"]).double() * joined.reshape(-1, 1, 1), joined)
        text = Streams(text, torch.randn(SAMPLES, TEXT, 8).double())
        empty = Streams(empty, torch.randn(1, TEXT, 8).double())
    lora = kind.endswith("lora")
    if lora:
        add_lora(model, LORA["rank"], LORA["alpha"], LORA["targets"])
    video, seen, unseen = (data.video, text.video, empty.video) if sounds else (data, text, empty)
    tensors = {**named(model, "param."), "in.latents": video.permute(0, 2, 3, 4, 1).float(), "in.text": seen.float(),
               "in.empty": unseen.float()}
    if sounds:
        tensors |= {"in.sound": data.sound.float(), "in.with_sound": joined.float(), "in.audio_text": text.sound.float(),
                    "in.empty_audio": empty.sound.float()}
    run = kinds[kind.removesuffix("_lora")](model, lora)
    if controls:  # some samples have no control, or a black face
        GIVEN.append({"vace": Control, "control": Control, "animate": Animate}[controls](model, lora, drops=True))
    sizes = "_sizes" in kind
    if sizes:
        run.take_sizes()
        tensors |= named(run.teacher, "param_teacher.") | {k: v for n, other in run.others.items() for k, v in named(other, f"param_{n}.").items()}
    elif isinstance(run, SelfForcing):
        tensors |= named(run.fake, "param_fake.") | ({} if lora else named(run.teacher, "param_teacher."))
    elif lora:
        tensors |= {k: v for name, other in run.others.items() for k, v in named(other, f"param_{name}.", True).items()}
    given = GIVEN[0] if GIVEN else run
    tensors |= {"in." + k: v.permute(0, 2, 3, 4, 1) for k, v in getattr(given, "inputs", {}).items()}
    if isinstance(run, Dpo) and sounds:
        tensors["in.rejected_sound"] = run.rejected_sound * joined.reshape(-1, 1, 1).float()
    if isinstance(given, Animate):
        tensors |= {"in.image": tensors["in.latents"][:, :1], "in.latents": tensors["in.latents"][:, 1:], "in.image_tokens": given.tokens}
    optimizer = adamw(model)
    losses, norms, fake_losses, fake_norms = [], [], [], []
    for step in range(STEPS):
        items = [(step * BATCH + i) % SAMPLES for i in range(BATCH)]
        keys = [1000 * step + i + 1 for i in range(BATCH)]
        run.items = items
        if GIVEN:
            given.begin(data[items], keys, items)
        optimizer.zero_grad()
        noise = Streams(noise_of(keys), sound_noise_of(keys)) if sounds else noise_of(keys)
        loss = run.loss(data[items], noise, keys, text[items], empty.expand(BATCH, -1, -1))
        loss.backward()
        norms.append(clip(model))
        losses.append(loss.item())
        if step % run.interval == 0:
            optimizer.step()
        run.stepped()
        if "fake" in run.others:
            fake_losses.append(run.fake_loss.item())
            fake_norms.append(run.fake_norm)
    tensors |= named(model, "final.", lora)
    for name, other in run.others.items():
        tensors |= named(other, f"final_{name}.", lora)
    save_file({k: v.contiguous() for k, v in tensors.items()}, prefix + ".safetensors")
    described = {"config": config, "kind": kind, "batch": BATCH, "shift": SHIFT,
                 "optimizer": OPTIMIZER, "distill": DISTILL, "lora": LORA if lora else None, "losses": losses,
                 "grad_norms": norms, "match": MATCH, "beta": BETA, "fake_losses": fake_losses, "fake_norms": fake_norms, "reference": f"torch {torch.__version__}, f64"}
    if sounds:
        described["sound"] = SOUND
    if RANGE != [0.0, 1.0]:
        described["range"] = RANGE
    if getattr(given, "drop", {}):
        described["control"] = given.drop
    if isinstance(run, SelfForcing):
        described |= {"teacher": {**CONFIG, "_class_name": "WanTransformer3DModel"}, "latent_frames": SHAPE[1],
                      "context_noise": ROLL["context_noise"]}
    if sizes:
        described["teacher"] = {**TEACHER, "_class_name": "WanTransformer3DModel"}
    if sizes and "fake" in run.others:
        described["fake_score"] = {**FAKE_SCORE, "_class_name": "WanTransformer3DModel"}
    with open(prefix + ".json", "w") as f:
        json.dump(described, f, indent=1)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""bench/int8_scales.py [NAME...]: scales of int8 in other places than weft's, next to weft's.

Rounds inputs and weights of the linear layers of bench/families.json to int8 (diffusers' modules in
PyTorch, random weights) in four forms, and prints the power of one prediction over the power of its
error, in dB:

  blocks    a scale per 128 values of a row of x and of w, as --weights int8
  rows      a scale per token of x and per output channel of w
  smoothed  inputs are divided, and weights multiplied, by a factor per input channel: the square root
            of the largest input over the largest weight, from eight other inputs (SmoothQuant, Xiao et al.)

Each model is measured as it is and with planted outliers: one input channel of 64 of each layer is
multiplied by GAIN, and its weights are divided by GAIN, which does not change the model."""
import json
import math
import os
import sys

import diffusers
import torch

import peer_families

CALIBRATION, MEASURED, LEAST_ROWS = 8, 4, 8
GAINS = 1, 30, 100
FORMS = "blocks", "blocks smoothed", "rows", "rows smoothed"


def rounded(x, elements):
    """x as int8 with a scale per `elements` values of the last dim."""
    parts = x.reshape(*x.shape[:-1], -1, elements)
    unit = parts.abs().amax(-1, keepdim=True).clamp(min=1e-30) / 127
    return (torch.round(parts / unit) * unit).reshape(x.shape)


def elements_of(width, form):
    if form.startswith("rows"):
        return width
    return next((n for n in (128, 64, 32, 16, 8) if width % n == 0), width)


class Layer:
    """Computes a linear layer in the form that is set; records the largest inputs by channel in the form "record"."""

    def __init__(self, linear):
        self.linear, self.plain, self.most, self.gain = linear, linear.forward, None, 1
        self.outliers = torch.ones(linear.in_features)
        linear.forward = self.forward

    def plant(self, gain):
        self.gain, self.most = gain, None
        self.outliers = torch.ones(self.linear.in_features)
        self.outliers[7::64] = gain

    def forward(self, x):
        form, width = Layer.form, self.linear.in_features
        if form == "f32" or x.numel() // width < LEAST_ROWS:
            return self.plain(x)
        x, w = x * self.outliers, self.linear.weight / self.outliers
        if form == "record":
            most = x.reshape(-1, width).abs().amax(0)
            self.most = most if self.most is None else torch.maximum(self.most, most)
            return self.plain(x / self.outliers)
        if form.endswith("smoothed"):
            factor = (self.most.clamp(min=1e-5) / w.abs().amax(0).clamp(min=1e-5)).sqrt()
            x, w = x / factor, w * factor
        elements = elements_of(width, form)
        return torch.nn.functional.linear(rounded(x, elements), rounded(w, elements), self.linear.bias)


def prediction(model, name, row, seed, form):
    torch.manual_seed(seed)
    given = peer_families.arguments(name, row["config"], row["size"])
    Layer.form = form
    return model(**given, return_dict=False)[0]


def measure(name, row):
    torch.manual_seed(0)
    model = peer_families.model_of(row).eval()
    layers = [Layer(m) for m in model.modules() if isinstance(m, torch.nn.Linear)]
    for gain in GAINS:
        for layer in layers:
            layer.plant(gain)
        for seed in range(CALIBRATION):
            prediction(model, name, row, seed, "record")
        signal, error = 0, dict.fromkeys(FORMS, 0)
        for seed in range(100, 100 + MEASURED):
            exact = prediction(model, name, row, seed, "f32")
            signal += exact.square().sum().item()
            for form in FORMS:
                error[form] += (prediction(model, name, row, seed, form) - exact).square().sum().item()
        cells = " | ".join(f"{10 * math.log10(signal / error[form]):.1f}" for form in FORMS)
        print(f"| {name} | {gain if gain > 1 else '-'} | {cells} |", flush=True)


print("| family | planted gain | " + " | ".join(f"{form} dB" for form in FORMS) + " |")
print("|" + "---|" * (len(FORMS) + 2))
with open(os.path.join(os.path.dirname(__file__), "families.json"), encoding="utf-8") as file:
    families = json.load(file)
with torch.no_grad():
    for name, row in families.items():
        if name in sys.argv[1:] or len(sys.argv) == 1:
            measure(name, row)

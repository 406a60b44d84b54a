#!/usr/bin/env python3
"""Makes tests/golden/*_lora_train30: 30 training steps of LoRA with small random models of diffusers in f64. PEFT adds the matrices
to the layers that weft adapts by default. Needs PyTorch, diffusers, peft and safetensors; run from the root of the checkout."""
import torch
from diffusers import Kandinsky5Transformer3DModel, MotifVideoTransformer3DModel, SanaVideoTransformer3DModel
from golden_kandinsky5 import keep_f32
from golden_training import ITEMS, normal_of, samples, train
from peft import LoraConfig, inject_adapter_in_model

own_float, own_f32 = torch.Tensor.float, torch.float32


def exactly(call):
    """A call without the reference's casts to f32."""
    torch.Tensor.float, torch.float32 = torch.Tensor.double, torch.float64
    try:
        return call()
    finally:
        torch.Tensor.float, torch.float32 = own_float, own_f32


WORDS, USUAL = 5, ["to_q", "to_k", "to_v", "to_out.0"]


def one(name, model, config, targets, pattern, size, inputs, predict, seed):
    """targets: as weft writes them; pattern: the same for PEFT. size: of a sample."""
    draw = torch.Generator().manual_seed(seed)
    normal = normal_of(draw)
    model.double().requires_grad_(False)
    inject_adapter_in_model(LoraConfig(r=3, lora_alpha=6, target_modules=pattern), model)
    for key, parameter in model.named_parameters():
        if "lora_B" not in key:
            drawn = normal(*parameter.shape).double()
            parameter.data = drawn / parameter[0].numel() ** 0.5 if parameter.dim() > 1 else 1 + 0.1 * drawn
    sampled, inputs = samples(draw, *size), inputs(normal)
    train(name, model, config, sampled, inputs, lambda x, t, items: exactly(lambda: predict(model, x.double(), t.double(), items, inputs)),
          "flow matching: x = (1-t) data + t noise, target = noise - data, the model takes 1000 t",
          lora={"rank": 3, "lora_alpha": 6, "target_modules": targets})


def kandinsky5():
    keep_f32()
    config = dict(in_visual_dim=4, out_visual_dim=4, in_text_dim=10, in_text_dim2=8, time_dim=12, model_dim=24, ff_dim=40, num_text_blocks=1,
                  num_visual_blocks=2, axes_dims=(4, 4, 4))

    def predict(model, x, t, items, given):
        return model(x, given["encoder_hidden_states"][items].double(), 1000 * t, given["pooled_projections"][items].double(),
                     [torch.arange(2), torch.arange(2), torch.arange(3)], torch.arange(WORDS), (1.0, 3.16, 3.16), return_dict=False)
    one("kandinsky5_lora", Kandinsky5Transformer3DModel(**config), config, ["to_query", "to_key", "to_value", "*attention.out_layer"],
        r".*\.(to_query|to_key|to_value)|.*attention\.out_layer", (2, 4, 6, 4),
        lambda normal: {"encoder_hidden_states": normal(ITEMS, WORDS, 10), "pooled_projections": normal(ITEMS, 8)}, predict, 161)


def text_and_mask(normal):
    return {"encoder_hidden_states": normal(ITEMS, WORDS, 10),
            "encoder_attention_mask": torch.tensor([[int(i < n) for i in range(WORDS)] for n in (5, 2, 4, 3)])}


def motif_video():
    config = dict(in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=12, num_layers=1, num_single_layers=2,
                  num_decoder_layers=1, mlp_ratio=2.0, text_embed_dim=10, rope_axes_dim=(4, 4, 4),
                  enable_text_cross_attention_dual=True, enable_text_cross_attention_single=True)

    def predict(model, x, t, items, given):
        return model(x, 1000 * t, given["encoder_hidden_states"][items].double(), given["encoder_attention_mask"][items], return_dict=False)[0]
    one("motif_video_lora", MotifVideoTransformer3DModel(**config), config, USUAL, USUAL, (4, 2, 4, 6), text_and_mask, predict, 162)


def sana_video():
    config = dict(in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=12, num_layers=2, num_cross_attention_heads=2,
                  cross_attention_head_dim=12, cross_attention_dim=24, caption_channels=10, mlp_ratio=2.0)

    def predict(model, x, t, items, given):
        return model(x, given["encoder_hidden_states"][items].double(), 1000 * t, encoder_attention_mask=given["encoder_attention_mask"][items],
                     return_dict=False)[0]
    one("sana_video_lora", SanaVideoTransformer3DModel(**config), config, USUAL, USUAL, (4, 2, 4, 6), text_and_mask, predict, 163)


kandinsky5()
motif_video()
sana_video()

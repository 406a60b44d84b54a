"""30 training steps by flow matching, for the files tests/golden/*_train30 of the other makers."""
import json

import torch
from safetensors.torch import save_file

STEPS, BATCH, ITEMS = 30, 2, 4
torch.set_num_threads(1)


def normal_of(draw):
    return lambda *shape: torch.randn(shape, generator=draw)


def samples(draw, *size):
    """Clean samples of the size, and the noise and the times of all steps."""
    normal = normal_of(draw)
    return normal(ITEMS, *size), normal(STEPS, BATCH, *size), torch.rand((STEPS, BATCH), generator=draw)


def name_of(parameter):
    """The name of a parameter, or of a matrix that PEFT added, in files."""
    return parameter.replace(".base_layer.", ".").replace(".default.", ".")


def tensors_of(model, before=""):
    """The parameters by their names; the matrices that PEFT added begin with "lora."."""
    return {f"{before or ('' if '.lora_' in n else 'param.')}{'lora.' if '.lora_' in n else ''}{name_of(n)}": p.data.clone()
            for n, p in model.named_parameters() if not before or p.requires_grad}


def train(name, model, config, sampled, inputs, predict, objective, to_noise=True, audio=None, apart=None, lora=None):
    """Trains the model and writes tests/golden/NAME_train30. predict(x, t, items) gives the model's output for samples x at
    the times t, with the rows `items` of the inputs. Time 1 is the noise; to_noise=False: the clean sample.
    audio: data and noise of a second stream. Then predict(x, audio, t, items) gives two outputs, and the loss is the sum.
    apart: times of the second stream, as its last argument, and 1 for samples with a loss of it, else 0.
    lora: what parity reads of an adapter that PEFT has added ("rank", "lora_alpha", "target_modules").
    A model in f64 is trained in f64, and its file has f32."""
    data, noise, t = sampled
    streams = [(data, noise)] + ([audio] if audio else [])
    tensors = tensors_of(model)
    lr, trained = 0.01 if lora else 0.002, [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=lr, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.01)
    losses, norms = [], []
    for step in range(STEPS):
        items = [(step * BATCH + i) % ITEMS for i in range(BATCH)]
        noised, targets = [], []
        for index, (clean, drawn) in enumerate(streams):
            level = (apart[0] if apart and index else t)[step].view(-1, *[1] * (clean.dim() - 1))
            at_0, at_1 = (clean[items], drawn[step]) if to_noise else (drawn[step], clean[items])
            noised.append((1 - level) * at_0 + level * at_1)
            targets.append(at_1 - at_0)
        made = predict(*noised, t[step], items, *([apart[0][step]] if apart else []))
        errors = [(one - target) ** 2 for one, target in zip(made if audio else [made], targets)]
        if apart:
            errors[1] = errors[1] * apart[1][items].view(-1, 1, 1)
        loss = sum(error.mean() for error in errors)
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(trained, 1.0).item())
        losses.append(loss.item())
        optimizer.step()
    tensors |= tensors_of(model, "final.")
    tensors |= inputs | {"data": data, "noise": noise, "t": t}
    if audio:
        tensors |= {"audio_data": audio[0], "audio_noise": audio[1]} | ({"audio_t": apart[0]} if apart else {})
    save_file({k: (v.float() if v.is_floating_point() else v).contiguous() for k, v in tensors.items()}, f"tests/golden/{name}_train30.safetensors")
    json.dump({"config": {"_class_name": type(model).__name__, **config},
               "optimizer": {"name": "AdamW", "lr": lr, "betas": [0.9, 0.95], "eps": 1e-08, "weight_decay": 0.01, "clip_grad_norm": 1.0},
               "batch": BATCH, **(lora or {}), "objective": objective, "losses": losses, "grad_norms_before_clip": norms,
               "params_without_gradient_in_reference": [name_of(n) for n, p in model.named_parameters() if p.requires_grad and p.grad is None]},
              open(f"tests/golden/{name}_train30.json", "w"), indent=1)

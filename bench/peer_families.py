"""The families of bench/families.json as diffusers' modules in PyTorch, eager, f32. Prints lines
"name<TAB>seconds of a forward pass<TAB>seconds of a training step", the best of five.

    peer_families.py [NAME]"""
import inspect
import json
import os
import sys
import time

import diffusers
import torch

torch.manual_seed(0)
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))
RUNS = 5


def best(run):
    run()
    took = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        run()
        took.append(time.perf_counter() - begin)
    return min(took)


def arguments(name, c, size):
    """Arguments of the class' forward(), by the name of the family."""
    b, t, h, w, n = size
    video, frames_first, image = torch.randn(b, c["in_channels"], t, h, w), torch.randn(b, t, c["in_channels"], h, w), \
        torch.randn(b, c["in_channels"], h, w)
    time_, text, mask, one = torch.full((b,), 500), torch.randn(b, n, 256), torch.ones(b, n, dtype=torch.long), torch.ones(b)
    joint = {"timestep": time_, "encoder_hidden_states": text}
    if name == "wan":
        return {"hidden_states": video, **joint}
    if name == "hunyuan-video":
        return {"hidden_states": video, **joint, "encoder_attention_mask": mask, "pooled_projections": torch.randn(b, 128),
                "guidance": 6000 * one}
    if name == "cogvideox":
        return {"hidden_states": frames_first, **joint}
    if name == "cosmos":
        return {"hidden_states": video, **joint, "fps": 24, "padding_mask": torch.zeros(1, 1, 8 * h, 8 * w)}
    if name == "ltx-video":
        return {"hidden_states": torch.randn(b, t * h * w, c["in_channels"]), **joint, "encoder_attention_mask": mask,
                "num_frames": t, "height": h, "width": w}
    if name == "mochi":
        return {"hidden_states": video, **joint, "encoder_attention_mask": mask.bool()}
    if name == "latte":
        return {"hidden_states": video, **joint, "enable_temporal_attentions": True}
    if name == "flux":
        ids = torch.stack(torch.meshgrid(*(torch.arange(float(n)) for n in (1, h // 2, w // 2)), indexing="ij"), -1)
        return {"hidden_states": torch.randn(b, h * w // 4, c["in_channels"]), "timestep": one / 2, "encoder_hidden_states": text,
                "pooled_projections": torch.randn(b, 128), "guidance": one, "img_ids": ids.reshape(-1, 3), "txt_ids": torch.zeros(n, 3)}
    if name == "hunyuan-dit":
        from diffusers.models.embeddings import get_2d_rotary_pos_embed
        side = h // 2
        rope = get_2d_rotary_pos_embed(64, ((0, 0), (side, side)), (side, side), output_type="pt")
        return {"hidden_states": image, **joint, "timestep": 500 * one, "text_embedding_mask": mask, "encoder_hidden_states_t5": text,
                "text_embedding_mask_t5": mask, "image_rotary_emb": rope}
    if name == "sd2-unet":
        return {"sample": image, **joint}
    sys.exit(f"peer_families.py does not know what {name} is given")


def model_of(row):
    kind = getattr(diffusers, row["config"]["_class_name"])
    known = inspect.signature(kind.__init__).parameters
    return kind(**{k: v for k, v in row["config"].items() if k in known})


def measure(name, row):
    model = model_of(row)
    given = arguments(name, row["config"], row["size"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, betas=(0.9, 0.99), weight_decay=0.01)

    def forward():
        with torch.no_grad():
            return model(**given, return_dict=False)[0]

    def step():
        optimizer.zero_grad()
        out = model(**given, return_dict=False)[0]
        (out - target).square().mean().backward()
        optimizer.step()

    target = torch.randn_like(forward())
    print(f"{name}\t{best(forward):.4f}\t{best(step):.4f}", flush=True)


def main():
    for name, row in json.load(open(os.path.join(os.path.dirname(__file__), "families.json"))).items():
        if len(sys.argv) == 1 or sys.argv[1] == name:
            measure(name, row)


if __name__ == "__main__":
    main()

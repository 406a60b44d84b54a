"""Times a training step of diffusers' Wan transformer in PyTorch on one process and on two (gloo, one
thread each). Prints lines "layout<TAB>seconds per step", the median, on the shapes of bench/parallel.sh.

    peer_ranks.py LAYERS HEADS FFN BATCH FRAMES SIDE TOKENS TEXT_DIM STEPS     (in latents)"""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

LAYERS, HEADS, FFN, BATCH, FRAMES, SIDE, TOKENS, TEXT, STEPS = map(int, sys.argv[1:10])


def build():
    from diffusers import WanTransformer3DModel
    torch.manual_seed(0)
    return WanTransformer3DModel(num_layers=LAYERS, num_attention_heads=HEADS, attention_head_dim=32, ffn_dim=FFN, freq_dim=64,
                                 text_dim=TEXT, in_channels=8, out_channels=8)


def steps(model, batch):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x, text = torch.randn(batch, 8, FRAMES, SIDE, SIDE), torch.randn(batch, TOKENS, TEXT)
    at, took = torch.full((batch,), 500), []
    for _ in range(STEPS):
        if dist.is_initialized():
            dist.barrier()
        begin = time.perf_counter()
        (model(x, at, text, return_dict=False)[0] - x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        took.append(time.perf_counter() - begin)
    return statistics.median(took[3:])


def sharded(model):
    from torch.distributed.fsdp import fully_shard
    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def tensor(model):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    plan = {"ffn.net.0.proj": ColwiseParallel(), "ffn.net.2": RowwiseParallel()}
    for name in ("attn1", "attn2"):
        plan.update({f"{name}.to_{k}": ColwiseParallel() for k in "qkv"})
        plan[f"{name}.to_out.0"] = RowwiseParallel()
    for block in model.blocks:
        parallelize_module(block, mesh, plan)
        for attn in (block.attn1, block.attn2):
            attn.heads //= 2
            attn.norm_q = attn.norm_k = torch.nn.Identity()  # they are over all heads, which it cannot split
    return model


def work(rank, name, port):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    model = build()
    if name == "dp":
        took = steps(torch.nn.parallel.DistributedDataParallel(model), BATCH // 2)
    elif name == "fsdp":
        took = steps(sharded(model), BATCH // 2)
    else:
        took = steps(tensor(model), BATCH)
    if rank == 0:
        print(f"{name}\t{took:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(f"1 rank\t{steps(build(), BATCH):.4f}", flush=True)
    for i, name in enumerate(("dp", "fsdp", "tp")):
        mp.spawn(work, (name, 29511 + i), nprocs=2)

#!/usr/bin/env python3
"""bench/shared_devices.py WEFT [BEFORE.json]: videos of Wan 2.1 14B that share 8 simulated H100 under the
policies of `weft simulate serve --degrees`. Seconds of a step are predicted by `weft estimate` for a
folder of configs without weights. Prints tables for tools/bench_tables.py. JOBS (2000) and SEEDS (3):
length and number of the traces. BEFORE.json: a table of seconds to use."""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
# frames, height, width, steps, share of the jobs
MIXES = {"previews and videos": [(17, 256, 256, 30, 4), (33, 480, 832, 30, 2), (81, 480, 832, 30, 1)],
         "videos": [(33, 480, 832, 30, 1), (49, 480, 832, 30, 1), (81, 480, 832, 30, 1)]}
LOADS = ("0.5", "0.7", "0.9")
ROUNDS = ("0.02", "0.05", "0.1", "0.25", "0.5", "1", "2")
DEGREES = (1, 2, 4, 8)


def make_folder(folder):
    """The configs of Wan 2.1 14B; the weights of a tiny model stay, which an estimate does not read."""
    shutil.copytree(os.path.join(HERE, "../tests/golden/pipelines/wan_over"), folder)
    changes = {
        "transformer": dict(attention_head_dim=128, ffn_dim=13824, freq_dim=256, in_channels=16, out_channels=16,
                            num_attention_heads=40, num_layers=40, text_dim=4096),
        "vae": dict(base_dim=96, z_dim=16, dim_mult=[1, 2, 4, 4], num_res_blocks=2, latents_mean=[0] * 16, latents_std=[1] * 16),
        "text_encoder": dict(d_model=4096, d_ff=10240, d_kv=64, num_heads=64, num_layers=24, vocab_size=256384)}
    for part, values in changes.items():
        path = os.path.join(folder, part, "config.json")
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**config, **values}, file)


def estimate(weft, folder, size, degree):
    frames, height, width, steps, _ = size
    out = subprocess.run([weft, "estimate", "--model", folder, "--frames", str(frames), "--height", str(height), "--width",
                          str(width), "--steps", str(steps), "--guidance-scale", "5", "--parallel", f"cp={degree}", "--ranks",
                          str(degree), "--on", "h100:8", "--json"], check=True, capture_output=True, text=True).stdout
    return json.loads(out)


def predict(weft, folder, size):
    found = [estimate(weft, folder, size, degree) for degree in DEGREES]
    return {"name": "x".join(map(str, size[:3])), "steps": size[3], "step_seconds": [round(f["step_seconds"], 6) for f in found],
            "decode_seconds": round(found[0]["decode_seconds"], 6), "share": size[4]}


def simulate(weft, table, load, seed, round_seconds):
    out = os.path.join(os.path.dirname(table), "out.json")
    subprocess.run([weft, "simulate", "serve", "poisson", "--degrees", table, "--workers", "8", "--load", load, "--seed",
                    str(seed), "--jobs", os.environ.get("JOBS", "2000"), "--start-seconds", "0.05", "--round-seconds",
                    round_seconds, "--out", out], check=True, stdout=subprocess.DEVNULL)
    with open(out, encoding="utf-8") as file:
        return json.load(file)["policies"]


def figures(weft, table, load):
    """Means over the traces by policy. tetriserve has the round with the most deadlines met."""
    seeds = range(1, 1 + int(os.environ.get("SEEDS", "3")))
    runs = {r: [simulate(weft, table, load, seed, r) for seed in seeds] for r in ROUNDS}
    mean = lambda policies, key: statistics.mean(p[key] for p in policies)
    rows = {}
    for i, policy in enumerate(runs[ROUNDS[0]][0]):
        name = policy["policy"]
        best = max(ROUNDS, key=lambda r: mean([run[i] for run in runs[r]], "slo_attainment")) if name == "tetriserve" else ROUNDS[0]
        of = [run[i] for run in runs[best]]
        rows[name] = {key: mean(of, key) for key in ("slo_attainment", "mean", "p95", "p99", "resizes", "used")}
        rows[name]["round"] = best if name == "tetriserve" else "-"
    return rows


def main():
    weft = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        if len(sys.argv) > 2:
            with open(sys.argv[2], encoding="utf-8") as file:
                known = {size["name"]: size for size in json.load(file)["sizes"]}
        else:
            make_folder(scratch + "/model")
            all_sizes = {size[:4]: size for mix in MIXES.values() for size in mix}.values()
            known = {"x".join(map(str, size[:3])): predict(weft, scratch + "/model", size) for size in all_sizes}
        print("machine: simulated, 8 H100")
        print("| size | 1 device s | 2 devices s | 4 devices s | 8 devices s | decoding s |\n|---|---|---|---|---|---|")
        for size in known.values():
            print(f"| {size['name']} | " + " | ".join(f"{s:.3f}" for s in [*size["step_seconds"], size["decode_seconds"]]) + " |")
        print()
        rows = []
        for mix, sizes in MIXES.items():
            table = os.path.join(scratch, "degrees.json")
            with open(table, "w", encoding="utf-8") as file:
                json.dump({"sizes": [{**known["x".join(map(str, s[:3]))], "share": s[4]} for s in sizes]}, file)
            for load in LOADS:
                found = figures(weft, table, load)
                fixed = max(found[name]["slo_attainment"] for name in found if name.startswith("fixed"))
                for name, f in found.items():
                    rows.append(f"| {mix} | {load} | {name} | {100 * f['slo_attainment']:.1f} | {f['slo_attainment'] / fixed:.2f} | "
                                f"{f['mean']:.1f} | {f['p95']:.1f} | {f['p99']:.1f} | {f['resizes']:.0f} | {100 * f['used']:.1f} | {f['round']} |")
        print("machine: simulated, 8 H100")
        print("| mix | load | policy | in time % | of the best fixed | mean s | p95 s | p99 s | resizes | used % | round s |")
        print("|" + "---|" * 11)
        print("\n".join(rows))


main()

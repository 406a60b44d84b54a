#!/bin/bash
# bench/causal.sh: causal Wan with random weights, with and without its cache of keys and values. It prints the
# seconds to the first frame and of a block of 3 latent frames with 4 steps, and the predicted peak memory. A block sees 9 latent frames, or all. Runs with and without the cache alternate, ROUNDS times; times are medians. Without the
# cache, every step computes all frames of the video. The figures need a machine without other load.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
source "$here/runs.sh"
rounds=${ROUNDS-3} lengths=${LENGTHS-33 81 129} side=${SIDE-128}
dit 1 4 6 768 2 64 >run.yaml
sed -i 's/class: WanTransformer3DModel, config: {/class: CausalWanTransformer3DModel, config: {num_frames_per_block: 1, /' run.yaml
say "$WEFT" train run.yaml --set out=run
python3 -IS - run/model <<'P' # blocks of three frames, of a model trained in blocks of one
import json, shutil, sys
for name, window in ("window", 9), ("all", -1):
    shutil.copytree(sys.argv[1], name)
    path = name + "/transformer/config.json"
    config = json.load(open(path)) | {"num_frames_per_block": 3, "local_attn_size": window}
    json.dump(config, open(path, "w"))
    json.dump({"_class_name": "FlowMatchLCMScheduler", "shift": 5.0}, open(name + "/scheduler/scheduler_config.json", "w"))
P
one() { # MODEL FRAMES CACHE: adds a line of figures to MODEL-FRAMES-CACHE
    rm -rf out
    say env WEFT_LOG_FORMAT=json "$WEFT" generate --model "$1" --prompt "a red circle" --frames "$2" --height "$side" --width "$side" --steps 4 \
        --guidance-scale 1 --kv-cache "$3" --out out/
    python3 -IS - "$2" >>"$1-$2-$3" <<'P'
import json, sys
seconds = json.loads(open("out/prompts.jsonl").readline())["seconds"]
peak = next(m["value"] for m in map(json.loads, open("log")) if m.get("id") == "job-report" and "value" in m)
blocks = (int(sys.argv[1]) + 3) / 12
print(seconds["first_frame"], (seconds["denoise"] + seconds["decode"]) / blocks, peak / 2**20)
P
}
for _ in $(seq "$rounds"); do
    for frames in $lengths; do
        for model in window all; do
            for cache in on off; do one $model "$frames" $cache; done
        done
    done
done
echo "| a block sees | frames | cache | first frame s | block s | predicted MiB |"
echo "|---|---|---|---|---|---|"
python3 -IS - $lengths <<'P'
import statistics, sys
for model, sees in ("window", "9 latent frames"), ("all", "all earlier frames"):
    for frames in sys.argv[1:]:
        for cache in "on", "off":
            lines = [tuple(map(float, line.split())) for line in open(f"{model}-{frames}-{cache}")]
            first, block, peak = (statistics.median(c) for c in zip(*lines))
            print(f"| {sees} | {frames} | {cache} | {first:.3f} | {block:.3f} | {peak:.1f} |")
P

#!/bin/bash
# tools/demo.sh WEFT DIR: the complete workflow: footage, clips, shards, VAE, diffusion transformer,
# videos from prompts, scores, report. Each step's time is appended to DIR/times.jsonl. A step whose
# result exists is skipped, so an interrupted demo resumes.
set -euo pipefail
weft=$(readlink -f "$1")
dir=$2
src=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$dir"
cd "$dir"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_hwloc_base_binding_policy=none
mpirun=$(command -v mpirun.openmpi || command -v mpirun)
export OMP_WAIT_POLICY=passive # spinning threads of several ranks take cores from each other
began=$(date +%s.%N)

# step NAME RESULT COMMAND...: runs the command unless RESULT exists.
step() {
    local name=$1 result=$2 start seconds
    shift 2
    if [ -e "$result" ]; then
        echo "== $name: done before ($result)"
        return
    fi
    echo "== $name"
    start=$(date +%s.%N)
    "$@"
    seconds=$(awk -v a="$start" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }')
    printf '{"step": "%s", "seconds": %s}\n' "$name" "$seconds" >>times.jsonl
    echo "   $seconds s"
}

# Two ranks of one thread each use two cores better than one rank of two threads on models this small.
ranks=$(nproc)
[ "$ranks" -le 2 ] || ranks=2
train() {
    OMP_NUM_THREADS=1 "$mpirun" -n "$ranks" "$weft" train "$@"
}

cat >prompts.txt <<'PROMPTS'
a red circle moving left
a green square moving up
a blue triangle moving right
a yellow circle moving down
PROMPTS
step "synth" raw/cuts.jsonl "$weft" synth --out raw --shots 800 --radius 19
# four prompts of combinations that training never shows
sed -n '/"held_out"/,/\]/s/.*"caption": "\(.*\)".*/\1/p' raw/heldout.json | awk 'NR % 2 == 1' | head -n 4 >>prompts.txt
step "curate" curated/summary.json "$weft" curate "$src/examples/demo/curate.yaml" --in raw/train --out curated
step "shard" shards/index.json "$weft" shard --in curated --out shards
step "train VAE" vae/model/vae train "$src/examples/demo/vae.yaml"
step "train DiT" dit/model/transformer train "$src/examples/demo/dit.yaml"
# Guidance determines the content at high noise. At low noise it only adds speckle.
sampling="--steps 30 --guidance-scale 6 --guidance-end 0.55"
step "generate" samples/sheet.png "$weft" generate --model dit/model --prompts prompts.txt --out samples \
    --sheet samples/sheet.png --batch-size 4 $sampling
step "eval VAE" vae.json "$weft" eval vae --model vae/model/vae --shards shards --sheet vae.png --json vae.json
step "eval prompts" prompts.json "$weft" eval prompts --model dit/model --heldout raw/heldout.json --out evaluated --json prompts.json $sampling

"$weft" report --title "weft demo" --run "VAE=vae" --run "DiT=dit" --vae-eval vae.json --prompt-eval prompts.json \
    --videos samples --reference-videos raw --picture "Originals over reconstructions=vae.png" \
    --picture "Generated for the evaluation=evaluated/sheet.png" --step-times times.jsonl --out report.html >/dev/null
echo
echo "videos          $PWD/samples/*.mp4"
echo "contact sheet   $PWD/samples/sheet.png"
echo "report          $PWD/report.html"
awk -v a="$began" -v b="$(date +%s.%N)" 'BEGIN { printf "in all          %d min %02d s\n", (b - a) / 60, (b - a) % 60 }'

#!/bin/bash
# weft inspect model: exact parameter counts, time, figures that hang together, errors.
set -u
failed=0
complain() { echo "FAILED: $*"; failed=1; }
field() { python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$1" "$2"; }

echo '{"_class_name":"WanTransformer3DModel","num_attention_heads":12,"attention_head_dim":128,"ffn_dim":8960,"num_layers":30}' >small.json
echo '{"_class_name":"WanTransformer3DModel"}' >large.json
echo '{"_class_name":"AutoencoderKLWan"}' >vae.json
for pair in small:1418996800 large:14288491584 vae:126892531; do
    "$WEFT" inspect model ${pair%:*}.json --frames 9 --height 64 --width 64 --json >out.json || complain "$pair"
    [ "$(field out.json parameters)" = ${pair#*:} ] || complain "$pair: $(field out.json parameters) parameters"
done

# the whole 1.3B training step at 81x480x832: no weights allocated (1 GiB of address space), in under 2 s
case $WEFT_BUILD in */asan | */tsan) room=unlimited seconds=60 ;; *) room=1500000 seconds=2 ;; esac # the sanitizer needs both
(ulimit -v $room; OMP_NUM_THREADS=1 "$WEFT" inspect model small.json --train --json >train.json) || complain "1.3B"
seconds=$seconds python3 - <<'P' || complain "figures of 1.3B"
import json, os
t = json.load(open("train.json"))
assert t["seconds"] < float(os.environ["seconds"]), t
assert t["parameters"] == 1418996800
assert t["weight_bytes"] >= 4 * 4 * t["parameters"]      # weights, two moments, the average
assert 2.7 < t["flops_step"] / t["flops_forward"] < 4, t # the backward is about twice the forward
assert t["arena_bytes"] >= t["live_bytes"] > 0
assert t["peak_bytes"] == t["program_bytes"] + t["weight_bytes"]
P
"$WEFT" inspect model small.json --train --recompute 'transformer.blocks.*' --json >less.json || complain "recompute"
python3 -c 'import json; a=json.load(open("train.json")); b=json.load(open("less.json")); assert b["arena_bytes"] < 0.15*a["arena_bytes"] and b["flops_step"] > a["flops_step"]' ||
    complain "recompute does not save"
"$WEFT" inspect model small.json --train --recompute 'blcks.*' >out 2>err && complain "a pattern that matches nothing passes"
grep -q '"blcks.\*" matches no scope (such as "' err || complain "a pattern that matches nothing: $(cat err)"
"$WEFT" inspect model small.json --train --batch 4 --mesh dp=2 --json >dp.json || complain "dp=2"
"$WEFT" inspect model small.json --train --batch 2 --json >one.json || complain "batch 2"
python3 -c 'import json; a=json.load(open("dp.json")); b=json.load(open("one.json")); assert abs(a["arena_bytes"]/b["arena_bytes"]-1)<0.02 and a["wire_bytes"]>=4*a["parameters"] and b["wire_bytes"]==0' ||
    complain "a rank of two with four samples is not like one rank with two"

# every axis that the trainer takes, alone and together: less of what it splits, and none of what nothing splits
for mesh in fsdp=2 tp=2 cp=2 sp=2 dp=2,tp=2 fsdp=2,cp=2; do
    "$WEFT" inspect model small.json --train --frames 9 --height 64 --width 64 --batch 2 --mesh $mesh --json >mesh.json || complain "--mesh $mesh"
    "$WEFT" inspect model small.json --train --frames 9 --height 64 --width 64 --batch 2 --json >alone.json
    python3 -c 'import json,sys; a=json.load(open("mesh.json")); b=json.load(open("alone.json")); m=sys.argv[1]; cut=any(x in m for x in ("fsdp","tp","sp")); assert a["wire_bytes"] > 0 and a["flops_step"] < 0.8*b["flops_step"] and (a["weight_bytes"] < 0.75*b["weight_bytes"]) == cut, (m, a, b)' $mesh ||
        complain "figures of --mesh $mesh"
done

# a training step of 14B on the modelled GPU: at least its arithmetic at 400 TFLOP/s, and no 230 GB
"$WEFT" inspect model large.json --train --frames 9 --height 256 --width 256 --backend virtual --json >virtual.json || complain "virtual"
python3 -c 'import json; t=json.load(open("virtual.json")); least=t["flops_step"]/400e12; assert least <= t["modelled_seconds"] < 20*least and t["weight_bytes"] > 200e9, t' ||
    complain "a step on the virtual device: $(cat virtual.json)"
"$WEFT" inspect model small.json --frames 9 --height 64 --width 64 --backend virtual | grep -q "one run takes .* modelled" || complain "virtual is not told"
"$WEFT" inspect model small.json --backend cuda >out 2>err && complain "an unknown backend passes"
grep -q "there are cpu, ref, virtual" err || complain "unknown backend: $(cat err)"

mkdir -p pipeline/transformer pipeline/vae
echo '{}' >pipeline/model_index.json
cp small.json pipeline/transformer/config.json
cp vae.json pipeline/vae/config.json
"$WEFT" inspect model pipeline --frames 5 --height 64 --width 64 >text || complain "pipeline folder"
grep -q 1,418,996,800 text && grep -q 126,892,531 text || complain "pipeline folder: counts"
"$WEFT" inspect model pipeline/vae --graph --top 0 --frames 5 --height 32 --width 32 | grep -q '= conv3d(' || complain "--graph"

refuse() { # PATTERN ARGS...
    local pattern=$1
    shift
    "$WEFT" inspect "$@" >out 2>err && complain "accepted: $*"
    grep -q -- "$pattern" err || { cat err; complain "$*: no message like $pattern"; }
}
refuse 'nothere' model nothere.json
echo '{"_class_name":"Nobody"}' >other.json
refuse 'Nobody' model other.json
refuse 'first word' shape small.json
refuse 'mesh' model small.json --mesh dp=x
refuse 'known are dp (.*tp (' model small.json --mesh pd=2
refuse 'known are dp (' model vae.json --mesh tp=2
refuse 'frames' model vae.json --frames 6
refuse 'height 100 .*multiples of 8x8' model small.json --height 100 # nothing is rounded in silence
echo '{"_class_name":"WanTransformer3DModel","num_layers":2e9}' >many.json
refuse 'many.json: "num_layers" is 2000000000; it must lie in 0..1024' model many.json
mkdir -p run/model && refuse 'run is the folder of a training run; its model is run/model' model run

# names, types and sizes of every parameter, of a file and of a published size alike
"$WEFT" inspect model small.json --tensors >small.txt || complain "--tensors"
"$WEFT" inspect model wan-1.3b --tensors | diff - small.txt >/dev/null || complain "wan-1.3b is not small.json"
grep -qx 'patch_embedding.weight f32 1536,16,1,2,2' small.txt || complain "no patch_embedding.weight"
[ "$(wc -l <small.txt)" = 825 ] || complain "$(wc -l <small.txt) parameters"
sort -c small.txt 2>/dev/null || LC_ALL=C sort -c small.txt || complain "--tensors is not sorted"
exit $failed

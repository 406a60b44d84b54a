#!/bin/bash
# Exchanges in parts on several ranks. Layers over frames and places: videos of STDiT3 and Latte from their folders are one rank's to 1e-5, whatever the slices; what is asked
# for and cannot be made is told.
source "$SRC/tests/train/common.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
generate() { # RANKS CLASS OUT OPTIONS...
    local n=$1 class=$2 out=$2-$3
    shift 3
    ranks "$n" "$WEFT" generate --model "runs/$class/model" --prompt "a red circle moving left" --seed 3 --steps 2 --latents --out "$out.mp4" \
        "$@" >"$out.log" 2>&1 || { cat "$out.log"; fail "weft generate with $class on $n ranks: $*"; }
}
for made in "STDiT3 {depth: 2, num_heads: 2, hidden_size: 32, pred_sigma: false}" \
    "LatteTransformer3DModel {num_layers: 2, num_attention_heads: 2, attention_head_dim: 16}"; do
    class=${made%% *}
    sed "s/class: WanTransformer3DModel/class: $class/; s/  config: {num_layers: 2, num_att.*/  config: ${made#* }/; /steps: 8, batch: 5/d; s/steps: 12/steps: 3/" \
        dit.yaml >"$class.yaml"
    "$WEFT" train "$class.yaml" --set out="runs/$class" >"$class.log" 2>&1 || { cat "$class.log"; fail "weft train $class"; }
    generate 1 $class one
    for n in 2 3; do
        generate $n $class off$n --parallel cp=$n --slices off
        generate $n $class on$n --parallel cp=$n
        generate $n $class many$n --parallel cp=$n --slices time=64,space=3,lift_time=2,lift_space=1
        grep -q "slices of frames (64 asked for: there are no more for each rank), [34] of places" $class-many$n.log ||
            { cat $class-many$n.log; fail "fewer slices than asked for are not told"; }
        grep -q "asked for" $class-off$n.log && { cat $class-off$n.log; fail "slices: off asks for slices"; }
    done
    generate 2 $class tp --parallel tp=2
    generate 2 $class auto --parallel cp=2 --slices auto
    grep -q "^slices .*, the best of [0-9]*, priced in .* a step, of which kernels .*; next slices .*: \(as fast\|.* slower, by\)" $class-auto.log ||
        { cat $class-auto.log; fail "auto does not say why"; }
    grep -q "^slices off" $class-auto.log && grep "^2 ranks" $class-auto.log | grep -q slices && { cat $class-auto.log; fail "slices are off and printed"; }
    python3 - $class <<'P' || fail "$class: one rank and several differ"
import array, struct, sys
def load(name):
    data = open(f"{sys.argv[1]}-{name}.latents.npy", "rb").read()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])
def error(a, b): return sum((x - y) ** 2 for x, y in zip(a, b)) ** 0.5 / sum(x * x for x in a) ** 0.5
one = load("one")
print("tp", error(one, load("tp")))
assert error(one, load("tp")) <= 1e-5, "tp"
for n in "23":
    off = load("off" + n)
    for name in ("off" + n, "on" + n, "many" + n) + ("auto",) * (n == "2"):
        is_ = load(name)
        print(name, error(one, is_), "against whole layers", error(off, is_), is_ == off)
        assert len(is_) == len(one) and error(one, is_) <= 1e-5 and error(off, is_) <= 1e-6, name
P
done
# a step as two ranks ran it, played over links by weft simulate
cat >two.yaml <<'Y'
name: two
nodes: 2
devices: 1
device: {type: core, memory: 8GiB, flops: 60e9, memory_bandwidth: 8e9}
link: {bandwidth: 1e12, latency: 1e-9}
host: {bandwidth: 8e9, latency: 1e-6}
nics: [{switch: wire, bandwidth: 62.5e6, latency: 25e-6}]
switches: [{name: wire}]
Y
WEFT_LINK="0.5 Gbit/s, 50 us" generate 2 STDiT3 traced --parallel cp=2 --trace traced
"$WEFT" simulate traced/trace-0.json traced/trace-1.json --cluster two.yaml --out simulated.json --svg simulated.svg >simulate.log 2>&1 ||
    { cat simulate.log; fail "weft simulate of traces"; }
grep -q "^simulated  .* s$" simulate.log && grep -q "^executed  .* s (.*%)$" simulate.log || { cat simulate.log; fail "neither time is told"; }
python3 - <<'P' || fail "traces"
import json
s = json.load(open("simulated.json"))
assert 0 < s["seconds"] and 0 < s["executed_seconds"] and sum(s["link_bytes"].values()) > 0, s
for rank in range(2):
    t = json.load(open(f"traced/trace-{rank}.json"))
    assert any(e["ph"] == "X" and e.get("cat") == "all-to-all" for e in t["traceEvents"]) and t["weft"]["rank"] == rank
P
"$WEFT" simulate traced/trace-0.json --cluster two.yaml >simulate.log 2>&1 && fail "a trace of one of two ranks is played"
grep -q "give those of all ranks" simulate.log || { cat simulate.log; fail "that ranks are missing is not told"; }
"$WEFT" simulate traced/trace-*.json >simulate.log 2>&1 && fail "traces are played over no links"
grep -q "over which links? Give --cluster" simulate.log || { cat simulate.log; fail "that links are missing is not told"; }
"$WEFT" simulate traced/trace-*.json --cluster two.yaml --folds 4 >simulate.log 2>&1 && fail "--folds of traces"
grep -q -e "--folds: traced/trace-0.json is a trace of what was executed" simulate.log || { cat simulate.log; fail "--folds of traces"; }
refused() { # WORDS OPTIONS...
    local words=$1
    shift
    "$WEFT" generate --model runs/STDiT3/model --prompt x --out no "$@" >refused.log 2>&1 && fail "$*: not refused"
    grep -q -- "$words" refused.log || { cat refused.log; fail "$*: not told: $words"; }
}
# Training chooses likewise, for its degrees, and one rank exchanges nothing.
ranks 2 "$WEFT" train STDiT3.yaml --set out=runs/chosen --set parallel.cp=2 --set parallel.slices=auto >chosen.log 2>&1 || { cat chosen.log; fail "weft train with slices: auto"; }
grep -q "slices .*, the best of [0-9]*, priced in .* a step, of which kernels" chosen.log || { cat chosen.log; fail "training does not say which slices it takes"; }
python3 - runs/STDiT3/metrics.jsonl runs/chosen/metrics.jsonl <<'P' || fail "slices that are chosen change the losses"
import json, sys
a, b = ([json.loads(line) for line in open(f)] for f in sys.argv[1:])
assert len(a) == len(b) and all(abs(x["loss"] - y["loss"]) <= 1e-5 * abs(x["loss"]) for x, y in zip(a, b)), (a, b)
P
# Heads by groups, and products by chunks, of a model with neither kind of layers.
sed "s/num_attention_heads: 2/num_attention_heads: 6/; /steps: 8, batch: 5/d; s/steps: 12/steps: 3/" dit.yaml >Wan.yaml
"$WEFT" train Wan.yaml --set out=runs/Wan >Wan.log 2>&1 || { cat Wan.log; fail "weft train Wan"; }
for n in 2 3; do
    generate $n Wan plain$n --parallel cp=$n
    generate $n Wan heads$n --parallel cp=$n --slices heads=2
    grep -q "layers in 2 groups of heads" Wan-heads$n.log || { cat Wan-heads$n.log; fail "groups of heads are not told"; }
    cmp Wan-plain$n.latents.npy Wan-heads$n.latents.npy || fail "groups of heads change numbers on $n ranks"
done
generate 2 Wan tp --parallel tp=2
generate 2 Wan chunks --parallel tp=2 --slices chunks=4
grep -q "layers in 4 chunks of tokens" Wan-chunks.log || { cat Wan-chunks.log; fail "chunks are not told"; }
generate 6 Wan heads1 --parallel tp=6 --slices chunks=2 # a head for each rank
grep -q "layers in 2 chunks of tokens" Wan-heads1.log || { cat Wan-heads1.log; fail "chunks of one head are not told"; }
generate 2 Wan auto --parallel cp=2 --slices heads=auto
grep -q "^slices .*heads=[0-9]*,.*, the best of [0-9]*, priced in" Wan-auto.log || { cat Wan-auto.log; fail "auto does not say why"; }
python3 - Wan-tp Wan-chunks Wan-heads1 <<'P' || fail "chunks of tokens change more than kernels do"
import array, struct, sys
def load(name):
    data = open(name + ".latents.npy", "rb").read()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])
a = load(sys.argv[1])
for b in map(load, sys.argv[2:]):
    assert len(a) == len(b) and sum((x - y) ** 2 for x, y in zip(a, b)) <= 1e-12 * sum(x * x for x in a)
P
wan_refused() { # WORDS LAYOUT SLICES
    ranks 2 "$WEFT" generate --model runs/Wan/model --prompt x --steps 1 --out no.mp4 --parallel "$2" --slices "$3" >refused.log 2>&1 && fail "$2 $3: not refused"
    grep -q -- "$1" refused.log || { cat refused.log; fail "$2 $3: not told: $1"; }
}
wan_refused "--slices time, lift_time: over these ranks WanTransformer3DModel has nothing to cut so" cp=2 time=2
wan_refused "--slices heads: .* has nothing to cut so: .*context: ulysses" tp=2 heads=2
wan_refused "--slices chunks: .* has nothing to cut so: .*that tp splits" cp=2 chunks=2
# where the same command or config goes with other ranks, what nothing is done by is told, once
generate 1 Wan one --slices heads=2
[ "$(grep -c -- '--slices: on one rank nothing is exchanged.*leave it out, or start ranks' Wan-one.log)" = 1 ] || { cat Wan-one.log; fail "slices of one rank are not told once"; }
for n in 1 2; do
    ranks $n "$WEFT" train Wan.yaml --set out=runs/idle$n --set parallel.tp=$n --set parallel.slices.heads=2 --set parallel.slices.chunks=2 >idle$n.log 2>&1 || { cat idle$n.log; fail "weft train with slices on $n ranks"; }
    [ "$(grep -c 'parallel.slices.heads: over these ranks WanTransformer3DModel has nothing to cut so.*nothing is done by it' idle$n.log)" = 1 ] ||
        { cat idle$n.log; fail "slices that a config has for nothing are not told once on $n ranks"; }
done
refused "time.*0" --slices time=0
refused "space.*-2" --slices space=-2
refused "lift_time.*-1" --slices lift_time=-1
refused "leave one of them out" --trace traced --cache every:2
exit 0

#!/bin/bash
# --comm-overlap on several ranks. Layer slices of STDiT3 and Latte give the latents of one rank
# (1e-5), with any number of slices. Head groups are bitwise, token chunks within rounding of layers
# that are not split. Unavailable and ineffective settings are reported. Traces of two ranks are
# simulated.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
generate() { # RANKS CLASS OUT OPTIONS...
    local n=$1 class=$2 out=$2-$3
    shift 3
    ranks "$n" "$WEFT" generate --model "runs/$class/model" --prompt "a red circle moving left" --seed 3 --steps 2 --latents-npy --out "$out.mp4" \
        "$@" >"$out.log" 2>&1 || { cat "$out.log"; fail "weft generate with $class on $n ranks: $*"; }
}
slices_of() { # CLASS CONFIG
    local class=$1
    sed "s/class: WanTransformer3DModel/class: $class/; s/  config: {num_layers: 2, num_att.*/  config: $2/; /steps: 8, batch: 5/d; s/steps: 12/steps: 3/" \
        dit.yaml >"$class.yaml"
    "$WEFT" train "$class.yaml" --set out="runs/$class" >"$class.log" 2>&1 || { cat "$class.log"; fail "weft train $class"; }
    generate 1 $class one
    for n in 2 3; do
        generate $n $class off$n --parallel cp=$n --comm-overlap off
        generate $n $class on$n --parallel cp=$n
        generate $n $class many$n --parallel cp=$n --comm-overlap time=64,space=3,early_time=2,early_space=1
        has_message $class-many$n.log job-report text~=slices text~=64 ||
            { cat $class-many$n.log; fail "a smaller number of slices than requested is not reported"; }
        [ "$(count_messages $class-off$n.log job-report "text~=requested")" != 0 ] && { cat $class-off$n.log; fail "--comm-overlap off reports requested slices"; }
    done
    generate 2 $class tp --parallel tp=2
    generate 2 $class auto --parallel cp=2 --comm-overlap auto
    has_message $class-auto.log layout-chosen text~=slices text~=kernels ||
        { cat $class-auto.log; fail "auto does not report the estimates of its choice"; }
    [ "$(count_messages $class-auto.log layout-chosen "text~=slices off")" != 0 ] && [ "$(count_messages $class-auto.log job-report "text~=2 ranks" text~=slices)" != 0 ] && { cat $class-auto.log; fail "the layout has no slices, but slices are reported"; }
    python3 -S - $class <<'P' || fail "$class: one rank and several differ"
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
        print(name, error(one, is_), "compared with layers without slices", error(off, is_), is_ == off)
        assert len(is_) == len(one) and error(one, is_) <= 1e-5 and error(off, is_) <= 1e-6, name
P
}
check STDiT3 slices_of STDiT3 "{depth: 2, num_heads: 2, hidden_size: 32, pred_sigma: false}"
check Latte slices_of LatteTransformer3DModel "{num_layers: 2, num_attention_heads: 2, attention_head_dim: 16}"
# weft simulate replays the traces of two ranks on simulated links
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
traces_are_simulated() {
    WEFT_LINK="0.5 Gbit/s, 50 us" generate 2 STDiT3 traced --parallel cp=2 --trace traced
    "$WEFT" simulate traced/trace-0.json traced/trace-1.json --on two.yaml --out simulated.json --svg simulated.svg >simulate.txt 2>simulate.log ||
        { cat simulate.log; fail "weft simulate of traces"; }
    grep -q "^simulated  .* s$" simulate.txt && grep -q "^executed  .* s (.*%)$" simulate.txt || { cat simulate.txt; fail "the simulated or the executed time is not printed"; }
    python3 -S - <<'P' || fail "the simulation or the traces"
import json
s = json.load(open("simulated.json"))
assert 0 < s["seconds"] and 0 < s["executed_seconds"] and sum(s["link_bytes"].values()) > 0, s
for rank in range(2):
    t = json.load(open(f"traced/trace-{rank}.json"))
    assert any(e["ph"] == "X" and e.get("cat") == "all-to-all" for e in t["traceEvents"]) and t["weft"]["rank"] == rank
P
}
check traces_are_simulated
traces_that_cannot_be_simulated_are_refused() {
    needs traces_are_simulated
    "$WEFT" simulate traced/trace-0.json --on two.yaml >simulate.log 2>&1 && fail "one of two traces is accepted"
    has_message simulate.log format-damaged 'text~=rank 0 of 2' || fail "the error does not report the missing ranks"
    "$WEFT" simulate traced/trace-*.json >simulate.log 2>&1 && fail "traces without --on are accepted"
    has_message simulate.log option-required key=--on text~=traced/trace-0.json || fail "the error does not name --on"
    "$WEFT" simulate traced/trace-*.json --on two.yaml --pass-splits 4 >simulate.log 2>&1 && fail "--pass-splits is accepted with traces"
    has_message simulate.log option-no-effect key=--pass-splits text~=traced/trace-0.json || fail "the error of --pass-splits with traces"
}
check traces_that_cannot_be_simulated_are_refused
refused() { # ID [FIELD=VALUE...] -- OPTIONS...
    take_message "$@"
    set -- "${rest[@]}"
    "$WEFT" generate --model runs/STDiT3/model --prompt x --out no "$@" >refused.log 2>&1 && fail "$*: not refused"
    has_message refused.log "${wanted[@]}" || fail "$*: another message than expected"
}
# Training with `comm_overlap: auto` chooses slices for its layout.
training_chooses_slices() {
    ranks 2 "$WEFT" train STDiT3.yaml --set out=runs/chosen --set parallel.cp=2 --set parallel.comm_overlap=auto >chosen.log 2>&1 || { cat chosen.log; fail "weft train with slices: auto"; }
    has_message chosen.log layout-chosen text~=slices text~=kernels || fail "training does not report the chosen slices"
    python3 -S - runs/STDiT3/metrics.jsonl runs/chosen/metrics.jsonl <<'P' || fail "the chosen slices change the losses"
import json, sys
a, b = ([json.loads(line) for line in open(f)] for f in sys.argv[1:])
assert len(a) == len(b) and all(abs(x["loss"] - y["loss"]) <= 1e-5 * abs(x["loss"]) for x, y in zip(a, b)), (a, b)
P
}
check training_chooses_slices
# Head groups and token chunks of a model without layers over frames and positions (Wan).
sed "s/num_attention_heads: 2/num_attention_heads: 6/; /steps: 8, batch: 5/d; s/steps: 12/steps: 3/" dit.yaml >Wan.yaml
"$WEFT" train Wan.yaml --set out=runs/Wan >Wan.log 2>&1 || { cat Wan.log; fail "weft train Wan"; }
groups_of_heads() { # N
    local n=$1
    generate $n Wan plain$n --parallel cp=$n
    generate $n Wan heads$n --parallel cp=$n --comm-overlap heads=2
    has_message Wan-heads$n.log job-report "text~=2 groups" || fail "head groups are not reported"
    cmp Wan-plain$n.latents.npy Wan-heads$n.latents.npy || fail "head groups change the latents on $n ranks"
}
for n in 2 3; do check "groups_of_heads_$n" groups_of_heads "$n"; done
chunks_of_tokens() {
    generate 2 Wan tp --parallel tp=2
    generate 2 Wan chunks --parallel tp=2 --comm-overlap chunks=4
    has_message Wan-chunks.log job-report "text~=4 chunks" || fail "token chunks are not reported"
    generate 6 Wan heads1 --parallel tp=6 --comm-overlap chunks=2 # one head per rank
    has_message Wan-heads1.log job-report "text~=2 chunks" || fail "token chunks with one head per rank are not reported"
}
check chunks_of_tokens
heads_are_chosen() {
    generate 2 Wan auto --parallel cp=2 --comm-overlap heads=auto
    has_message Wan-auto.log layout-chosen text~=slices text~=heads= || fail "auto does not say why"
}
check heads_are_chosen
chunks_are_within_rounding() {
    needs chunks_of_tokens
    python3 -S - Wan-tp Wan-chunks Wan-heads1 <<'P' || fail "token chunks change the latents more than rounding"
import array, struct, sys
def load(name):
    data = open(name + ".latents.npy", "rb").read()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])
a = load(sys.argv[1])
for b in map(load, sys.argv[2:]):
    assert len(a) == len(b) and sum((x - y) ** 2 for x, y in zip(a, b)) <= 1e-12 * sum(x * x for x in a)
P
}
check chunks_are_within_rounding
wan_refused() { # ID [FIELD=VALUE...] -- LAYOUT SLICES
    take_message "$@"
    set -- "${rest[@]}"
    ranks 2 "$WEFT" generate --model runs/Wan/model --prompt x --steps 1 --out no.mp4 --parallel "$1" --comm-overlap "$2" >refused.log 2>&1 && fail "$*: not refused"
    has_message refused.log "${wanted[@]}" || fail "$*: another message than expected"
}
slices_of_another_layout_are_refused() {
    wan_refused config-value 'text~=--comm-overlap time, early_time: WanTransformer3DModel' -- cp=2 time=2
    wan_refused config-value 'text~=--comm-overlap heads:' 'text~=context: ulysses' -- tp=2 heads=2
    wan_refused config-value 'text~=--comm-overlap chunks:' 'text~=that tp splits' -- cp=2 chunks=2
}
check slices_of_another_layout_are_refused
# A setting without effect on this number of ranks is reported once, not refused: the same command
# or config is valid with other ranks.
slices_without_effect_are_reported_once() {
    generate 1 Wan one --comm-overlap heads=2
    [ "$(count_messages Wan-one.log config-unusual key=--comm-overlap)" = 1 ] || { cat Wan-one.log; fail "slices on one rank are not reported exactly once"; }
    for n in 1 2; do
        ranks $n "$WEFT" train Wan.yaml --set out=runs/idle$n --set parallel.tp=$n --set parallel.comm_overlap.heads=2 --set parallel.comm_overlap.chunks=2 >idle$n.log 2>&1 || { cat idle$n.log; fail "weft train with slices on $n ranks"; }
        [ "$(count_messages idle$n.log config-unusual key=parallel.comm_overlap.heads text~=WanTransformer3DModel)" = 1 ] ||
            { cat idle$n.log; fail "slices without effect in a config are not reported exactly once on $n ranks"; }
    done
}
check slices_without_effect_are_reported_once
refusals() {
    refused '*' text~=time text~=0 -- --comm-overlap time=0
    refused '*' text~=space text~=-2 -- --comm-overlap space=-2
    refused '*' text~=early_time text~=-1 -- --comm-overlap early_time=-1
    refused option-conflict key=--trace 'text~=--feature-cache every:2' -- --trace traced --feature-cache every:2
}
check refusals
finish

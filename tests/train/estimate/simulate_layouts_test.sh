#!/bin/bash
# weft simulate of every training layout. Executed ranks send the planned messages and bytes of each
# axis, and ranks under mpirun report the same peak. 1,024 ranks of Wan 14B need the programs of one
# pipeline only.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
mkdir -p wan_vae
echo '{"_class_name":"AutoencoderKLWan"}' >wan_vae/config.json
cat >wan.yaml <<'Y'
out: run
data: {path: shards}
autoencoder: {weights: wan_vae}
transformer: {class: WanTransformer3DModel, config: {num_attention_heads: 5, attention_head_dim: 64, ffn_dim: 1024, num_layers: 6}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 64, num_heads: 2, num_layers: 1, ffn_dim: 64, max_length: 64}}]
stages: [{steps: 2, batch: 16, frames: 5, height: 128, width: 128, lr: 1e-4, warmup_steps: 0}]
Y
cat >moe.yaml <<'Y'
out: run
data: {path: shards}
autoencoder: {weights: wan_vae}
transformer: {class: WeftMoeTransformer3DModel, config: {num_attention_heads: 2, attention_head_dim: 16, num_layers: 3, num_routed_experts: 4,
              num_activated_experts: 2, moe_intermediate_size: 20, n_shared_experts: 1}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 64, num_heads: 2, num_layers: 1, ffn_dim: 64, max_length: 64}}]
stages: [{steps: 2, batch: 8, frames: 5, height: 64, width: 64, lr: 1e-4, warmup_steps: 0}]
Y
simulate() { # CONFIG OPTIONS...
    local config=$1 options=()
    shift
    for o; do options+=(--set "parallel.$o"); done
    "$WEFT" simulate "$config" --out now.json "${options[@]}" >now.txt 2>err || { cat now.txt err; fail "$*"; }
}
same() { # CONFIG OPTIONS...
    simulate "$@"
    python3 -S - "$*" <<'P' || { cat now.txt; fail "$*: other messages than the executed ones"; }
import json, sys
t = json.load(open("now.json"))
print(f"{sys.argv[1]}: executed {t['executed_seconds'] / t['simulated_seconds'] - 1:+.1%}", [(a["axis"], a["messages"], a["bytes"]) for a in t["axes"]])
assert t["axes"] == t["executed_axes"], t
assert all(a["bytes"] > 0 and a["messages"] > 0 for a in t["axes"]), t
P
}
check "messages of wan with tp=2" same wan.yaml tp=2
check "messages of wan with tp=2 sequence=true dp=2 zero=2" same wan.yaml tp=2 sequence=true dp=2 zero=2
check "messages of wan with cp=4 context=ulysses" same wan.yaml cp=4 context=ulysses
check "messages of wan with a ring" same wan.yaml cp=4 context=ring
check "messages of wan with ulysses and ring" same wan.yaml cp=4 'context={ulysses: 2, ring: 2}'
check "messages of wan with fsdp=3" same wan.yaml fsdp=3
check "messages of wan with fsdp=2 dp=2" same wan.yaml fsdp=2 dp=2
check "messages of wan with pp=2 tp=2 schedule=wave" same wan.yaml pp=2 tp=2 schedule=wave
check "messages of wan with pp=2 fsdp=2 schedule=zero-bubble" same wan.yaml pp=2 fsdp=2 schedule=zero-bubble
check "messages of wan with stages in another order" same wan.yaml pp=2 cp=2 schedule=interleaved 'order=[tp, dp, pp, cp]'
check "messages of wan with microbatches=4 dp=2" same wan.yaml microbatches=4 dp=2
check "messages of moe with ep=2" same moe.yaml ep=2
# a repeated simulation has bitwise the same figures
twice_the_same() {
    same moe.yaml ep=2
    cp now.json once.json
    same moe.yaml ep=2
    cmp once.json now.json || fail "a repeated simulation has other figures"
}
check twice_the_same
# the peak that ranks report
peak() { # RANKS OPTIONS...
    local n=$1 options=()
    shift
    simulate wan.yaml "$@"
    for o; do options+=(--set "parallel.$o"); done
    ranks "$n" "$WEFT" train wan.yaml --set backend=virtual "${options[@]}" >run.log 2>&1 || { cat run.log; fail "the dry run"; }
    python3 -S - <<'P' || { cat run.log now.json; fail "$*: another peak than that of the run"; }
import json, re
said, unit = re.search(r"peak ([0-9.]+) ([MG])iB per rank", open("run.log").read()).groups()
peak = json.load(open("now.json"))["peak_bytes"] / (1 << (20 if unit == "M" else 30))
assert abs(peak - float(said)) <= 0.006, (peak, said)
P
}
check "the peak of ranks with tp=2" peak 2 tp=2
check "the peak of ranks with fsdp=2 dp=2" peak 4 fsdp=2 dp=2
check "the peak of ranks with pp=2 cp=2 microbatches=4" peak 4 pp=2 cp=2 microbatches=4
# 1,024 ranks of Wan 14B: priced, not executed, in less than 1 GiB
sed 's/num_attention_heads.*num_layers: 6/num_attention_heads: 40, attention_head_dim: 128, ffn_dim: 13824, num_layers: 40/; s/batch: 16/batch: 1024/' \
    wan.yaml >big.yaml
more_ranks_than_devices_are_refused() {
    "$WEFT" simulate big.yaml --on h100:128 --set parallel.tp=2000 >out.txt 2>err && fail "more ranks than devices"
    has_message err mesh-invalid file=big.yaml key=parallel 'text~=2000 ranks,' 'text~=1024 devices' || fail "no message on devices"
}
check more_ranks_than_devices_are_refused
a_thousand_ranks() { # O
    local o=$1
    WEFT="$WEFT" python3 -S - $o <<'P' || fail "$o"
import json, os, resource, subprocess, sys
command = [os.environ["WEFT"], "simulate", "big.yaml", "--no-execute", "--on", "h100:128", "--out", "many.json"]
for o in sys.argv[1:]:
    command += ["--set", "parallel." + o]
subprocess.run(command, check=True, stdout=open("many.txt", "w"))
t, used = json.load(open("many.json")), resource.getrusage(resource.RUSAGE_CHILDREN)
print(sys.argv[1:], f"{used.ru_maxrss >> 10} MiB", t["simulated_seconds"])
assert t["ranks"] == 1024 and "executed_seconds" not in t and t["simulated_seconds"] > 0 and t["peak_bytes"] > 0, t
assert used.ru_maxrss < 1 << 20, used
assert "not executed:" in open("many.txt").read()
P
}
for o in "tp=8 pp=4 fsdp=32" "cp=8 fsdp=128" "pp=8 dp=128 microbatches=8 schedule=interleaved tp=1"; do check "a_thousand_ranks_$o" a_thousand_ranks "$o"; done
finish

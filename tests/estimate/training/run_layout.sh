#!/bin/bash
# weft plan layout --run-config RUN: all layouts of a run, the best first, each with the memory that training it tells, byte for byte
# but for what the process has; the file that it writes lays a run out, and is refused by any other. context: auto takes the
# cheaper way.
source "$SRC/tests/train/common.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
cat >run.yaml <<'Y'
out: runs/one
autoencoder: {weights: runs/vae/model/vae}
data: {path: shards, latents: latents}
transformer: {class: WanTransformer3DModel, config: {num_layers: 5, num_attention_heads: 3, attention_head_dim: 12, ffn_dim: 46, freq_dim: 32}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}}]
optimizer: {ema_decay: 0.9}
checkpoint: {interval: 0}
stages:
  - {steps: 2, batch: 4, frames: 9, height: 32, width: 32, lr: 2e-3, warmup_steps: 0, lr_schedule: constant}
Y
refuse() { # TEXT COMMAND...: must end with an error that holds TEXT
    local text=$1
    shift
    if "$@" >out.txt 2>err.txt; then fail "accepted: $*"; fi
    grep -qF -- "$text" err.txt out.txt || fail "no \"$text\" in: $(cat err.txt out.txt)   ($*)"
}
plan() { "$WEFT" plan layout --run-config run.yaml --devices 2 "$@"; }
plan --out layout.json --explain >table.txt || fail "plan layout --run-config"
plan --json >again.json || fail "plan layout --json"
python3 -S - <<'P' || fail "the plan: $(cat table.txt)"
import json, re
plan, again = json.load(open("layout.json")), json.load(open("again.json"))
known = [c for c in plan["candidates"] if c["fits"]]
names = [c["layout"] for c in plan["candidates"]]
assert len(set(names)) == len(names) > 15, names
for axis in ("dp=2", "fsdp=2", "dp=2 zero=1", "dp=2 zero=2", "tp=2", "tp=2 sequence=true", "cp=2 context=ring", "cp=2 context=ulysses"):
    assert axis in names, axis
for schedule in ("gpipe", "1f1b", "interleaved", "wave", "zero-bubble"):
    assert "pp=2 schedule=%s microbatches=4" % schedule in names, schedule
assert [c["seconds"] for c in known] == sorted(c["seconds"] for c in known)
assert not known[0]["why"] and all(c["why"] for c in plan["candidates"][1:])
for c in known:
    parts = c["compute_seconds"] + c["exposed_seconds"] + c["optimizer_seconds"] + c["bubble_seconds"]
    assert abs(parts - c["seconds"]) < 1e-6 * c["seconds"], c
    assert c["device_bytes"] + c["host_bytes"] == c["peak_bytes"] and c["device_bytes"] > 0 < c["host_bytes"], c
assert plan["predicted"]["seconds"] == known[0]["seconds"]
for p in (plan, again): # the same plan each time, but for what this process has
    for c in p["candidates"] + [p["predicted"]]:
        c.pop("peak_bytes"); c.pop("host_bytes"); c.pop("memory", None)
assert plan["candidates"] == again["candidates"] and plan["parallel"] == again["parallel"]
lines = [l for l in open("table.txt") if re.match(r"  \S*(dp|fsdp|tp|cp|pp)=", l)]
assert [l.split("  ")[1].strip() for l in lines] == names, lines
P
# what a run tells before its first step is what the plan said, for the best and for some of each kind
memory() { sed -n 's/.*memory of a rank: at most [^:]*: program and libraries [^,]*, //p' "$1"; }
told() { # LAYOUT: as the plan has it
    python3 -S -c '
import json, sys
for c in json.load(open("layout.json"))["candidates"]:
    if c["layout"] == sys.argv[1]: print(c["memory"].split("program and libraries")[1].split(", ", 1)[1])' "$1"
}
first=$(python3 -S -c 'import json; print(json.load(open("layout.json"))["candidates"][0]["layout"])')
ranks 2 "$WEFT" train run.yaml --set parallel.layout_file=layout.json >best.log 2>&1 || { cat best.log; fail "the plan is not trained"; }
grep -q "layout by layout.json: $first\$" best.log || { cat best.log; fail "the layout is not told"; }
[ "$(memory best.log)" = "$(told "$first")" ] || fail "memory of $first: $(memory best.log), planned $(told "$first")"
for layout in "dp=2 zero=2" "cp=2 context=ring" "tp=2 sequence=true" "pp=2 schedule=wave microbatches=4"; do
    options=()
    for o in $layout; do options+=(--set "parallel.$o"); done
    ranks 2 "$WEFT" train run.yaml --set out=runs/some --set stages.0.steps=1 "${options[@]}" >some.log 2>&1 || { cat some.log; fail "$layout"; }
    [ -n "$(memory some.log)" ] && [ "$(memory some.log)" = "$(told "$layout")" ] || fail "memory of $layout: $(memory some.log), planned $(told "$layout")"
    rm -r runs/some
done
# as if its degrees had been given
options=()
for o in $first; do options+=(--set "parallel.$o"); done
ranks 2 "$WEFT" train run.yaml --set out=runs/given "${options[@]}" >given.log 2>&1 || { cat given.log; fail "$first"; }
diff <(losses runs/one) <(losses runs/given) || fail "the plan's run is not that of its degrees"
"$WEFT" inspect graph run.yaml --set parallel.layout_file=layout.json >inspect.txt || fail "inspect with a plan"
grep -q "layout by layout.json" inspect.txt || fail "inspect does not tell the layout"

# another run does not take it
with() { "$WEFT" inspect graph run.yaml --set parallel.layout_file=layout.json "$@"; }
refuse "error[layout-invalid]: run.yaml: parallel.layout_file: layout.json was made for 2 ranks" "$WEFT" train run.yaml --set out=runs/no --set parallel.layout_file=layout.json
refuse 'error[layout-invalid]: run.yaml: parallel.layout_file: layout.json was made for another stage 0: {"accumulate":1,"sizes":["4 x 9x32x32"]}, now {"accumulate":1,"sizes":["8 x 9x32x32"]}' with --set stages.0.batch=8
refuse 'now {"accumulate":2' with --set stages.0.gradient_accumulation_steps=2
refuse "trained parameters, and this run has a WanTransformer3DModel with" with --set transformer.config.num_layers=6
refuse "error[layout-invalid]: run.yaml: parallel.layout_file: layout.json was made for other training steps of a WanTransformer3DModel" with --set transformer.config.eps=1e-5
refuse "error[config-conflict]: run.yaml: parallel.layout_file: layout_file replaces all other keys of parallel, and tp" with --set parallel.tp=2
refuse "error[config-conflict]: run.yaml: parallel.layout_file: layout_file replaces all other keys of parallel, and microbatches" with --set parallel.microbatches=2
sed 's/"seconds": [0-9.e-]*/"seconds": 1.0/' layout.json >edited.json
refuse "edited.json: id: " with --set parallel.layout_file=edited.json
refuse "no_such.json" with --set parallel.layout_file=no_such.json
refuse "error[option-conflict]: --run-config: " "$WEFT" plan layout run.yaml --run-config run.yaml

# both memories stand in the table, and what is elsewhere where something is
grep -q "^  layout .* device  *host$" table.txt || fail "no columns of both memories: $(head -3 table.txt)"
grep -q "^memory of the rank with the highest peak: device: .*; host: .* backend computes in the host's" table.txt || fail "what the memories are is not told"
plan --explain --set memory.optimizer_states=offload --set transformer.config.ffn_dim=4096 --out moved.json >moved.txt || fail "states elsewhere"
grep -q "^  layout .* device  *host  *elsewhere$" moved.txt && grep -q "elsewhere: a file" moved.txt || fail "no column of what is elsewhere: $(head -3 moved.txt)"
python3 -S -c '
import json
plain, moved = ({c["layout"]: c for c in json.load(open(f))["candidates"] if c["fits"]} for f in ("layout.json", "moved.json"))
assert all(c["offloaded_bytes"] == 0 for c in plain.values()) and all(c["offloaded_bytes"] > 0 for c in moved.values())
assert moved["fsdp=2"]["offloaded_bytes"] < moved["dp=2"]["offloaded_bytes"]' || fail "offloaded bytes"

# a limit that only some keep, or none
all=$("$WEFT" plan layout --run-config run.yaml --devices 2 --explain | sed -n 's/.*memory of a rank: at most \([0-9]*\)\..*/\1/p' | sort -n | tail -1)
plan --set memory.limit=$((all + 8))MiB --json >roomy.json || fail "a limit of $((all + 8)) MiB"
refuse "error[layout-infeasible]: run.yaml: no layout of 2 ranks" plan --set memory.limit=20MiB
refuse "error[layout-infeasible]: run.yaml: no layout of 2 ranks" plan --memory-limit 20MiB

# clusters of more ranks than layouts are priced for
refuse "error[option-required]: --devices: the cluster h100:16384 has 131072 devices" "$WEFT" plan layout --run-config run.yaml --on h100:16384
refuse "error[option-required]: --devices: the cluster h100:1024 has 8192 devices" "$WEFT" plan generate --set model=none --on h100:1024

# context: auto
ranks 2 "$WEFT" train run.yaml --set out=runs/auto --set parallel.cp=2 --set parallel.context=auto >auto.log 2>&1 || { cat auto.log; fail "context: auto"; }
grep -q "context: auto: ulysses 2 x ring 1 .*, ulysses 1 x ring 2 .* a step: ulysses [12] x ring [12] (local)" auto.log || { cat auto.log; fail "the choice is not told"; }
cheap=$(python3 -S -c '
import json
print([c["layout"] for c in json.load(open("layout.json"))["candidates"] if c["layout"].startswith("cp=2")][0])')
case $cheap in *ring) axis=ring ;; *) axis=cp ;; esac
grep -q "^  $axis  *2 " auto.log || { cat auto.log; fail "not the cheaper one, $cheap"; }
exit 0

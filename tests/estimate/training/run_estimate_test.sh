#!/bin/bash
# weft estimate CONFIG: the run prints the same FLOPs and the same bytes of every part of the memory, an
# executed step sends the planned messages, and weft plan layout has the same seconds and memory.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
estimate() { # NAME OPTIONS...
    local name=$1
    shift
    "$WEFT" estimate "$@" --json >"$name.json" 2>"$name.err" || { cat "$name.err"; fail "weft estimate $*"; }
}
train() { # NAME RANKS OPTIONS...
    local name=$1 n=$2
    shift 2
    ranks "$n" "$WEFT" train "$@" >"$name.log" 2>&1 || { cat "$name.log"; fail "weft train $*"; }
}
# same NAME: the estimate NAME.json has the figures of the run in NAME.log
same() {
    python3 -S - "$1" "${2-1}" <<'P' || { cat "$1.log" "$1.json"; fail "$1: the run prints other figures"; }
import json, re, sys
name, ranks = sys.argv[1], int(sys.argv[2])
made = json.load(open(name + ".json"))
logs = [json.loads(l) for l in open(name + ".log") if l.startswith("{")]
told = [m["message"] for m in logs if "message" in m]
sizes = lambda s: re.findall(r"[0-9.]+ (?:[KMGT]i)?B", s)
# the first two figures are the peak and the process, which differ each time
reports = [sizes(m)[2:] for m in told]
assert len(sizes(made["memory"])) > 5 and sizes(made["memory"])[2:] in reports, (made["memory"], told)
flops = [[float(x) for x in re.findall(r"([0-9.]+) GFLOP", m)] for m in told if "GFLOP/s" not in m]
flops = [f for f in flops if f]
assert len(flops) == len(made["stages"]), flops
for stage, own in zip(made["stages"], flops):
    planned = [1e-9 * s["flops"] for s in stage["sizes"]]
    assert len(planned) == len(own) and all(abs(a - b) <= 0.0051 for a, b in zip(planned, own)), (planned, own)
assert made["ranks"] == ranks and made["peak_bytes"] == made["device_bytes"] + made["host_bytes"]
for s in made["stages"]:
    parts = s["compute_seconds"] + s["exposed_seconds"] + s["optimizer_seconds"] + s["bubble_seconds"]
    assert abs(parts - s["seconds"]) < 1e-6 * s["seconds"] and s["parameters"] > 0 and s["program_bytes"] > 0, s
    assert all(a["bytes"] > 0 and a["messages"] > 0 for a in s["axes"]) and bool(s["axes"]) == (ranks > 1), s
P
}
the_vae_has_the_figures_of_its_run() {
    estimate vae vae.yaml
    train vae 1 vae.yaml
    same vae
}
check the_vae_has_the_figures_of_its_run
the_denoiser_has_the_figures_of_its_run() {
    needs the_vae_has_the_figures_of_its_run
    estimate dit dit.yaml --ranks 2
    train dit 2 dit.yaml --set out=runs/dit
    same dit 2
}
check the_denoiser_has_the_figures_of_its_run
# latents are cached now, so encoders and decoders are not part of the estimate
cached_latents_need_no_encoder() {
    needs the_denoiser_has_the_figures_of_its_run
    estimate cached dit.yaml --ranks 2
    train cached 2 dit.yaml --set out=runs/cached --set data.latents=runs/dit/latents
    python3 -S - <<'P' || fail "cached latents do not change the estimate"
import json
assert json.load(open("cached.json"))["host_bytes"] < json.load(open("dit.json"))["host_bytes"]
P
}
check cached_latents_need_no_encoder
layouts_have_the_figures_of_their_runs() {
    needs the_vae_has_the_figures_of_its_run
    for layout in "fsdp=2" "tp=2 sequence_parallel=true" "cp=2 context=ring" "pp=2 schedule=wave"; do
        options=()
        for o in $layout; do options+=(--set "parallel.$o"); done
        estimate split dit.yaml --set out=runs/split "${options[@]}"
        train split 2 dit.yaml --set out=runs/split --set stages.0.steps=1 --set stages.1.steps=1 "${options[@]}"
        case $layout in pp*) ;; *) same split 2 ;; esac
        rm -r runs/split
    done
}
check layouts_have_the_figures_of_their_runs
# A limit: the same choice of activations.
a_limit_has_the_same_choice_of_activations() {
    large=(--set out=runs/limit --set stages.0.batch=8 --set stages.0.frames=9 --set stages.0.height=64 --set stages.0.width=64)
    estimate free vae.yaml "${large[@]}"
    limit=$(python3 -S -c 'import json; d = json.load(open("free.json")); print(d["peak_bytes"] - d["stages"][0]["program_bytes"] // 5)')
    estimate limit vae.yaml "${large[@]}" --set memory.limit="$limit"
    python3 -S -c '
import json, sys
free, limited = json.load(open("free.json")), json.load(open("limit.json"))
assert limited["peak_bytes"] <= int(sys.argv[1]), limited' "$limit" || fail "the limit is not kept"
    "$WEFT" estimate vae.yaml --set memory.limit=1MiB --json >small.json 2>err && fail "1 MiB is enough"
    has_message err memory-needed || fail "a limit that is too small"
}
check a_limit_has_the_same_choice_of_activations
# An executed step sends the planned messages.
an_executed_step_sends_the_planned_messages() {
    needs the_vae_has_the_figures_of_its_run
    estimate executed dit.yaml --set parallel.tp=2 --ranks 4 --on h100 --execute
    python3 -S - <<'P' || fail "an executed step: $(cat executed.json)"
import json
made = json.load(open("executed.json"))
assert made["layout"] == "dp=2 tp=2" and made["cluster"] == "h100" and len(made["stages"]) == 2
for s in made["stages"]:
    e = s["executed"]
    assert e["axes"] == e["executed_axes"] and e["executed_seconds"] > 0, e
    assert {(a["axis"], a["bytes"], a["messages"]) for a in e["axes"]} == {(a["axis"], a["bytes"], a["messages"]) for a in s["axes"]}, s
P
}
check an_executed_step_sends_the_planned_messages
# The estimate and the simulation price the same kernels and launches. Without messages both have the
# same seconds. With messages they differ, because one uses a closed form and the other simulates the
# algorithm of each message (measured: at most 7e-4, one latency).
agree() { # BOUND OPTIONS...
    local bound=$1
    shift
    estimate agree dit.yaml --set out=runs/agree --on h100 --execute "$@"
    python3 -S - "$bound" "$*" <<'P' || fail "$*: the simulation has other seconds than the estimate"
import json, sys
for s in json.load(open("agree.json"))["stages"]:
    e = s["executed"]
    simulated = e["simulated_seconds"] + e["simulated_behind_seconds"]
    off = s["seconds"] / simulated - 1
    print(sys.argv[2], s["seconds"], simulated, f"{off:+.2e}", f"executed {(e['executed_seconds'] + e['behind_seconds']) / simulated - 1:+.2e}")
    assert abs(off) <= float(sys.argv[1]), s
P
}
the_simulation_has_the_estimated_seconds() {
    needs the_vae_has_the_figures_of_its_run
    agree 1e-9
    agree 1e-9 --set stages.0.gradient_accumulation_steps=3 --set precision=bf16
    for layout in "dp=2" "tp=2" "cp=2" "fsdp=2" "pp=2 schedule=wave"; do
        options=()
        for o in $layout; do options+=(--set "parallel.$o"); done
        agree 1e-3 "${options[@]}"
    done
}
check the_simulation_has_the_estimated_seconds
a_cluster_that_is_too_small_is_refused() {
    "$WEFT" estimate dit.yaml --ranks 16 --on h100:1 --execute >out 2>err && fail "16 ranks on 8 devices"
    has_message err mesh-invalid file=dit.yaml key=parallel value=16 || fail "16 ranks on 8 devices: no message"
}
check a_cluster_that_is_too_small_is_refused
# the seconds and the memory of weft plan layout
plan_layout_has_the_same_seconds_and_memory() {
    needs the_vae_has_the_figures_of_its_run
    estimate planned dit.yaml --set out=runs/plan --set parallel.cp=2 --set parallel.context=ring --on h100
    "$WEFT" plan layout --run-config dit.yaml --set out=runs/plan --devices 2 --on h100 --json >plan.json 2>err || { cat err; fail "weft plan layout"; }
    python3 -S - <<'P' || fail "weft plan layout has other figures"
import json
made = json.load(open("planned.json"))
plan = {c["layout"]: c for c in json.load(open("plan.json"))["candidates"]}[made["layout"]]
assert made["seconds"] == plan["seconds"] and made["device_bytes"] == plan["device_bytes"], (made, plan)
P
}
check plan_layout_has_the_same_seconds_and_memory
# text has the same figures
text_has_the_same_figures() {
    needs the_vae_has_the_figures_of_its_run
    unset WEFT_LOG_FORMAT
    "$WEFT" estimate dit.yaml --ranks 2 --on h100 >text.txt || fail "weft estimate as text"
    for word in parameters "FLOPs per step" "seconds per step" compute "sent per step" memory; do
        grep -q "$word" text.txt || { cat text.txt; fail "no $word"; }
    done
}
check text_has_the_same_figures
finish

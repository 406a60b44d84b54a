#!/bin/bash
# weft estimate replaces five commands: each is accepted, prints a notice of class option-renamed, and gives the same figures.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
cat >vae.yaml <<'Y'
out: run
data: {path: shards, split: ""}
autoencoder: {class: AutoencoderKLWan, config: {base_dim: 4, dim_mult: [1, 1, 1, 1], num_res_blocks: 1, z_dim: 4}}
stages:
  - {name: one, steps: 2, batch: 2, frames: 1, height: 32, width: 32, lr: 1e-4, warmup_steps: 0}
  - {name: two, steps: 2, batch: 2, frames: 5, height: 32, width: 32, lr: 1e-4, warmup_steps: 0}
Y
old() { # NOW COMMAND...: accepted, with a notice that names NOW
    local now=$1
    shift
    "$WEFT" "$@" >old.txt 2>err
    has_message err option-renamed level=info "now=$now" || { cat old.txt err; fail "weft $*: no notice"; }
}
quiet() { # COMMAND...: without a notice
    "$WEFT" "$@" >out.txt 2>err || { cat err; fail "weft $*"; }
    [ "$(count_messages err option-renamed)" = 0 ] || fail "weft $*: a notice"
}
"$WEFT" estimate vae.yaml --on h100 --execute --json >new.json 2>err || { cat err; fail "weft estimate"; }
simulate_of_a_run_has_the_same_figures() {
    old "weft estimate RUN.yaml --execute" simulate vae.yaml --execute --out old.json
    python3 -S - <<'P' || fail "weft simulate RUN.yaml: other figures"
import json
old, new = json.load(open("old.json")), json.load(open("new.json"))["stages"][0]["executed"]
assert old == new, (old, new)
P
}
check simulate_of_a_run_has_the_same_figures
inspect_graph_has_the_same_figures() {
    old "weft estimate CONFIG" inspect graph vae.yaml
    has_message err option-renamed "value=weft inspect graph CONFIG" || fail "weft inspect graph: another notice"
    python3 -S - <<'P' || fail "weft inspect graph: other figures"
import json, re
text, new = open("old.txt").read(), json.load(open("new.json"))
assert re.findall(r"^  parameters +(\d+)", text, re.M) == [str(s["parameters"]) for s in new["stages"]]
flops = [float(x) for x in re.findall(r"^  FLOPs +(\S+)", text, re.M)]
assert all(abs(a / s["sizes"][0]["flops"] - 1) < 1e-3 for a, s in zip(flops, new["stages"])), flops
sizes = lambda s: re.findall(r"[0-9.]+ (?:[KMGT]i)?B", s)
assert sizes(new["memory"])[2:] == sizes(text[text.index("memory"):])[2:], (text, new["memory"])
P
}
check inspect_graph_has_the_same_figures
# two ranks share a device: each has half of its memory, which is less than it needs
ranks_share_the_memory_of_a_device() {
    cat >small.yaml <<'Y'
nodes: 1
devices: 1
device: {memory: 2MiB, flops: 989e12, memory_bandwidth: 3.35e12}
Y
    "$WEFT" estimate vae.yaml --ranks 2 --on small.yaml --json >small.json 2>err || { cat err; fail "a small device"; }
    python3 -S - <<'P' || fail "memory of a device"
import json
small, new = json.load(open("small.json")), json.load(open("new.json"))
assert (small["fits"], small["rank_memory_bytes"]) == (False, 1 << 20), small
assert new["fits"] and new["peak_bytes"] < new["rank_memory_bytes"], new
P
}
check ranks_share_the_memory_of_a_device
inspect_prints_a_notice_for_replaced_options() {
    quiet inspect graph vae.yaml --graph
    quiet inspect graph vae.yaml --passes
    old "weft estimate --model PATH --training-step" inspect model wan-vae --training-step --frames 5 --height 32 --width 32
    old "weft estimate --model PATH --execute" inspect model wan-vae --backend virtual --frames 5 --height 32 --width 32
    quiet inspect model wan-vae --frames 5 --height 32 --width 32
}
check inspect_prints_a_notice_for_replaced_options
train_prints_a_notice_for_replaced_options() {
    old "weft estimate CONFIG" train vae.yaml --dry-run
    old "weft estimate CONFIG --execute" train vae.yaml --set backend=virtual
}
check train_prints_a_notice_for_replaced_options
# ranks of mpirun print the notice once
only_rank_0_prints_the_notice() {
    OMPI_COMM_WORLD_RANK=1 "$WEFT" inspect graph vae.yaml >out.txt 2>err
    [ "$(count_messages err option-renamed)" = 0 ] || fail "rank 1 prints the notice, too"
}
check only_rank_0_prints_the_notice
refuse() { # ID FIELD OPTIONS...
    local id=$1 field=$2
    shift 2
    ! "$WEFT" estimate "$@" >out 2>err || fail "accepted: $*"
    has_message err "$id" "$field" || { cat err; fail "$*: no message $id"; }
}
options_without_effect_are_refused() {
    refuse option-no-effect key=--iterations vae.yaml --iterations 2
    refuse option-no-effect key=--svg vae.yaml --svg x.svg
    refuse option-no-effect key=--training-step vae.yaml --training-step
    refuse option-invalid key=--ranks vae.yaml --ranks -1
    refuse layout-invalid file=vae.yaml vae.yaml --ranks 3 --set parallel.fsdp=2
    refuse file-not-found file=h1000 vae.yaml --on h1000
}
check options_without_effect_are_refused
help_fits_on_a_screen() {
    [ "$("$WEFT" estimate --help | sed '/^config file/,$d' | wc -l)" -le 45 ] || fail "the first screen of --help is too long"
}
check help_fits_on_a_screen
finish

#!/bin/bash
# bench/parallel.sh: a DiT's training step on two ranks in every layout and on one rank, one thread per
# rank, alternating (the better of two medians). $WEFT_PEER_PYTHON with diffusers: PyTorch's own layouts
# on the same shapes. Then the hidden share of exchanges over a link of 1 Gbit/s. The figures need a
# machine without other load.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
steps=${STEPS-14}
. "$here/runs.sh"
export WEFT_LOG_FORMAT=json PYTHONPATH=$here
{ echo "out: run"; dit $steps 10 8 1024 8 128; } >run.yaml
step_of() { # RANKS SETTINGS...: median seconds of a step, without the first three
    local n=$1 options=()
    shift
    for o in "$@"; do options+=(--set "$o"); done
    rm -rf run/checkpoints run/metrics.jsonl run/model
    say ranks "$n" "$WEFT" train run.yaml "${options[@]}"
    cp log last.log
    python3 -c 'import json, statistics; print(statistics.median([json.loads(l)["step_seconds"] for l in open("run/metrics.jsonl")][3:]))'
}
better() { python3 -c 'import sys; print(min(map(float, sys.argv[1:])))' "$@"; }
step_of 1 >/dev/null # latents
peer=
[ -z "${WEFT_PEER_PYTHON-}" ] || peer=$("$WEFT_PEER_PYTHON" "$here/peer_ranks.py" 10 8 1024 8 5 16 40 64 $steps 2>peer.log) || { cat peer.log >&2; peer=; }
of_peer() { sed -n "s/^$1\t//p" <<<"$peer"; }
echo "| layout | 1 rank s | 2 ranks s | speedup | target | PyTorch 1 rank s | PyTorch 2 ranks s | PyTorch speedup |"
echo "|---|---|---|---|---|---|---|---|"
while IFS='|' read -r name asked theirs settings; do
    one=$(step_of 1) two=$(step_of 2 $settings)
    one=$(better "$one" "$(step_of 1)") two=$(better "$two" "$(step_of 2 $settings)")
    python3 - "$name" "$asked" "$one" "$two" "$(of_peer "1 rank")" "$(of_peer "$theirs")" <<'P'
import sys
name, asked, one, two, a, b = sys.argv[1:]
one, two = float(one), float(two)
print(f"| {name} | {one:.3f} | {two:.3f} | {one / two:.2f} | {asked} | " + (f"{a} | {b} | {float(a) / float(b):.2f} |" if b else "- | - | - |"))
P
done <<'L'
dp|1.85|dp|parallel.dp=2
fsdp|1.75|fsdp|parallel.fsdp=2
cp, ulysses|1.7|-|parallel.cp=2
cp, ring|1.7|-|parallel.cp=2 parallel.context=ring
tp, sequence|1.6|tp|parallel.tp=2 parallel.sequence_parallel=true
pp, 1f1b, 8 microbatches|1.6|-|parallel.pp=2 parallel.microbatches=8
pp, zero-bubble, 8 microbatches|1.6|-|parallel.pp=2 parallel.microbatches=8 parallel.schedule=zero-bubble
L
echo
echo "| layout over 1 Gbit/s and 0.1 ms | step s | sent MiB | exchange s | hidden % |"
echo "|---|---|---|---|---|"
while IFS='|' read -r name settings; do
    two=$(WEFT_LINK="1 Gbit/s, 100 us" step_of 2 $settings)
    python3 - "$name" "$two" <<'P'
import sys
from log_messages import last
sent = last(open("last.log").read(), "stage-report", "sent_bytes", "hidden_share")
print(f"| {sys.argv[1]} | {float(sys.argv[2]):.3f} | {sent['sent_bytes'] / (1 << 20):.0f} | {sent['seconds']:.3g} | {100 * sent['hidden_share']:.0f} |")
P
done <<'L'
dp|parallel.dp=2
fsdp|parallel.fsdp=2
fsdp, memory.prefetch_budget=32MiB|parallel.fsdp=2 memory.prefetch_budget=32MiB
cp, ring|parallel.cp=2 parallel.context=ring
L

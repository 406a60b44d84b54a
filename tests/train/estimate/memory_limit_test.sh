#!/bin/bash
# memory.limit: the backward recomputes activations until the process stays below the limit, and
# the losses are bitwise those without a limit. An error for a limit that is too small names the
# smallest possible limit, and the run succeeds with that one.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
cat >wide.yaml <<'Y'
out: runs/all
autoencoder: {weights: runs/vae/model/vae}
data: {path: shards, latents: latents}
transformer: {class: WanTransformer3DModel, config: {num_layers: 8, num_attention_heads: 4, attention_head_dim: 32, ffn_dim: 512, freq_dim: 32}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}}]
stages:
  - {steps: 3, batch: 16, frames: 9, height: 64, width: 64, lr: 1e-3, warmup_steps: 0}
  - {steps: 1, batch: 2, frames: 9, height: 64, width: 64, lr: 1e-3, warmup_steps: 0}
Y
# peak.py NAME COMMAND...: writes the output of rank 0 to NAME.log (another rank: NAME.logRANK), and
# the peak of the rank's memory in KiB to NAME.peakRANK. Each rank has files of its own, because lines
# that ranks print at the same time may be mixed.
cat >peak.py <<'P'
import os, resource, subprocess, sys
log = subprocess.run(sys.argv[2:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
rank = os.environ.get("OMPI_COMM_WORLD_RANK", "0")
open(sys.argv[1] + ".log" + rank * (rank != "0"), "w").write(log.stdout)
open(sys.argv[1] + ".peak" + rank, "w").write(f"{resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss}\n")
sys.exit(log.returncode)
P
most_kib() { cat "$1".peak? | sort -n | tail -1; } # NAME: the largest peak of all ranks
most_mib() { echo $(($(most_kib "$1") / 1024)); }
cat >terms.py <<'P'
import re, sys
unit = {"B": 2**-20, "KiB": 2**-10, "MiB": 1}
sums = [sum(float(a) * unit[b] for a, b in re.findall(r"([0-9.]+) ([KM]?i?B)\b", line.split("weights, optimizer", 1)[1].split(" (and", 1)[0]))
        for line in open(sys.argv[1]) if "is less than" in line]
sys.exit(not (sums and max(sums) + 5.3 > int(sys.argv[2])))
P
predicted_mib() { message_mib "$1" memory-report key= 'value=?*' | cut -d. -f1; }
python3 peak.py all "$WEFT" train wide.yaml || { cat all.log; fail "without a limit"; }
limit=$(($(predicted_mib all.log) - 60))
a_limit_is_kept() {
    python3 peak.py less "$WEFT" train wide.yaml --set out=runs/less --set memory.limit=${limit}MiB || { cat less.log; fail "memory.limit ${limit} MiB"; }
    has_message less.log memory-report "text~=memory.limit: stage 0" || fail "the recomputation is not reported"
    [ "$(count_messages less.log memory-report "text~=memory.limit: stage 1")" != 0 ] && fail "the small second stage recomputes"
    diff <(losses runs/all) <(losses runs/less) || fail "recomputation changes the losses"
    [ "$(predicted_mib less.log)" -le "$limit" ] || { cat less.log; fail "the prediction is more than $limit MiB"; }
    case $WEFT_BUILD in
    */asan | */tsan) ;; # have memory of their own
    *) [ "$(most_mib less)" -le "$limit" ] || fail "a limit of $limit MiB: the peak is $(most_mib less) MiB, $(most_mib all) MiB without a limit" ;;
    esac
}
check a_limit_is_kept
a_limit_of_two_ranks_is_kept() {
    ranks 2 "$WEFT" train wide.yaml --set out=runs/two --set parallel.fsdp=2 --set memory.limit=$(($(most_mib all) * 3 / 4))MiB >two.log 2>&1 || { cat two.log; fail "two ranks"; }
}
check a_limit_of_two_ranks_is_kept
inspect_reports_the_choice() {
    "$WEFT" inspect graph wide.yaml --set memory.limit=${limit}MiB >inspect.txt 2>inspect.log || { cat inspect.log; fail "inspect"; }
    grep -q "memory.limit: stage 0" inspect.txt || { cat inspect.txt; fail "inspect does not report the recomputation"; }
}
check inspect_reports_the_choice

the_least_limit_is_enough() {
    "$WEFT" train wide.yaml --set out=runs/no --set memory.limit=70MiB >no.log 2>&1 && fail "70 MiB are enough"
    least=$(message_mib no.log memory-needed level=error | cut -d. -f1)
    [ -n "$least" ] || { cat no.log; fail "the smallest limit is not named"; }
    "$WEFT" train wide.yaml --set out=runs/least --set memory.limit=$((least + 2))MiB >least.log 2>&1 || { cat least.log; fail "a run with the smallest limit, $((least + 2)) MiB"; }
    diff <(losses runs/all) <(losses runs/least) || fail "complete recomputation changes the losses"
}
check the_least_limit_is_enough
# The smallest limit that one start names is enough for every other start, although each start
# measures its own rates: here recomputation takes no time, or more time than offloading.
mkdir -p away
printf 'nodes: 1\ndevices: 1\ndevice: {memory: 8GiB, flops: 1e15, memory_bandwidth: 1e15}\n' >quick.yaml
printf 'nodes: 1\ndevices: 1\ndevice: {memory: 8GiB, flops: 1e6, memory_bandwidth: 1e4}\n' >slow.yaml
inspect() { "$WEFT" inspect graph wide.yaml --set memory.offload=away --set memory.profile="$1.yaml" --set memory.limit="$2MiB" >"$1.log" 2>&1; }
the_least_limit_does_not_depend_on_speed() {
    for named in quick slow; do
        inspect $named 1 && fail "1 MiB is enough"
        least=$(message_mib $named.log memory-needed level=error)
        [ -n "$least" ] || { cat $named.log; fail "the smallest limit is not named"; }
        for then in quick slow; do
            inspect $then "$(python3 -S -c "print($least + 0.005)")" || { cat $then.log; fail "$least MiB, the smallest limit of $named.yaml, is not enough with $then.yaml"; }
        done
    done
}
check the_least_limit_does_not_depend_on_speed
# The programs of all training stages stay in memory. Each stage counts the programs of the others and
# their message buffers, also if latents are encoded in the same run.
{ cat wide.yaml; for batch in 14; do echo "  - {steps: 1, batch: $batch, frames: 9, height: 64, width: 64, lr: 1e-3, warmup_steps: 0}"; done; } >stages.yaml
every_stage_is_counted() { # RANKS
    local n=$1 keys least most
    keys=(--set out=runs/stages$n --set data.latents=latents$n --set parallel.fsdp=$n --set memory.offload=away)
    ranks $n "$WEFT" train stages.yaml "${keys[@]}" --set memory.limit=1MiB >no.log 2>&1 && fail "1 MiB is enough"
    least=$(message_mib no.log memory-needed level=error | cut -d. -f1)
    [ -n "$least" ] || { cat no.log; fail "$n rank(s): the smallest limit is not named"; }
    # the terms of the sum are named; the rest covers what differs from start to start
    python3 terms.py no.log $least || { cat no.log; fail "$n rank(s): the terms are not those of $least MiB"; }
    ranks $n python3 peak.py stages "$WEFT" train stages.yaml "${keys[@]}" --set memory.limit=$((least + 1))MiB || { cat stages.log; fail "$n rank(s), with the smallest limit, $((least + 1)) MiB"; }
    most=$(most_mib stages)
    case $WEFT_BUILD in
    */asan | */tsan) ;;
    *) [ "$most" -le $((least + 1)) ] || fail "$n rank(s): a limit of $((least + 1)) MiB, a peak of $most MiB" ;;
    esac
}
for n in 1 2; do check "every_stage_is_counted_on_${n}_ranks" every_stage_is_counted $n; done
# A small model: the measurements of the start use as much memory as the run, but not in addition.
sed 's/num_layers: 8, num_attention_heads: 4, attention_head_dim: 32, ffn_dim: 512/num_layers: 2, num_attention_heads: 2, attention_head_dim: 12, ffn_dim: 48/
     s/batch: 16, frames: 9, height: 64, width: 64/batch: 6, frames: 9, height: 32, width: 32/; /batch: 2/d; s/^data:.*/precision: bf16\n&/' wide.yaml >small.yaml
a_small_model_keeps_its_limit() { # RANKS OFFLOAD
    local n=$1 keys least most at
    keys=(--set data.latents=small.$n.$2 --set memory.offload=$2)
    ranks $n "$WEFT" train small.yaml "${keys[@]}" --set out=runs/no --set memory.limit=1MiB >no.log 2>&1 && fail "1 MiB is enough"
    least=$(message_mib no.log memory-needed level=error | cut -d. -f1)
    [ -n "$least" ] || { cat no.log; fail "the smallest limit is not named"; }
    for at in fresh cached; do
        ranks $n python3 peak.py small "$WEFT" train small.yaml "${keys[@]}" --set out=runs/small.$n.$2.$at --set memory.limit=$((least + 1))MiB || { cat small.log; fail "$at latents: with the smallest limit, $((least + 1)) MiB"; }
        most=$(most_kib small)
        echo "$n rank(s), $2, $at latents: a limit of $(((least + 1) * 1024)) KiB, a peak of $most KiB"
        case $WEFT_BUILD in
        */asan | */tsan) ;;
        *) [ "$most" -le $(((least + 1) * 1024)) ] || { cat small.log; fail "the peak is above the limit"; } ;;
        esac
    done
}
for n in 1 2; do
    for offload in none auto; do check "a_small_model_keeps_its_limit_on_${n}_ranks_$offload" a_small_model_keeps_its_limit $n $offload; done
done
# The report names the largest peak of all pipeline ranks, here the second rank's.
the_largest_stage_of_a_pipeline_counts() {
    keys=(--set out=runs/pipe --set data.latents=latents.pipe --set parallel.pp=2 --set parallel.schedule=zero-bubble --set parallel.microbatches=4 --set stages.1.batch=4)
    ranks 2 "$WEFT" train wide.yaml "${keys[@]}" --set memory.limit=1MiB >no.log 2>&1 && fail "1 MiB is enough"
    least=$(message_mib no.log memory-needed level=error | cut -d. -f1)
    ranks 2 python3 peak.py pipe "$WEFT" train wide.yaml "${keys[@]}" --set memory.limit=$((least + 1))MiB || { cat pipe.log; fail "a pipeline with the smallest limit, $((least + 1)) MiB"; }
    most=$(most_mib pipe)
    case $WEFT_BUILD in
    */asan | */tsan) ;;
    *) [ "$most" -le $((least + 1)) ] || { cat pipe.log; fail "a pipeline: a limit of $((least + 1)) MiB, a peak of $most MiB"; } ;;
    esac
}
check the_largest_stage_of_a_pipeline_counts
# If encoding latents needs more memory than the steps, the error names the encoding.
latents_that_take_most_are_named() {
    "$WEFT" train wide.yaml --set out=runs/no --set data.latents=fresh --set memory.limit=30MiB --set stages.0.batch=1 --set stages.1.batch=1 --set transformer.config.num_layers=1 --set transformer.config.num_attention_heads=1 --set transformer.config.ffn_dim=32 >no.log 2>&1 && fail "30 MiB are enough"
    has_message no.log memory-needed level=error "text~=30.00 MiB" "text~=latent encoding" || fail "the latents are not named"
}
check latents_that_take_most_are_named
finish

#!/bin/bash
# Pipeline stages do not change the results. Every schedule, alone and with other axes, has the
# losses and gradient norms of one rank (1e-5) and exports the same tensors; a repeated run is
# bitwise identical. For every model family, two stages update every tensor as one rank does
# (same_updates.py). A run resumes from two stages on one rank, and back. Invalid stages and
# schedules are refused with a valid value.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
cat >pipe.yaml <<'Y'
out: runs/whole
autoencoder: {weights: runs/vae/model/vae}
data: {path: shards, latents: latents}
transformer: {class: WanTransformer3DModel, config: {num_layers: 7, num_attention_heads: 2, attention_head_dim: 12, ffn_dim: 46, freq_dim: 32}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}}]
optimizer: {ema_decay: 0.9}
checkpoint: {interval: 0}
stages: [{steps: 8, batch: 6, frames: 9, height: 32, width: 32, lr: 2e-3, warmup_steps: 2, lr_schedule: constant}]
Y
"$WEFT" train pipe.yaml >whole.log 2>&1 || { cat whole.log; fail "one rank"; }
matches_one_rank() { # RUN: losses, gradient norms and tensors are those of one rank
    paste <(losses runs/whole) <(losses "runs/$1") | awk '
        function off(a, b) {return (a > b ? a - b : b - a) > 1e-5 * (a > 0 ? a : -a)}
        $1 != $4 || off($2, $5) || off($3, $6) {print; bad = 1} END {exit bad || NR != 8}' || fail "$1: losses or gradient norms differ from one rank"
    for part in transformer text_encoder; do
        diff <("$WEFT" inspect model runs/whole/model/$part --tensors) <("$WEFT" inspect model "runs/$1/model/$part" --tensors) ||
            fail "$1: other tensors in $part"
    done
}
pipe() { # RANKS NAME DEGREES...
    local n=$1 name=$2 options=()
    shift 2
    for o in "$@"; do options+=(--set "parallel.$o"); done
    ranks "$n" "$WEFT" train pipe.yaml --set "out=runs/$name" "${options[@]}" >"$name.log" 2>&1 || { cat "$name.log"; fail "$name"; }
    matches_one_rank "$name"
}
# An autoencoder has no blocks. train, inspect and simulate name the axes that split its training.
an_autoencoder_has_no_stages() {
    refuses() { "$@" >no.log 2>&1 && fail "accepted: $*"; has_message no.log layout-invalid file=vae.yaml key=parallel.pp 'text~=dp=2 or fsdp=2' || fail "$*"; }
    refuses ranks 2 "$WEFT" train vae.yaml --set out=runs/no --set parallel.pp=2
    refuses "$WEFT" inspect graph vae.yaml --set parallel.pp=2
    refuses "$WEFT" simulate vae.yaml --set parallel.pp=2 --on v100:2
}
check an_autoencoder_has_no_stages
two_stages_are_one_rank() {
    pipe 2 plain pp=2
    has_message plain.log stage-report text~=pp=1 || fail "the degree of pp is not reported"
    has_message plain.log stage-report "text~=stage 0" text~=pipeline || fail "the waits of the pipeline are not reported"
}
check two_stages_are_one_rank
# Again, with the trace of the last step: tasks in the order of the schedule, kernels, sends and
# waits.
a_repeated_run_is_bitwise_identical() {
    needs two_stages_are_one_rank
    ranks 2 "$WEFT" train pipe.yaml --set out=runs/again --set parallel.pp=2 --set trace=true >again.log 2>&1 || { cat again.log; fail "trace: true"; }
    python3 -S - <<'PY' || fail "the trace"
import json
for rank in (0, 1):
    events = [e for e in json.load(open(f"runs/again/trace-0-{rank}.json"))["traceEvents"] if e["ph"] == "X"]
    own = [e for e in events if e["pid"] == rank]
    tasks = [e for e in own if e["tid"] == 3 and not e["name"].startswith("wait")]
    assert [e["name"] for e in tasks[-2:]] == ["sums over stages", "update"], tasks[-2:]
    names = [f"{e['name'][0]}{e['name'].split()[-1]}" for e in tasks[:-2]]
    assert all(f"of stage {rank}," in e["name"] for e in tasks[:-2])
    assert names == (["F0", "F1", "B0", "F2", "B1"] if rank == 0 else ["F0", "B0", "F1", "B1", "F2"]) + names[5:], names
    assert len(names) == 2 * 6, names
    kernels = sorted((e["ts"], e["ts"] + e["dur"]) for e in own if e["tid"] == 0)
    assert all(a[1] <= b[0] + 0.01 for a, b in zip(kernels, kernels[1:])), "kernels overlap"
    sends = [e for e in own if e["cat"] == "send" and e["tid"] == 2]
    assert len(sends) >= 6 and all(e["name"].startswith("send of the gradient of value" if rank else "send of value") for e in sends), sends
    assert any(e["name"].startswith("wait: receive of microbatch") for e in own if e["tid"] == 0)
PY
    cmp runs/plain/model/transformer/*.safetensors runs/again/model/transformer/*.safetensors || fail "the weights of the repeated run differ"
    diff <(losses runs/plain) <(losses runs/again) || fail "the losses of the repeated run differ"
}
check a_repeated_run_is_bitwise_identical
check zero_bubble pipe 3 bubble pp=3 schedule=zero-bubble microbatches=3
check wave pipe 4 wave pp=2 schedule=wave microbatches=3 zero=2
check interleaved_with_tp pipe 4 split pp=2 tp=2 schedule=interleaved microbatches=2 "order=[tp, pp]"
cat >table.csv <<'Y'
0F0,0F1,0F2,0B0,0B1,,0B2
,1F0,1B0,1F1,1B1,1F2,1B2
Y
check table pipe 2 table pp=2 "schedule=table.csv"
# two stages, then one rank, then two stages with another schedule
resume_until() { # RANKS STEPS [OPTIONS...]: starts or resumes runs/parts up to this step
    local n=$1 steps=$2
    shift 2
    ranks "$n" "$WEFT" train pipe.yaml --set out=runs/parts --set stages.0.steps="$steps" "$@" >part.log 2>&1 || { cat part.log; fail "$n ranks, $*"; }
}
another_number_of_stages_resumes() {
    resume_until 2 3 --set parallel.pp=2
    resume_until 1 5
    has_message part.log run-resumed value=3 || fail "did not resume from step 3"
    resume_until 2 8 --set parallel.pp=2 --set parallel.schedule=gpipe
    matches_one_rank parts
}
check another_number_of_stages_resumes
refused() { # ID [FIELD=VALUE...] -- RANKS OPTIONS...
    take_message "$@"
    set -- "${rest[@]}"
    local n=$1
    shift
    ! ranks "$n" "$WEFT" train "$@" --set out=runs/refused >refused.log 2>&1 || fail "$*: not refused"
    has_message refused.log "${wanted[@]}" || fail "$*: another message than expected"
}
refused config-value key=*parallel.microbatches text~=4 'text~=6 samples; use 3' -- 2 pipe.yaml --set parallel.pp=2 --set parallel.microbatches=4
refused layout-invalid key=*parallel.schedule 'text~=multiple of 4' 'text~=(pp=4)' 'text~=6 samples' 'text~=batches of 8' -- 4 pipe.yaml \
    --set parallel.pp=4 --set parallel.schedule=interleaved --set parallel.virtual_stages=2 --set transformer.config.num_layers=9
refused config-value key=*parallel.microbatches 'text~=multiple of 2 (pp=2), and 3' 'text~=use 2' -- 2 pipe.yaml --set parallel.pp=2 --set parallel.schedule=interleaved --set parallel.microbatches=3
refused config-value file=pipe.yaml key=parallel.schedule 'text~=gpipe, 1f1b' -- 2 pipe.yaml --set parallel.pp=2 --set parallel.schedule=1b1f
refused config-conflict file=pipe.yaml key=parallel.virtual_stages text~=1f1b -- 2 pipe.yaml --set parallel.pp=2 --set parallel.virtual_stages=2
refused layout-invalid key=*parallel.virtual_stages 'text~=virtual_stages of at most' -- 2 pipe.yaml --set parallel.pp=2 --set parallel.schedule=interleaved --set parallel.virtual_stages=40
refused '*' 'text~=an autoencoder has no blocks' -- 2 vae.yaml --set parallel.pp=2
printf '0F0,0B0\n1F0,1F1,1B0,1B1\n' >short.csv
refused '*' text~=short.csv: text~=tasks -- 2 pipe.yaml --set parallel.pp=2 --set parallel.schedule=short.csv
# A file that is not a schedule: the message has the key and the remedy. A key that has no effect
# with one stage is an error.
echo '{"a": 1}' >wrong.json
echo '0F0,0B0,hello' >wrong.csv
for file in wrong.json wrong.csv short.csv; do
    refused '*' "text~=pipe.yaml: parallel.schedule: $file:" 'text~=`weft plan pipeline --out`' 'text~=zero-bubble' -- 2 pipe.yaml --set parallel.pp=2 --set parallel.schedule=$file
done
refused config-value file=pipe.yaml key=parallel.schedule value=bogus 'text~=gpipe, 1f1b' -- 1 pipe.yaml --set parallel.schedule=bogus
refused config-no-effect file=pipe.yaml key=parallel.schedule text~=parallel.pp -- 1 pipe.yaml --set parallel.schedule=gpipe
refused json-value file=wrong.json key=format 'text~=pipe.yaml: parallel.schedule' -- 1 pipe.yaml --set parallel.schedule=wrong.json
refused config-no-effect file=pipe.yaml key=parallel.virtual_stages -- 1 pipe.yaml --set parallel.virtual_stages=2
for command in estimate "inspect graph"; do
    # shellcheck disable=SC2086 # two words
    ! "$WEFT" $command pipe.yaml --set parallel.schedule=bogus >refused.log 2>&1 || fail "$command accepts a schedule that does not exist"
    has_message refused.log config-value key=parallel.schedule value=bogus || fail "$command: a schedule that does not exist"
done
# the weights of every family, and of one with schedules and other axes
write_update_config
stages_of() { # CONFIG [OPTIONS...]
    one_rank "$@"
    same_updates "$1" 2 pp "${@:2}" --set parallel.pp=2
}
check update stages_of update
check zero_and_wave same_updates update 4 zero --set parallel.pp=2 --set parallel.zero=2 --set parallel.schedule=wave --set transformer.config.num_layers=2
check tp_and_pp same_updates update 4 tp --set parallel.pp=2 --set parallel.tp=2
each_family update.yaml stages_of
finish

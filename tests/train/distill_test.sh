#!/bin/bash
# Step distillation: a stopped run resumes bitwise, and ranks have the losses of one. The finished
# model generates in few steps with its own scheduler. tests/train/graph/distillation_test.c compares
# the steps with PyTorch.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
"$WEFT" train dit.yaml --set stages.0.steps=4 --set stages.1.steps=1 >dit.log 2>&1 || { cat dit.log; fail "weft train dit"; }
cat >distill.yaml <<'Y'
out: runs/distill
autoencoder: {weights: runs/vae/model/vae}
data: {path: shards, latents: latents}
transformer: {weights: runs/dit/model/transformer}
text_encoders: [{weights: runs/dit/model/text_encoder}]
distill: {method: lcm, guidance: 3}
checkpoint: {interval: 2, keep_latest: 2}
stages:
  - {steps: 4, batch: 4, frames: 9, height: 32, width: 32, lr: 2e-3, warmup_steps: 0, lr_schedule: constant}
Y
train() { # NAME OPTIONS...
    local name=$1
    shift
    "$WEFT" train distill.yaml --set out=runs/$name "$@" >$name.log 2>&1 || { cat $name.log; fail "weft train distill.yaml $*"; }
}
stem=diffusion_pytorch_model.safetensors
resumes_bitwise() { # NAME FILE... -- OPTIONS...
    local name=$1 file files=()
    shift
    while [ "$1" != -- ]; do files+=("$1") && shift; done
    shift
    train $name "$@"
    train $name-half "$@" --set stages.0.steps=2
    train $name-half "$@"
    has_message $name-half.log run-resumed value=2 || fail "$name did not resume from step 2"
    for file in "${files[@]}"; do
        cmp runs/$name/$file runs/$name-half/$file || fail "$name: $file differs after resuming"
    done
}
same_losses() { # NAME RANKS OPTIONS...
    local name=$1 n=$2
    shift 2
    rm -rf runs/ranks
    ranks $n "$WEFT" train distill.yaml --set out=runs/ranks "$@" >ranks.log 2>&1 || { cat ranks.log; fail "$*"; }
    paste <(losses runs/$name) <(losses runs/ranks) | awk '
        function off(a, b, by) {return (a > b ? a - b : b - a) > by * (a > 0 ? a : -a)}
        off($2, $5, 1e-5) || off($3, $6, 1e-4) {print; bad = 1} END {exit bad || NR != 4}' || fail "$*: losses differ from one rank"
}
video() { # NAME OPTIONS...
    local name=$1
    shift
    "$WEFT" generate --prompt "a red circle" --seed 3 --frames-npy --out $name.mp4 "$@" >generate.log 2>&1 ||
        { cat generate.log; fail "weft generate $*"; }
}
generated_with() { # STEPS SAMPLER GUIDANCE
    has_message generate.log job-report "text~=$1 steps of $2, guidance $3;" || { cat generate.log; fail "the video has other settings than $*"; }
}

target="--set distill.target_decay=0.9"
check consistency resumes_bitwise lcm model/transformer/$stem checkpoints/step-00000004/target/$stem -- $target
check consistency_over_dp same_losses lcm 2 $target --set parallel.dp=2 --set parallel.zero=2
check consistency_over_fsdp same_losses lcm 2 $target --set parallel.fsdp=2
check consistency_in_two_batches same_losses lcm 1 $target --set stages.0.batch=2 --set stages.0.gradient_accumulation_steps=2
the_model_has_its_sampler() {
    needs consistency
    grep -q '"FlowMatchLCMScheduler"' runs/lcm/model/scheduler/scheduler_config.json || fail "the scheduler has another class"
    grep -q '"steps": 4' runs/lcm/model/weft.json || fail "weft.json has no steps"
    [ ! -e runs/lcm/model/target ] && [ ! -e runs/lcm/model/teacher ] || fail "the finished model has other networks"
    video lcm --model runs/lcm/model
    generated_with 4 consistency 1
    has_message generate.log own-settings file=runs/lcm/model "text~=--steps 4" || fail "the settings of the model are not printed"
    video given --model runs/lcm/model --steps 4 --guidance 1
    has_message generate.log own-settings && fail "settings that are given are printed as the model's"
    cmp lcm.npy given.npy || fail "the same settings give another video"
    video euler --model runs/lcm/model --sampler euler --guidance 2
    generated_with 4 euler 2
    video more --model runs/lcm/model --steps 5
    generated_with 5 consistency 1
    for each in "" "--steps 4 --guidance-scale 1" "--steps 5"; do
        "$WEFT" estimate --model runs/lcm/model --json $each >"estimate$each.json" 2>estimate.log || { cat estimate.log; fail "weft estimate $each"; }
    done
    cmp estimate.json "estimate--steps 4 --guidance-scale 1.json" || fail "the estimate has other steps"
    ! cmp -s estimate.json "estimate--steps 5.json" || fail "the estimate does not depend on the steps"
}
check the_model_has_its_sampler

lora="--set transformer.lora.rank=4"
check consistency_with_lora resumes_bitwise lora adapter/pytorch_lora_weights.safetensors -- $lora
check consistency_with_lora_over_tp same_losses lora 2 $lora --set parallel.tp=2
the_adapter_has_its_sampler() {
    needs consistency_with_lora
    video lora --model runs/dit/model --lora runs/lora/adapter
    generated_with 4 consistency 1
    has_message generate.log own-settings file=runs/lora/adapter || fail "the settings of the adapter are not printed"
    video lora-given --model runs/dit/model --lora runs/lora/adapter --sampler consistency --steps 4 --guidance 1
    cmp lora.npy lora-given.npy || fail "the same settings give another video"
    video lora-euler --model runs/dit/model --lora runs/lora/adapter --sampler euler --steps 2 --guidance 3
    generated_with 2 euler 3
    video base --model runs/dit/model
    generated_with 30 euler 4
    # other formats have the settings, too; an adapter counts before a distilled model
    for format in peft kohya; do
        "$WEFT" convert runs/lora/adapter $format --lora-format $format --config runs/dit/model/transformer >convert.log 2>&1 || { cat convert.log; fail "weft convert"; }
        video $format --model runs/dit/model --lora $format
        generated_with 4 consistency 1
    done
}
check the_adapter_has_its_sampler

match="--set distill.method=dmd2 --set distill.student_steps=3 --set distill.generator_interval=3"
check matching resumes_bitwise dmd model/transformer/$stem checkpoints/step-00000004/fake/$stem -- $match
check matching_over_dp same_losses dmd 2 $match --set parallel.dp=2
the_matched_model_has_its_steps() {
    needs matching
    [ ! -e runs/dmd/model/fake ] || fail "the finished model has other networks"
    python3 -S -c 'import json
for line in open("runs/dmd/metrics.jsonl"):
    d = json.loads(line); assert d["fake"] > 0 and d["fake_norm"] > 0, d' || fail "metrics.jsonl has no fake score"
    video dmd --model runs/dmd/model
    generated_with 3 consistency 1
}
check the_matched_model_has_its_steps
matching_updates_the_student_in_its_steps() {
    needs matching
    # steps 1 and 2 change the fake score only
    cmp runs/dmd/checkpoints/step-00000002/transformer/$stem runs/dit/model/transformer/$stem && fail "step 0 did not change the student"
    train dmd-one $match --set stages.0.steps=1
    cmp runs/dmd-one/model/transformer/$stem runs/dmd/checkpoints/step-00000002/transformer/$stem || fail "the student changed in step 1"
    ! cmp -s runs/dmd-one/checkpoints/step-00000001/fake/$stem runs/dmd/checkpoints/step-00000002/fake/$stem || fail "the fake score did not change in step 1"
}
check matching_updates_the_student_in_its_steps

# Configs of versions that drew other levels lack distill.fake_weights. Format 1 has no checksum of the state.
earlier_levels_are_reported() {
    local run resolution="--set flow.shift_by_resolution=true"
    train dmd-even $match --set stages.0.steps=2
    train dmd-shifted $match $resolution --set stages.0.steps=2
    for run in even shifted; do
        cp -r runs/dmd-$run runs/dmd-$run-before
        python3 -S - runs/dmd-$run-before/checkpoints/step-00000002 <<'PY' || fail "writing a config of an earlier version"
import json, re, sys
folder = sys.argv[1]
config = open(folder + "/config.yaml").read()
assert re.search(r"\n *fake_weights:", config)
open(folder + "/config.yaml", "w").write(re.sub(r"\n *fake_weights:[^\n]*", "", config))
state = json.load(open(folder + "/state.json"))
state["format"] = 1
del state["self"], state["checksums"]["config.yaml"]
json.dump(state, open(folder + "/state.json", "w"))
PY
    done
    train dmd-even-before $match --set stages.0.steps=3
    train dmd-shifted $match $resolution --set stages.0.steps=3
    train dmd-shifted-before $match $resolution --set stages.0.steps=3
    for run in even-before shifted; do
        [ "$(count_messages dmd-$run.log run-changed key=distill.method)" = 0 ] || fail "$run: other levels are reported"
    done
    has_message dmd-shifted-before.log run-changed level=info key=distill.method || { cat dmd-shifted-before.log; fail "no notice of other levels"; }
}
check earlier_levels_are_reported

the_matched_adapter_is_the_students() {
    train dmd-lora $match $lora
    video dmd-lora --model runs/dit/model --lora runs/dmd-lora/adapter
    generated_with 3 consistency 1
}
check the_matched_adapter_is_the_students

# A teacher with more layers than the student, and a fake score of the student's size.
"$WEFT" train dit.yaml --set out=runs/large --set transformer.config.num_layers=3 --set stages.0.steps=1 --set stages.1.steps=1 >large.log 2>&1 || { cat large.log; fail "weft train large"; }
apart="$match --set distill.teacher=runs/large/model/transformer --set distill.fake_weights=runs/dit/model/transformer"
check larger_teacher resumes_bitwise apart model/transformer/$stem checkpoints/step-00000004/fake/$stem -- $apart
check larger_teacher_over_fsdp same_losses apart 2 $apart --set parallel.fsdp=2
check larger_teacher_with_lora resumes_bitwise apart-lora adapter/pytorch_lora_weights.safetensors -- $apart $lora
the_teacher_counts() {
    needs matching larger_teacher
    cmp -s runs/dmd/model/transformer/$stem runs/apart/model/transformer/$stem && fail "the teacher has no effect"
    "$WEFT" train distill.yaml --set out=runs/apart $apart --set distill.teacher=runs/dit/model/transformer --set stages.0.steps=5 >out.log 2>&1 && fail "another teacher after a stop"
    has_message out.log checkpoint-mismatch || { cat out.log; fail "another teacher: another message than expected"; }
}
check the_teacher_counts
# Teacher and fake score of a family whose layers with LoRA have other names.
a_teacher_of_another_family() {
    sed 's/class: WanTransformer3DModel/class: STDiT3/; s/  config: {num_layers: 2, num_att.*/  config: {depth: 2, num_heads: 2, hidden_size: 32, pred_sigma: false}/' dit.yaml >stdit3.yaml
    "$WEFT" train stdit3.yaml --set out=runs/stdit3 --set stages.0.steps=1 --set stages.1.steps=1 >stdit3.log 2>&1 || fail_with stdit3.log "weft train stdit3"
    resumes_bitwise family adapter/pytorch_lora_weights.safetensors -- $match $lora --set distill.teacher=runs/stdit3/model/transformer
    # layers in the checkpoints of another model
    "$WEFT" train distill.yaml --set out=runs/family $match $lora --set transformer.weights=runs/stdit3/model/transformer >other.log 2>&1 && fail "checkpoints of another family"
    has_message other.log config-value key=out || fail_with other.log "checkpoints of another family: another message than expected"
}
check a_teacher_of_another_family

# Two experts: each adapter is distilled in its range of levels, and both generate together.
a_pair_of_experts() {
    local each
    train high $match $lora --set distill.student_steps=4 --set flow.shift=3 --set timestep_min=0.7 --set stages.0.steps=2
    train low $match $lora --set distill.student_steps=4 --set flow.shift=3 --set timestep_max=0.7 --set stages.0.steps=2
    cp -r runs/dit/model pair
    cp -r pair/transformer pair/transformer_2
    sed -i 's/"_class_name"/"boundary_ratio": 0.7, "_class_name"/' pair/model_index.json
    video pair --model pair --lora transformer=runs/high/adapter --lora transformer_2=runs/low/adapter
    generated_with 4 consistency 1
    video one --model pair --lora transformer=runs/high/adapter
    ! cmp -s pair.npy one.npy || fail "the adapter of the low-noise expert has no effect"
    for each in "--set timestep_min=0.7 euler" "--set timestep_max=0.7 consistency"; do
        train lcm-expert ${each% *} --set stages.0.steps=1
        video lcm-expert --model runs/lcm-expert/model
        generated_with 4 ${each##* } 1
        rm -r runs/lcm-expert
    done
}
check a_pair_of_experts

refuse() { # ID [FIELD=VALUE...] -- OPTIONS...
    take_message "$@"
    set -- "${rest[@]}"
    "$WEFT" train distill.yaml --set out=runs/refused "$@" >out.log 2>&1 && fail "$*: not refused"
    has_message out.log "${wanted[@]}" || { cat out.log; fail "$*: another message than expected"; }
}
refusals() {
    cp -r runs/dit/model/transformer narrow
    sed -i 's/"text_dim": 16/"text_dim": 12/' narrow/config.json
    refuse config-conflict file=distill.yaml key=process value=edm -- --set process=edm
    refuse config-conflict file=distill.yaml key=parallel.pp -- --set parallel.pp=2
    refuse config-conflict file=distill.yaml key=distill.target_decay -- $lora $target
    refuse config-no-effect file=distill.yaml key=distill.target_decay -- $match $target
    refuse config-conflict file=distill.yaml key=text_encoders -- --set text_encoders.0.train=true
    refuse config-conflict file=distill.yaml key=flow.weighting -- --set flow.weighting=cosmap
    refuse config-value key=distill.student_steps value=3 -- $match --set timestep_min=0.2 --set timestep_max=0.4
    refuse config-missing-key file=distill.yaml key=transformer.weights -- --set transformer.weights= --set transformer.class=WanTransformer3DModel
    refuse config-no-effect file=distill.yaml key=distill -- --set distill.method=none
    refuse config-no-effect file=distill.yaml key=distill.fake_weights -- --set distill.fake_weights=runs/large/model/transformer
    refuse config-conflict key=distill.teacher -- --set distill.teacher=narrow
    refuse config-value key=*distill.method text~=dmd2 -- --set distill.method=dmx
    refuse config-value key=*distill.solver_steps text~=0 -- --set distill.solver_steps=0
    "$WEFT" train vae.yaml --set out=runs/refused --set distill.method=lcm >out.log 2>&1 && fail "an autoencoder is distilled"
    has_message out.log config-no-effect file=vae.yaml key=distill.method || fail "another message than expected"
}
check refusals
finish

#!/bin/bash
# Self-forcing: causal Wan is distilled on videos that it generates block by block, with a Wan as teacher and fake score. A stopped run
# resumes bitwise, ranks have the losses of one, and the finished model generates. tests/train/graph/distillation_test.c compares the
# steps with PyTorch.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
"$WEFT" train dit.yaml --set stages.0.steps=4 --set stages.1.steps=1 >dit.log 2>&1 || { cat dit.log; fail "weft train dit"; }
# The student begins with the weights of the teacher.
cp -r runs/dit/model/transformer causal
python3 -S - <<'PY' || fail "the student's config"
import json
config = json.load(open("causal/config.json"))
config.update(_class_name="CausalWanTransformer3DModel", num_frames_per_block=1, local_attn_size=2)
json.dump(config, open("causal/config.json", "w"))
PY
cat >full.yaml <<'Y'
out: runs/full
autoencoder: {weights: runs/vae/model/vae}
data: {path: shards, latents: latents}
transformer: {weights: causal}
text_encoders: [{weights: runs/dit/model/text_encoder}]
distill:
  method: self_forcing
  teacher: runs/dit/model/transformer
  guidance: 3
  student_steps: 2
  generator_interval: 2
  context_noise: 100
checkpoint: {interval: 2, keep_latest: 2}
stages:
  - {steps: 4, batch: 4, frames: 9, height: 32, width: 32, lr: 2e-3, warmup_steps: 0, lr_schedule: constant}
Y
sed 's/weights: causal}/weights: causal, lora: {rank: 4}}/' full.yaml >lora.yaml
stem=diffusion_pytorch_model.safetensors
full() {
    resumes_bitwise full
    cmp runs/full/checkpoints/step-00000004/fake/$stem runs/full-half/checkpoints/step-00000004/fake/$stem || fail "the fake score differs after resuming"
    [ ! -e runs/full/model/fake ] && [ ! -e runs/full/model/teacher ] || fail "the finished model has other networks"
    python3 -S -c 'import json
for line in open("runs/full/metrics.jsonl"):
    d = json.loads(line); assert d["fake"] > 0 and d["fake_norm"] > 0, d' || fail "metrics.jsonl has no fake score"
}
check full
# States of earlier versions have no teacher in the provenance. Format 1 has no checksum of the state.
state_with() { # TEACHER: in the provenance of runs/earlier; empty: none
    rm -rf runs/earlier
    cp -r runs/full runs/earlier
    rm -r runs/earlier/model runs/earlier/checkpoints/step-00000004
    python3 -S - "$1" <<'PY' || fail "rewriting state.json"
import json, sys
path = "runs/earlier/checkpoints/step-00000002/state.json"
state = json.load(open(path))
state["format"] = 1
del state["self"], state["provenance"]["teacher"]
if sys.argv[1]:
    state["provenance"]["teacher"] = sys.argv[1]
json.dump(state, open(path, "w"))
PY
}
an_earlier_state_resumes() {
    needs full
    state_with 0123456789abcdef
    "$WEFT" train full.yaml --set out=runs/earlier >other.log 2>&1 && fail "another teacher was accepted"
    has_message other.log checkpoint-mismatch text~=distill.teacher || { cat other.log; fail "the error"; }
    state_with ""
    train full earlier
    has_message earlier.log run-resumed value=2 || fail "did not resume from step 2"
    cmp runs/full/model/transformer/$stem runs/earlier/model/transformer/$stem || fail "the model differs"
}
check an_earlier_state_resumes
with_lora() {
    train lora lora
    train lora lora-half --set stages.0.steps=2
    train lora lora-half
    cmp runs/lora/adapter/pytorch_lora_weights.safetensors runs/lora-half/adapter/pytorch_lora_weights.safetensors ||
        fail "the adapter differs after resuming"
}
check with_lora
over_dp() { layout full 2 --set parallel.dp=2 --set parallel.zero=2; }
over_fsdp() { layout full 2 --set parallel.fsdp=2; }
over_tp() { layout full 2 --set parallel.tp=2; }
over_cp() { layout full 2 --set parallel.cp=2; }
over_ring() { layout full 2 --set parallel.cp=2 --set parallel.context=ring; }
for axis in dp fsdp tp cp ring; do check over_$axis; done
generates() {
    needs full
    "$WEFT" generate --model runs/full/model --prompt "a red circle" --frames 9 --height 32 --width 32 --out full.mp4 \
        >generate.log 2>&1 || { cat generate.log; fail "weft generate with the finished model"; }
    has_message generate.log own-settings "text~=--steps 2," || fail "the steps of the model are not printed"
    grep -q '"context_noise": 100' runs/full/model/weft.json || fail "the finished model has no context noise"
    grep -q '"FlowMatchLCMScheduler"' runs/full/model/scheduler/scheduler_config.json || fail "the scheduler has another class"
    needs with_lora
    mkdir base
    cp -r runs/full/model/. base
    cp causal/* base/transformer
    "$WEFT" generate --model base --lora runs/lora/adapter --prompt "a red circle" --frames 9 \
        --height 32 --width 32 --out lora.mp4 >generate.log 2>&1 || { cat generate.log; fail "weft generate with the adapter"; }
}
check generates
refuse() { # ID [FIELD=VALUE...] -- OPTIONS...
    take_message "$@"
    set -- "${rest[@]}"
    "$WEFT" train full.yaml --set out=runs/refused "$@" >out.log 2>&1 && fail "$*: not refused"
    has_message out.log "${wanted[@]}" || { cat out.log; fail "$*: another message than expected"; }
}
refusals() {
    refuse config-missing-key key=distill.teacher -- --set distill.teacher=
    refuse config-conflict key=distill.teacher -- --set distill.teacher=causal
    refuse config-conflict key=distill.method value=self_forcing -- --set transformer.weights=runs/dit/model/transformer
    refuse config-conflict key=timestep_max -- --set timestep_max=0.5
    refuse config-conflict key=condition -- --set condition=clean_blocks
    refuse config-conflict key=distill.fake_weights -- --set distill.fake_weights=causal
    refuse config-no-effect key=distill.context_noise -- --set distill.method=dmd2
    refuse config-no-effect key=distill.fake_weights -- --set distill.method=lcm --set distill.context_noise=0 --set distill.fake_weights=causal
}
check refusals
finish

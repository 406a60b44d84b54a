#!/bin/bash
# memory.offload and memory.states: what lies in a file for a while changes no bit of a run, with and without what is made
# again, on two ranks, over two contributions and through stages; the file has no name; a folder without room is told before the first step.
source "$SRC/tests/train/common.sh"
make_shards
write_configs
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
cat >wide.yaml <<'Y'
out: runs/all
autoencoder: {weights: runs/vae/model/vae}
data: {path: shards, latents: latents}
transformer: {class: WanTransformer3DModel, config: {num_layers: 4, num_attention_heads: 4, attention_head_dim: 32, ffn_dim: 512, freq_dim: 32}}
text_encoders: [{class: WeftBytesEncoder, config: {dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}}]
stages:
  - {steps: 2, batch: 16, frames: 9, height: 64, width: 64, lr: 1e-3, warmup: 0}
Y
told() { sed -n 's/^memory[^:]*: at most \([0-9]*\)\.[0-9]* MiB.*/\1/p' "$1"; }
try() { # NAME RANKS SETTINGS...: a run, which is that of the same without memory.*
    local name=$1 ranks=$2
    shift 2
    ranks "$ranks" "$WEFT" train wide.yaml --set out=runs/$name "$@" >$name.log 2>&1 || { cat $name.log; fail "$name"; }
    [ -z "$(find away runs/$name -name '.weft-scratch*' 2>/dev/null)" ] || fail "$name leaves files"
}
"$WEFT" train wide.yaml >all.log 2>&1 || { cat all.log; fail "without a limit"; }
limit=$(($(told all.log) - 25))
try file 1 --set memory.limit=${limit}MiB --set memory.recompute=none --set memory.offload=away
grep -q "memory.limit: stage 0 keeps .* moves .* away and back" file.log || { cat file.log; fail "what is moved is not told"; }
grep -q "stage 0: .* were moved away and .* hidden behind the kernels" file.log || { cat file.log; fail "what was hidden is not told"; }
[ "$(told file.log)" -le "$limit" ] || { cat file.log; fail "told more than $limit MiB"; }
diff <(losses runs/all) <(losses runs/file) || fail "what is moved away changes the run"
try both 1 --set memory.limit=${limit}MiB --set memory.offload=auto --set memory.states=offload --set trace=true
diff <(losses runs/all) <(losses runs/both) || fail "states elsewhere change the run"
grep -q '"fetch' runs/both/trace-0-0.json || fail "the trace shows no copies"
grep -q "elsewhere" both.log || { cat both.log; fail "what is elsewhere is not told"; }
# where all cores compute, a copy takes one of them: what is quickly made again is not moved, unless kernels were seen to lose little (others use the machine, too)
mkdir -p away
OMP_NUM_THREADS=$(nproc) "$WEFT" inspect graph wide.yaml --set memory.limit=${limit}MiB --set memory.offload=away >shared.log 2>&1 || { cat shared.log; fail "inspect"; }
lost=$(sed -n 's/^memory.limit: .* of which kernels lose \([0-9]*\) %.*/\1/p' shared.log)
grep -q "memory.limit: stage 0 keeps .* makes .* again in the backward" shared.log || [ "${lost:-100}" -lt 50 ] || { cat shared.log; fail "copies are told to be free on the cores that compute"; }
for how in "--set parallel.fsdp=2" "--set stages.0.accumulate=2 --set stages.0.batch=16" "--set parallel.pp=2 --set parallel.microbatches=2"; do
    try plain 2 $how
    [[ $how = *pp=* ]] || grep -q "stage 0: this rank sent .* exchanges took .* hidden behind" plain.log || { cat plain.log; fail "$how: exchanges are not told"; }
    try two 2 $how --set memory.offload=away --set memory.states=offload
    diff <(losses runs/plain) <(losses runs/two) || fail "$how: states elsewhere make another run"
    least=$(($(told two.log) - 3))
    try three 2 $how --set memory.limit=${least}MiB --set memory.offload=away --set memory.states=offload --set memory.ahead=512KiB
    grep -q "memory.limit: stage 0 keeps" three.log || { cat three.log; fail "$how: nothing goes"; }
    echo "$how: $(told plain.log) MiB, states elsewhere $(told two.log), limit $least, then $(told three.log)"
    diff <(losses runs/two) <(losses runs/three) || fail "$how: another run"
    rm -rf runs/plain runs/two runs/three
done
# what stages keep for their backwards leaves their records for the file, and nothing of it is made again
for schedule in 1f1b zero-bubble wave; do
    how="--set parallel.pp=2 --set parallel.microbatches=4 --set parallel.schedule=$schedule"
    try plain 2 $how
    least=$(($(told plain.log) - 4))
    try moved 2 $how --set memory.limit=${least}MiB --set memory.recompute=none --set memory.offload=away
    grep -q "memory.limit: stage 0 keeps .* moves .* away and back" moved.log || { cat moved.log; fail "$schedule: what is moved is not told"; }
    grep -q "stage 0: .* were moved away and .* hidden behind the kernels" moved.log || { cat moved.log; fail "$schedule: nothing was moved"; }
    [ "$(told moved.log)" -le "$least" ] || { cat moved.log; fail "$schedule: told more than $least MiB"; }
    predicted=$(sed -n 's/^memory.*stage 0 \([0-9.]* .iB\) and batches .* elsewhere.*/\1/p' moved.log)
    reserved=$(sed -n 's/^stage 0.*, program \(.* .iB\), weights.*/\1/p' moved.log)
    [ -n "$predicted" ] && [ "$predicted" = "$reserved" ] || { cat moved.log; fail "$schedule: told '$predicted', reserved '$reserved'"; }
    echo "$schedule: $(told plain.log) MiB, limit $least, then $(told moved.log); $(grep -o 'stage 0: .* were moved away.*' moved.log)"
    diff <(losses runs/plain) <(losses runs/moved) || fail "$schedule: another run"
    rm -rf runs/plain runs/moved
done
"$WEFT" train wide.yaml --set out=runs/no --set memory.limit=${limit}MiB --set memory.offload=host >no.log 2>&1 && fail "host on cpu"
grep -q "memory.offload: host: backend cpu computes in the host's memory" no.log || { cat no.log; fail "host is not refused"; }
"$WEFT" train wide.yaml --set out=runs/no --set memory.offload=away >no.log 2>&1 && fail "offload without a limit"
grep -q "nothing has to go without memory.limit" no.log || { cat no.log; fail "no limit is not told"; }
"$WEFT" train wide.yaml --set out=runs/no --set memory.profile=none.json >no.log 2>&1 && fail "a profile without a limit"
grep -q "memory.profile: none.json chooses what is made again below memory.limit" no.log || { cat no.log; fail "a profile without a limit is not told"; }
if mkdir -p small && mount -t tmpfs -o size=4m none small 2>/dev/null; then
    "$WEFT" train wide.yaml --set out=runs/no --set memory.states=offload --set memory.offload="$PWD/small" --set transformer.config.ffn_dim=4096 >no.log 2>&1
    code=$?
    "$WEFT" train wide.yaml --set out=runs/no --set memory.limit=${limit}MiB --set memory.offload="$PWD/small" >measured.log 2>&1
    measured=$?
    umount small
    [ $measured -ne 0 ] && grep -q "4.00 MiB are free. So much is copied to see how fast that is" measured.log || { cat measured.log; fail "what the room is for is not told"; }
    [ $code -ne 0 ] || fail "4 MiB are enough"
    grep -q "there is no room for the .* that are moved there: .* are free" no.log || { cat no.log; fail "a full disk is not told"; }
    grep -q '^step' no.log && fail "a step was made"
fi
exit 0

#!/bin/bash
# A start that fails before its first step removes the folder that it created, removes nothing from
# a folder that existed before, and keeps latents that are complete.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
"$WEFT" train vae.yaml --set stages.0.steps=1 >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
python3 -S - <<'PY'
import json, os, shutil, struct
file = "diffusion_pytorch_model.safetensors"
data = open("runs/vae/model/vae/" + file, "rb").read()
n = struct.unpack("<Q", data[:8])[0]
key = "encoder.down_blocks.0.conv1.weight"
for damage in ("nan", "name", "checksum"):
    shutil.copytree("runs/vae/model/vae", damage)
    head, body = json.loads(data[8:8 + n]), bytearray(data[8 + n:])
    at = head[key]["data_offsets"][0]
    if damage == "nan":
        head.pop("__metadata__", None) # the file has no checksum, and the value is read
        body[at:at + 4] = struct.pack("<f", float("nan"))
    elif damage == "name":
        head["other.weight"] = head.pop(key)
    else:
        body[at] ^= 1
    text = json.dumps(head, separators=(",", ":")).encode()
    open(damage + "/" + file, "wb").write(struct.pack("<Q", len(text)) + text + body)
PY
echo '{"a": 1}' >foreign.json
mkdir -p plans
# leaves_nothing RANKS ID OPTIONS...: the start fails with this message and leaves no run folder
leaves_nothing() {
    local n=$1 id=$2
    shift 2
    rm -rf runs/new
    ranks "$n" "$WEFT" train dit.yaml --set out=runs/new/one "$@" >out.log 2>&1 && fail "$*: not refused"
    has_message out.log "$id" level=error || fail_with out.log "$*: another message than expected"
    [ ! -e runs/new ] || { find runs/new; fail "$*: the start left a folder"; }
}
check weights_with_nan leaves_nothing 1 tensor-not-finite --set autoencoder.weights=nan
check a_missing_tensor leaves_nothing 1 tensor-missing --set autoencoder.weights=name
check a_missing_tensor_on_two_ranks leaves_nothing 2 tensor-missing --set autoencoder.weights=name
check a_wrong_checksum leaves_nothing 1 checksum-mismatch --set autoencoder.weights=checksum
check a_folder_as_plan leaves_nothing 1 '*' --set data.input=pixels --set parallel.cascades.plan=plans
check a_foreign_plan leaves_nothing 1 '*' --set data.input=pixels --set parallel.cascades.plan=foreign.json
limit=(--set 'parallel.cascades={plan: every-iteration, memory_limit: 1KiB}')
check a_memory_limit_of_cascades leaves_nothing 1 '*' --set data.input=pixels "${limit[@]}"
complete_latents_are_kept() {
    rm -rf runs/new
    ! "$WEFT" train dit.yaml --set out=runs/new/one "${limit[@]}" >out.log 2>&1 || fail "not refused"
    [ -n "$(find runs/new/one/latents -name complete)" ] || fail "a start that failed removed complete latents"
    [ "$(ls runs/new/one)" = latents ] || { ls runs/new/one; fail "files next to the latents"; }
}
check complete_latents_are_kept
a_folder_from_before_is_kept() {
    rm -rf runs/new
    mkdir -p runs/new/one/checkpoints
    echo mine >runs/new/one/metrics.jsonl
    ! "$WEFT" train dit.yaml --set out=runs/new/one --set autoencoder.weights=name >out.log 2>&1 || fail "not refused"
    [ "$(cat runs/new/one/metrics.jsonl)" = mine ] && [ -d runs/new/one/checkpoints ] || { find runs/new; fail "a start that failed removed a file from before"; }
}
check a_folder_from_before_is_kept
finish

#!/bin/bash
# Invalid configs of `weft train`: each is refused with a message that names the file or key, the
# value and the remedy. A refused start leaves no files. Also: outlier steps, and a full disk.
source "$SRC/tests/train/common.sh"
. "$SRC/tests/messages.sh"
make_shards
write_configs
# refuse ID [FIELD=VALUE...] -- ARGUMENTS...
refuse() { check "refuses $*" refused "$@"; }
refused() {
    take_message "$@"
    set -- "${rest[@]}"
    "$WEFT" train "$@" >out.log 2>&1
    local status=$?
    [ $status = 1 ] && has_message out.log "${wanted[@]}" || fail "$*: another status or message than expected"
}
refuse '*' text~=nosuch.yaml -- nosuch.yaml
printf 'out: x\nautoencoder: {class: AutoencoderKLWan}\ndata: {path: shards}\nstages:\n  - {steps: 1, batch: 1, frames: 5, height: 16, width: 16, learning_rate: 3}\n' >bad.yaml
refuse config-unknown-key file=bad.yaml line=5 key=learning_rate -- bad.yaml
refuse '*' 'text~=stages.0.frames: 6 is not 1 + 4 n' -- vae.yaml --set stages.0.frames=6
refuse '*' 'text~=stages.0.width: 20 is not a multiple of 8' -- vae.yaml --set stages.0.width=20
refuse config-value 'text~=--set stages.0.lr=x: stages.0.lr:' -- vae.yaml --set stages.0.lr=x
refuse config-missing-key file=dit.yaml key=autoencoder.weights -- dit.yaml --set autoencoder.weights=
refuse '*' text~=nowhere -- vae.yaml --set data.path=nowhere
printf 'out: x\nautoencoder: {class: AutoencoderKLWan}\nstages:\n  - {steps: 1}\n' >nodata.yaml
refuse config-missing-key file=nodata.yaml key=data.path -- nodata.yaml
# removed keys name their replacement; errors of models name the line or key
printf 'out: x\nwhat: vae\n' >old.yaml
refuse config-unknown-key file=old.yaml line=2 key=what text~=transformer -- old.yaml
refuse config-unknown-key text~=vae_path: 'text~=write autoencoder: {weights: FOLDER}' -- dit.yaml --set vae_path=x
refuse config-unknown-key text~=vae: 'text~=write autoencoder: {class' -- vae.yaml --set vae.base_dim=4
refuse config-unknown-key text~=text_encoder: 'text~=write text_encoders:' -- dit.yaml --set text_encoder.dim=4
refuse config-unknown-key text~=transformer.num_layers: 'text~=write transformer:' -- dit.yaml --set transformer.num_layers=4
refuse '*' 'text~=nothing to train: give autoencoder' -- vae.yaml --set 'autoencoder={}'
refuse config-conflict file=vae.yaml key=autoencoder -- vae.yaml --set autoencoder.weights=x
refuse config-missing-key file=vae.yaml key=autoencoder.class 'text~=(AutoencoderKL' 'text~=AutoencoderKLWan,' 'text~=), or weights' -- vae.yaml --set autoencoder.class=
refuse config-value file=vae.yaml key=autoencoder.class text~=WeftBytesEncoder text~=AutoencoderKLWan -- vae.yaml --set autoencoder.class=WeftBytesEncoder
refuse config-conflict file=dit.yaml key=grad_reduce_dtype -- dit.yaml --set grad_reduce_dtype=bf16
refuse config-missing-key file=dit.yaml key=text_encoders text~=0 -- dit.yaml --set 'text_encoders=[]'
refuse config-no-effect file=vae.yaml key=text_encoders -- vae.yaml --set 'text_encoders=[{class: WeftBytesEncoder}]'
sed 's/base_dim: 4,/base_dim: 4, base_dims: 4,/' vae.yaml >typo.yaml
refuse config-unknown-key file=typo.yaml line=5 key=base_dims text~=AutoencoderKLWan 'text~="base_dim"?' -- typo.yaml
refuse model-config key=*z_dim 'text~=65 is not from 1 to 64' -- vae.yaml --set autoencoder.config.z_dim=65
refuse '*' 'text~=parallel: dp 2 x fsdp 1 x cp 1 x tp 1 make 2 ranks, but 1 run' -- vae.yaml --set parallel.dp=2
refuse samples-none 'text~=none of 24 samples' -- vae.yaml --set stages.0.frames=101
a_refused_run_leaves_no_model() { [ ! -e runs/vae/model ]; }
check a_refused_run_leaves_no_model
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
sed 's/num_layers: 2,/num_layers: 2e9,/' dit.yaml >many.yaml
refuse model-config file=many.yaml line=6 key=num_layers 'text~=2000000000 is not from 0 to 1024' -- many.yaml
refuse config-conflict file=dit.yaml key=transformer 'text~=4 channels' 'text~=takes 8' -- dit.yaml --set transformer.config.in_channels=8
refuse model-unknown file=*runs/vae/model/vae text~=AutoencoderKLWan, 'text~=a denoiser is needed' -- dit.yaml --set 'transformer={weights: runs/vae/model/vae}'
refuse config-value file=dit.yaml key=autoencoder.weights 'text~=write runs/vae/model/vae' -- dit.yaml --set autoencoder.weights=runs/vae
refuse model-input-unsupported 'text~=UViT takes "label"' -- dit.yaml --set 'transformer={class: UViT, config: {img_size: 4, embed_dim: 16, num_heads: 2}}'
refuse config-value file=dit.yaml key=transformer.weights 'text~=runs/vae/model/vae/config.json is a file' -- dit.yaml --set 'transformer={weights: runs/vae/model/vae/config.json}'
for key in autoencoder transformer text_encoders.0; do # a path that does not exist: the key and the remedy
    refuse file-not-found file=nowhere 'text~=Give the folder of a model' "text~=dit.yaml: $key.weights:" -- dit.yaml --set "$key={weights: nowhere}"
done
# a run folder with checkpoints of another model
refuse '*' text~=coder -- vae.yaml --set autoencoder.config.base_dim=8 --set stages.0.steps=9
# a VAE's weights of another dtype or shape, or under another name: the tensor is named
python3 -S - <<'EOF'
import json, os, shutil, struct
file = "diffusion_pytorch_model.safetensors"
data = open("runs/vae/model/vae/" + file, "rb").read()
n = struct.unpack("<Q", data[:8])[0]
for what in ("dtype", "shape", "name"):
    shutil.copytree("runs/vae/model/vae", what)
    head = json.loads(data[8:8 + n])
    key = "encoder.down_blocks.0.conv1.weight"
    if what == "dtype":
        head[key]["dtype"] = "I32"
    elif what == "shape":
        head[key]["shape"].reverse() # (an additional dim of 1 would match another key mapping)
    else:
        head["other.weight"] = head.pop(key)
    text = json.dumps(head).encode()
    open(what + "/" + file, "wb").write(struct.pack("<Q", len(text)) + text + data[8 + n:])
EOF
refuse tensor-names file=*dtype* 'text~=encoder.down_blocks.0.conv1.weight (i32)' -- dit.yaml --set autoencoder.weights=dtype
refuse tensor-shape file=*shape* text~=encoder.down_blocks.0.conv1.weight -- dit.yaml --set autoencoder.weights=shape
refuse tensor-missing file=*name* 'text~=1 of the' 'text~=: encoder.down_blocks.0.conv1.weight' -- dit.yaml --set autoencoder.weights=name
a_refused_vae_leaves_no_latents() { [ -z "$(find runs/dit -name '*.tar' 2>/dev/null)" ]; }
check a_refused_vae_leaves_no_latents
# More memory than the machine has is refused before anything is reserved. ulimit ends a run that
# reserves the memory all the same.
case $WEFT_BUILD in */asan | */tsan) room=unlimited ;; *) room=16000000 ;; esac # sanitizers reserve more
too_large() { # KEY=VALUE
    ulimit -v $room
    refused memory-needed 'text~=are needed, and this machine has' -- vae.yaml --set out=runs/huge --set "$1" \
        --set stages.0.height=64 --set stages.0.width=64
}
for key in autoencoder.config.base_dim=4096 stages.0.batch=65536; do check "refuses $key" too_large $key; done
# a folder of several models instead of one model
mkdir -p several && echo '{}' >several/model_index.json
refuse model-not-found file=*several 'text~=several/transformer or several/vae' -- dit.yaml --set autoencoder.weights=several
# Errors of `parallel` and `memory.recompute` name the key and the remedy. A start that fails leaves
# no folder and removes no folder.
two() { check "refuses $* on two ranks" refused_by_two "$@"; }
refused_by_two() { # ID [FIELD=VALUE...] -- ARGUMENTS...
    take_message "$@"
    set -- "${rest[@]}"
    ranks 2 "$WEFT" train "$@" >out.log 2>&1 && fail "weft train $* on two ranks is accepted"
    has_message out.log "${wanted[@]}" || fail "$*: another status or message than expected"
}
for key in memory.recompute; do
    refuse config-value "key=$key" 'value=blocs.*' 'text~=`weft inspect graph CONFIG --graph`' -- vae.yaml --set out=runs/new/none --set "$key=[blocs.*]"
done
refuse '*' 'text~=vae.yaml: parallel.layout_file:' text~=none.json: 'text~=weft plan layout --run-config vae.yaml' -- vae.yaml --set out=runs/new/none --set parallel.layout_file=none.json
echo '{' >torn.json
"$WEFT" train vae.yaml --set stages.0.steps=1 >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
refuse '*' text~=torn.json: text~=parallel.cascades.cluster: 'text~=Give local, a preset, or a file that `weft profile` wrote' -- dit.yaml --dry-run \
    --set autoencoder.weights=runs/vae/model/vae --set out=runs/new/none --set 'parallel.cascades={plan: every-iteration, cluster: torn.json}'
printf '0F0,0B0,0F1,0B1\n1B0,1F0,1F1,1B1\n' >deadlock.csv
two '*' 'text~=schedule deadlock.csv deadlocks' 'text~=Write each task' -- dit.yaml --set autoencoder.weights=runs/vae/model/vae --set out=runs/new/none \
    --set transformer.config.num_layers=4 --set parallel.pp=2 --set parallel.schedule=deadlock.csv
two '*' text~=torn.json: text~=parallel.cascades.cluster: -- dit.yaml --set autoencoder.weights=runs/vae/model/vae --set out=runs/new/none \
    --set 'parallel.cascades={plan: every-iteration, cluster: torn.json}'
printf 'devices: 4\nnodez: 2\n' >wrong_cluster.yaml
refuse config-unknown-key file=wrong_cluster.yaml line=2 'text~=dit.yaml: parallel.cascades.cluster: wrong_cluster.yaml:2: ' 'text~=Give local, a preset' -- dit.yaml \
    --set out=runs/new/none --set 'parallel.cascades={plan: every-iteration, cluster: wrong_cluster.yaml}'
refuse config-missing-key file=dit.yaml key=parallel.cascades.plan -- dit.yaml --set out=runs/new/none --set parallel.cascades.cluster=nothere.yaml
# every key of cascades has no effect without a plan, and those of arachne's search none with another policy
for set in degrees=[1] policy=flexsp degree=2 memory_limit=1GiB gradient_reduction=representative loss_weight=samples oversized=skip \
    dispatch=late objective=expected topology_aware=false prefer_producers=false program_cache=2GiB; do
    refuse config-missing-key file=dit.yaml key=parallel.cascades.plan value=${set%%=*} -- dit.yaml --set parallel.cascades.$set
done
for set in topology_aware=false prefer_producers=false objective=expected; do
    refuse config-no-effect file=dit.yaml key=parallel.cascades.${set%%=*} text~=knapformer -- dit.yaml --set parallel.cascades.plan=every-iteration \
        --set parallel.cascades.policy=knapformer --set parallel.cascades.$set
done
refuse '*' text~=nowhere -- vae.yaml --set out=runs/new/none --set data.path=nowhere
a_failed_start_leaves_no_folder() {
    [ ! -e runs/new ] || { find runs/new; fail "a start that failed left a folder"; }
}
check a_failed_start_leaves_no_folder
mkdir -p runs/mine && echo mine >runs/mine/note
refuse '*' text~=nowhere -- vae.yaml --set out=runs/mine --set data.path=nowhere
a_failed_start_keeps_existing_files() {
    [ "$(cat runs/mine/note)" = mine ] || fail "a start that failed removed a file of the folder"
}
check a_failed_start_keeps_existing_files
# Every step is an outlier: the run stops after guard.patience skipped steps.
refuse '*' 'text~=3 steps in a row were skipped' -- vae.yaml --set out=runs/nan --set stages.0.lr=10 --set stages.0.warmup_steps=0 --set guard.factor=2 --set guard.window=1 --set guard.patience=3 --set stages.0.steps=30
# Checkpoints and latents on a full disk: the error names the file, and no partly written file has a
# final name.
a_full_disk_is_reported() {
    if [ "$(id -u)" = 0 ] && mkdir full && mount -t tmpfs -o size=300k tmpfs full 2>/dev/null; then
        "$WEFT" train vae.yaml --set out=full/run >full.log 2>&1
        status=$?
        left=$(ls full/run/checkpoints full/run/model 2>/dev/null | grep -v ':$' | tr '\n' ' ')
        rm -rf full/run
        head -c 296k /dev/zero >full/filler # one block is free: the first latents do not fit
        ranks 2 "$WEFT" train dit.yaml --set out=full/run >latents.log 2>&1
        latents=$?
        left="$left$(find full/run -name '*.tar' -o -name complete)"
        rm full/filler
        "$WEFT" train dit.yaml --set out=full/run --set stages.1.steps=1 --set stages.0.steps=1 --set checkpoint.interval=0 --set checkpoint.keep_latest=1 >room.log 2>&1
        has_message room.log data-report key=latents "text~=24 of 24" || { cat room.log; umount full; fail "latents are not encoded although the disk has space again"; }
        umount full
        [ $status = 1 ] && has_message full.log disk-full || fail "checkpoints on a full disk: status $status"
        [ $latents != 0 ] && has_message latents.log disk-full 'file=*latents*' || fail "latents on a full disk: status $latents"
        [ -z "$left" ] || fail "files with final names are left on the full disk: $left"
    else
        echo "note: no tmpfs can be mounted; the full disk was not tested"
    fi
}
check a_full_disk_is_reported
finish

#!/bin/bash
# What training must refuse, with a message that says what and where.
source "$SRC/tests/train/common.sh"
make_shards
write_configs
# refuse PATTERN ARGUMENTS...
refuse() {
    local pattern=$1
    shift
    "$WEFT" train "$@" >out.log 2>&1
    local status=$?
    [ $status = 1 ] && grep -qE -- "$pattern" out.log || { cat out.log; fail "weft train $*: status $status, expected 1 and '$pattern'"; }
}
refuse "nosuch.yaml" nosuch.yaml
printf 'out: x\nautoencoder: {class: AutoencoderKLWan}\ndata: {path: shards}\nstages:\n  - {steps: 1, batch: 1, frames: 5, height: 16, width: 16, learning_rate: 3}\n' >bad.yaml
refuse "bad.yaml:5: unknown key 'learning_rate'" bad.yaml
refuse "stages.0.frames: 6 is not 1 \+ 4 n" vae.yaml --set stages.0.frames=6
refuse "stages.0.width: 20 is not a multiple of 8" vae.yaml --set stages.0.width=20
refuse "--set stages.0.lr=x: stages.0.lr: 'x' is not a number" vae.yaml --set stages.0.lr=x
refuse "autoencoder.weights: training a transformer needs" dit.yaml --set autoencoder.weights=
refuse "nowhere" dit.yaml --set autoencoder.weights=nowhere
refuse "nowhere" vae.yaml --set data.path=nowhere
printf 'out: x\nautoencoder: {class: AutoencoderKLWan}\nstages:\n  - {steps: 1}\n' >nodata.yaml
refuse "nodata.yaml: missing key 'data.path'" nodata.yaml
# old keys say what to write, models that cannot be say where
printf 'out: x\nwhat: vae\n' >old.yaml
refuse "old.yaml:2: 'what' is no key any more: a transformer is trained if" old.yaml
refuse "'vae_path' is no key any more: write autoencoder: \{weights: FOLDER\}" dit.yaml --set vae_path=x
refuse "'vae' is no key any more: write autoencoder: \{class" vae.yaml --set vae.base_dim=4
refuse "'text_encoder' is no key any more: write text_encoders: " dit.yaml --set text_encoder.dim=4
refuse "'transformer.num_layers' is no key any more: write transformer: " dit.yaml --set transformer.num_layers=4
refuse "nothing to train: give autoencoder" vae.yaml --set 'autoencoder={}'
refuse "autoencoder: give class and config .* or weights, but not both" vae.yaml --set autoencoder.weights=x
refuse "autoencoder.class: a class is needed \(AutoencoderKLWan, .*\), or weights" vae.yaml --set autoencoder.class=
refuse "autoencoder.class: \"WeftBytesEncoder\" is no video autoencoder that is built in; known are AutoencoderKLWan" vae.yaml --set autoencoder.class=WeftBytesEncoder
refuse "gradient_sums: gradients are f32 without precision: bf16" dit.yaml --set gradient_sums=bf16
refuse "text_encoders: a transformer needs one, 0 are given" dit.yaml --set 'text_encoders=[]'
refuse "text_encoders: an autoencoder reads no captions" vae.yaml --set 'text_encoders=[{class: WeftBytesEncoder}]'
sed 's/base_dim: 4,/base_dim: 4, base_dims: 4,/' vae.yaml >typo.yaml
refuse "typo.yaml:5: AutoencoderKLWan has no field \"base_dims\" \(did you mean \"base_dim\"\?\)" typo.yaml
refuse "\"z_dim\" is 65; it must lie in 1..64" vae.yaml --set autoencoder.config.z_dim=65
refuse "parallel: dp 2 x fsdp 1 x cp 1 x tp 1 make 2 ranks, but 1 run" vae.yaml --set parallel.dp=2
refuse "none of 24 samples fits" vae.yaml --set stages.0.frames=101
[ ! -e runs/vae/model ] || fail "a refused run left a model"
"$WEFT" train vae.yaml >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
sed 's/num_layers: 2,/num_layers: 2e9,/' dit.yaml >many.yaml
refuse "many.yaml:6: \"num_layers\" is 2000000000; it must lie in 0..1024" many.yaml
refuse "the autoencoder's latents have 4 channels, the transformer takes 8" dit.yaml --set transformer.config.in_channels=8
refuse "transformer.weights: runs/vae/model/vae holds a AutoencoderKLWan, a video autoencoder; a denoiser is needed" dit.yaml --set 'transformer={weights: runs/vae/model/vae}'
refuse "there is one in it: write runs/vae/model/vae" dit.yaml --set autoencoder.weights=runs/vae
refuse 'UViT takes "label", which weft train has nothing for' dit.yaml --set 'transformer={class: UViT, config: {img_size: 4, embed_dim: 16, num_heads: 2}}'
refuse "transformer.weights: runs/vae/model/vae/config.json is a file, and a folder is wanted" dit.yaml --set 'transformer={weights: runs/vae/model/vae/config.json}'
# a run folder that holds another model's checkpoints
refuse "encoder|decoder" vae.yaml --set autoencoder.config.base_dim=8 --set stages.0.steps=9
# a VAE's weights of another dtype or shape, or under another name: the tensor is named
python3 - <<'EOF'
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
        head[key]["shape"].reverse() # (a dim of 1 more would be another dialect)
    else:
        head["other.weight"] = head.pop(key)
    text = json.dumps(head).encode()
    open(what + "/" + file, "wb").write(struct.pack("<Q", len(text)) + text + data[8 + n:])
EOF
refuse "dtype: .*no floating-point numbers: encoder.down_blocks.0.conv1.weight \(i32\)" dit.yaml --set autoencoder.weights=dtype
refuse "shape: .*another shape .*: encoder.down_blocks.0.conv1.weight" dit.yaml --set autoencoder.weights=shape
refuse "name: 1 of the model's .* missing: encoder.down_blocks.0.conv1.weight" dit.yaml --set autoencoder.weights=name
[ -z "$(find runs/dit -name '*.tar' 2>/dev/null)" ] || fail "a refused VAE left latents"
# more than the machine has: said before anything is reserved (the limit is for what does not say it)
case $WEFT_BUILD in */asan | */tsan) room=unlimited ;; *) room=16000000 ;; esac # the shadow needs more
for key in autoencoder.config.base_dim=4096 stages.0.batch=65536; do
    (ulimit -v $room; refuse "are needed, this machine has .* make the model or the batch smaller" vae.yaml --set out=runs/huge --set $key \
        --set stages.0.height=64 --set stages.0.width=64) || exit 1
done
# a folder of several models where one is asked for
mkdir -p several && echo '{}' >several/model_index.json
refuse "several holds several models; give one of its folders, as several/transformer or several/vae" dit.yaml --set autoencoder.weights=several
# errors of `parallel` and `recompute` name the key and the remedy; a start that fails leaves no folder, and removes no other
two() { # PATTERN ARGUMENTS...: refused by two ranks
    local pattern=$1
    shift
    ranks 2 "$WEFT" train "$@" >out.log 2>&1 && fail "weft train $* on two ranks"
    grep -qE -- "$pattern" out.log || { cat out.log; fail "weft train $* on two ranks: expected '$pattern'"; }
}
for key in recompute memory.recompute; do
    refuse "weft train: $key: \"blocs.\\*\" matches no scope .* and no op .* \`weft inspect graph CONFIG --graph\`" vae.yaml --set out=runs/new/none --set "$key=[blocs.*]"
done
refuse "vae.yaml: parallel.plan: .*none.json: .*weft plan layout --for vae.yaml" vae.yaml --set out=runs/new/none --set parallel.plan=none.json
echo '{' >torn.json
"$WEFT" train vae.yaml --set stages.0.steps=1 >vae.log 2>&1 || { cat vae.log; fail "weft train vae"; }
refuse "parallel.cascades.cluster: torn.json:.* Give local, a preset, or a file that \`weft profile\` wrote" dit.yaml --dry-run \
    --set autoencoder.weights=runs/vae/model/vae --set out=runs/new/none --set 'parallel.cascades={plan: every-iteration, cluster: torn.json}'
printf '0F0,0B0,0F1,0B1\n1B0,1F0,1F1,1B1\n' >deadlock.csv
two "deadlock.csv: schedule .* deadlocks .* Write each task" dit.yaml --set autoencoder.weights=runs/vae/model/vae --set out=runs/new/none \
    --set transformer.config.num_layers=4 --set parallel.pp=2 --set parallel.schedule=deadlock.csv
two "parallel.cascades.cluster: torn.json:" dit.yaml --set autoencoder.weights=runs/vae/model/vae --set out=runs/new/none \
    --set 'parallel.cascades={plan: every-iteration, cluster: torn.json}'
refuse "nowhere" vae.yaml --set out=runs/new/none --set data.path=nowhere
[ ! -e runs/new ] || { find runs/new; fail "a start that failed left a folder"; }
mkdir -p runs/mine && echo mine >runs/mine/note
refuse "nowhere" vae.yaml --set out=runs/mine --set data.path=nowhere
[ "$(cat runs/mine/note)" = mine ] || fail "a start that failed removed what was there"
# every step an outlier: stops after guard.patience and says so
refuse "3 steps in a row were skipped" vae.yaml --set out=runs/nan --set stages.0.lr=10 --set stages.0.warmup=0 --set guard.factor=2 --set guard.window=1 --set guard.patience=3 --set stages.0.steps=30
# a full disk, met by checkpoints and by latents: clear message, nothing half-written under a final name
if [ "$(id -u)" = 0 ] && mkdir full && mount -t tmpfs -o size=300k tmpfs full 2>/dev/null; then
    "$WEFT" train vae.yaml --set out=full/run >full.log 2>&1
    status=$?
    left=$(ls full/run/checkpoints full/run/model 2>/dev/null | grep -v ':$' | tr '\n' ' ')
    rm -rf full/run
    head -c 296k /dev/zero >full/filler # a block is left: the first latents do not fit
    ranks 2 "$WEFT" train dit.yaml --set out=full/run >latents.log 2>&1
    latents=$?
    left="$left$(find full/run -name '*.tar' -o -name complete)"
    rm full/filler
    "$WEFT" train dit.yaml --set out=full/run --set stages.1.steps=1 --set stages.0.steps=1 --set checkpoint.every=0 --set checkpoint.keep=1 >room.log 2>&1
    grep -q "latents: 24 of 24 samples" room.log || { cat room.log; umount full; fail "latents are not made when there is room again"; }
    umount full
    [ $status = 1 ] && grep -qiE 'no space|disk' full.log || { cat full.log; fail "disk full: status $status"; }
    [ $latents != 0 ] && grep -qiE 'latents.*(no space|disk)' latents.log || { cat latents.log; fail "disk full of latents: status $latents"; }
    [ -z "$left" ] || fail "disk full left: $left"
else
    echo "note: no tmpfs to be had, the full disk was not tried"
fi
exit 0

#!/bin/bash
# weft convert. Weights converted to the authors' names and back are bitwise identical, in one file and
# in shards. Element types are converted, merged adapters equal the golden weights, and adapters are
# converted between readers. Invalid requests are refused before anything is written.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
golden=${WEFT_SHARED:-/nonexistent}/golden
[ -f "$golden/dialect_wan_a.json" ] || skip "no golden files"
convert() { "$WEFT" convert "$@" >log 2>&1 || { cat log; fail "weft convert $*"; }; }
cat >same.py <<'PY'
# same.py A B [PREFIX]: A and B have bitwise the same tensors. Names of B may have a usual prefix or
# PREFIX. Computed tensors may be missing in A.
import glob, json, os, struct, sys
def read(path):
    out = {}
    for f in sorted(glob.glob(path + "/*.safetensors")) if os.path.isdir(path) else [path]:
        data = open(f, "rb").read()
        n = struct.unpack("<Q", data[:8])[0]
        for k, v in json.loads(data[8:8 + n]).items():
            if k == "__metadata__":
                continue
            for p in ("model.model.", "model.diffusion_model.", "net.", "first_stage_model.", "vae.", *sys.argv[3:]):
                k = k[len(p):] if k.startswith(p) else k
            out[k] = (v["dtype"], v["shape"], data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
    # of one part in the file of all parts; a vocoder of LTX-2.3 has a module of the same name
    for p in ("audio_vae.", "vocoder."):
        if all(k.startswith(p) for k in out):
            out = {k[len(p):]: v for k, v in out.items()}
    return out
a, b = read(sys.argv[1]), read(sys.argv[2])
b = {k: v for k, v in b.items() if k in a or not k.startswith(("accum_", "pos_embedder.", "logvar.", "loss.", "mixins.pos_embed.", "merged_", "param.", "out.", "in.", "f16.", "fp8."))}
b = {k: v for k, v in b.items() if k in a or not k.endswith("._extra_state")}  # of layers with activations in 8 bits
b = {k: v for k, v in b.items() if k in a or not ("net_app" in k and k.endswith(".kernel"))}  # Wan Animate's blurs
b = {k: v for k, v in b.items() if k in a or k not in ("scale", "shift")}  # statistics of Open-Sora's latents
assert a.keys() == b.keys(), (sorted(set(a) ^ set(b))[:9], len(a), len(b))
assert all(a[k] == b[k] for k in a), [k for k in a if a[k] != b[k]][:9]
PY
same() { python3 same.py "$@" || fail "$* differ"; }

to_the_names_of_the_authors_and_back() { # MODEL
    local model=$1 d
    d=$golden/dialects/dialect_${model}_a
    convert "$d/diffusers" $model.safetensors --to original --dtype f32
    same $model.safetensors "$d/original.safetensors"
    convert "$d/original.safetensors" $model-back --config "$d/diffusers" --dtype "$([ $model = wan ] && echo f32 || echo bf16)" --shard-size 20k
    same $model-back "$d/diffusers"
    [ -f $model-back/diffusion_pytorch_model.safetensors.index.json ] || fail "no index of shards"
    convert "$d/diffusers" $model-comfy.safetensors --to comfyui --dtype bf16
    same $model-comfy.safetensors "$d/comfy_bf16.safetensors"
    head -c 600 $model-comfy.safetensors | grep -q '"model.diffusion_model\.' || fail "no prefix for ComfyUI"
    "$WEFT" inspect model $model-comfy.safetensors | grep -q "names *original, with the prefix model.diffusion_model." || fail "$model: inspect does not know ComfyUI's file"
}
for model in wan hunyuan; do check "to_the_names_of_the_authors_and_back_$model" to_the_names_of_the_authors_and_back $model; done
wan=$golden/dialects/dialect_wan_a
types_are_converted() {
    convert "$wan/diffusers" f16.safetensors --to original --dtype f16
    same f16.safetensors "$wan/comfy_f16.safetensors"
    convert "$wan/diffusers" f8 --dtype f8
    "$WEFT" inspect model f8 --tensors >/dev/null || fail "the f8 file is not read"
    python3 -S - <<'PY' || fail "conversion to f8"
import json, struct
data = open("f8/diffusion_pytorch_model.safetensors", "rb").read()
h = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
assert all(v["dtype"] == ("F8_E4M3" if len(v["shape"]) > 1 else "BF16") for k, v in h.items() if k != "__metadata__")
PY
}
check types_are_converted
a_gguf_is_converted() {
    python3 -S -c "import json; json.dump(json.load(open('$golden/dialect_gguf_a.json'))['config'], open('gguf.json', 'w'))"
    convert "$golden/dialects/dialect_gguf_a/model.gguf" gguf --config gguf.json
    "$WEFT" inspect model gguf >log 2>&1 || { cat log; fail "a converted GGUF file is not read"; }
}
check a_gguf_is_converted

# ---- merged adapters, and adapters for other readers
lora=$wan/lora
adapters_are_merged() {
    for pair in "kohya.safetensors merged_alpha" "comfy_diff.safetensors merged_diff" "peft merged_alpha"; do
        set -- $pair
        rm -rf merged
        convert "$wan/diffusers" merged --lora "$lora/$1" --dtype f32
        python3 -S - "$wan/truth.safetensors" $2 <<'PY' || fail "merged with $1"
import sys
truth, by = sys.argv[1], sys.argv[2] + "."
sys.argv = []
exec(open("same.py").read().split("a, b =")[0])
a, b = read("merged"), read(truth)
changed = {k[len(by):]: v for k, v in b.items() if k.startswith(by)}
assert changed and all(a[k][2] == v[2] for k, v in changed.items()), [k for k, v in changed.items() if a[k][2] != v[2]][:5]
PY
    done
    rm -rf merged
    convert "$wan/diffusers" merged --lora "$lora/kohya.safetensors:0"
    same merged "$wan/diffusers"
}
check adapters_are_merged
adapters_for_every_reader() { # MODEL
    local model=$1 d plain reader file
    d=$golden/dialects/dialect_${model}_a
    plain=$d/lora/diffusers_plain.safetensors
    [ $model = wan ] && plain=$d/lora/diffusers_metadata.safetensors
    rm -rf truth
    convert "$d/diffusers" truth --lora "$plain" --dtype f32
    for reader in diffusers peft kohya comfyui; do
        rm -rf adapter merged
        convert "$plain" adapter --lora-format $reader --config "$d/diffusers"
        [ $reader = peft ] && file=adapter || file=adapter/pytorch_lora_weights.safetensors
        convert "$d/diffusers" merged --lora $file --dtype f32
        same merged truth
    done
}
for model in wan hunyuan; do check "adapters_for_every_reader_$model" adapters_for_every_reader $model; done
adapters_come_back_unchanged() {
    rm -rf adapter
    convert "$lora/kohya.safetensors" adapter --lora-format kohya --config "$wan/diffusers"
    same adapter "$lora/kohya.safetensors"
    rm -rf adapter
    convert "$lora/peft" adapter --lora-format peft --config "$wan/diffusers"
    same adapter "$lora/peft"
}
check adapters_come_back_unchanged

# The authors' program of LongCat-Video has B of fused layers in blocks, and one rank for all modules.
adapters_of_longcat() {
    local model=$SRC/tests/golden/pipelines/longcat reader
    local plain=$model/lora_few.safetensors
    rm -rf truth adapter
    convert "$model/dit" truth --lora "$plain"
    convert "$plain" adapter --lora-format longcat --config "$model/dit"
    same adapter "$plain"
    for reader in diffusers peft kohya comfyui longcat; do
        rm -rf adapter back merged
        convert "$plain" adapter --lora-format $reader --config "$model/dit"
        [ $reader = peft ] && file=adapter || file=adapter/pytorch_lora_weights.safetensors
        [ $reader = longcat ] || { convert "$model/dit" merged-$reader --lora $file && same merged-$reader truth; }
        convert adapter back --lora-format longcat --config "$model/dit"
        same back "$plain"
        convert "$model/dit" merged --lora back
        same merged truth
    done
    python3 -S - "$plain" <<'PY'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
end = 8 + struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:end])
def write(name, head):
    text = json.dumps(head).encode()
    open(name, "wb").write(struct.pack("<Q", len(text)) + text + data[end:])
block = next(k for k in head if k.endswith("blocks.1.weight"))
write("missing.safetensors", {k.replace("blocks.1.", "blocks.7.") if k == block else k: v for k, v in head.items()})
shape = head[block]["shape"]
write("wide.safetensors", {k: v | {"shape": shape[::-1]} if k == block else v for k, v in head.items()})
PY
}
check adapters_of_longcat

# Files with the authors' names of each family, which original_names.py derives without weft's rules.
names_of_every_family() {
    python3 "$SRC/tests/model/original_names.py" "$WEFT" >/dev/null || fail "original_names.py"
    for json in dialect_original_*.json; do
        name=${json%.json}
        python3 -S -c "import json; json.dump(json.load(open('$json'))['config'], open('config.json', 'w'))"
        rm -rf ours theirs.safetensors
        convert dialects/$name/original.safetensors ours --config config.json
        # a file with T5's names, of which UMT5's authors use others; a family whose authors use diffusers' names;
        # files with layers without an effect and with constant filters, which weft drops
        case $name in *_umt5_one | *_motif_video | *_suv | *_wfvae | *_opensora_vae | *_qwen_image | *_kandinsky5 | *_framepack) continue ;; esac
        convert ours theirs.safetensors --to original
        same theirs.safetensors dialects/$name/original.safetensors
    done
}
check names_of_every_family
# The generator of Self-Forcing: the averaged weights of several, with the prefixes of its wrapper and of FSDP.
generators_of_self_forcing_are_read() {
    python3 -S -c "import json; json.dump(json.load(open('$SRC/tests/golden/causal_wan.json'))['config'], open('causal.json', 'w'))"
    rm -rf ours
    convert "$SRC/tests/golden/causal_wan_generator.pt" ours --config causal.json
    python3 -S - "$SRC/tests/golden/causal_wan.safetensors" truth.safetensors <<'PY'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", data[:8])[0]
head = {k[6:]: v for k, v in json.loads(data[8:8 + n]).items() if k.startswith("param.")}
body = json.dumps(head).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(body)) + body + data[8 + n:])
PY
    same ours truth.safetensors
    convert ours theirs-causal.safetensors --to original
    rm -rf back
    convert theirs-causal.safetensors back --config causal.json
    same ours back
}
check generators_of_self_forcing_are_read
# Mean and variance of latents are among the weights of some autoencoders, and keep their type.
statistics_of_latents_are_converted() {
    local vae
    for vae in flux2 ltx_timed; do
        convert "$SRC/tests/golden/pipelines/$vae/vae" $vae-vae
        same "$SRC/tests/golden/pipelines/$vae/vae" $vae-vae
    done
    convert "$SRC/tests/golden/pipelines/flux2/vae" flux2-original.safetensors --to original
    grep -q '"bn.running_var"' flux2-original.safetensors && grep -q '"encoder.quant_conv.weight"' flux2-original.safetensors ||
        fail "the authors' names of Flux 2's autoencoder"
    convert flux2-original.safetensors flux2-back --config "$SRC/tests/golden/pipelines/flux2/vae"
    same "$SRC/tests/golden/pipelines/flux2/vae" flux2-back
    convert "$SRC/tests/golden/pipelines/flux2/vae" flux2-half --dtype bf16
    convert flux2-half flux2-wide --dtype f32
    python3 - "$SRC/tests/golden/pipelines/flux2/vae" flux2-half flux2-wide <<'PY' || fail "statistics in bf16"
import json, struct, sys
def read(folder):
    data = open(folder + "/diffusion_pytorch_model.safetensors", "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    return {k: (v["dtype"], data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]) for k, v in json.loads(data[8:8 + n]).items()
            if k != "__metadata__"}
whole, half, wide = map(read, sys.argv[1:])
statistics = [k for k in whole if k.startswith("bn.")]
assert len(statistics) == 3, statistics
assert all(whole[k] == half[k] == wide[k] for k in statistics), statistics
assert half["decoder.conv_in.weight"][0] == "BF16"
PY
}
check statistics_of_latents_are_converted
# The published parts of Open-Sora 1.2: the transformer keeps the embeddings of an empty text in both names. Statistics of
# latents are in the config.
parts_of_open_sora_are_converted() {
    local part from=$SRC/tests/golden/pipelines/opensora
    for part in transformer vae; do
        convert "$from/$part" sora-$part.safetensors --to original
        convert sora-$part.safetensors sora-$part --config "$from/$part"
        convert "$from/$part" sora-$part-again
    done
    for file in sora-transformer.safetensors sora-transformer sora-transformer-again; do
        same "$from/transformer" $file
        same $file "$from/transformer"
    done
    same sora-vae.safetensors sora-vae
    same sora-vae "$from/vae"
    same sora-vae-again sora-vae
}
check parts_of_open_sora_are_converted

# The next run removes temporary files of a killed run.
leftovers_of_a_killed_run_are_removed() {
    mkdir killed
    : >killed/diffusion_pytorch_model.safetensors.tmp.4194303
    : >killed.safetensors.tmp.4194303
    convert "$wan/diffusers" killed
    convert "$wan/diffusers" killed.safetensors --to original
    [ -z "$(ls -d killed*.tmp.* killed/*.tmp.* 2>/dev/null)" ] || fail "temporary files of the killed run remain"
}
check leftovers_of_a_killed_run_are_removed

# Refused requests leave no files.
refuse() { check "refuses $*" refused "$@"; }
refused() { # ID [FIELD=VALUE...] -- ARGUMENTS...
    take_message "$@"
    set -- "${rest[@]}"
    "$WEFT" convert "$@" >log 2>&1 && fail "$*: accepted"
    has_message log "${wanted[@]}" || fail "$*: another message"
    [ -z "$(ls -d new* 2>/dev/null)" ] || fail "$*: something was written"
}
refuse file-not-found file=nowhere -- nowhere new
refuse adapter-invalid file=missing.safetensors -- missing.safetensors new --lora-format longcat --config "$SRC/tests/golden/pipelines/longcat/dit"
refuse tensor-shape file=wide.safetensors -- wide.safetensors new --lora-format longcat --config "$SRC/tests/golden/pipelines/longcat/dit"
refuse file-name file=new.safetensors text~=folder -- "$lora/kohya.safetensors" new.safetensors --lora-format diffusers --config "$wan/diffusers"
refuse file-exists file=merged -- "$wan/diffusers" merged
refuse file-name file=new text~=.safetensors -- "$wan/diffusers" new --to original
refuse file-name file=new-transformer.tensors text~=.safetensors -- "$wan/diffusers" new-transformer.tensors --to original
refuse model-not-found file=*/original.safetensors text~=--config -- "$wan/original.safetensors" new
refuse tensor-names text~=WanTransformer3DModel 'text~=the model is a HunyuanVideo' -- "$wan/original.safetensors" new --config "$golden/dialects/dialect_hunyuan_a/diffusers"
refuse option-invalid key=--to "text~='onnx'" 'text~=diffusers, original, comfyui' -- "$wan/diffusers" new --to onnx
refuse option-invalid key=--dtype "text~='f4'" text~=f32 -- "$wan/diffusers" new --dtype f4
refuse adapter-invalid file=*kohya.safetensors 'text~=of the adapter' text~=WanTransformer3DModel -- "$wan/diffusers" new --lora "$golden/dialects/dialect_hunyuan_a/lora/kohya.safetensors"
refuse option-required key=--config text~=/lora/peft -- "$lora/peft" new --lora-format kohya
refuse format-unsupported file=*comfy_diff.safetensors -- "$lora/comfy_diff.safetensors" new --lora-format kohya --config "$wan/diffusers"
refuse adapter-invalid file=*original.safetensors -- "$wan/original.safetensors" new --lora-format kohya --config "$wan/diffusers"
for option in "--lora $lora/peft" "--to original" "--shard-size 4k" "--in-channels 32"; do
    refuse option-conflict key=--lora-format 'text~=--lora, --to, --shard-size and --in-channels' -- "$lora/peft" new --lora-format kohya --config "$wan/diffusers" $option
done
convert "$wan/diffusers" parts.safetensors --to original --shard-size 60k
before=$(cat parts* | md5sum)
for size in 0 20k; do
    refuse file-exists file=parts.safetensors.index.json -- "$wan/diffusers" parts.safetensors --to original --shard-size $size
done
[ "$before" = "$(cat parts* | md5sum)" ] || fail "existing files have changed"
python3 -S - "$lora/kohya.safetensors" <<'PY'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", data[:8])[0]
h = json.loads(data[8:8 + n])
k = next(k for k in h if k.endswith("lora_up.weight"))
h[k]["shape"] = [h[k]["shape"][0] * 2, h[k]["shape"][1] // 2]
text = json.dumps(h).encode()
open("ranks.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data[8 + n:])
PY
refuse tensor-shape file=ranks.safetensors key=*lora_down.weight -- "$wan/diffusers" new --lora ranks.safetensors
python3 -S - "$wan/original.safetensors" <<'PY'
import sys
data = open(sys.argv[1], "rb").read()
open("missing.safetensors", "wb").write(data.replace(b"blocks.1.ffn.2.bias", b"blocks.1.ffn.2.bied"))
PY
refuse tensor-missing file=missing.safetensors text~=1 text~=WanTransformer3DModel 'text~=: blocks.1.ffn.net.2.bias' -- missing.safetensors new --config "$wan/diffusers"
python3 -S - "$wan/diffusers" <<'PY'
import json, os, struct, sys
data = bytearray(open(sys.argv[1] + "/diffusion_pytorch_model.safetensors", "rb").read())
n = struct.unpack("<Q", data[:8])[0]
at = 8 + n + json.loads(data[8:8 + n])["blocks.0.attn1.to_q.weight"]["data_offsets"][0]
for name, value in ("most", 65519), ("more", 65520):
    data[at:at + 4] = struct.pack("<f", value)
    open(name + ".safetensors", "wb").write(data)
PY
refuse value-not-finite file=more.safetensors key=blocks.0.self_attn.q.weight text~=65520 -- more.safetensors new.safetensors --to original --dtype f16 --config "$wan/diffusers"
convert most.safetensors most --dtype f16 --config "$wan/diffusers"

# The control branch of Cosmos Transfer 2.5 has a folder of its own, next to the transformer's or inside.
transfer=$SRC/tests/golden/pipelines/cosmos25_transfer
convert "$transfer/transformer" branch
convert branch branch2
python3 -S - "$transfer" <<'PY' || fail "the tensors of the control branch"
import json, struct, sys
def read(folder):
    data = open(folder + "/diffusion_pytorch_model.safetensors", "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    h = json.loads(data[8:8 + n])
    h.pop("__metadata__", None)
    return {k: (v["shape"], data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]) for k, v in h.items()}
published = sys.argv[1]
for made in "branch", "branch2":
    assert read(made) == read(published + "/transformer") and read(made + "/controlnet") == read(published + "/controlnet"), made
    config = json.load(open(made + "/controlnet/config.json"))
    assert config["_class_name"] == "CosmosControlNetModel" and "controlnet" not in json.load(open(made + "/config.json"))
PY
# The authors' file has one copy of the embedders. The branch of the golden files has other values.
refuse format-unsupported file="$transfer/transformer" key=controlnet.* 'text~=--to diffusers' -- "$transfer/transformer" new.safetensors --to original
# A branch with equal embedders, of which one is narrower than the transformer's.
mkdir -p narrow/controlnet
cp -r "$transfer/transformer" narrow
python3 -S - "$transfer" <<'PY'
import json, math, struct, sys
def read(part):
    data = open(f"{sys.argv[1]}/{part}/diffusion_pytorch_model.safetensors", "rb").read()
    at = 8 + struct.unpack("<Q", data[:8])[0]
    h = json.loads(data[8:at])
    h.pop("__metadata__", None)
    return {k: (v["shape"], data[at + v["data_offsets"][0]:at + v["data_offsets"][1]]) for k, v in h.items()}
config = json.load(open(sys.argv[1] + "/controlnet/config.json"))
width = config["encoder_hidden_states_channels"]
config["encoder_hidden_states_channels"] = config["text_embed_dim"] = 6
json.dump(config, open("narrow/controlnet/config.json", "w"))
transformer, h, out = read("transformer"), {}, b""
for k, (shape, data) in read("controlnet").items():
    same = transformer.get(k.replace("patch_embed_base", "patch_embed"))
    data = same[1] if same and same[0] == shape else data
    if k.startswith("crossattn_proj.") or ".attn2.to_k." in k or ".attn2.to_v." in k:
        shape = [6 if d == width else d for d in shape]
        data = data[:4 * math.prod(shape)]
    h[k] = {"dtype": "F32", "shape": shape, "data_offsets": [len(out), len(out) + len(data)]}
    out += data
head = json.dumps(h).encode()
open("narrow/controlnet/diffusion_pytorch_model.safetensors", "wb").write(struct.pack("<Q", len(head)) + head + out)
PY
refuse format-unsupported file=narrow/transformer key=controlnet.crossattn_proj.* 'text~=--to diffusers' -- narrow/transformer new.safetensors --to original

# A model of 256 MiB is converted in a few MiB of memory.
python3 -S - "$wan/diffusers" <<'PY'
import json, os, struct, sys
os.mkdir("large")
config = json.load(open(sys.argv[1] + "/config.json"))
data = open(sys.argv[1] + "/diffusion_pytorch_model.safetensors", "rb").read()
h = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
h.pop("__metadata__", None)
config["ffn_dim"], at = 1 << 19, 0
for k, v in h.items():
    if ".ffn." in k:
        v["shape"] = [1 << 19 if n == 48 else n for n in v["shape"]]
    size = 4
    for n in v["shape"]:
        size *= n
    v["data_offsets"] = [at, at + size]
    at += size
json.dump(config, open("large/config.json", "w"))
text = json.dumps(h).encode()
text += b" " * (-len(text) % 8)
with open("large/diffusion_pytorch_model.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text)
    f.truncate(8 + len(text) + at)
PY
for dtype in own bf16 f8; do
    rm -rf slim
    python3 -S - "$WEFT" $dtype <<'PY' || fail "the memory of --dtype $dtype"
import resource, subprocess, sys
subprocess.run([sys.argv[1], "convert", "large", "slim", "--dtype", sys.argv[2]], check=True, stderr=subprocess.DEVNULL)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
assert peak < 160, f"{peak} MiB"
PY
done
rm -rf slim large
finish

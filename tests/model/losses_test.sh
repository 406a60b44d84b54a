#!/bin/bash
# LPIPS, PatchGAN and an autoencoder's step against both: the reference's outputs, gradients and running
# statistics of every such golden file beside the checkout; a changed statistic and a lost tensor are found.
set -u
golden=$WEFT_SHARED/golden
[ -d "$golden" ] || { echo "no golden files in $golden"; exit 77; }
failed=0
for json in "$golden"/lpips_*.json "$golden"/patchgan*.json "$golden"/vaegan*.json; do
    "$WEFT" parity "$json" || failed=1
done
python3 - "$golden/patchgan2d_a.safetensors" "$golden/lpips_alex_a.safetensors" <<'PY'
import json, struct, sys
def read(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + n]), bytearray(data[8 + n:])
def write(path, header, body):
    text = json.dumps(header).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + body)
header, body = read(sys.argv[1])
at = header["after.main.3.running_var"]["data_offsets"][0]
body[at:at + 4] = struct.pack("<f", struct.unpack("<f", body[at:at + 4])[0] * 1.01)
write("changed.safetensors", header, body)
header, body = read(sys.argv[2])
write("lost.safetensors", {("param.typo" if k == "param.features.6.bias" else k): v for k, v in header.items()}, body)
PY
"$WEFT" parity changed.safetensors "$golden/patchgan2d_a.json" >log 2>&1 && { echo "a changed statistic passed"; failed=1; }
grep -q "after *main.3.running_var .* FAIL" log || { cat log; failed=1; }
"$WEFT" parity lost.safetensors "$golden/lpips_alex_a.json" >log 2>&1 && { echo "a lost tensor passed"; failed=1; }
grep -q 'lost.safetensors: "param.features.6.bias" is missing: the trunk is torchvision' log || { cat log; failed=1; }
exit $failed

#!/bin/bash
# LPIPS, PatchGAN, and an autoencoder's step with both: outputs, gradients and running statistics of the
# reference, for every golden file next to the checkout. A changed statistic and a missing tensor are
# detected.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
golden=$WEFT_SHARED/golden
[ -d "$golden" ] || skip "no golden files in $golden"
for json in "$golden"/lpips_*.json "$golden"/patchgan*.json "$golden"/vaegan*.json; do check "$(basename "$json" .json)" "$WEFT" parity "$json"; done
python3 -S - "$golden/patchgan2d_a.safetensors" "$golden/lpips_alex_a.safetensors" <<'PY'
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
a_changed_statistic_is_found() {
    "$WEFT" parity changed.safetensors "$golden/patchgan2d_a.json" >changed.txt 2>&1 && fail "a changed statistic passed"
    grep -q "after *main.3.running_var .* FAIL" changed.txt || fail_with changed.txt "the statistic is not named"
}
check a_changed_statistic_is_found
a_lost_tensor_is_found() {
    "$WEFT" parity lost.safetensors "$golden/lpips_alex_a.json" >log 2>&1 && fail "a lost tensor passed"
    has_message log '*' level=error file=lost.safetensors key=param.features.6.bias text~=torchvision || fail_with log "the tensor is not named"
}
check a_lost_tensor_is_found
finish

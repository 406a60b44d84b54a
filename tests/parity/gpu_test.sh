#!/bin/bash
# The golden files of all families on the emulated driver: outputs and gradients, 30 training steps, LoRA, a
# VAE as a stream and in tiles. The limits of cpu apply; only the order of sums differs. The driver stops the
# program at an access or an order that a GPU does not have. Files that take longer are in gpu_long_test.sh.
. "$SRC/tests/parity/gpu_golden.sh"
cuda wan_lora_train30 "$SRC/tests/golden"
for name in $small; do cuda "$name" "$SRC/tests/golden"; done
for name in $denoisers $autoencoders; do is_slow "$name" || cuda "$name" "$golden"; done
for name in $newer_denoisers $newer_autoencoders; do is_slow "$name" || cuda "$name" "$newer"; done
for name in $(losses); do is_slow "$name" || cuda "$name" "$golden"; done

# A wrong weight in the memory of the GPU is found: the comparison reads results of the GPU.
a_changed_output_fails() {
    python3 -S - "$SRC/tests/golden/wan_t2v_tiny.safetensors" <<'PY'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", data[:8])[0]
body = bytearray(data)
at = 8 + n + json.loads(data[8:8 + n])["param.proj_out.bias"]["data_offsets"][0]
body[at:at + 4] = struct.pack("<f", struct.unpack("<f", body[at:at + 4])[0] + 1.0)
open("changed.safetensors", "wb").write(body)
PY
    "$WEFT" parity changed.safetensors "$SRC/tests/golden/wan_t2v_tiny.json" --backend cuda >out 2>&1 && fail "a changed weight passed"
    has_message out parity-failed level=error || fail_with out "no failed comparison"
}
check a_changed_output_fails
finish

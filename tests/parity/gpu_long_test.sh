#!/bin/bash
# The golden files that take minutes on the emulated driver: 30 training steps of each process, and large models.
[ -n "${WEFT_TEST_LONG-}" ] || { echo "1..0 # SKIP takes minutes: make test-long"; exit 77; }
. "$SRC/tests/parity/gpu_golden.sh"
for name in wan_train30 z_image_train30 longcat_blocks_train30 kandinsky5_nabla_train30; do cuda "$name" "$SRC/tests/golden"; done
for name in $denoisers $autoencoders; do ! is_slow "$name" || cuda "$name" "$golden"; done
for name in $newer_denoisers $newer_autoencoders; do ! is_slow "$name" || cuda "$name" "$newer"; done
for name in $(losses); do ! is_slow "$name" || cuda "$name" "$golden"; done
finish

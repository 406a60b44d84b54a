#!/bin/bash
# The reference's outputs and gradients of every family that has golden files next to the checkout,
# and its trainings.
. "$SRC/tests/check.sh"
. "$SRC/tests/model/golden_names.sh"
[ -d "$golden" ] || skip "no golden files in $golden"
for name in $denoisers; do check "$name" "$WEFT" parity "$golden/$name.json"; done
for name in $newer_denoisers; do check "$name" "$WEFT" parity "$newer/$name.json"; done
finish

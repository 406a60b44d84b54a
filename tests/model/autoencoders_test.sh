#!/bin/bash
# The reference's outputs and gradients of every autoencoder that has golden files next to the checkout.
. "$SRC/tests/check.sh"
. "$SRC/tests/model/golden_names.sh"
[ -d "$golden" ] || skip "no golden files in $golden"
for name in $autoencoders; do check "$name" "$WEFT" parity "$golden/$name.json"; done
check ltx_vae_noise "$WEFT" parity "$SRC/tests/golden/ltx_vae_noise.json"
for name in $newer_autoencoders; do check "$name" "$WEFT" parity "$newer/$name.json"; done
finish

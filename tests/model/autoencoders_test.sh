#!/bin/bash
# The reference's outputs and gradients of every autoencoder that has golden files beside the checkout.
. "$SRC/tests/check.sh"
golden=$WEFT_SHARED/golden
[ -d "$golden" ] || skip "no golden files in $golden"
for name in wan22_vae_a sd_vae_a hunyuan_vae_a cogvideox_vae_a ltx_vae_a mochi_vae_a cosmos_vae_a \
    tiled_wan_a tiled_wan22_a tiled_hunyuan_a; do
    check "$name" "$WEFT" parity "$golden/$name.json"
done
finish

#!/bin/bash
# The reference's outputs and gradients of every autoencoder that has golden files next to the checkout.
. "$SRC/tests/check.sh"
golden=$WEFT_SHARED/golden newer=$WEFT_SHARED/golden3 newer_names="ltx_vae_091_a ltx_vae_095_a allegro_vae_a qwen_image_vae_a hunyuan_video15_vae_a flux2_vae_a"
[ -d "$newer" ] || newer_names=
[ -d "$golden" ] || skip "no golden files in $golden"
for name in wan22_vae_a sd_vae_a hunyuan_vae_a cogvideox_vae_a ltx_vae_a mochi_vae_a cosmos_vae_a \
    tiled_wan_a tiled_wan22_a tiled_hunyuan_a; do
    check "$name" "$WEFT" parity "$golden/$name.json"
done
check ltx_vae_noise "$WEFT" parity "$SRC/tests/golden/ltx_vae_noise.json"
for name in $newer_names; do check "$name" "$WEFT" parity "$newer/$name.json"; done
finish

#!/bin/bash
# Parameters of the published sizes: every name and shape is the public checkpoint's.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
names=$WEFT_SHARED/golden/names
[ -d "$names" ] || skip "no list of names in $names"
same() { # CONFIG
    local config=$1
    list=${config%.config.json}.tensors.txt
    "$WEFT" inspect model "$config" --tensors >ours.txt 2>err || {
        has_message err model-unknown 2>/dev/null || has_message err model-config-unsupported 2>/dev/null || has_message err model-config key=_class_name || fail_with err "refused for another reason"
        return 0 # another family, or a switch that is refused by name
    }
    echo "$config" >>compared
    diff <(awk '{ print $1, $3 == "" ? 1 : $3 }' ours.txt | LC_ALL=C sort) <(grep -v '^#' "$list" | LC_ALL=C sort) >differs ||
        { head -5 differs; fail "other tensors than in $list"; }
}
# the third set of golden files has them, too, and diffusers' default config of Z-Image (golden_names.py)
for config in "$names"/*.config.json "$SRC"/tests/golden/names/*.config.json "$WEFT_SHARED"/golden3/names/{ltx_vae_091,allegro_vae,qwen_image,skyreels_v2_default,wan_vace_14b,flux2,chroma,hunyuan_video15,hunyuan_video15_vae,hunyuan_framepack,kandinsky5_default,ltx2_video,ltx2_vae}.config.json; do
    [ ! -f "$config" ] || check "$(basename "$config" .config.json)" same "$config"
done
# ChronoEdit is Wan's image-to-video model
chronoedit() {
    sed 's/"WanTransformer3DModel"/"ChronoEditTransformer3DModel"/' "$names/wan21_i2v_14b.config.json" >chronoedit.config.json
    cp "$names/wan21_i2v_14b.tensors.txt" chronoedit.tensors.txt
    same chronoedit.config.json
    "$WEFT" inspect model chronoedit-14b --tensors | diff - ours.txt >differs || { head -5 differs; fail "other tensors in chronoedit-14b"; }
}
check chronoedit chronoedit
# Causal Wan has the tensors of Wan's text-to-video model
causal_wan() {
    sed 's/"WanTransformer3DModel"/"CausalWanTransformer3DModel"/' "$names/wan21_t2v_1.3b.config.json" >causal_wan.config.json
    cp "$names/wan21_t2v_1.3b.tensors.txt" causal_wan.tensors.txt
    same causal_wan.config.json
    "$WEFT" inspect model causal-wan-1.3b --tensors | diff - ours.txt >differs || { head -5 differs; fail "other tensors in causal-wan-1.3b"; }
}
check causal_wan causal_wan
# Qwen-Image's autoencoder has the tensors of Wan 2.1's
qwen_image_vae_is_wan_vae() {
    diff <("$WEFT" inspect model qwen-image-vae --tensors | awk '{ print $1, $3 }' | LC_ALL=C sort) <(grep -v '^#' "$names/wan21_vae.tensors.txt" | LC_ALL=C sort) >differs ||
        { head -5 differs; fail "other tensors than Wan 2.1's"; }
}
check qwen_image_vae_is_wan_vae qwen_image_vae_is_wan_vae
two_or_more_are_compared() { [ "$(wc -l <compared)" -ge 2 ]; }
[ -n "${WEFT_TEST_CHECK-}" ] || check two_or_more_are_compared
finish

# shellcheck shell=bash disable=SC2034
# Comparisons with golden files on the emulated driver, for gpu_test.sh and gpu_long_test.sh.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
. "$SRC/tests/model/golden_names.sh"
# Without the files next to the checkout, only the files of the repository are compared.
[ -d "$golden" ] || denoisers="" newer_denoisers="" autoencoders="" newer_autoencoders=""
losses() { [ ! -d "$golden" ] || (cd "$golden" && printf '%s\n' lpips_*.json patchgan*.json vaegan*.json | sed 's/[.]json$//'); }
export WEFT_CUDA_LIBRARY=$WEFT_BUILD/emu/libcuda.so.1 OMP_NUM_THREADS=1
small="wan_t2v_tiny wan_t2v_batch wan_vae_image uvit t5 clip_text bert vit siglip llava vaegan t5_buckets cogvideox_narrow ltx_vae_noise longcat_blocks"
# is_slow NAME: the file takes more than about 4 s of a core.
is_slow() {
    case $1 in *_train30_a | unet_sd2_a | t5_a | umt5_a | mochi_vae_a | tiled_wan_a | lpips_*_full_a) return 0 ;; esac
    return 1
}
# cuda NAME FOLDER: a check of one golden file.
cuda() { check "$1" "$WEFT" parity "$2/$1.json" --backend cuda; }
"$WEFT" parity "$SRC/tests/golden/clip_text.json" --backend cuda >first.log 2>&1 || {
    has_message first.log gpu-kernels && skip "no clang"
    fail_with first.log "weft parity --backend cuda"
}

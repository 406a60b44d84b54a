#!/bin/bash
# A limit of threads below OMP_NUM_THREADS does not change a video. A prompt of 1,024 tokens has
# products that are divided among threads.
. "$SRC/tests/check.sh"
cp -rL "$SRC/tests/golden/pipelines/ltx23" model
sed -i 's/"sliding_window": 64/"sliding_window": 1024/' model/text_encoder/config.json
make() { # OUT THREADS LIMIT
    OMP_NUM_THREADS=$2 OMP_THREAD_LIMIT=$3 "$WEFT" generate --model model --prompt "a red cat" --seed 3 --steps 2 \
        --frames 9 --height 32 --width 32 --latents-npy --out "$1.mp4" >"$1.log" 2>&1 || fail_with "$1.log" "weft generate"
}
a_limit_of_threads_changes_no_video() {
    make one 1 8
    make limited 2 1
    make two 2 8
    cmp one.latents.npy two.latents.npy || fail "2 threads have other latents than 1"
    cmp one.latents.npy limited.latents.npy || fail "2 threads with a limit of 1 have other latents"
}
check a_limit_of_threads_changes_no_video
finish

#!/bin/bash
# weft generate --split-states: the sampler state of a batch is saved per video. A batch that is killed resumes bitwise as the
# same batch. Each of its videos resumes alone, and videos that were stopped alone resume as a batch: these agree to rounding,
# because products of other shapes sum in another order.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
export OMP_NUM_THREADS=1
source "$SRC/tests/signal_at.sh"
wan=$SRC/tests/golden/pipelines/wan_over
options=(--model "$wan" --height 32 --width 32 --frames 5 --steps 6 --latents-npy)
cat >two.jsonl <<'L'
{"prompt": "a red cat", "seed": 1, "out": "a.mp4"}
{"prompt": "a blue dog in the rain", "seed": 2, "out": "b.mp4"}
L
sed -n 1p two.jsonl >a.jsonl
sed -n 2p two.jsonl >b.jsonl
# generate LIST OUT [OPTION...]
generate() { "$WEFT" generate "${options[@]}" --prompts "$1.jsonl" --out "$2" --split-states "${@:3}" >"$2.log" 2>&1; }
# close A B: latents that differ by at most 1e-4 of their largest value, and not in shape
close() {
    python3 -S - "$1" "$2" <<'PY' || fail "$1 and $2 differ"
import array, sys
def read(path):
    data = open(path, "rb").read()
    return data[:128], array.array("f", data[128:])
(head, a), (other, b) = map(read, sys.argv[1:])
worst, scale = max(abs(x - y) for x, y in zip(a, b)), max(map(abs, b))
print(worst / scale)
sys.exit(not (head == other and len(a) == len(b) and worst <= 1e-4 * scale))
PY
}
for sampler in unipc ddpm; do
    generate two "whole-$sampler" --batch-size 2 --sampler "$sampler" || fail "a batch of two"
    generate two "alone-$sampler" --sampler "$sampler" || fail "two videos alone"
done
a_killed_batch_resumes_bitwise() {
    for sampler in unipc ddpm; do
        signal_at KILL "*killed-$sampler/b.sampling.safetensors" "$WEFT" generate "${options[@]}" --prompts two.jsonl --out "killed-$sampler" \
            --split-states --batch-size 2 --sampler "$sampler" >killed.log 2>&1
        [ -e "killed-$sampler/a.sampling.safetensors" ] && [ -e "killed-$sampler/b.sampling.safetensors" ] || fail "a video has no state"
        generate two "killed-$sampler" --batch-size 2 --sampler "$sampler" --resume || fail "--resume"
        has_message "killed-$sampler.log" run-resumed 'file=*sampling.safetensors' 'value=[1-9]*' || fail "started from step 0"
        for video in a b; do cmp "killed-$sampler/$video.latents.npy" "whole-$sampler/$video.latents.npy" || fail "$video of $sampler"; done
        [ -z "$(find "killed-$sampler" -name '*.safetensors')" ] || fail "saved files were not removed"
    done
}
check a_killed_batch_resumes_bitwise
videos_of_a_batch_resume_alone() {
    signal_at INT "*apart/b.sampling.safetensors" "$WEFT" generate "${options[@]}" --prompts two.jsonl --out apart --split-states --batch-size 2 >apart.log 2>&1
    [ -e apart/a.sampling.safetensors ] && [ -e apart/b.sampling.safetensors ] || fail "a video has no state"
    for video in b a; do
        generate $video apart --resume || fail "$video alone"
        has_message apart.log run-resumed 'file=*sampling.safetensors' 'value=[1-9]*' || fail "$video started from step 0"
        close apart/$video.latents.npy alone-unipc/$video.latents.npy
    done
    # without the option a state of another batch is refused: the results would not be bitwise
    signal_at INT "*strict/b.sampling.safetensors" "$WEFT" generate "${options[@]}" --prompts two.jsonl --out strict --split-states --batch-size 2 >strict.log 2>&1
    "$WEFT" generate "${options[@]}" --prompts b.jsonl --out strict --resume >strict.log 2>&1 && fail "a state of a batch is accepted"
    has_message strict.log latents-mismatch key=batch || fail "the error does not name the batch"
}
check videos_of_a_batch_resume_alone
videos_that_were_stopped_alone_resume_as_a_batch() {
    for video in a b; do
        signal_at KILL "*joined/$video.sampling.safetensors" "$WEFT" generate "${options[@]}" --prompts $video.jsonl --out joined >joined.log 2>&1
        [ -e joined/$video.sampling.safetensors ] || fail "$video has no state"
    done
    rm -f joined/prompts.jsonl
    generate two joined --batch-size 2 --resume || fail "--resume"
    [ "$(count_messages joined.log run-resumed 'file=*sampling.safetensors')" = 1 ] || fail "the videos were not resumed as one batch"
    for video in a b; do close joined/$video.latents.npy alone-unipc/$video.latents.npy; done
}
check videos_that_were_stopped_alone_resume_as_a_batch
# The process is killed between the two files of a step: the second video starts from scratch.
states_of_two_steps_are_two_batches() {
    signal_at KILL "*torn/a.sampling.safetensors" "$WEFT" generate "${options[@]}" --prompts two.jsonl --out torn --split-states --batch-size 2 >torn.log 2>&1
    [ -e torn/a.sampling.safetensors ] && [ ! -e torn/b.sampling.safetensors ] || fail "the run was not killed between two files"
    generate two torn --batch-size 2 --resume || fail "--resume"
    [ "$(count_messages torn.log run-resumed 'file=*/a.sampling.safetensors' value=1)" = 1 ] || fail "the first video was not resumed"
    for video in a b; do close torn/$video.latents.npy alone-unipc/$video.latents.npy; done
}
check states_of_two_steps_are_two_batches
feature_caches_cannot_be_split() {
    generate two cached --feature-cache attention:3 && fail "a feature cache is accepted"
    has_message cached.log option-conflict key=--split-states || fail "the error does not name the option"
}
check feature_caches_cannot_be_split
finish

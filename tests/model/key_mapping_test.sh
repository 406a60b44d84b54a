#!/bin/bash
# One set of weights in the names of several programs: the family is found, and every tensor comes out under the
# family's own name with its own shape.
set -u
files=$WEFT_SHARED/golden/dialects/dialect_wan_a
[ -d "$files" ] || { echo "no $files"; exit 77; }
failed=0 compared=0
"$WEFT" inspect model "$files/diffusers" --tensors | cut -d' ' -f1,3 | LC_ALL=C sort >truth.txt || exit 1
[ -s truth.txt ] || { echo "no truth"; exit 1; }
for file in "$files"/original.safetensors "$files"/comfy_bf16.safetensors "$files"/comfy_f16.safetensors; do
    [ -e "$file" ] || continue
    compared=$((compared + 1))
    "$WEFT" inspect model "$file" >told.txt || { echo "$file"; failed=1; }
    grep -q 'names  *original' told.txt && grep -q 'WanTransformer3DModel (denoiser)' told.txt || { cat told.txt; failed=1; }
    "$WEFT" inspect model "$file" --tensors | cut -d' ' -f1,3 | LC_ALL=C sort | diff - truth.txt >differs || { echo "$file:"; head -5 differs; failed=1; }
done
grep -q . truth.txt && [ $compared -ge 2 ] || { echo "$compared files"; failed=1; }
exit $failed

#!/bin/bash
# One set of weights in the names of several programs: the family is found, and every tensor comes out under the
# family's own name with its own shape.
. "$SRC/tests/check.sh"
files=$WEFT_SHARED/golden/dialects/dialect_wan_a
[ -d "$files" ] || skip "no $files"
"$WEFT" inspect model "$files/diffusers" --tensors | cut -d' ' -f1,3 | LC_ALL=C sort >truth.txt
[ -s truth.txt ] || fail "no truth"
same_tensors() { # FILE
    local file=$1
    "$WEFT" inspect model "$file" >told.txt || fail "$file"
    grep -q 'names  *original' told.txt && grep -q 'WanTransformer3DModel (denoiser)' told.txt || fail_with told.txt "the names or the class"
    "$WEFT" inspect model "$file" --tensors | cut -d' ' -f1,3 | LC_ALL=C sort | diff - truth.txt >differs || { head -5 differs; fail "$file"; }
}
for name in original comfy_bf16 comfy_f16; do check "$name" same_tensors "$files/$name.safetensors"; done
finish

#!/bin/bash
# The ids of every golden string, by every form of every tokenizer that lies beside the checkout; what becomes of prompts that are cleaned.
set -u
golden=$WEFT_SHARED/golden
[ -d "$golden" ] || { echo "no golden files in $golden"; exit 77; }
failed=0
for name in t5 umt5 spm_plain clip llama3 qwen2; do
    "$WEFT" parity "$golden/tok_${name}_a.json" || failed=1
done
"$WEFT" parity "$SRC/tests/golden/tok_bert.json" || failed=1 # made by BertTokenizerFast: tools/golden_bert.py
"$WEFT" parity "$golden/prompt_clean_a.json" || failed=1
exit $failed

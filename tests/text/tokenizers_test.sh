#!/bin/bash
# Token ids of every golden string, with every file format of every tokenizer in the shared golden
# files. Also cleaned prompts.
. "$SRC/tests/check.sh"
golden=$WEFT_SHARED/golden
[ -d "$golden" ] || skip "no golden files in $golden"
for name in t5 umt5 spm_plain clip llama3 qwen2; do check "tok_$name" "$WEFT" parity "$golden/tok_${name}_a.json"; done
check tok_bert "$WEFT" parity "$SRC/tests/golden/tok_bert.json" # made by BertTokenizerFast: tools/golden_bert.py
check tok_byt5 "$WEFT" parity "$SRC/tests/golden/tok_byt5.json"
check prompt_clean "$WEFT" parity "$golden/prompt_clean_a.json"
check tok_gemma "$WEFT" parity "$SRC/tests/golden/tok_gemma.json" # made by GemmaTokenizer: tools/golden_gemma_tokenizer.py
finish

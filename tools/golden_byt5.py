#!/usr/bin/env python3
"""Makes tests/golden/tok_byt5.json: ids of ByT5Tokenizer, and its config in
tests/golden/tokenizers/byt5. Needs transformers; run from the root of the checkout."""
import json
import os

from transformers import ByT5Tokenizer

GOLDEN = "tests/golden"
tokenizer = ByT5Tokenizer()
tokenizer.save_pretrained(f"{GOLDEN}/tokenizers/byt5")
os.remove(f"{GOLDEN}/tokenizers/byt5/added_tokens.json")  # tokenizer_config.json has the same tokens
texts = ["", " ", "a", 'Text "caf\u00e9". ', "\u4f60\u597d \U0001f600\n\ttab", "a<extra_id_0> b", "a </s>  b <pad>c", "<extra_id_124><extra_id_1>",
         "\u007f\u0001"]
json.dump({"_class_name": "tokenizer golden", "files": ["tokenizers/byt5/tokenizer_config.json"],
           "cases": [{"text": t, "ids": tokenizer(t).input_ids} for t in texts]}, open(f"{GOLDEN}/tok_byt5.json", "w"), indent=0)

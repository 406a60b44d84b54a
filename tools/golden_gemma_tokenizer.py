#!/usr/bin/env python3
"""Makes tests/golden/tok_gemma.json: ids of transformers' GemmaTokenizer, and its tokenizer.json in
tests/golden/tokenizers/gemma. The merges are learned from the text below. Pipelines of other makers
get their tokenizer from gemma(). Needs transformers; run from the root of the checkout."""
import json
import os
import random
import shutil

from transformers import GemmaTokenizer

GOLDEN, BAR = "tests/golden", "\u2581"
SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
TEXT = ("Given a user prompt, generate an enhanced prompt that provides detailed visual descriptions suitable for video generation. a red cat "
        "walks and sleeps under the moon, the cats are walking; the camera pans slowly over the caf\u00e9 at night. the the and and a  b   c")


def learn(text, count):
    """The merges of the most frequent neighbours within words, of equals the first in the order of strings."""
    words, merges = [list(word) for word in text.replace(" ", " " + BAR).split(" ")], []
    while len(merges) < count:
        seen = {}
        for word in words:
            for pair in zip(word, word[1:]):
                seen[pair] = seen.get(pair, 0) + 1
        best = min(seen, key=lambda pair: (-seen[pair], pair))
        merges.append(best)
        for word in words:
            at = 0
            while at + 1 < len(word):
                if (word[at], word[at + 1]) == best:
                    word[at:at + 2] = ["".join(best)]
                at += 1
    return merges


def gemma(merges=40, added=()):
    """Special tokens, `added` ones, 256 bytes, letters, and what the merges make."""
    pairs = [(BAR, BAR), (BAR + BAR, BAR), (BAR + BAR, BAR + BAR)] + learn(TEXT, merges) if merges else []
    letters = sorted(set(map(chr, range(33, 127))) | {BAR, "\u00e9", "\n"})
    order = SPECIAL + list(added) + [f"<0x{byte:02X}>" for byte in range(256)] + letters + [a + b for a, b in pairs]
    vocabulary = {piece: at for at, piece in enumerate(dict.fromkeys(order))}
    # Gemma's own class has no beginning in its template without a file: add it as the published files have it
    made = GemmaTokenizer(vocab=vocabulary, merges=pairs, additional_special_tokens=list(added), padding_side="right")
    whole = json.loads(made.backend_tokenizer.to_str())
    single = [{"SpecialToken": {"id": "<bos>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    whole["post_processor"] = {"type": "TemplateProcessing", "single": single, "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
                               "special_tokens": {"<bos>": {"id": "<bos>", "ids": [2], "tokens": ["<bos>"]}}}
    made._tokenizer = made.backend_tokenizer.from_str(json.dumps(whole))
    return made


def texts():
    """Fixed ones and random ones of pieces, letters of several scripts, blanks and special tokens."""
    draw = random.Random(3)
    parts = ["the", " cat", " caf\u00e9", "  ", "   ", "     ", "\n", "\n\n", "\t", BAR, "\u4f60\u597d", "\U0001f600", "e\u0301", "\u00a0", "<eos>", "<unk>",
             "<start_of_turn>", "<0x41>", "<", "walking", "aaa", "\u0000", "\u200d", "Given a", "12 345", "!?", "\ufffd"]
    fixed = ["", " ", "a", "  a", "a ", TEXT, "<bos>a", "a<start_of_turn>user\n\nb", "\u2581\u2581the", "x" * 300, " " * 33, "\r\n"]
    return fixed + ["".join(draw.choice(parts) for _ in range(draw.randrange(1, 14))) for _ in range(60)]


if __name__ == "__main__":
    made, folder = gemma(added=("<start_of_turn>", "<end_of_turn>")), f"{GOLDEN}/tokenizers/gemma"
    shutil.rmtree(folder, ignore_errors=True)
    made.save_pretrained(folder)
    for name in os.listdir(folder):
        if name not in ("tokenizer.json", "tokenizer_config.json"):
            os.remove(f"{folder}/{name}")
    read = GemmaTokenizer.from_pretrained(folder)
    cases = [{"text": t, "ids": read(t).input_ids, "truncated_7": read(t, truncation=True, max_length=7).input_ids} for t in texts()]
    json.dump({"_class_name": "tokenizer golden", "files": ["tokenizers/gemma/tokenizer.json"], "cases": cases}, open(f"{GOLDEN}/tok_gemma.json", "w"),
              indent=0)

"""A vision-language model of random weights, for tests of `transformers serve`.

usage: tiny_vision_model.py FOLDER

A Qwen2-VL with two layers of 32 and a vocabulary of bytes. A reply has at least 8 letters, and ends
with the first token that is not a letter: the words are noise, and greedy replies repeat.
"""
import string, sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (AutoProcessor, GenerationConfig, Qwen2VLConfig, Qwen2VLForConditionalGeneration,
                          Qwen2VLProcessor)
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
from transformers import PreTrainedTokenizerFast

TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m['content'] is string %}{{ m['content'] }}"
            "{% else %}{% for c in m['content'] %}{% if c['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
            "{% elif c['type'] == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
            "{% else %}{{ c['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
           "<|image_pad|>", "<|video_pad|>"]


def main(folder):
    torch.manual_seed(7)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {c: i for i, c in enumerate(letters)}
    raw = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens(SPECIAL)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|endoftext|>",
                                        extra_special_tokens={"image_token": "<|image_pad|>", "video_token": "<|video_pad|>",
                                                              "vision_bos_token": "<|vision_start|>", "vision_eos_token": "<|vision_end|>"})
    ids = {name: tokenizer.convert_tokens_to_ids(name) for name in SPECIAL}
    config = Qwen2VLConfig(
        text_config={"vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
                     "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 8192,
                     "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]},
                     "bos_token_id": None, "eos_token_id": ids["<|im_end|>"]},
        vision_config={"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 4, "mlp_ratio": 2},
        image_token_id=ids["<|image_pad|>"], video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"], vision_end_token_id=ids["<|vision_end|>"])
    model = Qwen2VLForConditionalGeneration(config)
    ends = [i for i in range(len(tokenizer)) if i >= len(letters) or letters[i] not in string.ascii_letters]
    model.generation_config = GenerationConfig(eos_token_id=ends, pad_token_id=ids["<|endoftext|>"], min_new_tokens=8,
                                               max_new_tokens=64, do_sample=False,
                                               exponential_decay_length_penalty=(8, 50.0))
    pixels = {"size": {"shortest_edge": 28 * 28, "longest_edge": 28 * 28 * 16}}
    processor = Qwen2VLProcessor(image_processor=Qwen2VLImageProcessor(**pixels), tokenizer=tokenizer,
                                 video_processor=Qwen2VLVideoProcessor(**pixels), chat_template=TEMPLATE)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    AutoProcessor.from_pretrained(folder)


main(sys.argv[1])

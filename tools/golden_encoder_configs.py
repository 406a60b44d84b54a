#!/usr/bin/env python3
"""Makes tests/golden/configs/encoder_configs.json: the configs of small encoders as the installed version of
transformers writes them. Needs transformers; run from the root of the checkout."""
import json

from transformers import (BertConfig, CLIPConfig, CLIPTextConfig, CLIPVisionConfig, Gemma2Config, Gemma3Config, Gemma3TextConfig, LlamaConfig,
                          LlavaConfig, Mistral3Config, MistralConfig, MT5Config, Qwen2_5_VLConfig, Qwen2_5_VLTextConfig, Qwen3Config,
                          SiglipVisionConfig, T5Config, UMT5Config, ViTConfig)

blocks = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
words = dict(vocab_size=64, **blocks, num_key_value_heads=2)
heads = dict(words, head_dim=8)
picture = dict(blocks, image_size=32, patch_size=8)
t5 = dict(vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, feed_forward_proj="gated-gelu")
clip_text, clip_vision = dict(vocab_size=64, **blocks, projection_dim=16), dict(picture, projection_dim=16)
mrope = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e6}
llama3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
gemma3 = dict(heads, rope_theta=1e6, rope_local_base_freq=2e4, rope_scaling={"factor": 8.0, "rope_type": "linear"})  # as published

configs = {  # by class; the classes with several models have the models' configs inside
    "T5EncoderModel": T5Config(**t5), "UMT5EncoderModel": UMT5Config(**t5), "MT5EncoderModel": MT5Config(**t5),
    "CLIPTextModel": CLIPTextConfig(**clip_text), "CLIPTextModelWithProjection": CLIPTextConfig(**clip_text),
    "CLIPVisionModel": CLIPVisionConfig(**clip_vision), "CLIPVisionModelWithProjection": CLIPVisionConfig(**clip_vision),
    "CLIPModel": CLIPConfig(text_config=clip_text, vision_config=clip_vision, projection_dim=16),
    "LlamaModel": LlamaConfig(**words, rope_parameters=llama3), "LlamaForCausalLM": LlamaConfig(**words),
    "MistralModel": MistralConfig(**heads), "Qwen3Model": Qwen3Config(**heads), "Gemma2Model": Gemma2Config(**heads),
    "Gemma3TextModel": Gemma3TextConfig(**gemma3), "Gemma3ForCausalLM": Gemma3TextConfig(**heads),
    "Gemma3ForConditionalGeneration": Gemma3Config(text_config=gemma3, vision_config=picture),
    "Qwen2_5_VLTextModel": Qwen2_5_VLTextConfig(**words, rope_parameters=mrope),
    "Qwen2_5_VLForConditionalGeneration": Qwen2_5_VLConfig(text_config=dict(words, rope_parameters=mrope)),
    "Mistral3ForConditionalGeneration": Mistral3Config(text_config=dict(heads, model_type="mistral")),
    "LlavaForConditionalGeneration": LlavaConfig(text_config=dict(words, model_type="llama"), image_token_index=60,
                                                 vision_config=dict(clip_vision, model_type="clip_vision_model")),
    "SiglipVisionModel": SiglipVisionConfig(**picture), "BertModel": BertConfig(vocab_size=64, **blocks), "ViTModel": ViTConfig(**picture),
}
for name, config in configs.items():
    config.architectures = [name]
json.dump({name: json.loads(config.to_json_string(use_diff=True)) for name, config in configs.items()},
          open("tests/golden/configs/encoder_configs.json", "w"), indent=1)

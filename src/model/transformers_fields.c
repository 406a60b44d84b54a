/* Fields that any config.json of the transformers library may have and that no encoder reads. */
#include "model/transformers_fields.h"

#include "model/family.h"

#include <stddef.h>

/* clang-format off */
const weft_unused_field weft_transformers_unused[] = {
    /* origin of the file */
    {"architectures"}, {"auto_map"}, {"model_type"}, {"name_or_path"}, {"transformers_version"},
    {"tokenizer_class"}, {"torch_dtype"}, {"dtype"},
    /* execution in the reference */
    {"attn_implementation"}, {"chunk_size_feed_forward"}, {"gradient_checkpointing"},
    {"output_attentions"}, {"output_hidden_states"}, {"output_past"}, {"return_dict"},
    {"torchscript"}, {"use_bfloat16"}, {"use_cache"}, {"xla_device"},
    /* training of the encoder */
    {"attention_dropout"}, {"attention_probs_dropout_prob"}, {"classifier_dropout"}, {"dropout"},
    {"dropout_rate"}, {"hidden_dropout_prob"}, {"initializer_factor"}, {"initializer_range"},
    {"layerdrop"}, {"tf_legacy_loss"},
    /* heads, decoders and tasks, which an encoder does not use */
    {"decoder_start_token_id"}, {"finetuning_task"}, {"id2label"}, {"is_encoder_decoder"},
    {"label2id"}, {"num_labels"}, {"prefix"}, {"problem_type"}, {"task_specific_params"},
    {"tie_encoder_decoder"}, {"tie_word_embeddings"},
    /* tokens, which the folder of the tokenizer defines */
    {"bos_token_id"}, {"eos_token_id"}, {"pad_token_id"}, {"sep_token_id"},
    /* generation of text */
    {"bad_words_ids"}, {"begin_suppress_tokens"}, {"diversity_penalty"}, {"do_sample"},
    {"early_stopping"}, {"encoder_no_repeat_ngram_size"}, {"exponential_decay_length_penalty"},
    {"forced_bos_token_id"}, {"forced_eos_token_id"}, {"length_penalty"}, {"max_length"},
    {"min_length"}, {"no_repeat_ngram_size"}, {"num_beam_groups"}, {"num_beams"},
    {"num_return_sequences"}, {"output_scores"}, {"remove_invalid_values"},
    {"repetition_penalty"}, {"return_dict_in_generate"}, {"suppress_tokens"}, {"temperature"},
    {"top_k"}, {"top_p"}, {"typical_p"},
    /* changes of the forward pass */
    {"add_cross_attention", "false"},
    {"cross_attention_hidden_size", "null"},
    {"is_decoder", "false"},
    {"pruned_heads", "{}"},
    {"quantization_config", "null"},
    {NULL},
};
/* clang-format on */

/* Tokens of texts: the tokenizers of the text encoders, captions and prompts in their templates,
 * and reports of truncated texts. */
#ifndef WEFT_PROMPT_TEXT_TOKENS_H
#define WEFT_PROMPT_TEXT_TOKENS_H

#include "prompt/text_conditioning.h"

/* Token ids of special strings in the template of weft_vision_input. */
typedef struct weft_special_tokens {
    int32_t image, closes;
} weft_special_tokens;

/* Texts by their instruction (weft_text_encoder_row.instruction). */
typedef enum weft_text_kind {
    WEFT_TEXT_CAPTION,  /* instruction, but not before an empty caption, which training drops */
    WEFT_TEXT_PROMPT,   /* instruction, also before an empty prompt */
    WEFT_TEXT_NEGATIVE, /* no instruction */
} weft_text_kind;

/* The open tokenizers, and counts of truncated texts. */
typedef struct weft_tokenizer_set {
    weft_special_tokens sign[WEFT_MAX_TEXT_ENCODERS]; /* for encoders with a vision input */
    weft_tokenizer *of[WEFT_MAX_TEXT_ENCODERS];       /* NULL: the family's own tokens */
    /* tokenized texts, and truncated ones by encoder */
    int64_t texts, cut[WEFT_MAX_TEXT_ENCODERS];
    weft_text_kind kind; /* set by the caller: kind of the next texts */
} weft_tokenizer_set;
weft_status weft_tokenizer_set_open(const weft_text_conditioning *c,
                                    weft_tokenizer_set *tokenizers);
void weft_tokenizer_set_close(weft_tokenizer_set *tokenizers);

/* Tokenizes a text into row `row` of the inputs of encoder r. */
weft_status weft_text_conditioning_tokenize(const weft_text_conditioning *c,
                                            weft_tokenizer_set *tokenizers, int r,
                                            weft_input_lookup *find, void *user, int64_t row,
                                            const char *text);
/* Appends a line for each encoder that truncates `text`; nothing if the text fits. */
weft_status weft_text_conditioning_format_truncation(const weft_text_conditioning *c,
                                                     const weft_tokenizer_set *tokenizers,
                                                     const char *text, weft_buf *out);
/* Warns with the number of truncated texts. */
void weft_text_conditioning_warn_truncation(const weft_text_conditioning *c,
                                            const weft_tokenizer_set *tokenizers);

#endif

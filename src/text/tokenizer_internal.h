/* A tokenizer as its readers (tokenizer_json.c, spiece.c) fill it. */
#ifndef WEFT_TEXT_INSIDE_H
#define WEFT_TEXT_INSIDE_H

#include "base/json.h"
#include "text/normalise.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

typedef enum weft_form {
    WEFT_FORM_SPIECE,  /* SentencePiece's own normaliser, one piece */
    WEFT_FORM_UNIGRAM, /* tokenizer.json with a map of characters and Metaspace */
    WEFT_FORM_CLIP,
    WEFT_FORM_BYTES, /* Llama 3, Qwen 2 */
    WEFT_FORM_WORDS, /* BERT */
} weft_form;

typedef struct weft_added {
    char *text;
    int64_t length;
    int32_t id;
} weft_added;

enum { WEFT_MAX_AROUND = 8 };
struct weft_tokenizer {
    char *file;
    weft_form form;
    weft_vocabulary vocabulary;
    weft_charsmap map;
    weft_unigram unigram;
    weft_bpe bpe;
    int digits;   /* BYTES: that may stand together */
    bool compose; /* BYTES: NFC first */
    /* WORDS: small letters; without accents; each Chinese character a word; what is unknown, and
     * only that, stands in `bpe` */
    bool lower, strip, chinese;
    bool dummy_prefix, remove_spaces, escape_spaces;
    int32_t pad;
    weft_added *added; /* found in the text before anything else */
    int64_t added_count, added_capacity;
    int32_t front[WEFT_MAX_AROUND], back[WEFT_MAX_AROUND];
    int fronts, backs;
};

weft_status weft_tokenizer_read_json(weft_tokenizer *t);
weft_status weft_tokenizer_read_spiece(weft_tokenizer *t);
weft_status weft_tokenizer_read_clip(weft_tokenizer *t, const char *folder);
weft_status weft_tokenizer_read_words(weft_tokenizer *t, const char *folder);
/* A config of a tokenizer: "no limit" stands in them as an integer of 31 digits. */
weft_status weft_tokenizer_load_config(const char *path, json_t **json);
/* A text as weft_text_words leaves it. */
weft_status weft_wordpiece_cut(const weft_tokenizer *t, const char *text, int64_t length,
                               weft_ids *out);
weft_status weft_tokenizer_add(weft_tokenizer *t, const char *text, int32_t id);

#endif

/* A tokenizer as its readers (tokenizer_json.c, spiece.c) fill it. */
#ifndef WEFT_TEXT_TOKENIZER_INTERNAL_H
#define WEFT_TEXT_TOKENIZER_INTERNAL_H

#include "base/json.h"
#include "text/normalise.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

typedef enum weft_tokenizer_kind {
    WEFT_TOKENIZER_SPIECE,  /* SentencePiece's own normaliser, one piece */
    WEFT_TOKENIZER_UNIGRAM, /* tokenizer.json with a map of characters and Metaspace */
    WEFT_TOKENIZER_CLIP,
    WEFT_TOKENIZER_BYTES, /* Llama 3, Qwen 2 */
    WEFT_TOKENIZER_GEMMA, /* blanks are bars, and a text is one piece of characters */
    WEFT_TOKENIZER_WORDS, /* BERT */
    WEFT_TOKENIZER_BYT5,  /* a token for each byte */
} weft_tokenizer_kind;

typedef struct weft_added {
    char *text;
    int64_t length;
    int32_t id;
    bool strips; /* white space around the token is dropped */
} weft_added;

enum { WEFT_MAX_AROUND = 8 };
struct weft_tokenizer {
    char *file;
    weft_tokenizer_kind form;
    weft_vocabulary vocabulary;
    weft_charsmap map;
    weft_unigram unigram;
    weft_bpe bpe;
    int digits;     /* BYTES: that may stand together */
    bool compose;   /* BYTES: NFC first */
    bool cases;     /* BYTES: words end before a capital letter (Mistral's Tekken) */
    bool pads_left; /* the config has "padding_side": "left" */
    /* WORDS: lower case; accents removed; each Chinese character a word. `bpe` has only the unknown
     * token. */
    bool lower, strip, chinese;
    bool dummy_prefix, remove_spaces, escape_spaces;
    int32_t pad;
    weft_added *added; /* found in the text before anything else */
    int64_t added_count, added_capacity;
    bool added_first[256]; /* bytes with which an added token begins */
    int32_t front[WEFT_MAX_AROUND], back[WEFT_MAX_AROUND];
    int fronts, backs;
};

#endif

/* Strings of a vocabulary and their ids, and the two ways of cutting a piece of text into them. */
#ifndef WEFT_TEXT_VOCABULARY_H
#define WEFT_TEXT_VOCABULARY_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct weft_vocabulary {
    char **piece; /* indexed by id; NULL: the id is not used */
    int *length;
    float *score;  /* unigram: log probability */
    bool *matches; /* unigram: the piece can match text; control pieces and bytes cannot */
    bool *whole;   /* unigram: always taken whole, at any cost */
    int64_t count, capacity;
    int32_t *slot; /* hash table of ids, -1: free */
    int64_t slots;
    int longest; /* bytes */
} weft_vocabulary;

/* Sets id's piece; ids come in any order. */
weft_status weft_vocabulary_add(weft_vocabulary *v, int32_t id, const char *piece, int length,
                                float score);
/* Call once, after the last piece was added. Of equal pieces the first one is found. */
weft_status weft_vocabulary_index(weft_vocabulary *v);
int32_t weft_vocabulary_find(const weft_vocabulary *v, const char *piece, int64_t length); /* -1 */
void weft_vocabulary_free(weft_vocabulary *v);

/* A growing list of ids. */
typedef struct weft_ids {
    int32_t *id;
    int64_t count, capacity;
} weft_ids;
weft_status weft_ids_add(weft_ids *ids, int32_t id);

/* ---- unigram -------------------------------------------------------------------------------- */

typedef struct weft_unigram {
    int32_t unknown;
    float unknown_score, best_score;
    bool add_in_f64;      /* tokenizer.json's library adds in f64, SentencePiece in f32 */
    bool bytes;           /* an unknown character becomes its bytes */
    int32_t byte_id[256]; /* -1: none */
} weft_unigram;
/* The path of the highest sum of scores; neighbouring unknown characters are one. */
weft_status weft_unigram_cut(const weft_vocabulary *v, const weft_unigram *u, const char *text,
                             int64_t length, weft_ids *out);

/* ---- byte pairs ----------------------------------------------------------------------------- */

typedef struct weft_merge {
    int64_t pair; /* left << 32 | right; -1: free */
    int32_t rank, made;
} weft_merge;
typedef struct weft_bpe {
    weft_merge *merge; /* hash table */
    int64_t slots, count;
    int32_t unknown;      /* id of unknown characters; -1: they are dropped */
    const char *suffix;   /* suffix of the last character of a word: "</w>", or "" */
    bool whole_first;     /* a piece that is in the vocabulary is not built by merges */
    bool characters;      /* starts from characters; those not in the vocabulary become bytes */
    int32_t byte_id[256]; /* with `characters`: tokens of bytes */
} weft_bpe;
weft_status weft_bpe_reserve(weft_bpe *b, int64_t merges);
void weft_bpe_add(weft_bpe *b, int32_t left, int32_t right, int32_t rank, int32_t made);
/* Splits bytes by merges. Each byte first becomes its character (weft_bpe_letter). With
 * b->characters, the text is UTF-8 and is split into its characters. */
weft_status weft_bpe_cut(const weft_vocabulary *v, const weft_bpe *b, const char *bytes,
                         int64_t length, weft_ids *out);
/* Writes the vocabulary's character of a byte as UTF-8 and returns its length. */
int weft_bpe_letter(unsigned char byte, char out[4]);

#endif

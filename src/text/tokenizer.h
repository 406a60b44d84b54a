/* Tokenizers from the files that models ship: text to the ids that a text encoder was trained
 * on.
 *
 *   tokenizer.json              unigram or byte-level BPE, with its own normaliser and splitting
 *   spiece.model                SentencePiece's unigram model
 *   vocab.json and merges.txt   CLIP's BPE
 *   tokenizer_config.json       alone, of the class ByT5Tokenizer: bytes
 *
 * Ids equal those of the library that defines each file. The two unigram forms of one vocabulary
 * differ where these libraries differ (combining marks, special tokens in a text). */
#ifndef WEFT_TEXT_TOKENIZER_H
#define WEFT_TEXT_TOKENIZER_H

#include "base/json.h"
#include "base/memory.h"

#include <stdint.h>

typedef struct weft_tokenizer weft_tokenizer;

/* `path`: one of the files, or a folder. A folder is searched for the first file in the order
 * above, then its "tokenizer" folder and similar ones next to it. WEFT_E_FORMAT: a file is invalid;
 * the message has the reason. WEFT_E_UNSUPPORTED: the kind or its splitting is not supported. */
weft_status weft_tokenizer_open(const char *path, weft_tokenizer **tokenizer);
void weft_tokenizer_close(weft_tokenizer *tokenizer); /* accepts NULL */

/* Tokenizes a text, with the special tokens before and after every text. `text` is UTF-8 of
 * `length` bytes and a terminating NUL; bytes that are not UTF-8 become U+FFFD. *id is on the heap
 * (weft_free). `most` > 0: the text is truncated to `most` tokens including the special tokens;
 * *cut (may be NULL) is the number of dropped tokens. */
weft_status weft_tokenizer_encode(const weft_tokenizer *tokenizer, const char *text, int64_t length,
                                  int64_t most, int32_t **id, int64_t *count, int64_t *cut);
/* The piece of an id in the vocabulary; "" for an unknown id. */
const char *weft_tokenizer_piece(const weft_tokenizer *tokenizer, int32_t id);
/* Decodes ids to a text for display; special tokens print their names. */
void weft_tokenizer_text(const weft_tokenizer *tokenizer, const int32_t *id, int64_t count,
                         weft_buf *out);
/* The padding token of short texts: the one of the tokenizer's config, else "<pad>", CLIP's end
 * token, or 0. */
int32_t weft_tokenizer_padding(const weft_tokenizer *tokenizer);
/* Returns true if the tokenizer's config says that padding is before the text. */
bool weft_tokenizer_pads_left(const weft_tokenizer *t);
/* Returns the first special token that is put before each text; "": none. Borrowed. */
const char *weft_tokenizer_first(const weft_tokenizer *t);
/* One more than the highest id. */
int64_t weft_tokenizer_size(const weft_tokenizer *tokenizer);
/* transformers' class of such a tokenizer. */
const char *weft_tokenizer_class(const weft_tokenizer *tokenizer);

/* Whether a file of this name in a model's folder is its tokenizer's. */
bool weft_tokenizer_is_file(const char *name);

/* Loads the config of a tokenizer, in which "no limit" is an integer of 31 digits. */
weft_status weft_tokenizer_load_config(const char *path, json_t **json);
weft_status weft_tokenizer_add(weft_tokenizer *t, const char *text, int32_t id);

#endif

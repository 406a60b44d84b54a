/* Tokenizers from the files that models ship: text to the ids that a text encoder was trained
 * on.
 *
 *   tokenizer.json              unigram or byte-level BPE, with its own normaliser and splitting
 *   spiece.model                SentencePiece's unigram model
 *   vocab.json and merges.txt   CLIP's BPE
 *
 * Ids are those of the libraries that these files are of: the two unigram forms of one
 * vocabulary differ where those libraries do (marks over letters, special tokens in a text). */
#ifndef WEFT_TEXT_TOKENIZER_H
#define WEFT_TEXT_TOKENIZER_H

#include "base/memory.h"

#include <stdint.h>

typedef struct weft_tokenizer weft_tokenizer;

/* `path`: one of the files, or a folder: in it, or in its "tokenizer" or the like beside it, the
 * first of them in the order above. WEFT_E_FORMAT names the file and what is wrong in it;
 * WEFT_E_UNSUPPORTED a kind or a splitting that is not built. */
weft_status weft_tokenizer_open(const char *path, weft_tokenizer **tokenizer);
void weft_tokenizer_close(weft_tokenizer *tokenizer); /* accepts NULL */

/* Tokens of a text with what stands before and behind every text. `text` is UTF-8, of `length`
 * bytes and a NUL behind them; bytes that are not UTF-8 become U+FFFD. *id is on the heap
 * (weft_free). `most` > 0: what is longer is cut, the tokens behind the text stay; *cut (may be
 * NULL): how many tokens of the text were. */
weft_status weft_tokenizer_encode(const weft_tokenizer *tokenizer, const char *text, int64_t length,
                                  int64_t most, int32_t **id, int64_t *count, int64_t *cut);
/* As the vocabulary has it; "" for an id that it has not. */
const char *weft_tokenizer_piece(const weft_tokenizer *tokenizer, int32_t id);
/* The text that ids stand for, to show it; special tokens by their names. */
void weft_tokenizer_text(const weft_tokenizer *tokenizer, const int32_t *id, int64_t count,
                         weft_buf *out);
/* Behind texts that are shorter than others: what the tokenizer's own config says, else "<pad>",
 * CLIP's end token, or 0. */
int32_t weft_tokenizer_padding(const weft_tokenizer *tokenizer);
/* One more than the highest id. */
int64_t weft_tokenizer_size(const weft_tokenizer *tokenizer);
/* transformers' class of such a tokenizer. */
const char *weft_tokenizer_class(const weft_tokenizer *tokenizer);

/* Whether a file of this name in a model's folder is its tokenizer's. */
bool weft_tokenizer_is_file(const char *name);

#endif

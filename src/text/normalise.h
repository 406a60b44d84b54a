/* What happens to a text before it is cut: SentencePiece's map of characters, and Unicode's rules
 * by ICU. */
#ifndef WEFT_TEXT_NORMALISE_H
#define WEFT_TEXT_NORMALISE_H

#include "base/memory.h"

/* A map of strings to strings: a double array of little-endian words (Darts), then what they
 * become, each ended by NUL. */
typedef struct weft_charsmap {
    uint32_t *unit; /* heap */
    int64_t units;
    char *text; /* heap */
    int64_t size;
} weft_charsmap;
/* The bytes as models have them; `where` begins the message. 0 bytes: no map. */
weft_status weft_charsmap_read(const void *bytes, int64_t size, const char *where,
                               weft_charsmap *map);
void weft_charsmap_free(weft_charsmap *map);
/* What the longest (or shortest) beginning of `text` that the map has becomes, and how long it is;
 * NULL: none. */
const char *weft_charsmap_find(const weft_charsmap *map, const char *text, int64_t length,
                               bool shortest, int64_t *taken);

/* As tokenizer.json's library applies it: by what a reader sees as one character, whole if it is
 * of less than six bytes, else by code point. */
weft_status weft_charsmap_apply(const weft_charsmap *map, const char *text, int64_t length,
                                weft_buf *out);

/* `text` of `length` bytes with U+FFFD for what is not UTF-8. */
void weft_text_repair(const char *text, int64_t length, weft_buf *out);
weft_status weft_text_compose(weft_buf *text); /* NFC, in place */
/* Runs of white space become one blank, capitals small ones, each letter by itself (CLIP). */
void weft_text_lower(const char *text, int64_t length, weft_buf *out);

/* BERT's: no control characters, white space as blanks; `lower` small letters; `strip` without
 * accents; `chinese`: blanks around each of those characters. */
weft_status weft_text_words(const char *text, int64_t length, bool lower, bool strip, bool chinese,
                            weft_buf *out);

/* The next code point of valid UTF-8, and its bytes. */
int32_t weft_text_next(const char *text, int64_t length, int64_t *bytes);
bool weft_is_letter(int32_t c); /* \p{L} */
bool weft_is_number(int32_t c); /* \p{N} */
bool weft_is_space(int32_t c);  /* \s    */
bool weft_is_sign(int32_t c);   /* \p{P}, and all of ASCII that is no letter, digit or space */

#endif

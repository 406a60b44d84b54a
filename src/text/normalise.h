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
/* Returns the replacement of the longest (or shortest) prefix of `text` in the map and sets the
 * length of the prefix. NULL: no prefix is in the map. */
const char *weft_charsmap_find(const weft_charsmap *map, const char *text, int64_t length,
                               bool shortest, int64_t *taken);

/* Applies the map as the `tokenizers` library does: per grapheme cluster if it has less than six
 * bytes, else per code point. */
weft_status weft_charsmap_apply(const weft_charsmap *map, const char *text, int64_t length,
                                weft_buf *out);

/* Appends `text` of `length` bytes, with U+FFFD for bytes that are not UTF-8. */
void weft_text_repair(const char *text, int64_t length, weft_buf *out);
weft_status weft_text_compose(weft_buf *text); /* NFC, in place */
/* CLIP's normalisation: runs of white space become one blank, and each letter becomes lower
 * case. */
void weft_text_lower(const char *text, int64_t length, weft_buf *out);

/* BERT's normalisation: removes control characters and replaces white space by blanks. `lower`:
 * lower case. `strip`: removes accents. `chinese`: puts blanks around each Chinese character. */
weft_status weft_text_words(const char *text, int64_t length, bool lower, bool strip, bool chinese,
                            weft_buf *out);

/* The next code point of valid UTF-8, and its bytes. */
int32_t weft_text_next(const char *text, int64_t length, int64_t *bytes);
bool weft_is_letter(int32_t c); /* \p{L} */
bool weft_is_number(int32_t c); /* \p{N} */
bool weft_is_space(int32_t c);  /* \s    */
bool weft_is_sign(int32_t c);   /* \p{P}, and ASCII other than letters, digits and spaces */
/* Letters by case: upper and title case, lower case; letters without case and marks are both. */
bool weft_is_upper(int32_t c);
bool weft_is_lower(int32_t c);

#endif

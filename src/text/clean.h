/* Cleaning of prompts, as the models that were trained on cleaned captions expect it. */
#ifndef WEFT_TEXT_CLEAN_H
#define WEFT_TEXT_CLEAN_H

#include "base/memory.h"

/* No white space at the ends. */
void weft_text_clean_ends(const char *text, int64_t length, weft_buf *out);
/* Small letters, and no white space at the ends. */
void weft_text_clean_lower(const char *text, int64_t length, weft_buf *out);
/* Wan's: `repair`, entities of HTML become characters (twice), runs of white space one blank, none
 * at the ends. */
weft_status weft_text_clean_prompt(const char *text, int64_t length, bool repair, weft_buf *out);
/* Repairs damaged text as far as the damage is certain: UTF-8 that was decoded with another
 * encoding, entities, ligatures, full-width letters, curly quotes, line ends, control characters.
 * The result is in NFC. */
weft_status weft_text_repair_damage(const char *text, int64_t length, weft_buf *out);

#endif

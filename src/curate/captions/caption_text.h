/* Captions as text: prompts, replies of models, stock openings. */
#ifndef WEFT_CURATE_CAPTIONS_CAPTION_TEXT_H
#define WEFT_CURATE_CAPTIONS_CAPTION_TEXT_H

#include "base/json.h"
#include "base/memory.h"
#include "curate/captions/captions_config.h"

enum { WEFT_CAPTION_FIELDS = 8 };
/* "summary", then the seven fields of a structured caption. */
extern const char *const weft_caption_fields[WEFT_CAPTION_FIELDS];

/* The prompt of the config, or the built-in one of its format. */
const char *weft_caption_prompt(const weft_captions_config *config);
/* The JSON schema of a structured caption; new reference. */
json_t *weft_caption_schema(void);
/* Reads the text of a reply: an object with all fields, also inside a code block or other text, or
 * with `text` any text. Sets *caption to {"caption": .., "fields": {..}} (no fields for text); new
 * reference. False: `why` lists the missing members. */
bool weft_caption_parse(const weft_captions_config *config, const char *reply, json_t **caption,
                        weft_buf *why);
/* Removes a stock opening ("The video shows a dog" becomes "A dog"), also two in sequence. The
 * caller owns the result; NULL: out of memory. */
char *weft_caption_strip_opening(const char *caption);

#endif

/* Texts after a caption, with values in braces: "Camera: {camera} Beauty {beauty:1}."
 *
 *     {NAME}      a field of a structured reply (caption_text.h), or a score with two decimals
 *     {NAME:D}    a score with D decimals, 0 to 6
 *
 * Scores are "motion_score", "sharpness_score", "brightness_score" and the names of operators. A
 * field has precedence over an operator of the same name. */
#ifndef WEFT_CURATE_CAPTIONS_CAPTION_APPEND_H
#define WEFT_CURATE_CAPTIONS_CAPTION_APPEND_H

#include "base/json.h"
#include "base/memory.h"
#include "curate/captions/captions_config.h"

/* Checks the texts. `operators` are the names of the operators of the config. WEFT_E_CONFIG: a
 * brace without a name, or an unknown name. */
weft_status weft_caption_append_check(const weft_captions_config *config,
                                      const char *const *operators, int64_t count);
/* Appends each text to `caption`, after a space. `fields` are the fields of a reply, `meta` is the
 * metadata of the clip with the scores; either may be NULL. A text with a value that does not exist
 * is omitted. */
void weft_caption_append(const weft_captions_config *config, const json_t *fields,
                         const json_t *meta, weft_buf *caption);

#endif

/* Images to edit in the template of a text encoder (weft_edit_pipeline): one token of the template
 * becomes the tokens of an image. */
#ifndef WEFT_PROMPT_TEXT_IMAGES_H
#define WEFT_PROMPT_TEXT_IMAGES_H

#include "prompt/text_tokens.h"

/* Puts `images`, whose sizes are set, into the template of the first encoder, and sets the lengths
 * of the conditioning. Without images the template has none. Errors begin with `where`. */
weft_status weft_text_images_set(weft_text_conditioning *c, weft_tokenizer_set *tokenizers,
                                 const weft_model *denoiser, const weft_edit_pipeline *edit,
                                 const weft_image_tokens *images, const char *where);
/* Replaces the image tokens of a tokenized text by the tokens of the images. Frees *id and sets a
 * new array (heap). On failure *id is freed, too. */
weft_status weft_text_images_expand(const weft_text_encoder *encoder, int32_t image, int32_t **id,
                                    int64_t *count);

#endif

/* Embeddings of an empty text, which some published denoisers have in their own files
 * (weft_text_encoder_row.no_text). They replace the encoder's embeddings of "": as an empty
 * negative prompt under the prompt's token mask, and as a dropped caption under the caption's. */
#ifndef WEFT_PROMPT_NO_TEXT_H
#define WEFT_PROMPT_NO_TEXT_H

#include "format/tensors/tensors.h"
#include "prompt/text_conditioning.h"

/* Opens the denoiser's files in `folder`, and sets *table to the embeddings (L,D) for encoder r,
 * which *file owns. *file NULL: the row has none, or the files lack them. WEFT_E_FORMAT: they are
 * of another width, or fewer than the encoder's tokens. */
weft_status weft_no_text_open(const weft_text_conditioning *c, int r, const char *folder,
                              weft_tensors **file, const weft_stored_tensor **table);
/* Reads the embeddings of the encoder's tokens, (rows,D) of its entry. */
void weft_no_text_read(const weft_text_conditioning *c, int r, const weft_stored_tensor *table,
                       float *to);

/* Copies the packed row of the empty caption into the denoiser's inputs, for a caption that was
 * dropped. `caption`: the packed row of that caption, whose mask remains if the encoder's
 * stores_no_text is set. NULL: the mask of `empty`. */
void weft_no_text_set_dropped(const weft_text_conditioning *c, weft_input_lookup *find, void *user,
                              int64_t row, const float *empty, const float *caption);
/* weft_no_text_set_dropped for the inputs of WEFT_EMPTY_CAPTION. */
void weft_no_text_set_empty(const weft_text_conditioning *c, weft_input_lookup *find, void *user,
                            int64_t row, const float *empty, const float *caption);
/* Sets the packed row of an empty negative prompt: the embeddings (rows,D) in the entry of encoder
 * r, and the prompt's mask. */
void weft_no_text_set_negative(const weft_text_conditioning *c, int r, const float *table,
                               const float *prompt, float *negative);

#endif

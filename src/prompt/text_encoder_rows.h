/* The text encoders of a denoiser: the rows of its family that fit its config. */
#ifndef WEFT_PROMPT_TEXT_ENCODER_ROWS_H
#define WEFT_PROMPT_TEXT_ENCODER_ROWS_H

#include "model/model.h"

/* Number of text encoder rows of the denoiser, and row r. */
int weft_text_conditioning_needed(const weft_model *denoiser);
const weft_text_encoder_row *weft_text_conditioning_row(const weft_model *denoiser, int r);

#endif

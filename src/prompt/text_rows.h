/* The rows of a text encoder's output that become the conditioning, where they are not one range.
 *
 * An instruction before a prompt (weft_text_encoder_row.instruction) has n tokens, with the first
 * special token; the tokenizer counts them. A prompt's conditioning has `rows` of the encoder's
 * n + rows - 2 tokens: the first one, then those from the last one of the instruction on. A
 * text without instruction (weft_text_kind) has the first `rows` tokens. */
#ifndef WEFT_PROMPT_TEXT_ROWS_H
#define WEFT_PROMPT_TEXT_ROWS_H

#include "prompt/text_conditioning.h"

/* Sets encoder->instruction to n if the row has an instruction and the encoder a tokenizer; else
 * to 0. Opens the tokenizer. WEFT_E_FORMAT: the instruction has fewer than two tokens. */
weft_status weft_text_rows_count(weft_text_encoder *encoder);
/* The conditioning (B,rows,D) from the outputs x (B,S,D). plain (B,rows) i32: 1 for a text without
 * instruction. */
weft_value weft_text_rows_after_instruction(weft_graph *g, const weft_text_encoder *encoder,
                                            weft_value plain_br, weft_value x_bsd);
/* Selects from the outputs x (B,S,D) of all tokens: every step-th image token, then the text tokens
 * without the `cut` ones. The cut differs by sample. Tokens before the cut are taken from their
 * position, later ones from `cut` positions further. uncut (B,rows) i32: 1 before the cut. */
weft_value weft_text_rows_of_image(weft_graph *g, const weft_text_encoder *encoder,
                                   weft_value uncut_br, weft_value x_bsd);
/* Fills a row of marks (rows) for `count` tokens of a text; NULL: not needed. real: 1 for a token
 * of the text. uncut: 1 if `plain`. */
void weft_text_rows_mark(const weft_text_encoder *encoder, bool plain, int64_t count, int32_t *real,
                         int32_t *uncut);

#endif

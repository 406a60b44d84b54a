#include "prompt/text_rows.h"

#include "graph/builder_helpers.h"
#include "nn/nn.h"

#include <string.h>

weft_status weft_text_rows_count(weft_text_encoder *encoder)
{
    const char *before = encoder->row->before;
    weft_tokenizer *t = NULL;
    int32_t *id = NULL;
    weft_status_code status = WEFT_OK;
    encoder->instruction = 0;
    if (!encoder->row->instruction || !encoder->tokenizer[0])
        return WEFT_OK;
    WEFT_GO(weft_tokenizer_open(encoder->tokenizer, &t));
    WEFT_GO(weft_tokenizer_encode(t, before, (int64_t)strlen(before), 0, &id, &encoder->instruction,
                                  NULL));
    if (encoder->instruction < 2)
        WEFT_GO(weft_error(WEFT_MSG_TOKENIZER_INVALID,
                           WEFT_AT(.file = encoder->tokenizer, WEFT_NUMBER(encoder->instruction)),
                           "the instruction before a prompt has %" PRId64 " tokens",
                           encoder->instruction));
out:
    weft_free(id);
    weft_tokenizer_close(t);
    return status;
}

weft_value weft_text_rows_of_image(weft_graph *g, const weft_text_encoder *encoder,
                                   weft_value uncut_br, weft_value x)
{
    const weft_vision_input *s = encoder->vision;
    const int64_t batch = weft_dim(g, x, 0), width = weft_dim(g, x, 2), step = encoder->step,
                  padded = encoder->image_tokens * step, rest = padded - s->patches,
                  rows = encoder->text_tokens, from = s->crop - 1 + s->patches;
    weft_value image = weft_slice(g, x, 1, s->at, s->patches);
    if (rest) {
        const weft_value none = weft_fill(g, WEFT_F32, WEFT_SHAPE(batch, rest, width), 0);
        image = weft_concat(g, (weft_value[]){image, none}, 2, 1);
    }
    image = weft_reshape(g, image, WEFT_SHAPE(batch, encoder->image_tokens, step, width));
    image = weft_reshape(g, weft_slice(g, image, 2, 0, 1),
                         WEFT_SHAPE(batch, encoder->image_tokens, width));
    const weft_value uncut =
        weft_reshape(g, weft_cast(g, uncut_br, WEFT_F32), WEFT_SHAPE(batch, rows, 1));
    const weft_value before = weft_mul(g, weft_slice(g, x, 1, from, rows), uncut),
                     after = weft_mul(g, weft_slice(g, x, 1, from + s->cut, rows),
                                      weft_affine(g, uncut, -1, 1));
    return weft_concat(g, (weft_value[]){image, weft_add(g, before, after)}, 2, 1);
}

weft_value weft_text_rows_after_instruction(weft_graph *g, const weft_text_encoder *encoder,
                                            weft_value plain_br, weft_value x_bsd)
{
    const int64_t batch = weft_dim(g, x_bsd, 0), rows = encoder->text_tokens;
    const weft_value plain =
        weft_reshape(g, weft_cast(g, plain_br, WEFT_F32), WEFT_SHAPE(batch, rows, 1));
    const weft_value told =
        weft_concat(g,
                    (weft_value[]){weft_slice(g, x_bsd, 1, 0, 1),
                                   weft_slice(g, x_bsd, 1, encoder->instruction - 1, rows - 1)},
                    2, 1);
    return weft_add(g, weft_mul(g, weft_slice(g, x_bsd, 1, 0, rows), plain),
                    weft_mul(g, told, weft_affine(g, plain, -1, 1)));
}

void weft_text_rows_mark(const weft_text_encoder *encoder, bool plain, int64_t count, int32_t *real,
                         int32_t *uncut)
{
    for (int64_t i = 0; i < encoder->text_tokens; i++) {
        const int64_t at = plain || i == 0 ? i : encoder->instruction - 2 + i;
        if (real)
            real[i] = at < count;
        if (uncut)
            uncut[i] = plain;
    }
}

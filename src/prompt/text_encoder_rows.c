#include "prompt/text_encoder_rows.h"

/* Default row of families that set none. */
static const weft_text_encoder_row plain = {"text_encoder", "tokenizer", WEFT_PORT_TEXT,
                                            WEFT_PORT_TEXT_MASK};

static bool fits(const weft_text_encoder_row *row, const weft_model *denoiser)
{
    return !row->fits || row->fits(denoiser->config);
}

const weft_text_encoder_row *weft_text_conditioning_row(const weft_model *denoiser, int r)
{
    const weft_family *f = denoiser->family;
    int found = -1;
    for (int i = 0; i < f->text_encoders; i++) {
        found += fits(&f->text_encoder[i], denoiser);
        if (found == r)
            return &f->text_encoder[i];
    }
    return &plain;
}

int weft_text_conditioning_needed(const weft_model *denoiser)
{
    const weft_family *f = denoiser->family;
    int count = 0;
    for (int i = 0; i < f->text_encoders; i++)
        count += fits(&f->text_encoder[i], denoiser);
    return f->text_encoders ? count : 1;
}

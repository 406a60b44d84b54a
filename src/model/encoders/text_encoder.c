#include "model/encoders/text_encoder.h"

weft_shape weft_text_encoder_shape(const void *config, const weft_model_size *size, weft_port port)
{
    (void)config;
    return port == WEFT_PORT_TOKENS || port == WEFT_PORT_TEXT_MASK
               ? WEFT_SHAPE(size->batch, size->text)
               : WEFT_SCALAR;
}

weft_value weft_text_encoder_table(weft_graph *g, const char *name, int64_t rows, int64_t width)
{
    const weft_init init = {.kind = WEFT_INIT_NORMAL, .value = 0.02};
    return weft_param(g, name, WEFT_F32, WEFT_SHAPE(rows, width), init);
}

#include "model/text_encoder.h"

weft_shape weft_text_encoder_shape(const void *config, const weft_model_size *size, weft_port port)
{
    (void)config;
    return port == WEFT_PORT_TOKENS || port == WEFT_PORT_TEXT_MASK
               ? WEFT_SHAPE(size->batch, size->text)
               : WEFT_SCALAR;
}

#include "cli/options/weights_option.h"

#include <string.h>

weft_status weft_weights_option(const char *text, weft_generator_options *o)
{
    static const char *const kinds[] = {"stored", "f32", "bf16", "gguf", "int8"};
    const char *comma = strchr(text, ',');
    const size_t length = comma ? (size_t)(comma - text) : strlen(text);
    o->stream = !strcmp(comma ? comma + 1 : text, "stream");
    o->weights = WEFT_WEIGHTS_AS_STORED;
    if (o->stream && !comma)
        return WEFT_OK;
    while (o->weights < WEFT_COUNT(kinds) &&
           (strlen(kinds[o->weights]) != length || strncmp(text, kinds[o->weights], length) != 0))
        o->weights++;
    if (o->weights == WEFT_COUNT(kinds) || (comma && !o->stream))
        return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--weights", .value = text),
                          "'%.80s' is unknown; use stored, f32, bf16, gguf, int8 or stream, or a "
                          "type "
                          "with stream, as in bf16,stream",
                          text);
    return WEFT_OK;
}

weft_status weft_precision_option(const char *text, weft_generator_options *o)
{
    o->bf16 = !strcmp(text, "bf16");
    o->tf32 = !strcmp(text, "tf32");
    o->precision_auto = !strcmp(text, "auto");
    if (!o->bf16 && !o->tf32 && !o->precision_auto && strcmp(text, "f32") != 0)
        return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--precision", .value = text),
                          "'%.80s' is unknown; use f32, tf32, bf16 or auto", text);
    return WEFT_OK;
}

weft_products weft_generator_products(const weft_generator_options *o)
{
    if (o->bf16 || o->precision_auto || o->vae_products == WEFT_PRODUCTS_BF16)
        return WEFT_PRODUCTS_BF16;
    return o->tf32 ? WEFT_PRODUCTS_TF32 : WEFT_PRODUCTS_F32;
}

weft_status weft_args_weights(const weft_args *args, weft_generator_options *o)
{
    WEFT_TRY(weft_weights_option(weft_args_string(args, "--weights"), o));
    return weft_precision_option(weft_args_string(args, "--precision"), o);
}

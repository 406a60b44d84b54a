#include "cli/options/tile_option.h"

#include "base/config.h"
#include "cli/options/args.h"

#include <string.h>

weft_status weft_vae_precision_option(const char *text, weft_products *products)
{
    static const char *const name[] = {
        [WEFT_PRODUCTS_F32] = "f32", [WEFT_PRODUCTS_BF16] = "bf16", [WEFT_PRODUCTS_TF32] = "tf32"};
    for (int i = 0; i < WEFT_COUNT(name); i++)
        if (!strcmp(text, name[i])) {
            *products = (weft_products)i;
            return WEFT_OK;
        }
    return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--vae-precision", .value = text),
                      "'%.80s' is unknown; use f32, tf32 or bf16", text);
}

weft_status weft_args_tile(const weft_args *args, weft_tile *storage, const weft_tile **tile,
                           int64_t *bytes, weft_products *products)
{
    const char *text = weft_args_string(args, "--vae-tile"),
               *memory = weft_args_string(args, "--memory-limit");
    *tile = NULL;
    *bytes = 0;
    if (strcmp(text, "auto") != 0) {
        WEFT_TRY(weft_tile_parse(text, WEFT_MSG_OPTION_INVALID,
                                 WEFT_AT(.key = "--vae-tile", .value = text), "auto, ", storage));
        *tile = storage;
    }
    WEFT_TRY(weft_vae_precision_option(weft_args_string(args, "--vae-precision"), products));
    if (strcmp(memory, "auto") != 0 && (!weft_parse_i64(memory, bytes) || *bytes < 1))
        return weft_error(
            WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--memory-limit", .value = memory),
            "'%.80s' is not auto or a size in bytes, such as 900MiB or 24GiB", memory);
    return WEFT_OK;
}

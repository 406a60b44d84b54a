#include "cli/tile_option.h"

#include "base/config.h"

#include <string.h>

weft_status weft_args_tile(const weft_args *args, weft_tile *storage, const weft_tile **tile,
                           int64_t *bytes)
{
    const char *text = weft_args_string(args, "--tile"),
               *memory = weft_args_string(args, "--memory");
    *tile = NULL;
    *bytes = 0;
    if (strcmp(text, "auto") != 0) {
        WEFT_TRY(weft_tile_parse(text, "--tile", "auto, ", storage));
        *tile = storage;
    }
    if (strcmp(memory, "auto") != 0 && (!weft_parse_i64(memory, bytes) || *bytes < 1))
        return weft_fail(WEFT_E_ARG, "--memory %s: auto, or bytes (900MiB, 24GiB)", memory);
    return WEFT_OK;
}

#include "cli/tile_option.h"

#include "base/config.h"

#include <stdio.h>
#include <string.h>

static weft_status read_tile(const char *text, weft_tile *tile)
{
    long long width, height, overlap = 0;
    int end = 0, behind = 0;
    if (!strcmp(text, "on") || !strcmp(text, "off")) {
        *tile = (weft_tile){.on = text[1] == 'n'};
        return WEFT_OK;
    }
    const bool sizes = sscanf(text, "%lldx%lld%n", &width, &height, &end) == 2 && end > 0;
    const bool overlaps = sizes && sscanf(text + end, "+%lld%n", &overlap, &behind) == 1;
    if (!sizes || text[end + behind] || width < 1 || height < 1 || width > 65536 ||
        height > 65536 || overlap < 0 || (overlaps && (overlap >= width || overlap >= height)))
        return weft_fail(WEFT_E_ARG,
                         "--tile %s: known are auto, on, off, and WIDTHxHEIGHT in pixels, with "
                         "+OVERLAP behind it if you like (256x256+64)",
                         text);
    *tile = (weft_tile){.on = true, .size = {0, height, width}};
    if (overlaps) {
        tile->step[1] = height - overlap;
        tile->step[2] = width - overlap;
    }
    return WEFT_OK;
}

weft_status weft_args_tile(const weft_args *args, weft_tile *storage, const weft_tile **tile,
                           int64_t *bytes)
{
    const char *text = weft_args_string(args, "--tile"),
               *memory = weft_args_string(args, "--memory");
    *tile = NULL;
    *bytes = 0;
    if (strcmp(text, "auto") != 0) {
        WEFT_TRY(read_tile(text, storage));
        *tile = storage;
    }
    if (strcmp(memory, "auto") != 0 && (!weft_parse_i64(memory, bytes) || *bytes < 1))
        return weft_fail(WEFT_E_ARG, "--memory %s: auto, or bytes (900MiB, 24GiB)", memory);
    return WEFT_OK;
}

/* The options --tile and --memory of verbs that decode. */
#ifndef WEFT_CLI_TILE_OPTION_H
#define WEFT_CLI_TILE_OPTION_H

#include "cli/verb.h"
#include "model/tiling.h"

/* *tile is `storage`, or NULL where the choice is weft's; *bytes 0: what the machine has free. */
weft_status weft_args_tile(const weft_args *args, weft_tile *storage, const weft_tile **tile,
                           int64_t *bytes);

/* clang-format off */
#define WEFT_TILE_OPTIONS \
    {.name = "--tile", .value_name = "WxH[+OVERLAP]", .fallback = "auto", \
     .help = "pixels of the tiles in which the VAE takes a picture, and how many of them " \
             "overlap (256x256+64); on: as the model's reference does; off: whole; auto: whole " \
             "where that fits into memory, else the largest tiles that do"}, \
    {.name = "--memory", .value_name = "SIZE", .fallback = "auto", \
     .help = "what a rank may take (24GiB): more is refused before it begins; auto: what the " \
             "machine has free"}
/* clang-format on */

#endif

/* The options --vae-tile, --vae-precision and --memory-limit of verbs that decode. */
#ifndef WEFT_CLI_OPTIONS_TILE_OPTION_H
#define WEFT_CLI_OPTIONS_TILE_OPTION_H

#include "cli/options/verb.h"
#include "model/tiling.h"

/* Sets *products from "f32", "tf32" or "bf16". WEFT_E_ARG: invalid value. */
weft_status weft_vae_precision_option(const char *text, weft_products *products);
/* Sets *tile to `storage`, or to NULL if weft chooses the tile. *bytes 0: the free memory of the
 * machine. *products: precision of the VAE. */
weft_status weft_args_tile(const weft_args *args, weft_tile *storage, const weft_tile **tile,
                           int64_t *bytes, weft_products *products);

/* clang-format off */
#define WEFT_TILE_OPTIONS \
    {.name = "--vae-tile", WEFT_ALSO("--tile"), .value_name = "WxH[+OVERLAP]", .fallback = "auto", \
     .help = "size and overlap of VAE tiles in pixels, e.g. 256x256+64; off: no tiles, on: as " \
             "the model's reference, auto: no tiles if the frame fits into memory, otherwise the " \
             "largest tiles that fit", \
     .group = "memory"}, \
    {.name = "--vae-precision", .value_name = "TYPE", .fallback = "f32", \
     .help = "type in which the VAE computes: f32, tf32: f32 with products rounded to 10 bits on " \
             "GPUs, or bf16 with sums in f32, which is faster on processors and GPUs with units " \
             "for bf16", \
     .group = "memory"}, \
    {.name = "--memory-limit", WEFT_ALSO("--memory"), .value_name = "SIZE", .fallback = "auto", \
     .help = "peak memory of a rank, e.g. 24GiB; a higher prediction is an error before the " \
             "start. auto: the free memory of the machine", \
     .group = "memory"}
/* clang-format on */

#endif

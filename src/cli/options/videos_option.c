#include "cli/options/videos_option.h"

#include "cli/options/args.h"
#include "cli/options/weights_option.h"

weft_status weft_args_guidance(const weft_args *args, double *scale)
{
    *scale = -1;
    return weft_args_flag(args, "--guidance-scale")
               ? weft_args_f64(args, "--guidance-scale", 0, 100, scale)
               : WEFT_OK;
}

weft_status weft_args_videos(const weft_args *args, weft_generator_options *o)
{
    WEFT_TRY(weft_args_i64(args, "--frames", 0, 100000, &o->frames));
    WEFT_TRY(weft_args_i64(args, "--height", 0, 16384, &o->height));
    WEFT_TRY(weft_args_i64(args, "--width", 0, 16384, &o->width));
    WEFT_TRY(weft_args_i64(args, "--batch-size", 1, 4096, &o->batch));
    WEFT_TRY(weft_args_i64(args, "--window", 0, 100000, &o->window));
    WEFT_TRY(weft_args_guidance(args, &o->guidance));
    return weft_args_weights(args, o);
}

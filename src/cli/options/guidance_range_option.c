#include "cli/options/guidance_range_option.h"

#include "cli/options/args.h"

weft_status weft_args_guided(const weft_args *args, double guided[2])
{
    WEFT_TRY(weft_args_f64(args, "--guidance-start", 0, 1, &guided[0]));
    WEFT_TRY(weft_args_f64(args, "--guidance-end", 0, 1, &guided[1]));
    if (guided[0] == 0 && guided[1] == 1)
        guided[1] = 0;
    else if (guided[0] >= guided[1])
        return weft_error(WEFT_MSG_OPTION_INVALID,
                          WEFT_AT(.key = "--guidance-start", WEFT_NUMBER(guided[0])),
                          "%g is not below --guidance-end %g, so no step has guidance; use "
                          "--guidance-scale 1 to generate without guidance",
                          guided[0], guided[1]);
    return WEFT_OK;
}

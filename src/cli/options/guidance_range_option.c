#include "cli/guided_option.h"

weft_status weft_args_guided(const weft_args *args, double guided[2])
{
    WEFT_TRY(weft_args_f64(args, "--guidance-from", 0, 1, &guided[0]));
    WEFT_TRY(weft_args_f64(args, "--guidance-until", 0, 1, &guided[1]));
    if (guided[0] == 0 && guided[1] == 1)
        guided[1] = 0;
    else if (guided[0] >= guided[1])
        return weft_fail(WEFT_E_ARG,
                         "--guidance-from %g --guidance-until %g: there is no step between them; "
                         "--guidance 1 is no guidance at all",
                         guided[0], guided[1]);
    return WEFT_OK;
}

#include "cli/options/remote_places.h"

#include "base/location.h"
#include "storage/input_copy.h"
#include "storage/output_copy.h"

weft_status weft_remote_places_run(const weft_args *args, const char *in, const char *out,
                                   bool configs, weft_places_run run)
{
    weft_input_copy *input = NULL;
    weft_output_copy *output = NULL;
    weft_status_code status = WEFT_OK;
    if (out && weft_location_is_remote(out)) { /* before the input is copied: it may exist */
        WEFT_GO(weft_output_copy_open(out, &output));
        out = weft_output_copy_path(output);
    }
    if (weft_location_is_remote(in)) {
        WEFT_GO(configs ? weft_input_copy_open_configs(in, &input)
                        : weft_input_copy_open(in, &input));
        in = weft_input_copy_path(input);
    }
    WEFT_GO(run(args, in, out));
    if (output)
        WEFT_GO(weft_output_copy_send(output));
out:
    weft_output_copy_close(output);
    weft_input_copy_close(input);
    return status;
}

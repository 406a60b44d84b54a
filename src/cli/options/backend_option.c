#include "cli/options/backend_option.h"

#include "cli/options/args.h"
#include "kernel/registry/backend.h"

weft_status weft_args_backend(const weft_args *args, const weft_backend **backend)
{
    const char *name = weft_args_string(args, "--backend");
    *backend = weft_backend_find(name);
    if (*backend && !(*backend)->device->meta)
        return WEFT_OK;
    return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--backend", .value = name),
                      *backend ? "'%.80s' only simulates kernels, and this verb needs values; use "
                                 "another one of %s"
                               : "'%.80s' is unknown; use one of %s",
                      name, weft_backend_names());
}

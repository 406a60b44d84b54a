#include "cli/convert_source.h"

#include "base/fs.h"
#include "inspect/inspect_file.h"

#include <stdio.h>

weft_status weft_convert_find_model(const char *config, const char *in, weft_model *model)
{
    const char *size;
    char config_path[1100];
    snprintf(config_path, sizeof config_path, "%.*sconfig.json", (int)(weft_path_base(in) - in),
             in);
    if (config)
        return weft_model_open(config, model);
    if (weft_path_is_dir(in))
        return weft_model_open(in, model);
    if (!weft_path_exists(in))
        return weft_error(WEFT_MSG_FILE_NOT_FOUND, WEFT_AT(.file = in), "no such file or folder");
    if (weft_path_exists(config_path) && weft_model_open(config_path, model) == WEFT_OK)
        return WEFT_OK; /* configs of other formats may be next to the files */
    const weft_status_code status = weft_inspect_published(in, &size);
    if (status == WEFT_E_NOT_FOUND)
        return weft_error_add(status, "Set --config: a config.json, or the name of a size.");
    WEFT_TRY(status);
    return weft_model_open(size, model);
}

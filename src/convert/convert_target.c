/* Output folder or file of a conversion. */
#include "convert/convert_target.h"

#include "base/fs.h"

#include <stdio.h>
#include <string.h>

weft_status weft_convert_refuse_existing(const char *out, bool folder)
{
    weft_names names = {0};
    bool there = weft_path_exists(out);
    if (!folder)
        WEFT_TRY(weft_remove_leftovers_of(out));
    if (there && folder && weft_path_is_dir(out)) {
        WEFT_TRY(weft_remove_leftovers(out, false));
        WEFT_TRY(weft_list_dir(out, false, &names));
        there = names.count > 0;
        weft_names_free(&names);
    }
    return there ? weft_error(WEFT_MSG_FILE_EXISTS, WEFT_AT(.file = out),
                              "the output exists already; give another name, or move it")
                 : WEFT_OK;
}

weft_status weft_convert_target(const char *out, weft_model_conversion *c, char folder[1100],
                                char stem[300])
{
    const bool own = c->to == WEFT_TO_DIFFUSERS;
    char index[1200];
    WEFT_TRY(weft_convert_refuse_existing(out, own));
    snprintf(folder, 1100, "%s", out);
    snprintf(stem, 300, "%s", c->model->family->stem);
    c->folder = folder;
    c->stem = stem;
    if (own)
        return WEFT_OK;
    const char *base = weft_path_base(out);
    const size_t length = strlen(base), end = strlen(".safetensors");
    if (length <= end || strcmp(base + length - end, ".safetensors"))
        return weft_error(WEFT_MSG_FILE_NAME, WEFT_AT(.file = out),
                          "the output is a file, so its name must end with .safetensors");
    snprintf(index, sizeof index, "%s.index.json", out);
    WEFT_TRY(weft_convert_refuse_existing(index, false)); /* index of a sharded file */
    snprintf(stem, 300, "%.*s", (int)(length - end), base);
    snprintf(folder, 1100, "%.*s", base > out ? (int)(base - out) - 1 : 1, base > out ? out : ".");
    if (base == out + 1)
        snprintf(folder, 1100, "/");
    return WEFT_OK;
}

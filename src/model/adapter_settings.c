#include "model/adapter_settings.h"

#include "base/config.h"
#include "base/status.h"
#include "format/tensors/tensors.h"

#include <stdio.h>
#include <string.h>

static const char steps_key[] = "weft.steps", guidance_key[] = "weft.guidance_scale",
                  sampler_key[] = "weft.sampler", shift_key[] = "weft.shift";

/* Sets *value to the number of a key, if the file has it. */
static weft_status read_number(const weft_tensors *file, const char *path, const char *key,
                               double least, double most, double *value)
{
    const char *text = weft_tensors_metadata(file, key);
    if (!text || (weft_parse_f64(text, value) && *value >= least && *value <= most))
        return WEFT_OK;
    return weft_error(WEFT_MSG_ADAPTER_INVALID, WEFT_AT(.file = path, .key = key, .value = text),
                      "it is not a number of %g to %g. Correct the metadata of the file.", least,
                      most);
}

static weft_status read_settings(const weft_tensors *file, const char *path,
                                 weft_adapter_settings *s)
{
    const char *sampler = weft_tensors_metadata(file, sampler_key);
    double steps = 0;
    WEFT_TRY(read_number(file, path, steps_key, 1, 10000, &steps));
    WEFT_TRY(read_number(file, path, guidance_key, 0, 100, &s->guidance));
    WEFT_TRY(read_number(file, path, shift_key, 0, 100, &s->shift));
    snprintf(s->sampler, sizeof s->sampler, "%s", sampler ? sampler : "");
    s->steps = (int64_t)steps;
    return WEFT_OK;
}

weft_status weft_adapter_settings_read(const char *path, weft_adapter_settings *settings)
{
    weft_tensors *file;
    *settings = (weft_adapter_settings){.guidance = 1};
    WEFT_TRY(weft_tensors_open(path, &file));
    const weft_status_code status = read_settings(file, path, settings);
    weft_tensors_close(file);
    return status;
}

void weft_adapter_settings_print(const weft_adapter_settings *s,
                                 char text[WEFT_ADAPTER_SETTINGS_TEXT])
{
    char shift[32] = "";
    if (s->shift > 0)
        snprintf(shift, sizeof shift, ", --shift %g", s->shift);
    snprintf(text, WEFT_ADAPTER_SETTINGS_TEXT, "--steps %" PRId64 ", --guidance-scale %g%s%s%s",
             s->steps, s->guidance, s->sampler[0] ? ", --sampler " : "", s->sampler, shift);
}

weft_status weft_adapter_settings_write(const weft_adapter_settings *s, weft_tensors_writer *writer)
{
    char text[32];
    if (!s->steps)
        return WEFT_OK;
    snprintf(text, sizeof text, "%" PRId64, s->steps);
    WEFT_TRY(weft_tensors_writer_metadata(writer, steps_key, text));
    snprintf(text, sizeof text, "%.9g", s->guidance);
    WEFT_TRY(weft_tensors_writer_metadata(writer, guidance_key, text));
    if (s->sampler[0])
        WEFT_TRY(weft_tensors_writer_metadata(writer, sampler_key, s->sampler));
    snprintf(text, sizeof text, "%.9g", s->shift);
    return s->shift > 0 ? weft_tensors_writer_metadata(writer, shift_key, text) : WEFT_OK;
}

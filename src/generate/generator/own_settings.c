#include "generate/generator/own_settings.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "model/adapter_settings.h"

#include <stdio.h>
#include <string.h>

weft_status weft_own_settings_read(const char *folder, int64_t *steps, double *guidance)
{
    json_t *own = NULL;
    char *path = weft_path_join(folder, "weft.json");
    WEFT_TRY(WEFT_ALLOCATED(path, "the model"));
    weft_status_code status = WEFT_OK;
    *steps = 0;
    *guidance = -1;
    if (weft_path_exists(path))
        WEFT_GO(weft_json_load(path, &own));
    WEFT_GO(weft_json_get_i64_or(own, "steps", path, 0, steps));
    WEFT_GO(weft_json_get_f64_or(own, "guidance_scale", path, -1, guidance));
    if (*steps < 0 || *steps > 10000)
        WEFT_GO(weft_error(WEFT_MSG_JSON_VALUE,
                           WEFT_AT(.file = path, .key = "steps", WEFT_NUMBER(*steps)),
                           "%" PRId64 " is not 1 to 10000", *steps));
out:
    json_decref(own);
    weft_free(path);
    return status;
}

static bool differ(const weft_adapter_settings *a, const weft_adapter_settings *b)
{
    return a->steps != b->steps || a->guidance != b->guidance || a->shift != b->shift ||
           strcmp(a->sampler, b->sampler) != 0;
}

/* The settings of the first adapter that has some. *from: its path, or NULL. */
static weft_status read_adapters(const weft_generator_options *o, bool prints,
                                 weft_adapter_settings *settings, const char **from)
{
    *from = NULL;
    for (int i = 0; i < o->adapter_count; i++) {
        weft_adapter_settings own = {0};
        if (o->adapters[i].weight == 0)
            continue;
        WEFT_TRY(weft_adapter_settings_read(o->adapters[i].path, &own));
        if (own.steps && *from && prints && differ(&own, settings))
            weft_notice(
                WEFT_MSG_OWN_SETTINGS, WEFT_AT(.file = o->adapters[i].path),
                "this adapter has other settings than %s, which is given before it and whose "
                "settings are used",
                *from);
        if (!own.steps || *from)
            continue;
        *settings = own;
        *from = o->adapters[i].path;
    }
    return WEFT_OK;
}

static weft_status take_sampler(const weft_adapter_settings *s, const char *from,
                                weft_generator_options *o)
{
    if (o->sampler || !s->sampler[0])
        return WEFT_OK;
    o->sampler = weft_sampler_find(s->sampler);
    return o->sampler
               ? WEFT_OK
               : weft_error(WEFT_MSG_ADAPTER_INVALID,
                            WEFT_AT(.file = from, .key = "weft.sampler", .value = s->sampler),
                            "weft has no sampler of this name. Give one with --sampler.");
}

/* Prints the settings that are not from options. */
static void report(const char *from, const weft_generator_options *before,
                   const weft_generator_options *o)
{
    char text[200];
    int at = 0;
    if (!before->steps && !o->timestep_schedule.count)
        at += snprintf(text + at, sizeof text - (size_t)at, ", --steps %" PRId64, o->steps);
    if (before->guidance < 0 && o->guidance >= 0)
        at += snprintf(text + at, sizeof text - (size_t)at, ", --guidance-scale %g", o->guidance);
    if (!before->sampler && o->sampler)
        at += snprintf(text + at, sizeof text - (size_t)at, ", --sampler %s", o->sampler->name);
    if (before->shift == 0 && o->shift > 0)
        at += snprintf(text + at, sizeof text - (size_t)at, ", --shift %g", o->shift);
    if (at)
        weft_notice(WEFT_MSG_OWN_SETTINGS, WEFT_AT(.file = from),
                    "settings of the distilled model or adapter: %s. Options replace them.",
                    text + 2);
}

weft_status weft_own_settings_take(const char *folder, bool prints, int64_t usual,
                                   weft_generator_options *o)
{
    const weft_generator_options before = *o;
    const char *from;
    weft_adapter_settings s = {0};
    WEFT_TRY(read_adapters(o, prints, &s, &from));
    if (from) {
        WEFT_TRY(take_sampler(&s, from, o));
        o->shift = o->shift > 0 ? o->shift : s.shift;
    } else {
        WEFT_TRY(weft_own_settings_read(folder, &s.steps, &s.guidance));
        from = s.steps || s.guidance >= 0 ? folder : NULL;
    }
    if (from) {
        o->steps = o->steps ? o->steps : s.steps;
        o->own_guidance = o->guidance < 0 && s.guidance >= 0;
        o->guidance = o->own_guidance ? s.guidance : o->guidance;
    }
    if (from && prints)
        report(from, &before, o);
    o->steps = o->steps ? o->steps : usual;
    return WEFT_OK;
}

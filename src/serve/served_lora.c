#include "serve/served_lora.h"

#include "base/config.h"
#include "serve/method_fields.h"
#include "serve/request_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

enum { TEXT = 1024 };

/* ---- options -------------------------------------------------------------------------------- */

static weft_status open_one(const char *spec, const weft_served_loras *loras,
                            weft_served_lora *lora)
{
    const size_t length = strspn(spec, NAME_CHARACTERS);
    if (length < 1 || length > WEFT_LORA_NAME || spec[length] != '=')
        return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--lora", .value = spec),
                          "the value is not NAME=FILE with a name of 1 to %d letters, digits, '-', "
                          "'_' and '.'",
                          WEFT_LORA_NAME);
    snprintf(lora->name, sizeof lora->name, "%.*s", (int)length, spec);
    for (int i = 0; i < loras->count; i++)
        if (!strcmp(loras->at[i].name, lora->name))
            return weft_error(WEFT_MSG_OPTION_CONFLICT,
                              WEFT_AT(.key = "--lora", .value = lora->name),
                              "two adapters have this name; rename one");
    char *path = realpath(spec + length + 1, NULL);
    if (!path)
        return weft_error(WEFT_MSG_MODEL_NOT_FOUND,
                          WEFT_AT(.file = spec + length + 1, .key = "--lora"),
                          "the file of the adapter does not exist");
    lora->path = weft_strdup(path);
    free(path);
    WEFT_TRY(WEFT_ALLOCATED(lora->path, "an adapter"));
    return weft_adapter_settings_read(lora->path, &lora->settings);
}

weft_status weft_served_loras_open(const char *const *specs, int count, weft_served_loras *loras)
{
    if (!count)
        return WEFT_OK;
    WEFT_TRY(WEFT_NEW(loras->at, count, "the adapters"));
    for (int i = 0; i < count; i++) {
        WEFT_TRY(open_one(specs[i], loras, &loras->at[i]));
        loras->count++;
    }
    return WEFT_OK;
}

void weft_served_loras_close(weft_served_loras *loras)
{
    for (int i = 0; i < loras->count; i++)
        weft_free(loras->at[i].path);
    weft_free(loras->at);
    *loras = (weft_served_loras){0};
}

json_t *weft_served_loras_json(const weft_served_loras *loras)
{
    json_t *data = json_array();
    for (int i = 0; data && i < loras->count; i++) {
        const weft_served_lora *lora = &loras->at[i];
        json_t *json = json_pack("{s:s, s:s}", "id", lora->name, "object", "lora");
        if (json && lora->settings.steps) {
            json_object_set_new(json, "steps", json_integer(lora->settings.steps));
            json_object_set_new(json, "guidance_scale", json_real(lora->settings.guidance));
        }
        json_array_append_new(data, json);
    }
    return data;
}

/* ---- requests ------------------------------------------------------------------------------- */

static const weft_served_lora *find(const weft_served_loras *loras, const char *name)
{
    for (int i = 0; i < loras->count; i++)
        if (!strcmp(loras->at[i].name, name))
            return &loras->at[i];
    return NULL;
}

/* Reads one "NAME[:WEIGHT]" up to ',' or the end. Returns the text after it; NULL: malformed. */
static const char *next_choice(const char *text, char name[WEFT_LORA_NAME + 1], double *weight)
{
    char number[32] = "1";
    const size_t length = strspn(text, NAME_CHARACTERS), rest = strcspn(text + length, ",");
    const char *end = text + length + rest;
    if (length < 1 || length > WEFT_LORA_NAME || rest > sizeof number - 1 || rest == 1 ||
        (rest && text[length] != ':'))
        return NULL;
    snprintf(name, WEFT_LORA_NAME + 1, "%.*s", (int)length, text);
    if (rest)
        snprintf(number, sizeof number, "%.*s", (int)rest - 1, text + length + 1);
    if (!weft_parse_f64(number, weight) || *weight < -10 || *weight > 10 ||
        (*end == ',' && !end[1]))
        return NULL;
    return *end ? end + 1 : end;
}

static weft_status refuse_name(const weft_served_loras *loras, const char *name)
{
    weft_buf names = {0};
    for (int i = 0; i < loras->count; i++)
        weft_buf_printf(&names, "%s%s", i ? ", " : "", loras->at[i].name);
    const weft_status_code status =
        weft_request_refuse("lora", name, "the adapter \"%s\" is not served; the adapters are: %s",
                            name, names.data ? names.data : "none");
    weft_buf_free(&names);
    return status;
}

/* Writes the canonical form of a field. *own: the first distilled adapter; NULL: none. */
static weft_status normalize(const weft_served_loras *loras, const char *text, weft_buf *out,
                             const weft_served_lora **own)
{
    const char *seen[WEFT_LORAS];
    int count = 0;
    for (const char *at = text; *at;) {
        char name[WEFT_LORA_NAME + 1];
        double weight;
        at = next_choice(at, name, &weight);
        if (!at || count == WEFT_LORAS)
            return weft_request_refuse("lora", text,
                                       "\"%s\" is not NAME or NAME:WEIGHT of up to %d adapters, "
                                       "separated by ',', with weights of -10 to 10",
                                       text, WEFT_LORAS);
        const weft_served_lora *lora = find(loras, name);
        if (!lora)
            return refuse_name(loras, name);
        for (int i = 0; i < count; i++)
            if (seen[i] == lora->name)
                return weft_request_refuse("lora", name, "\"%s\" is given twice; add the weights",
                                           name);
        if (!*own && lora->settings.steps)
            *own = lora;
        seen[count] = lora->name;
        weft_buf_printf(out, "%s%s:%.9g", count ? "," : "", name, weight);
        count++;
    }
    return weft_buf_check(out);
}

/* The first distilled adapter of a job to vary, whose other adapters may not be served any more.
 * NULL: none. */
static const weft_served_lora *distilled_before(const weft_served_loras *loras, const char *text)
{
    for (const char *at = text; at && *at;) {
        char name[WEFT_LORA_NAME + 1];
        double weight;
        at = next_choice(at, name, &weight);
        const weft_served_lora *lora = at ? find(loras, name) : NULL;
        if (lora && lora->settings.steps)
            return lora;
    }
    return NULL;
}

static bool has(const json_t *fields, const char *name)
{
    const json_t *value = json_object_get(fields, name);
    return value && !json_is_null(value);
}

/* Sets what the fields do not give. A list of levels or of sizes gives the steps. */
static weft_status take_settings(const json_t *fields, const weft_adapter_settings *own,
                                 json_t *request)
{
    const bool steps = has(fields, "steps") || has(fields, "num_inference_steps") ||
                       weft_method_steps(request) > 0;
    int failed = 0;
    if (!steps)
        failed |= json_object_set_new(request, "steps", json_integer(own->steps));
    if (!has(fields, "guidance_scale"))
        failed |= json_object_set_new(request, "guidance_scale", json_real(own->guidance));
    return failed ? weft_no_memory("a request") : WEFT_OK;
}

weft_status weft_served_loras_read(const weft_served_loras *loras, const json_t *fields,
                                   const json_t *base, const weft_adapter_settings *usual,
                                   json_t *request)
{
    const char *text = json_string_value(json_object_get(base, "lora"));
    const weft_served_lora *before = distilled_before(loras, text), *own = NULL;
    weft_buf canonical = {0};
    WEFT_TRY(weft_request_text(fields, "lora", TEXT, &text));
    weft_status_code status = WEFT_OK;
    if (text && *text)
        WEFT_GO(normalize(loras, text, &canonical, &own));
    if (own != before) /* never without the field lora */
        WEFT_GO(take_settings(fields, own ? &own->settings : usual, request));
    if (canonical.data && json_object_set_new(request, "lora", json_string(canonical.data)) != 0)
        WEFT_GO(weft_no_memory("a request"));
out:
    weft_buf_free(&canonical);
    return status;
}

weft_status weft_served_loras_options(const weft_served_loras *loras, const char *text,
                                      char *options[WEFT_LORAS], int *count)
{
    *count = 0;
    for (const char *at = text ? text : ""; *at && *count < WEFT_LORAS;) {
        char name[WEFT_LORA_NAME + 1];
        double weight;
        weft_buf option = {0};
        at = next_choice(at, name, &weight);
        const weft_served_lora *lora = at ? find(loras, name) : NULL;
        if (!lora)
            return weft_error(WEFT_MSG_MODEL_NOT_FOUND, WEFT_NOWHERE,
                              "the LoRA adapter of the job is not served any more");
        weft_buf_printf(&option, "%s:%.9g", lora->path, weight);
        WEFT_TRY(weft_buf_check(&option));
        options[(*count)++] = option.data;
    }
    return WEFT_OK;
}

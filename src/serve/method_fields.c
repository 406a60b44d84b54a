#include "serve/method_fields.h"

#include "serve/request_fields.h"
#include "serve/request_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Characters of texts: they are parts of the key of a price. */
#define LEGAL "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.,:_+-"
enum { LONGEST = 256 };

/* The rows of the request's table have types, ranges and help. */
static const struct kind {
    const char *field, *option;
    weft_method_need need;
} kinds[] = {
    {"window", "--window", WEFT_METHOD_ANY},
    {"window_overlap", "--window-overlap", WEFT_METHOD_ANY},
    {"window_mode", "--window-mode", WEFT_METHOD_ANY},
    {"sections", "--sections", WEFT_METHOD_SECTIONS},
    {"frame_lag", "--frame-lag", WEFT_METHOD_LEVELS},
    {"block_frames", "--block-frames", WEFT_METHOD_LEVELS},
    {"reasoning_frames", "--reasoning-frames", WEFT_METHOD_REASONING},
    {"reasoning_steps", "--reasoning-steps", WEFT_METHOD_REASONING},
    {"stage_steps", "--stage-steps", WEFT_METHOD_STAGES},
    {"first_section_steps", "--first-section-steps", WEFT_METHOD_STAGES},
    {"eta", "--eta", WEFT_METHOD_ANY},
    {"shift", "--shift", WEFT_METHOD_ANY},
    {"timesteps", "--timesteps", WEFT_METHOD_ANY},
    {"sigmas", "--sigmas", WEFT_METHOD_ANY},
    {"tail_steps", "--tail-steps", WEFT_METHOD_ANY},
    {"refine_level", "--refine-level", WEFT_METHOD_REFINEMENT},
    {"refine_frames", "--refine-frames", WEFT_METHOD_REFINEMENT},
    {"block_sparse", "--block-sparse", WEFT_METHOD_BLOCKS},
    {"decode_timestep", "--decode-timestep", WEFT_METHOD_DECODER},
    {"decode_noise_scale", "--decode-noise-scale", WEFT_METHOD_DECODER},
    {"feature_cache", "--feature-cache", WEFT_METHOD_ANY},
    {"true_cfg_scale", "--true-cfg-scale", WEFT_METHOD_EMBEDDED},
    {"guidance_method", "--guidance-method", WEFT_METHOD_ANY},
    {"zero_init_steps", "--zero-init-steps", WEFT_METHOD_ANY},
    {"guidance_rescale", "--guidance-rescale", WEFT_METHOD_ANY},
    {"audio_guidance_scale", "--audio-guidance-scale", WEFT_METHOD_SOUND},
    {"audio_guidance_rescale", "--audio-guidance-rescale", WEFT_METHOD_SOUND},
    {"stg_scale", "--stg-scale", WEFT_METHOD_PERTURBED},
    {"stg_blocks", "--stg-blocks", WEFT_METHOD_PERTURBED},
    {"audio_stg_scale", "--audio-stg-scale", WEFT_METHOD_PERTURBED},
    {"modality_scale", "--modality-scale", WEFT_METHOD_SOUND},
    {"audio_modality_scale", "--audio-modality-scale", WEFT_METHOD_SOUND},
    {"control_scale", "--control-scale", WEFT_METHOD_CONTROL},
    {"guidance_scale_2", "--guidance-scale-2", WEFT_METHOD_EXPERTS},
    {"boundary_ratio", "--boundary-ratio", WEFT_METHOD_EXPERTS},
    {"guidance_start", "--guidance-start", WEFT_METHOD_ANY},
    {"guidance_end", "--guidance-end", WEFT_METHOD_ANY},
    {"max_sequence_length", "--max-sequence-length", WEFT_METHOD_ANY},
    {"fit", "--fit", WEFT_METHOD_ANY},
    {"outpaint", "--outpaint", WEFT_METHOD_ANY},
    {"identity_scale", "--identity-scale", WEFT_METHOD_IDENTITY},
};
_Static_assert(WEFT_METHOD_NUMBERS > WEFT_COUNT(kinds), "numbers of all options");
_Static_assert(WEFT_METHOD_ARGUMENTS >= 2 * WEFT_COUNT(kinds), "arguments of all options");

/* ---- values --------------------------------------------------------------------------------- */

/* A choice of the table, or text of legal characters; NULL: not given. */
static weft_status read_text(const json_t *fields, const weft_key *key, json_t **value)
{
    const char *text = NULL;
    WEFT_TRY(weft_request_text(fields, key->name, LONGEST, &text));
    if (!text)
        return WEFT_OK;
    bool legal = key->type != WEFT_KEY_ENUM && strspn(text, LEGAL) == strlen(text);
    weft_buf names = {0};
    for (int i = 0; key->type == WEFT_KEY_ENUM && key->choices[i]; i++) {
        legal = legal || !strcmp(text, key->choices[i]);
        weft_buf_printf(&names, "%s%s", i ? ", " : "", key->choices[i]);
    }
    weft_status_code status = WEFT_OK;
    if (!legal)
        status = weft_request_refuse(key->name, text, "\"%.80s\" is not a legal value; %s%s", text,
                                     names.data ? "the values are " : "see weft generate --help",
                                     names.data ? names.data : "");
    else
        *value = json_string(text);
    weft_buf_free(&names);
    return status;
}

static weft_status read_value(const json_t *fields, const weft_key *key, json_t **value)
{
    int64_t whole = INT64_MIN;
    double number = -1; /* no option is negative */
    if (key->type == WEFT_KEY_I64) {
        WEFT_TRY(
            weft_request_whole(fields, key->name, (int64_t)key->min, (int64_t)key->max, &whole));
        *value = whole != INT64_MIN ? json_integer(whole) : NULL;
        return WEFT_OK;
    }
    if (key->type != WEFT_KEY_F64)
        return read_text(fields, key, value);
    WEFT_TRY(weft_request_number(fields, key->name, key->min, key->max, &number));
    *value = number >= 0 ? json_real(number) : NULL;
    return WEFT_OK;
}

static bool is_default(const weft_key *key, const json_t *value)
{
    const char *text = json_string_value(value);
    if (text)
        return !*text || !strcmp(text, key->fallback);
    return *key->fallback && json_number_value(value) == strtod(key->fallback, NULL);
}

/* A longer text would be cut, so that other options had the same price. */
static weft_status check_length(const json_t *request)
{
    char text[WEFT_METHOD_TEXT];
    weft_method_text(request, text);
    if (strlen(text) + 1 < WEFT_METHOD_TEXT)
        return WEFT_OK;
    return weft_request_refuse(json_object_get(request, "sigmas") ? "sigmas" : "timesteps", NULL,
                               "the options of the request have more than %d bytes; shorten "
                               "the list",
                               WEFT_METHOD_TEXT - 2);
}

weft_status weft_method_read(const json_t *fields, const json_t *base, const bool *takes,
                             const char *name, json_t *request)
{
    for (int i = 0; i < WEFT_COUNT(kinds); i++) {
        const weft_key *key = weft_request_key(kinds[i].field);
        json_t *value = NULL;
        WEFT_TRY(read_value(fields, key, &value));
        if (!value && takes[kinds[i].need]) /* the other model may have had further options */
            value = json_incref(json_object_get(base, key->name));
        const bool given = value && !is_default(key, value);
        if (given)
            json_object_set(request, key->name, value);
        json_decref(value);
        if (given && !takes[kinds[i].need])
            return weft_request_refuse(key->name, NULL, "the model %s has no %s; remove the field",
                                       name, key->name);
    }
    return check_length(request);
}

int64_t weft_method_steps(const json_t *request)
{
    const char *sigmas = json_string_value(json_object_get(request, "sigmas")),
               *times = json_string_value(json_object_get(request, "timesteps")),
               *stages = json_string_value(json_object_get(request, "stage_steps")),
               *list = sigmas ? sigmas : times;
    int64_t count = list != NULL;
    for (const char *at = stages; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        count += strtoll(at, NULL, 10);
    for (const char *at = list; at && *at; at++)
        count += *at == ',';
    const char *last = sigmas ? strrchr(sigmas, ',') : NULL;
    return last && strtod(last + 1, NULL) == 0 ? count - 1 : count; /* the end of the last step */
}

/* ---- stored requests ------------------------------------------------------------------------ */

/* `text`: for a number. */
static const char *value_text(const json_t *value, char text[32])
{
    if (json_is_string(value))
        return json_string_value(value);
    if (json_is_integer(value))
        snprintf(text, 32, "%" PRId64, (int64_t)json_integer_value(value));
    else
        snprintf(text, 32, "%.17g", json_number_value(value));
    return text;
}

static void append(const json_t *request, const char *field, char text[WEFT_METHOD_TEXT])
{
    const json_t *value = json_object_get(request, field);
    char number[32];
    const size_t length = strlen(text);
    if (!value || (json_is_string(value) && !json_string_length(value)))
        return;
    snprintf(text + length, WEFT_METHOD_TEXT - length, "%s%s=%s", length ? ";" : "", field,
             value_text(value, number));
}

void weft_method_text(const json_t *request, char text[WEFT_METHOD_TEXT])
{
    text[0] = '\0';
    append(request, "sampler", text);
    for (int i = 0; i < WEFT_COUNT(kinds); i++)
        append(request, kinds[i].field, text);
    if (!*text)
        snprintf(text, WEFT_METHOD_TEXT, "-");
}

static json_t *value_of(const char *field, const char *text)
{
    const weft_key *key = weft_request_key(field);
    if (key->type == WEFT_KEY_I64)
        return json_integer(strtoll(text, NULL, 10));
    return key->type == WEFT_KEY_F64 ? json_real(strtod(text, NULL)) : json_string(text);
}

void weft_method_parse(const char *text, json_t *request)
{
    char copy[WEFT_METHOD_TEXT], *next, *equals;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *at = strcmp(text, "-") != 0 ? copy : NULL; at; at = next) {
        next = strchr(at, ';');
        if (next)
            *next++ = '\0';
        equals = strchr(at, '=');
        if (!equals)
            continue;
        *equals = '\0';
        json_object_set_new(request, at, value_of(at, equals + 1));
    }
}

int weft_method_arguments(const json_t *request, char numbers[][32], char **arguments)
{
    int count = 0;
    for (int i = 0; i < WEFT_COUNT(kinds); i++) {
        const json_t *value = json_object_get(request, kinds[i].field);
        if (!value)
            continue;
        arguments[count++] = (char *)kinds[i].option;
        arguments[count++] = (char *)value_text(value, numbers[i]);
    }
    return count;
}

/* ---- capabilities --------------------------------------------------------------------------- */

static json_t *option_json(const weft_key *key, const bool *takes)
{
    const bool number = key->type == WEFT_KEY_I64 || key->type == WEFT_KEY_F64;
    json_t *json = json_pack("{s:s, s:s, s:s}", "name", key->name, "type",
                             key->type == WEFT_KEY_I64 ? "integer"
                             : number                  ? "number"
                                                       : "string",
                             "about", key->help),
           *values = key->type == WEFT_KEY_ENUM ? json_array() : NULL;
    for (int i = 0; values && key->choices[i]; i++)
        if (strcmp(key->choices[i], "history") != 0 || takes[WEFT_METHOD_LEVELS])
            json_array_append_new(values, json_string(key->choices[i]));
    if (json && values)
        json_object_set_new(json, "values", values);
    if (json && number) {
        json_object_set_new(json, "minimum", json_real(key->min));
        json_object_set_new(json, "maximum", json_real(key->max));
    }
    if (json && *key->fallback)
        json_object_set_new(json, "default",
                            number ? json_real(strtod(key->fallback, NULL))
                                   : json_string(key->fallback));
    return json;
}

json_t *weft_method_json(const bool *takes)
{
    json_t *all = json_array();
    for (int i = 0; all && i < WEFT_COUNT(kinds); i++)
        if (takes[kinds[i].need])
            json_array_append_new(all, option_json(weft_request_key(kinds[i].field), takes));
    return all;
}

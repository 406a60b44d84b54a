#include "serve/video_request.h"

#include "base/config.h"
#include "base/hash.h"
#include "diffusion/scheduler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const known[] = {"model",
                                    "prompt",
                                    "negative_prompt",
                                    "size",
                                    "seconds",
                                    "frames",
                                    "num_frames",
                                    "height",
                                    "width",
                                    "fps",
                                    "steps",
                                    "num_inference_steps",
                                    "seed",
                                    "guidance_scale",
                                    "sampler",
                                    "input_reference",
                                    "request_id",
                                    "priority",
                                    "deadline",
                                    "user",
                                    "metadata",
                                    "n"};

/* ---- fields --------------------------------------------------------------------------------- */

static weft_status refuse(const char *key, const char *value, const char *why)
{
    return weft_error(WEFT_MSG_REQUEST_INVALID, WEFT_AT(.key = key, .value = value), "%s", why);
}

static weft_status check_known(const json_t *fields)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)fields, key, value)
    {
        bool is = false;
        for (int i = 0; i < WEFT_COUNT(known); i++)
            is = is || !strcmp(key, known[i]);
        if (!is)
            return weft_error(WEFT_MSG_REQUEST_INVALID, WEFT_AT(.key = key),
                              "the field is unknown; remove it");
    }
    return WEFT_OK;
}

/* Reads text of at most `limit` bytes without NUL; NULL: not given. */
static weft_status get_text(const json_t *fields, const char *key, size_t limit, const char **out)
{
    const json_t *value = json_object_get(fields, key);
    if (!value || json_is_null(value))
        return WEFT_OK;
    if (!json_is_string(value))
        return refuse(key, NULL, "the value is not a string");
    if (json_string_length(value) > limit)
        return refuse(key, NULL, "the value is too long");
    if (strlen(json_string_value(value)) != json_string_length(value))
        return refuse(key, NULL, "the value has a NUL character");
    *out = json_string_value(value);
    return WEFT_OK;
}

static weft_status get_number(const json_t *fields, const char *key, double min, double max,
                              double *out)
{
    const json_t *value = json_object_get(fields, key);
    double x = 0;
    if (!value || json_is_null(value))
        return WEFT_OK;
    if (json_is_number(value))
        x = json_number_value(value);
    else if (!json_is_string(value) || !weft_parse_f64(json_string_value(value), &x))
        return refuse(key, json_string_value(value), "the value is not a number");
    if (!(x >= min && x <= max))
        return weft_error(WEFT_MSG_REQUEST_INVALID, WEFT_AT(.key = key, WEFT_NUMBER(x)),
                          "%g is not %g to %.17g", x, min, max);
    *out = x;
    return WEFT_OK;
}

static weft_status get_whole(const json_t *fields, const char *key, double min, double max,
                             int64_t *out)
{
    double x = NAN;
    WEFT_TRY(get_number(fields, key, min, max, &x));
    if (isnan(x))
        return WEFT_OK;
    if (x != floor(x))
        return weft_error(WEFT_MSG_REQUEST_INVALID, WEFT_AT(.key = key, WEFT_NUMBER(x)),
                          "%g is not a whole number", x);
    *out = (int64_t)x;
    return WEFT_OK;
}

/* ---- model and size ------------------------------------------------------------------------- */

static const weft_served_model *find_model(const char *name, const weft_served_model *models,
                                           int count)
{
    for (int i = 0; name && i < count; i++)
        if (!strcmp(models[i].name, name))
            return &models[i];
    return name ? NULL : models;
}

/* WIDTHxHEIGHT, as in the /v1/videos shape. */
static weft_status read_size(const char *text, int64_t size[3])
{
    char *end, *last;
    const long width = strtol(text, &end, 10);
    const long height = *end == 'x' ? strtol(end + 1, &last, 10) : 0;
    if (width < 1 || height < 1 || width > 16384 || height > 16384 || *last)
        return refuse("size", text,
                      "the value is not WIDTHxHEIGHT in pixels up to 16384, such as "
                      "832x480");
    size[1] = height;
    size[2] = width;
    return WEFT_OK;
}

static weft_status read_frames(const json_t *fields, const weft_served_model *m, double fps,
                               int64_t *frames)
{
    double seconds = 0;
    int64_t given = 0;
    WEFT_TRY(get_whole(fields, "num_frames", 1, 100000, &given));
    WEFT_TRY(get_whole(fields, "frames", 1, 100000, &given));
    WEFT_TRY(get_number(fields, "seconds", 0.01, 3600, &seconds));
    if (given && seconds > 0)
        return refuse("seconds", NULL, "frames also sets the length; remove one of the two");
    if (given)
        *frames = given;
    else if (seconds > 0) /* the nearest legal length */
        *frames = weft_grid_nearest_frames(&m->grid, (int64_t)fmax(1, round(seconds * fps)));
    return WEFT_OK;
}

static weft_status read_video_size(const json_t *fields, const weft_served_model *m, double fps,
                                   int64_t size[3])
{
    const char *text = NULL;
    static const char *const names[] = {"frames", "height", "width"};
    WEFT_TRY(get_text(fields, "size", 32, &text));
    if (text)
        WEFT_TRY(read_size(text, size));
    WEFT_TRY(get_whole(fields, "height", 1, 16384, &size[1]));
    WEFT_TRY(get_whole(fields, "width", 1, 16384, &size[2]));
    WEFT_TRY(read_frames(fields, m, fps, &size[0]));
    for (int i = 0; i < 3; i++)
        if (!size[i])
            return refuse(names[i], NULL,
                          "the model has no trained size, so that the request must give frames (or "
                          "seconds) and size");
    return weft_served_model_check(m, size);
}

/* ---- the request ---------------------------------------------------------------------------- */

typedef struct video_values {
    const char *prompt, *negative, *sampler, *image;
    int64_t size[3], steps, seed;
    double guidance, fps;
} video_values;

static weft_status read_values(const json_t *fields, const weft_served_model *m, video_values *v)
{
    WEFT_TRY(get_text(fields, "prompt", WEFT_REQUEST_PROMPT, &v->prompt));
    if (!v->prompt || !v->prompt[strspn(v->prompt, " \t\r\n")])
        return refuse("prompt", NULL, "the field is missing or empty");
    WEFT_TRY(get_text(fields, "negative_prompt", WEFT_REQUEST_PROMPT, &v->negative));
    WEFT_TRY(get_text(fields, "sampler", 64, &v->sampler));
    if (v->sampler[0] && !weft_sampler_find(v->sampler))
        return refuse("sampler", v->sampler, "the sampler is unknown; /capabilities lists them");
    WEFT_TRY(get_number(fields, "fps", 0.01, 1000, &v->fps));
    WEFT_TRY(get_whole(fields, "num_inference_steps", 1, 10000, &v->steps));
    WEFT_TRY(get_whole(fields, "steps", 1, 10000, &v->steps));
    WEFT_TRY(get_whole(fields, "seed", 0, 9007199254740992., &v->seed));
    WEFT_TRY(get_number(fields, "guidance_scale", 0, 100, &v->guidance));
    WEFT_TRY(read_video_size(fields, m, v->fps > 0 ? v->fps : m->fps, v->size));
    if (v->image && !m->takes_image)
        return refuse("input_reference", NULL, "the model takes no image");
    return WEFT_OK;
}

static weft_status read_terms(const json_t *fields, weft_request_terms *t)
{
    const char *id = NULL;
    int64_t videos = 1;
    WEFT_TRY(get_text(fields, "request_id", WEFT_REQUEST_ID, &id));
    if (id)
        snprintf(t->request_id, sizeof t->request_id, "%s", id);
    WEFT_TRY(get_whole(fields, "n", 1, 1, &videos));
    WEFT_TRY(get_whole(fields, "priority", -1000, 1000, &t->priority));
    return get_number(fields, "deadline", 0, 1e11, &t->deadline);
}

static json_t *pack(const weft_served_model *m, const video_values *v)
{
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:s, s:s}", "model",
                     m->name, "prompt", v->prompt, "negative_prompt", v->negative, "frames",
                     (json_int_t)v->size[0], "height", (json_int_t)v->size[1], "width",
                     (json_int_t)v->size[2], "steps", (json_int_t)v->steps, "seed",
                     (json_int_t)v->seed, "guidance_scale", v->guidance, "fps", v->fps, "sampler",
                     v->sampler, "image", v->image ? v->image : "");
}

/* Values of a job to vary, in place of the model's defaults. */
static void use_base(const json_t *base, video_values *v)
{
    v->prompt = json_string_value(json_object_get(base, "prompt"));
    v->negative = json_string_value(json_object_get(base, "negative_prompt"));
    v->sampler = json_string_value(json_object_get(base, "sampler"));
    v->size[0] = json_integer_value(json_object_get(base, "frames"));
    v->size[1] = json_integer_value(json_object_get(base, "height"));
    v->size[2] = json_integer_value(json_object_get(base, "width"));
    v->steps = json_integer_value(json_object_get(base, "steps"));
    v->seed = json_integer_value(json_object_get(base, "seed"));
    v->guidance = json_number_value(json_object_get(base, "guidance_scale"));
    v->fps = json_number_value(json_object_get(base, "fps"));
}

weft_status weft_video_request_read(const json_t *fields, const json_t *base, const char *image,
                                    const weft_served_model *models, int count,
                                    weft_request_terms *terms, json_t **request)
{
    const char *name = base ? json_string_value(json_object_get(base, "model")) : NULL;
    WEFT_TRY(check_known(fields));
    WEFT_TRY(get_text(fields, "model", 256, &name));
    const weft_served_model *m = find_model(name, models, count);
    if (!m)
        return refuse("model", name, "the model is not served; /v1/models lists the models");
    video_values v = {.negative = "",
                      .sampler = "",
                      .image = image,
                      .size = {m->size[0], m->size[1], m->size[2]},
                      .steps = 30,
                      .guidance = m->guidance,
                      .fps = 0};
    *terms = (weft_request_terms){0};
    if (base)
        use_base(base, &v);
    WEFT_TRY(read_values(fields, m, &v));
    WEFT_TRY(read_terms(fields, terms));
    json_t *json = pack(m, &v);
    WEFT_TRY(WEFT_ALLOCATED(json, "a request"));
    *request = json;
    return WEFT_OK;
}

const weft_served_model *weft_video_request_model(const json_t *request,
                                                  const weft_served_model *models, int count)
{
    const char *name = json_string_value(json_object_get(request, "model"));
    return find_model(name ? name : "", models, count);
}

weft_status weft_video_request_fingerprint(const json_t *request, const char *image_hash,
                                           char out[33])
{
    char *text = json_dumps(request, JSON_COMPACT | JSON_SORT_KEYS);
    weft_buf all = {0};
    if (text)
        weft_buf_printf(&all, "%s %s", text, image_hash);
    weft_status_code status = text ? weft_buf_check(&all) : weft_no_memory("a request");
    if (status == WEFT_OK) {
        const XXH128_hash_t hash = XXH3_128bits(all.data, (size_t)all.len);
        snprintf(out, 33, "%016" PRIx64 "%016" PRIx64, (uint64_t)hash.high64, (uint64_t)hash.low64);
    }
    weft_buf_free(&all);
    free(text);
    return status;
}

char *weft_video_request_line(const json_t *request)
{
    static const char *const from[] = {"prompt", "negative_prompt", "seed",  "frames",
                                       "height", "width",           "steps", "guidance_scale"};
    static const char *const to[] = {"prompt", "negative", "seed",  "frames",
                                     "height", "width",    "steps", "guidance"};
    json_t *line = json_object();
    for (int i = 0; line && i < WEFT_COUNT(from); i++) {
        json_t *value = json_object_get(request, from[i]);
        const char *text = json_string_value(value);
        if (!text || *text)
            json_object_set(line, to[i], value);
    }
    char *text = line ? weft_json_line(line) : NULL;
    json_decref(line);
    return text;
}

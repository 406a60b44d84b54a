#include "serve/video_request.h"

#include "base/config.h"
#include "base/hash.h"
#include "diffusion/scheduler.h"
#include "serve/request_fields.h"
#include "serve/request_table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Key of a stored request: the rate of a refined video without the field fps. */
#define REFINED_FPS "refined_fps"

enum { SIDE = WEFT_REQUEST_SIDE };

/* ---- fields --------------------------------------------------------------------------------- */

/* The table of request_table.c has names and ranges. */
static weft_status check_names(const json_t *fields)
{
    const char *names[2 * 64];
    int count = 0;
    for (int i = 0; i < weft_request_section.key_count && count + 2 <= WEFT_COUNT(names); i++) {
        names[count++] = weft_request_section.keys[i].name;
        if (weft_request_section.keys[i].also)
            names[count++] = weft_request_section.keys[i].also;
    }
    return weft_request_known(fields, names, count);
}

static weft_status read_whole(const json_t *fields, const char *name, int64_t *out)
{
    const weft_key *key = weft_request_key(name);
    const char *const names[] = {key->name, key->also};
    const int64_t min = (int64_t)key->min, max = (int64_t)key->max;
    return key->also ? weft_request_either(fields, names, min, max, out)
                     : weft_request_whole(fields, name, min, max, out);
}

static weft_status read_number(const json_t *fields, const char *name, double *out)
{
    const weft_key *key = weft_request_key(name);
    return weft_request_number(fields, name, key->min, key->max, out);
}

/* Images and videos are bytes, which only a form can have as files. */
static weft_status check_files(const json_t *fields)
{
    char shown[WEFT_REQUEST_SHOWN];
    for (int i = 0; i < WEFT_INPUTS; i++) {
        const char *field = weft_input_kinds[i].field;
        const json_t *value = json_object_get(fields, field);
        if (value && !json_is_null(value))
            return weft_request_refuse(field, weft_request_show(value, shown),
                                       "%s is not an uploaded file. Send it as a file of a form "
                                       "(multipart/form-data), such as curl -F %s=@image.png.",
                                       shown, field);
    }
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

static weft_status refuse_model(const char *name, const weft_served_model *models, int count)
{
    weft_buf names = {0};
    for (int i = 0; i < count; i++)
        weft_buf_printf(&names, "%s%s", i ? ", " : "", models[i].name);
    const weft_status_code status = weft_request_refuse(
        "model", name, "the model \"%s\" is not served; %s %s", name,
        count > 1 ? "the models are" : "the model is", names.data ? names.data : "");
    weft_buf_free(&names);
    return status;
}

/* WIDTHxHEIGHT, as in the /v1/videos shape. */
static weft_status read_size(const char *text, int64_t size[2])
{
    const size_t width = strspn(text, "0123456789"),
                 height = text[width] == 'x' ? strspn(text + width + 1, "0123456789") : 0;
    const bool formed = width && height && width < 9 && height < 9 && !text[width + 1 + height];
    size[0] = formed ? atoll(text + width + 1) : 0;
    size[1] = formed ? atoll(text) : 0;
    for (int i = 0; i < 2; i++)
        if (size[i] < 1 || size[i] > SIDE)
            return weft_request_refuse("size", text,
                                       "\"%s\" is not WIDTHxHEIGHT, such as 832x480, with 1 to %d "
                                       "pixels each",
                                       text, SIDE);
    return WEFT_OK;
}

/* Height and width: size[1] and size[2]. */
static weft_status read_sides(const json_t *fields, int64_t size[3])
{
    static const char *const names[] = {"height", "width"};
    const char *text = NULL;
    int64_t both[2] = {0, 0};
    WEFT_TRY(weft_request_text(fields, "size", 32, &text));
    if (text)
        WEFT_TRY(read_size(text, both));
    for (int i = 0; i < 2; i++) {
        int64_t side = 0;
        WEFT_TRY(read_whole(fields, names[i], &side));
        if (side && both[i] && side != both[i])
            return weft_request_refuse(names[i], NULL,
                                       "%" PRId64 " differs from size \"%s\"; remove one of the "
                                       "two fields",
                                       side, text);
        if (side || both[i])
            size[1 + i] = side ? side : both[i];
    }
    return WEFT_OK;
}

/* How a coarse video is refined. */
typedef struct refining {
    bool on, same_frames;
    double fps; /* of the refined video */
} refining;

/* The frames of `seconds` that are nearest to a legal length. */
static int64_t nearest_frames(const weft_served_model *m, refining r, double frames)
{
    if (!r.on)
        return weft_grid_nearest_frames(&m->grid, (int64_t)fmax(1, round(frames)));
    const double each = r.same_frames ? 1 : 2;
    return (int64_t)(each * fmax(2, round(frames / each)));
}

static weft_status read_frames(const json_t *fields, const weft_served_model *m, refining r,
                               double fps, int64_t *frames)
{
    double seconds = 0;
    int64_t given = 0;
    WEFT_TRY(read_whole(fields, "frames", &given));
    WEFT_TRY(read_number(fields, "seconds", &seconds));
    if (given && seconds > 0)
        return weft_request_refuse("seconds", NULL,
                                   "frames %" PRId64 " also sets the length; remove one of the "
                                   "two fields",
                                   given);
    if (given)
        *frames = given;
    else if (seconds > 0) /* the nearest legal length */
        *frames = nearest_frames(m, r, seconds * fps);
    return WEFT_OK;
}

/* fps: of the request; 0: the model's, or the one of the refined video. */
static weft_status read_video_size(const json_t *fields, const weft_served_model *m, refining r,
                                   double fps, int64_t size[3])
{
    static const char *const names[] = {"frames", "height", "width"};
    const double own = r.on ? r.fps : m->fps;
    WEFT_TRY(read_sides(fields, size));
    WEFT_TRY(read_frames(fields, m, r, fps > 0 ? fps : own, &size[0]));
    for (int i = 0; i < 3; i++)
        if (!size[i])
            return weft_request_refuse(
                names[i], NULL,
                "the model has no trained size, so that the request must give frames (or seconds) "
                "and size");
    return r.on ? weft_served_model_check_refined(m, r.same_frames, size)
                : weft_served_model_check(m, size);
}

/* ---- the request ---------------------------------------------------------------------------- */

typedef struct video_values {
    const char *prompt, *negative, *sampler;
    const char *const *files; /* [WEFT_INPUTS] NULL: none */
    int64_t size[3], steps, seed;
    double guidance, fps, strength;
    weft_compute compute;
    refining refining;
} video_values;

static weft_status read_sampler(const json_t *fields, const char **sampler)
{
    weft_buf names = {0};
    WEFT_TRY(weft_request_text(fields, "sampler", 64, sampler));
    if (!**sampler || weft_sampler_find(*sampler))
        return WEFT_OK;
    for (int i = 0; weft_samplers[i]; i++)
        weft_buf_printf(&names, "%s%s", i ? ", " : "", weft_samplers[i]->name);
    const weft_status_code status =
        weft_request_refuse("sampler", *sampler, "\"%s\" is not a sampler; the samplers are %s",
                            *sampler, names.data ? names.data : "");
    weft_buf_free(&names);
    return status;
}

static weft_status refuse_file(weft_request_input input, const char *remedy)
{
    return weft_request_refuse(weft_input_kinds[input].field, NULL, "%s", remedy);
}

static weft_status need_file(const weft_served_model *m, weft_request_input input, const char *what)
{
    return weft_error(WEFT_MSG_VIDEO_INPUT, WEFT_AT(.key = weft_input_kinds[input].field),
                      "the model %s generates videos that %s. Send one as a file of a form "
                      "(multipart/form-data).",
                      m->name, what);
}

/* The images of an identity. */
static weft_status check_identities(const weft_served_model *m, const char *const *f)
{
    int64_t images = 0;
    for (int i = WEFT_INPUT_IDENTITY; i < WEFT_INPUTS; i++)
        images += f[i] != NULL;
    if (images && !m->takes[WEFT_METHOD_IDENTITY])
        return weft_request_refuse("identity_image", NULL,
                                   "the model %s takes no identity image; remove the field",
                                   m->name);
    return images <= m->identity_images ? WEFT_OK
                                        : weft_request_refuse("identity_image", NULL,
                                                              "the model %s takes up to %" PRId64
                                                              " images of an identity, and %" PRId64
                                                              " are given; send fewer files",
                                                              m->name, m->identity_images, images);
}

/* Reference images of a control. */
static weft_status check_references(const weft_served_model *m, const char *const *f)
{
    bool some = false;
    for (int i = 0; i < WEFT_INPUT_REFERENCES; i++)
        some = some || f[WEFT_INPUT_REFERENCE + i];
    if (!some)
        return WEFT_OK;
    if (!m->takes_references)
        return weft_request_refuse("reference_image", NULL,
                                   "the model %s takes no reference images; remove the field",
                                   m->name);
    return f[WEFT_INPUT_VIDEO] ? refuse_file(WEFT_INPUT_VIDEO,
                                             "reference images exclude a video to change; send it "
                                             "as control")
                               : WEFT_OK;
}

/* A coarse video is the whole input, with an image that begins the refined video. */
static weft_status check_coarse(const weft_served_model *m, const char *const *f)
{
    if (!f[WEFT_INPUT_REFINE])
        return WEFT_OK;
    if (!m->takes[WEFT_METHOD_REFINEMENT])
        return weft_request_refuse(
            "refine", NULL, "the model %s refines no coarse video; remove the field", m->name);
    for (int i = 0; i < WEFT_INPUTS; i++)
        if (f[i] && i != WEFT_INPUT_REFINE && i != WEFT_INPUT_IMAGE && i < WEFT_INPUT_IDENTITY)
            return weft_request_refuse(weft_input_kinds[i].field, NULL,
                                       "the file cannot be combined with refine; send one of the "
                                       "two");
    return WEFT_OK;
}

/* The files that the model takes, and the ones that need another. */
static weft_status check_inputs(const weft_served_model *m, const video_values *v)
{
    const char *const *f = v->files;
    const char *source = f[WEFT_INPUT_VIDEO], *control = f[WEFT_INPUT_CONTROL];
    if (f[WEFT_INPUT_IMAGE] && !m->takes_image)
        return weft_request_refuse("input_reference", NULL,
                                   "the model %s takes no image; remove the field", m->name);
    if (f[WEFT_INPUT_LAST_IMAGE] && !m->takes_last_image)
        return weft_request_refuse("last_image", NULL,
                                   "the model %s takes no last image; remove the field", m->name);
    if (source && !m->takes_video && !m->needs_control)
        return weft_request_refuse(
            "video", NULL, "the model %s takes no video to change; remove the field", m->name);
    if (control && !m->takes_control)
        return weft_request_refuse("control", NULL,
                                   "the model %s takes no control video; send it as the field "
                                   "video, or remove it",
                                   m->name);
    WEFT_TRY(check_identities(m, f));
    WEFT_TRY(check_references(m, f));
    if (!f[WEFT_INPUT_IMAGE] && m->needs_image)
        return need_file(m, WEFT_INPUT_IMAGE, "start from an image");
    if (!f[WEFT_INPUT_LAST_IMAGE] && m->needs_last_image)
        return need_file(m, WEFT_INPUT_LAST_IMAGE, "end with an image");
    if (!control && m->needs_control)
        return need_file(m, WEFT_INPUT_CONTROL, "follow a control video");
    if (!f[WEFT_INPUT_FACE] && m->needs_face)
        return need_file(m, WEFT_INPUT_FACE, "show a character with the face of a video");
    if (f[WEFT_INPUT_FACE] && !m->needs_face)
        return weft_request_refuse(
            "face", NULL, "the model %s takes no video of a face; remove the field", m->name);
    if (f[WEFT_INPUT_LAST_IMAGE] && !f[WEFT_INPUT_IMAGE])
        return refuse_file(WEFT_INPUT_LAST_IMAGE, "a last image needs input_reference");
    if (m->needs_face && !source != !f[WEFT_INPUT_MASK])
        return refuse_file(source ? WEFT_INPUT_MASK : WEFT_INPUT_VIDEO,
                           "the character replaces what is white in mask in the background of "
                           "video; send both or none");
    if (source && control && !m->needs_face)
        return refuse_file(WEFT_INPUT_CONTROL, "send either video or control, not both");
    if (f[WEFT_INPUT_MASK] && !m->takes_video && (m->needs_control || !m->takes_control))
        return weft_request_refuse("mask", NULL, "the model %s takes no mask; remove the field",
                                   m->name);
    if (f[WEFT_INPUT_MASK] && !source && !control)
        return refuse_file(WEFT_INPUT_MASK, "a mask needs a video or a control video");
    if (v->strength > 0 && !source)
        return weft_request_refuse("strength", NULL,
                                   "%g has no effect without a video; remove the field or send a "
                                   "video",
                                   v->strength);
    return WEFT_OK;
}

static weft_status read_values(const json_t *fields, const weft_served_model *m, video_values *v)
{
    WEFT_TRY(weft_request_text(fields, "prompt", WEFT_REQUEST_PROMPT, &v->prompt));
    if (!v->prompt || !v->prompt[strspn(v->prompt, " \t\r\n")])
        return weft_request_refuse("prompt", NULL, "the field is missing or empty");
    WEFT_TRY(weft_request_text(fields, "negative_prompt", WEFT_REQUEST_PROMPT, &v->negative));
    WEFT_TRY(read_sampler(fields, &v->sampler));
    WEFT_TRY(weft_compute_read(fields, &v->compute));
    WEFT_TRY(read_number(fields, "fps", &v->fps));
    WEFT_TRY(read_whole(fields, "steps", &v->steps));
    WEFT_TRY(read_whole(fields, "seed", &v->seed));
    WEFT_TRY(read_number(fields, "guidance_scale", &v->guidance));
    WEFT_TRY(check_coarse(m, v->files));
    WEFT_TRY(read_video_size(fields, m, v->refining, v->fps, v->size));
    WEFT_TRY(read_number(fields, "strength", &v->strength));
    return check_inputs(m, v);
}

static weft_status read_terms(const json_t *fields, weft_request_terms *t)
{
    const char *id = NULL, *webhook = NULL;
    int64_t videos = 1;
    WEFT_TRY(weft_request_text(fields, "request_id", WEFT_REQUEST_ID, &id));
    if (id)
        snprintf(t->request_id, sizeof t->request_id, "%s", id);
    WEFT_TRY(weft_request_text(fields, "webhook", WEFT_REQUEST_URL, &webhook));
    if (webhook)
        snprintf(t->webhook, sizeof t->webhook, "%s", webhook);
    WEFT_TRY(read_whole(fields, "n", &videos));
    WEFT_TRY(read_whole(fields, "priority", &t->priority));
    return read_number(fields, "deadline", &t->deadline);
}

static json_t *pack(const weft_served_model *m, const video_values *v)
{
    json_t *json = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:s, s:s}",
                             "model", m->name, "prompt", v->prompt, "negative_prompt", v->negative,
                             "frames", (json_int_t)v->size[0], "height", (json_int_t)v->size[1],
                             "width", (json_int_t)v->size[2], "steps", (json_int_t)v->steps, "seed",
                             (json_int_t)v->seed, "guidance_scale", v->guidance, "fps", v->fps,
                             "sampler", v->sampler, "image", "");
    if (json)
        weft_compute_store(&v->compute, json);
    for (int i = 0; json && i < WEFT_INPUTS; i++)
        if (v->files[i])
            json_object_set_new(json, weft_input_kinds[i].key, json_string(v->files[i]));
    if (json && v->strength > 0)
        json_object_set_new(json, "strength", json_real(v->strength));
    if (json && v->refining.on)
        json_object_set_new(json, REFINED_FPS, json_real(v->refining.fps));
    return json;
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
    v->strength = json_number_value(json_object_get(base, "strength"));
    v->compute = weft_compute_of(base);
}

/* Options of a refinement have no effect without a coarse video. A file without a rate has the
 * model's, as in weft generate. */
static weft_status read_refining(const json_t *fields, const json_t *base,
                                 const char *const files[WEFT_INPUTS], double coarse_fps,
                                 const weft_served_model *m, refining *r)
{
    static const char *const own[] = {"refine_level", "refine_frames"};
    const json_t *how = json_object_get(fields, own[1]), *before = json_object_get(base, own[1]);
    const char *frames = json_string_value(how ? how : before);
    *r = (refining){.on = files[WEFT_INPUT_REFINE], .same_frames = frames && *frames == 's'};
    r->fps = coarse_fps > 0 ? coarse_fps * (r->same_frames ? 1 : 2) : m->fps;
    for (int i = 0; i < WEFT_COUNT(own) && !r->on; i++)
        if (json_object_get(fields, own[i]))
            return weft_request_refuse(own[i], NULL,
                                       "the field has no effect without a coarse video; remove it, "
                                       "or send refine");
    return WEFT_OK;
}

weft_status weft_video_request_read(const json_t *fields, const json_t *base,
                                    const char *const files[WEFT_INPUTS], double coarse_fps,
                                    const weft_served_model *models, int count,
                                    weft_request_terms *terms, json_t **request)
{
    const char *name = base ? json_string_value(json_object_get(base, "model")) : NULL;
    WEFT_TRY(check_names(fields));
    WEFT_TRY(check_files(fields));
    WEFT_TRY(weft_request_text(fields, "model", 256, &name));
    const weft_served_model *m = find_model(name, models, count);
    if (!m)
        return refuse_model(name, models, count);
    video_values v = {.negative = "",
                      .sampler = "",
                      .files = files,
                      .size = {m->size[0], m->size[1], m->size[2]},
                      .steps = m->steps,
                      .guidance = files[WEFT_INPUT_REFINE] ? 1 : m->guidance,
                      .fps = 0,
                      .compute = m->compute};
    WEFT_TRY(read_refining(fields, base, files, coarse_fps, m, &v.refining));
    if (base)
        use_base(base, &v);
    WEFT_TRY(read_values(fields, m, &v));
    WEFT_TRY(read_terms(fields, terms));
    json_t *json = pack(m, &v);
    WEFT_TRY(WEFT_ALLOCATED(json, "a request"));
    *request = json;
    WEFT_TRY(weft_method_read(fields, base, m->takes, m->name, json));
    if (weft_method_steps(json))
        json_object_set_new(json, "steps", json_integer(weft_method_steps(json)));
    return WEFT_OK;
}

/* The most steps between previews that surely show one. The schedule determines how many of its
 * steps follow the level of a refinement, or precede a tail. */
static int64_t sure_preview(const json_t *request, int64_t steps)
{
    const int64_t tail = json_integer_value(json_object_get(request, "tail_steps"));
    const bool changes = weft_input_of(request, WEFT_INPUT_VIDEO) &&
                         !weft_input_of(request, WEFT_INPUT_FACE),
               masked =
                   weft_input_of(request, WEFT_INPUT_MASK) || json_object_get(request, "outpaint");
    double share = json_number_value(json_object_get(request, "strength"));
    if (!(share > 0))
        share = changes && !masked ? 0.8 : 1;
    if (weft_input_of(request, WEFT_INPUT_REFINE))
        return 1;
    steps = (int64_t)fmax(1, (double)steps * share + 1e-9);
    return tail > 0 && tail < steps ? tail : steps;
}

weft_status weft_video_request_read_preview(const json_t *fields, const json_t *base,
                                            json_t *request)
{
    const int64_t steps = json_integer_value(json_object_get(request, "steps")),
                  most = sure_preview(request, steps);
    int64_t preview = json_integer_value(json_object_get(base, "preview"));
    WEFT_TRY(weft_request_whole(fields, "preview", 0, steps, &preview));
    if (preview > most)
        preview = most;
    if (preview && json_object_set_new(request, "preview", json_integer(preview)) != 0)
        return weft_no_memory("a request");
    return WEFT_OK;
}

double weft_video_request_seconds(const json_t *request, const weft_served_model *models, int count)
{
    const weft_served_model *m = weft_video_request_model(request, models, count);
    double fps = json_number_value(json_object_get(request, "fps"));
    if (!(fps > 0))
        fps = json_number_value(json_object_get(request, REFINED_FPS));
    if (!(fps > 0))
        fps = m ? m->fps : 0;
    return fps > 0 ? (double)json_integer_value(json_object_get(request, "frames")) / fps : 0;
}

void weft_video_request_show(json_t *request)
{
    json_object_del(request, REFINED_FPS);
}

const weft_served_model *weft_video_request_model(const json_t *request,
                                                  const weft_served_model *models, int count)
{
    const char *name = json_string_value(json_object_get(request, "model"));
    return find_model(name ? name : "", models, count);
}

weft_status weft_video_request_fingerprint(const json_t *request, const char *file_hashes,
                                           char out[33])
{
    char *text = json_dumps(request, JSON_COMPACT | JSON_SORT_KEYS);
    weft_buf all = {0};
    if (text)
        weft_buf_printf(&all, "%s %s", text, file_hashes);
    weft_status_code status = WEFT_OK;
    WEFT_GO(text ? weft_buf_check(&all) : weft_no_memory("a request"));
    const XXH128_hash_t hash = XXH3_128bits(all.data, (size_t)all.len);
    snprintf(out, 33, "%016" PRIx64 "%016" PRIx64, (uint64_t)hash.high64, (uint64_t)hash.low64);
out:
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
        if (!strcmp(from[i], "steps") && weft_method_steps(request))
            continue; /* the list has them */
        const char *text = json_string_value(value);
        if (!text || *text)
            json_object_set(line, to[i], value);
    }
    char *text = line ? weft_json_line(line) : NULL;
    json_decref(line);
    return text;
}

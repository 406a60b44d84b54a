/* weft parity of pipelines: the folder of the JSON file is a model as diffusers publishes it, with
 * results of diffusers' pipeline. JSON members:
 *
 *   options     options of weft generate and their values
 *   files       options whose values are files of the folder: images, masks
 *   noise       .npy with the initial noise
 *   expected    latents, audio-latents or frames: .npy with the reference's results
 *   tolerance   largest relative error
 *   scheduler, guider   optional: replace the config of this part
 *
 * weft generate writes into a temporary folder. */
#include "parity/parity_pipeline.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/kept_error.h"
#include "format/tensors/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 128 }; /* arguments */

typedef struct pipeline {
    weft_parity *p;
    const char *folder; /* of the JSON file */
    char scratch[4096]; /* temporary folder; "": none yet */
    const char *arg[MOST + 1];
    char *owned[MOST]; /* paths among the arguments */
    int args, paths;
    bool many; /* too many arguments, or no memory for one */
} pipeline;

static bool is_pipeline(const json_t *json)
{
    return json_is_object(json_object_get(json, "options")) &&
           json_is_object(json_object_get(json, "expected"));
}

static void add(pipeline *r, const char *text)
{
    if (!text || r->args == MOST)
        r->many = true;
    else
        r->arg[r->args++] = text;
}

/* Adds an option with a path. */
static void add_path(pipeline *r, const char *option, const char *folder, const char *name)
{
    char *path = name && r->paths < MOST ? weft_path_join(folder, name) : NULL;
    add(r, option);
    add(r, path);
    if (path)
        r->owned[r->paths++] = path;
}

static weft_status damaged(const pipeline *r, const char *key, const char *expected)
{
    return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = r->p->config_file, .key = key),
                      "\"%s\" must be %s", key, expected);
}

/* ---- the model ------------------------------------------------------------------------------ */

static weft_status make_scratch(pipeline *r)
{
    const char *set = getenv("TMPDIR");
    snprintf(r->scratch, sizeof r->scratch, "%.4000s/weft-parity-XXXXXX",
             set && *set ? set : "/tmp");
    if (mkdtemp(r->scratch))
        return WEFT_OK;
    const weft_status_code status =
        weft_error_errno(WEFT_AT(.file = r->scratch), "cannot make a temporary folder");
    r->scratch[0] = '\0';
    return status;
}

/* Writes MODEL/PART/PART_config.json in place of the folder's part. */
static weft_status write_part(const char *model, const char *part, const json_t *config)
{
    char name[64];
    char *folder = weft_path_join(model, part), *path = NULL;
    snprintf(name, sizeof name, "%s_config.json", part);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(folder, "%s", part));
    WEFT_GO(weft_make_dirs(folder));
    path = weft_path_join(folder, name);
    WEFT_GO(WEFT_ALLOCATED(path, "%s", part));
    if (json_dump_file(config, path, 0) != 0)
        WEFT_GO(weft_error_errno(WEFT_AT(.file = path), "cannot write the file"));
out:
    weft_free(folder);
    weft_free(path);
    return status;
}

/* Links an entry of the folder into the model, unless the JSON file replaces the part. */
static weft_status link_entry(const pipeline *r, const char *model, const char *name)
{
    char *whole = realpath(r->folder, NULL);
    char *from = whole ? weft_path_join(whole, name) : NULL, *to = weft_path_join(model, name);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(from && to, "%s", name));
    if (!json_object_get(r->p->json, name) && symlink(from, to) != 0)
        WEFT_GO(weft_error_errno(WEFT_AT(.file = to), "cannot link the file"));
out:
    free(whole);
    weft_free(from);
    weft_free(to);
    return status;
}

/* A model of links, with other configs of the scheduler or the guider. */
static weft_status make_model(pipeline *r)
{
    static const char *const parts[] = {"scheduler",
                                        "guider",
                                        "model_index.json",
                                        "transformer",
                                        "transformer_2",
                                        "unet",
                                        "dit",
                                        "vae",
                                        "text_encoder",
                                        "text_encoder_2",
                                        "text_encoder_3",
                                        "tokenizer",
                                        "tokenizer_2",
                                        "tokenizer_3",
                                        "image_encoder",
                                        "image_processor",
                                        "feature_extractor",
                                        "processor",
                                        "connectors",
                                        "audio_vae",
                                        "vocoder"};
    char *model = weft_path_join(r->scratch, "model");
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(model, "a model"));
    WEFT_GO(weft_make_dirs(model));
    for (int i = 0; i < WEFT_COUNT(parts); i++) {
        const json_t *config = json_object_get(r->p->json, parts[i]);
        char *own = weft_path_join(r->folder, parts[i]);
        const bool exists = own && weft_path_exists(own);
        weft_free(own);
        if (config)
            WEFT_GO(write_part(model, parts[i], config));
        else if (exists)
            WEFT_GO(link_entry(r, model, parts[i]));
    }
out:
    weft_free(model);
    return status;
}

/* Sets the record's class from model_index.json if there is one, and its family from the
 * denoiser. */
static weft_status read_classes(pipeline *r)
{
    json_t *index = NULL;
    char *path = weft_path_join(r->folder, "model_index.json"), *denoiser = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(path, "%s", r->folder));
    if (weft_path_exists(path))
        WEFT_GO(weft_json_load(path, &index));
    const char *name = json_string_value(json_object_get(index, "_class_name"));
    snprintf(r->p->record.class_name, sizeof r->p->record.class_name, "%s", name ? name : "");
    WEFT_GO(weft_model_open_in(r->folder, WEFT_ROLE_DENOISER, &denoiser, &r->p->model));
out:
    json_decref(index);
    weft_free(path);
    weft_free(denoiser);
    return status;
}

/* ---- arguments ------------------------------------------------------------------------------ */

static weft_status add_options(pipeline *r)
{
    const char *key;
    json_t *value, *file;
    size_t i;
    json_object_foreach(json_object_get(r->p->json, "options"), key, value)
    {
        if (!json_is_string(value))
            return damaged(r, key, "a string");
        add(r, key);
        add(r, json_string_value(value));
    }
    json_object_foreach(json_object_get(r->p->json, "files"), key, value)
        json_array_foreach(value, i, file) add_path(r, key, r->folder, json_string_value(file));
    return WEFT_OK;
}

static weft_status make_arguments(pipeline *r)
{
    const json_t *json = r->p->json, *expected = json_object_get(json, "expected");
    const char *noise = json_string_value(json_object_get(json, "noise"));
    if (!noise)
        return damaged(r, "noise", "the name of a .npy file");
    if (json_object_get(json, "scheduler") || json_object_get(json, "guider")) {
        WEFT_TRY(make_model(r));
        add_path(r, "--model", r->scratch, "model");
    } else {
        add(r, "--model");
        add(r, r->folder);
    }
    WEFT_TRY(add_options(r));
    add_path(r, "--init-latents", r->folder, noise);
    add_path(r, "--out", r->scratch, "video.mp4");
    add(r, "--backend");
    add(r, r->p->backend->name);
    if (json_object_get(expected, "latents"))
        add(r, "--latents-npy");
    if (json_object_get(expected, "frames"))
        add(r, "--frames-npy");
    return r->many ? damaged(r, "options", "at most 40 options and files") : WEFT_OK;
}

/* ---- comparison ----------------------------------------------------------------------------- */

static weft_status load_npy(const char *folder, const char *name, weft_npy *npy, float **values)
{
    char *path = weft_path_join(folder, name), *data = NULL;
    int64_t bytes;
    weft_status_code status = WEFT_OK;
    *values = NULL;
    WEFT_GO(WEFT_ALLOCATED(path, "%s", name));
    WEFT_GO(weft_file_read(path, (int64_t)1 << 30, &data, &bytes));
    WEFT_GO(weft_npy_parse(data, bytes, path, npy));
    if (npy->dtype != WEFT_F32)
        WEFT_GO(weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = path),
                           "the values must be f32, not %s", weft_dtype_name(npy->dtype)));
    WEFT_GO(WEFT_NEW(*values, npy->count + 1, "%s", path));
    memcpy(*values, npy->data, (size_t)npy->count * sizeof **values);
    npy->data = NULL;
out:
    weft_free(data);
    weft_free(path);
    return status;
}

static weft_status compare_npy(pipeline *r, const char *what, const char *reference, double *worst)
{
    weft_parity *p = r->p;
    char name[64];
    weft_npy theirs, ours;
    float *expected = NULL, *actual = NULL;
    weft_status_code status = WEFT_OK;
    if (!strcmp(what, "frames"))
        snprintf(name, sizeof name, "video.npy");
    else
        snprintf(name, sizeof name, "video.%.40s.npy", what);
    if (!reference)
        return damaged(r, what, "the name of a .npy file");
    WEFT_GO(load_npy(r->folder, reference, &theirs, &expected));
    WEFT_GO(load_npy(r->scratch, name, &ours, &actual));
    if (ours.rank != theirs.rank ||
        memcmp(ours.dim, theirs.dim, (size_t)ours.rank * sizeof *ours.dim) != 0)
        WEFT_GO(weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = p->config_file, .key = what),
                           "the reference's %s have %" PRId64 " values, and weft's %" PRId64, what,
                           theirs.count, ours.count));
    weft_parity_judge(p, "output", what, actual, expected, theirs.count,
                      weft_parity_norm(expected, theirs.count), p->output_tolerance, worst);
out:
    weft_free(expected);
    weft_free(actual);
    return status;
}

static weft_status run_case(pipeline *r)
{
    weft_parity *p = r->p;
    const char *what;
    json_t *reference;
    double worst = 0;
    p->output_tolerance = json_number_value(json_object_get(p->json, "tolerance"));
    if (!(p->output_tolerance > 0))
        return damaged(r, "tolerance", "a number above 0");
    if (!p->generate)
        return weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED, WEFT_AT(.file = p->config_file),
                          "pipelines are compared by the program weft only");
    WEFT_TRY(read_classes(r));
    WEFT_TRY(make_scratch(r));
    WEFT_TRY(make_arguments(r));
    WEFT_TRY(p->generate(r->args, r->arg));
    json_object_foreach(json_object_get(p->json, "expected"), what, reference)
        WEFT_TRY(compare_npy(r, what, json_string_value(reference), &worst));
    weft_parity_measured(p, "outputs", worst, p->output_tolerance);
    return WEFT_OK;
}

static weft_status compare_pipeline(weft_parity *p)
{
    pipeline r = {.p = p};
    const char *base = weft_path_base(p->config_file);
    const int length = (int)(base - p->config_file);
    char folder[4096];
    snprintf(folder, sizeof folder, "%.*s", length > 1 ? length - 1 : length, p->config_file);
    r.folder = folder[0] ? folder : "."; /* borrowed */
    const weft_status_code status = run_case(&r);
    weft_error_copy *error = status == WEFT_OK ? NULL : weft_error_save();
    for (int i = 0; i < r.paths; i++)
        weft_free(r.owned[i]);
    const weft_status_code removed = r.scratch[0] ? weft_remove_tree(r.scratch) : WEFT_OK;
    return status == WEFT_OK ? removed : weft_kept_error_return(error, status);
}

const weft_parity_kind weft_parity_pipeline = {
    .name = "pipeline", .is = is_pipeline, .run = compare_pipeline, .alone = true};

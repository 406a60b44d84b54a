#include "train/export.h"

#include "base/fs.h"
#include "runtime/weights.h"

#include <stdio.h>
#include <string.h>

static weft_status copy_file(const char *from, const char *to)
{
    weft_map map;
    WEFT_TRY(weft_map_open(from, &map));
    const weft_status_code status =
        weft_file_write_atomic(to, map.data ? (const void *)map.data : "", map.bytes);
    weft_map_close(&map);
    return status;
}

/* The files (not folders) of a model that was not trained here, so that the new one stands alone.
 */
static weft_status copy_model(const char *from, const char *to)
{
    weft_names names = {0};
    WEFT_TRY(weft_make_dirs(to));
    WEFT_TRY(weft_list_dir(from, false, &names));
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < names.count && status == WEFT_OK; i++) {
        char source[1024], target[1024];
        snprintf(source, sizeof source, "%s/%s", from, names.name[i]);
        snprintf(target, sizeof target, "%s/%s", to, names.name[i]);
        const char *extension = weft_path_extension(names.name[i]);
        if (!weft_path_is_dir(source) &&
            (!strcmp(extension, "json") || !strcmp(extension, "safetensors")))
            status = copy_file(source, target);
    }
    weft_names_free(&names);
    return status;
}

static weft_status save_json(const char *folder, const char *name, json_t *json)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    weft_status_code status =
        json ? weft_json_save(path, json) : weft_fail(WEFT_E_MEMORY, "%s: out of memory", path);
    json_decref(json);
    return status;
}

static weft_dtype dtype_of(const weft_export *e)
{
    return e->run->model_dtype == WEFT_MODEL_BF16 ? WEFT_BF16 : WEFT_F32;
}

static void add_to_index(json_t *index, const weft_model *model)
{
    const weft_family *f = model->family;
    json_object_set_new(index, f->scope, json_pack("[s,s]", f->library, f->class_name));
}

static weft_status write_index(const weft_export *e, const char *folder)
{
    const weft_run_models *m = e->models;
    json_t *index = json_object();
    json_object_set_new(index, "_class_name", json_string(m->denoiser.family->pipeline));
    add_to_index(index, &m->denoiser);
    add_to_index(index, &m->autoencoder);
    add_to_index(index, &m->text);
    json_object_set_new(index, "scheduler",
                        json_pack("[s,s]", "diffusers",
                                  weft_process_class(weft_run_process(e->run), &e->run->noise)));
    return save_json(folder, "model_index.json", index);
}

/* What a pipeline needs beside the weights that were trained. */
static weft_status write_rest(const weft_export *e, const char *folder)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", folder, e->models->autoencoder.family->scope);
    WEFT_TRY(copy_model(e->run->autoencoder.weights, path));
    if (e->models->text_stays) {
        snprintf(path, sizeof path, "%s/%s", folder, e->models->text.family->scope);
        WEFT_TRY(copy_model(weft_run_text(e->run)->weights, path));
    }
    snprintf(path, sizeof path, "%s/scheduler", folder);
    WEFT_TRY(weft_make_dirs(path));
    WEFT_TRY(save_json(path, "scheduler_config.json",
                       weft_process_write(weft_run_process(e->run), &e->run->noise)));
    WEFT_TRY(save_json(folder, "weft.json",
                       json_pack("{s:I, s:I, s:I, s:f}", "frames", (json_int_t)e->size->frames,
                                 "height", (json_int_t)e->size->height, "width",
                                 (json_int_t)e->size->width, "fps", e->fps > 0 ? e->fps : 24.0)));
    return write_index(e, folder);
}

weft_status weft_export_write(const weft_export *e)
{
    char folder[600], path[700];
    snprintf(folder, sizeof folder, "%s/model", e->run->out);
    for (int i = 0; i < e->parts; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, e->part[i].scope);
        WEFT_TRY(weft_part_save(e->store, e->graph, e->comm, &e->part[i], path, dtype_of(e)));
    }
    if (!weft_run_denoises(e->models) || weft_comm_rank(e->comm) != 0)
        return WEFT_OK;
    return write_rest(e, folder);
}

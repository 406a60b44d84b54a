#include "train/checkpoint.h"

#include "base/fs.h"
#include "base/log.h"
#include "format/safetensors.h"
#include "runtime/weights.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

struct weft_checkpoints {
    weft_checkpoint_spec spec;
    char folder[400]; /* <run>/checkpoints */
    int64_t last;     /* step of the last whole one; -1: none */
    weft_store *copy; /* what is being written */
    json_t *state;
    int64_t step;
    pthread_t thread;
    bool writing;
    weft_status_code status;
    char message[1024];
};

/* ---- files --------------------------------------------------------------------------------- */

static weft_status checksum(const char *path, uint64_t *hash)
{
    weft_map map;
    WEFT_TRY(weft_map_open(path, &map));
    *hash = XXH3_64bits(map.data, (size_t)map.bytes);
    weft_map_close(&map);
    return WEFT_OK;
}

/* {"transformer/config.json": "0123456789abcdef", ...} of every file but state.json. */
static weft_status checksums(const char *folder, json_t *sums)
{
    weft_names names = {0};
    WEFT_TRY(weft_list_dir(folder, true, &names));
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < names.count && status == WEFT_OK; i++) {
        uint64_t hash;
        char text[20];
        char *path = weft_path_join(folder, names.name[i]);
        if (!path)
            status = weft_fail(WEFT_E_MEMORY, "%s: out of memory", folder);
        else if (strcmp(names.name[i], "state.json")) {
            status = checksum(path, &hash);
            snprintf(text, sizeof text, "%016llx",
                     (unsigned long long)(status == WEFT_OK ? hash : 0));
            json_object_set_new(sums, names.name[i], json_string(text));
        }
        weft_free(path);
    }
    weft_names_free(&names);
    return status;
}

static void sync_folder(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

/* ---- optimizer and averages ---------------------------------------------------------------- */

enum { LISTED = 8 }; /* names in a message */

/* A list of names for a message: the first few, then how many more. */
typedef struct name_list {
    weft_buf text;
    int64_t count;
} name_list;

static void list_name(name_list *list, const char *name)
{
    if (list->count++ < LISTED)
        weft_buf_printf(&list->text, "%s%s", list->count > 1 ? ", " : "", name);
    else if (list->count == LISTED + 1)
        weft_buf_printf(&list->text, ", ...");
}

static weft_status refuse_names(const char *path, name_list *missing, name_list *extra)
{
    weft_status_code status = WEFT_OK;
    if (missing->count || extra->count)
        status = weft_fail(WEFT_E_FORMAT,
                           "%s is of another model: %lld parameters missing%s%s, %lld unknown%s%s",
                           path, (long long)missing->count, missing->count ? ": " : "",
                           missing->count ? missing->text.data : "", (long long)extra->count,
                           extra->count ? ": " : "", extra->count ? extra->text.data : "");
    weft_buf_free(&missing->text);
    weft_buf_free(&extra->text);
    return status;
}

static weft_status copy_in(const weft_stored_tensor *from, weft_tensor *to)
{
    bool same = from->rank == to->shape.rank && from->dtype == to->dtype;
    for (int d = 0; same && d < from->rank; d++)
        same = from->dim[d] == to->shape.dim[d];
    if (!same)
        return weft_fail(WEFT_E_SHAPE, "%s: \"%s\" has another shape or type than this run's",
                         from->file, from->name);
    memcpy(to->data, from->data, (size_t)from->bytes);
    return WEFT_OK;
}

/* Declares and writes the tensors list[count] under names[count]. */
static weft_status write_tensors(weft_tensor *const *list, const char *const *names, int64_t count,
                                 const char *folder, const char *stem)
{
    weft_tensors_writer *writer;
    WEFT_TRY(weft_tensors_writer_create(folder, stem, (int64_t)4 << 30, &writer));
    weft_status_code status = weft_tensors_writer_metadata(writer, "format", "pt");
    for (int64_t i = 0; i < count && status == WEFT_OK; i++)
        status = weft_tensors_writer_declare(writer, names[i], list[i]->dtype, list[i]->shape.rank,
                                             list[i]->shape.dim);
    for (int64_t i = 0; i < count && status == WEFT_OK; i++)
        status = weft_tensors_writer_data(writer, names[i], list[i]->dtype, list[i]->data);
    if (status == WEFT_OK)
        status = weft_tensors_writer_finish(writer);
    weft_tensors_writer_free(writer);
    return status;
}

static bool begins(const char *name, const char *prefix)
{
    return !strncmp(name, prefix, strlen(prefix));
}

/* All tensors of the store whose name begins with `prefix`, names whole. */
static weft_status save_tensors(weft_store *store, const char *prefix, const char *folder,
                                const char *stem)
{
    const int64_t count = weft_store_count(store);
    weft_tensor **list = weft_alloc((count + 1) * (int64_t)sizeof *list);
    const char **names = weft_alloc((count + 1) * (int64_t)sizeof *names);
    weft_status_code status = WEFT_OK;
    int64_t used = 0;
    if (!list || !names)
        status = weft_fail(WEFT_E_MEMORY, "%s: out of memory", folder);
    for (int64_t i = 0; i < count && status == WEFT_OK; i++) {
        weft_tensor *tensor = weft_store_at(store, i);
        if (!begins(tensor->name, prefix))
            continue;
        list[used] = tensor;
        names[used++] = tensor->name;
    }
    if (status == WEFT_OK)
        status = write_tensors(list, names, used, folder, stem);
    weft_free(list);
    weft_free(names);
    return status;
}

/* Fills them back; the file must have all of these and no other. */
static weft_status load_file(weft_store *store, const char *prefix, const char *path)
{
    weft_tensors *file;
    WEFT_TRY(weft_tensors_open(path, &file));
    weft_status_code status = WEFT_OK;
    name_list missing = {0}, extra = {0};
    for (int64_t i = 0; i < weft_store_count(store) && status == WEFT_OK; i++) {
        weft_tensor *to = weft_store_at(store, i);
        if (!begins(to->name, prefix))
            continue;
        const weft_stored_tensor *from = weft_tensors_find(file, to->name);
        if (from)
            status = copy_in(from, to);
        else
            list_name(&missing, to->name);
    }
    for (int64_t i = 0; i < weft_tensors_count(file); i++) {
        const char *name = weft_tensors_at(file, i)->name;
        if (!begins(name, prefix) || !weft_store_find(store, name))
            list_name(&extra, name);
    }
    const weft_status_code names = refuse_names(path, &missing, &extra);
    weft_tensors_close(file);
    return status != WEFT_OK ? status : names;
}

/* ---- writing ------------------------------------------------------------------------------- */

weft_status weft_part_save(weft_store *store, const weft_graph *graph,
                           const weft_checkpoint_part *part, const char *variant,
                           const char *folder, weft_dtype dtype)
{
    char prefix[64], path[700];
    snprintf(prefix, sizeof prefix, "%s.", part->scope);
    snprintf(path, sizeof path, "%s/config.json", folder);
    WEFT_TRY(weft_make_dirs(folder));
    WEFT_TRY(weft_weights_save(store, NULL, graph, prefix, variant, folder, part->stem, dtype,
                               (int64_t)4 << 30));
    return weft_json_save(path, part->config);
}

static weft_status write_parts(const weft_checkpoints *c, const char *folder)
{
    for (int i = 0; i < c->spec.parts; i++) {
        const weft_checkpoint_part *part = &c->spec.part[i];
        char path[600];
        snprintf(path, sizeof path, "%s/%s", folder, part->scope);
        WEFT_TRY(weft_part_save(c->copy, c->spec.graph, part, "", path, WEFT_F32));
        sync_folder(path);
    }
    WEFT_TRY(save_tensors(c->copy, "adamw.", folder, "optimizer"));
    return save_tensors(c->copy, "ema.", folder, "ema");
}

static weft_status write_state(const weft_checkpoints *c, const char *folder)
{
    char path[600];
    snprintf(path, sizeof path, "%s/config.yaml", folder);
    WEFT_TRY(
        weft_file_write_atomic(path, c->spec.config_yaml, (int64_t)strlen(c->spec.config_yaml)));
    json_t *sums = json_object();
    json_object_set_new(c->state, "checksums", sums);
    WEFT_TRY(checksums(folder, sums));
    snprintf(path, sizeof path, "%s/state.json", folder);
    return weft_json_save(path, c->state);
}

/* Removes all but the newest `keep`, and what a killed writer left. */
static void prune(const weft_checkpoints *c)
{
    weft_names names = {0};
    if (weft_list_dir(c->folder, false, &names) != WEFT_OK)
        return;
    int64_t whole = 0;
    for (int64_t i = names.count - 1; i >= 0; i--) {
        char path[800];
        snprintf(path, sizeof path, "%s/%s", c->folder, names.name[i]);
        const bool hidden = names.name[i][0] == '.', step = !strncmp(names.name[i], "step-", 5);
        if (step)
            whole++;
        if ((hidden || (step && whole > c->spec.keep)) && weft_remove_tree(path) != WEFT_OK)
            weft_warn("an old checkpoint stays: %s", weft_error_message());
    }
    weft_names_free(&names);
}

static weft_status write_folder(weft_checkpoints *c)
{
    char temporary[500], final[512];
    snprintf(temporary, sizeof temporary, "%s/.step-%08lld", c->folder, (long long)c->step);
    snprintf(final, sizeof final, "%s/step-%08lld", c->folder, (long long)c->step);
    WEFT_TRY(weft_remove_tree(temporary));
    WEFT_TRY(weft_make_dirs(temporary));
    weft_status_code status = write_parts(c, temporary);
    if (status == WEFT_OK)
        status = write_state(c, temporary);
    if (status == WEFT_OK) {
        sync_folder(temporary);
        status = weft_remove_tree(final);
    }
    if (status == WEFT_OK && rename(temporary, final) != 0)
        status = weft_fail_errno("%s", final);
    if (status != WEFT_OK) {
        char message[900]; /* removing must not hide why */
        snprintf(message, sizeof message, "%s", weft_error_message());
        if (weft_remove_tree(temporary) != WEFT_OK)
            weft_warn("%s", weft_error_message());
        return weft_fail(status, "checkpoint of step %lld: %s", (long long)c->step, message);
    }
    sync_folder(c->folder);
    prune(c);
    return WEFT_OK;
}

static void *writer_main(void *user)
{
    weft_checkpoints *c = user;
    c->status = write_folder(c);
    snprintf(c->message, sizeof c->message, "%s", c->status == WEFT_OK ? "" : weft_error_message());
    return NULL;
}

/* The tensors that the store has now; made once, filled again for each checkpoint. */
static weft_status copy_store(weft_checkpoints *c)
{
    if (!c->copy)
        c->copy = weft_store_create();
    if (!c->copy)
        return weft_fail(WEFT_E_MEMORY, "out of memory for a checkpoint");
    for (int64_t i = 0; i < weft_store_count(c->spec.store); i++) {
        const weft_tensor *from = weft_store_at(c->spec.store, i);
        weft_tensor *to = weft_store_find(c->copy, from->name);
        if (!to)
            WEFT_TRY(weft_store_add_like(c->copy, from, &to));
        memcpy(to->data, from->data,
               (size_t)(weft_shape_count(&from->shape) * weft_dtype_bytes(from->dtype)));
    }
    return WEFT_OK;
}

weft_status weft_checkpoints_wait(weft_checkpoints *c)
{
    if (!c->writing)
        return WEFT_OK;
    pthread_join(c->thread, NULL);
    c->writing = false;
    json_decref(c->state);
    c->state = NULL;
    if (c->status != WEFT_OK)
        return weft_fail(c->status, "%s", c->message);
    c->last = c->step;
    return WEFT_OK;
}

weft_status weft_checkpoints_save(weft_checkpoints *c, int64_t step, json_t *state)
{
    weft_status_code status = weft_checkpoints_wait(c);
    if (status == WEFT_OK && !state)
        status = weft_fail(WEFT_E_MEMORY, "out of memory for a checkpoint");
    if (status == WEFT_OK)
        status = copy_store(c);
    if (status != WEFT_OK) {
        json_decref(state);
        return status;
    }
    c->state = state;
    c->step = step;
    c->writing = pthread_create(&c->thread, NULL, writer_main, c) == 0;
    if (c->writing)
        return WEFT_OK;
    c->status = write_folder(c); /* no thread to be had: now */
    json_decref(c->state);
    c->state = NULL;
    if (c->status == WEFT_OK)
        c->last = step;
    return c->status;
}

/* ---- reading ------------------------------------------------------------------------------- */

/* Every file that state.json names is there with its checksum. */
static weft_status verify_folder(const char *folder, json_t **out)
{
    char path[900];
    json_t *state;
    snprintf(path, sizeof path, "%s/state.json", folder);
    WEFT_TRY(weft_json_load(path, &state));
    weft_status_code status = WEFT_OK;
    const char *name;
    json_t *sum;
    json_object_foreach(json_object_get(state, "checksums"), name, sum)
    {
        uint64_t hash;
        char text[20];
        snprintf(path, sizeof path, "%s/%s", folder, name);
        status = checksum(path, &hash);
        if (status != WEFT_OK)
            break;
        snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
        if (!json_string_value(sum) || strcmp(json_string_value(sum), text)) {
            status =
                weft_fail(WEFT_E_FORMAT, "%s: damaged: its checksum is %s, %s was written", path,
                          text, json_string_value(sum) ? json_string_value(sum) : "none");
            break;
        }
    }
    if (status == WEFT_OK)
        *out = state;
    else
        json_decref(state);
    return status;
}

static weft_status load_tensors(weft_checkpoints *c, const char *folder)
{
    char path[600];
    for (int i = 0; i < c->spec.parts; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, c->spec.part[i].scope);
        char prefix[64];
        snprintf(prefix, sizeof prefix, "%s.", c->spec.part[i].scope);
        WEFT_TRY(weft_weights_load(c->spec.store, c->spec.graph, prefix, path, false));
    }
    snprintf(path, sizeof path, "%s/optimizer.safetensors", folder);
    WEFT_TRY(load_file(c->spec.store, "adamw.", path));
    snprintf(path, sizeof path, "%s/ema.safetensors", folder);
    return load_file(c->spec.store, "ema.", path);
}

weft_status weft_checkpoints_load(weft_checkpoints *c, json_t **state, char path[512])
{
    weft_names names = {0};
    *state = NULL;
    WEFT_TRY(weft_list_dir(c->folder, false, &names));
    weft_status_code status = WEFT_OK;
    for (int64_t i = names.count - 1; i >= 0 && !*state && status == WEFT_OK; i--) {
        if (strncmp(names.name[i], "step-", 5))
            continue;
        snprintf(path, 512, "%s/%s", c->folder, names.name[i]);
        if (verify_folder(path, state) != WEFT_OK) {
            weft_warn("%s; going on from the checkpoint before it", weft_error_message());
            continue;
        }
        status = load_tensors(c, path);
        if (status != WEFT_OK) {
            json_decref(*state);
            *state = NULL;
        } else
            c->last = strtoll(names.name[i] + 5, NULL, 10);
    }
    weft_names_free(&names);
    return status;
}

/* ---- life ---------------------------------------------------------------------------------- */

weft_status weft_checkpoints_open(const weft_checkpoint_spec *spec, weft_checkpoints **out)
{
    weft_checkpoints *c = weft_alloc(sizeof *c);
    if (!c)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    c->spec = *spec;
    c->last = -1;
    weft_status_code status = WEFT_OK;
    if (snprintf(c->folder, sizeof c->folder, "%s/checkpoints", spec->run) >= (int)sizeof c->folder)
        status = weft_fail(WEFT_E_ARG, "%s: too long a path", spec->run);
    if (status == WEFT_OK)
        status = weft_make_dirs(c->folder);
    if (status == WEFT_OK)
        *out = c;
    else
        weft_free(c);
    return status;
}

void weft_checkpoints_close(weft_checkpoints *c)
{
    if (!c)
        return;
    if (weft_checkpoints_wait(c) != WEFT_OK)
        weft_warn("%s", weft_error_message());
    weft_store_free(c->copy);
    weft_free(c);
}

int64_t weft_checkpoints_last(const weft_checkpoints *c)
{
    return c->last;
}

#include "convert/convert_model.h"

#include "base/config.h"
#include "base/convert.h"
#include "base/fs.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/listing.h"
#include "base/log.h"
#include "format/tensors/safetensors.h"
#include "format/tensors/safetensors_read.h"
#include "format/tensors/safetensors_write.h"
#include "graph/builder_helpers.h"
#include "graph/graph.h"
#include "model/key_mapping.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK = 1 << 19 }; /* elements converted at a time */
/* Smallest magnitude that rounds to infinity in f16. */
#define F16_INFINITE 65520.0F

/* A tensor of the new files: one tensor of the model, or several in the order of their rows. */
typedef struct made {
    weft_foreign_tensor is;
    const weft_stored_tensor *part[WEFT_KEY_MAPPING_PARTS];
    weft_dtype dtype;
    int64_t channels; /* input channels, if more than stored; 0: as stored */
} made;

typedef struct converting {
    const weft_model_conversion *c;
    const weft_graph *graph;
    weft_tensors *file;
    weft_tensors *as_stored;         /* with the tensors that `file` drops; NULL: none is written */
    const weft_key_mapping *mapping; /* NULL: the model's own names */
    const char *prefix;
    /* Folder of a companion, whose tensors begin with its name and a dot; NULL: the model has none,
     * or one file has both. `companion`: it is written, without this beginning; otherwise the rest
     * is. */
    const char *split;
    bool companion;
    made *made;
    int64_t mades, capacity;
    weft_tensors_writer *writer;
    weft_progress progress;
    int64_t done, all; /* elements */
    float *wide;
    void *converted;
} converting;

weft_status weft_convert_graph(const weft_model *model, weft_graph **graph)
{
    const weft_model_size smallest = weft_model_smallest(model);
    weft_graph *g = weft_graph_create();
    WEFT_TRY(WEFT_ALLOCATED(g, "a graph"));
    weft_model_build(g, model, &smallest, false);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_graph_check(g));
    *graph = g;
out:
    if (status != WEFT_OK)
        weft_graph_free(g);
    return status;
}

/* ---- source tensors ------------------------------------------------------------------------ */

static bool same_shape(const weft_stored_tensor *t, const weft_shape *s, int first)
{
    return t->rank == s->rank - first &&
           !memcmp(t->dim, s->dim + first, (size_t)t->rank * sizeof *t->dim);
}

/* Whether the kernels of a convolution lack input channels only. */
static bool lacks_channels(const weft_stored_tensor *t, const weft_shape *s, int first)
{
    if (first || t->rank != s->rank || t->rank < 3 || t->dim[1] >= s->dim[1])
        return false;
    for (int d = 0; d < t->rank; d++)
        if (d != 1 && t->dim[d] != s->dim[d])
            return false;
    return true;
}

static weft_dtype dtype_for(const converting *v, const weft_stored_tensor *t)
{
    const weft_dtype asked = v->c->dtype;
    if (asked == WEFT_DTYPE_COUNT)
        return t->dtype; /* quantized: f32 */
    return asked == WEFT_F8E4M3 && t->rank < 2 ? WEFT_BF16 : asked;
}

/* Adds the parameter `name`, or an item of a stack, to the output tensor that contains it.
 * `channels`: as in `made`. */
static weft_status add_param(converting *v, const char *name, const weft_stored_tensor *t,
                             int64_t channels)
{
    weft_foreign_tensor is = {.parts = 1};
    snprintf(is.name, sizeof is.name, "%.299s", name);
    snprintf(is.part[0], sizeof is.part[0], "%.299s", name);
    if (v->mapping && !weft_key_mapping_foreign(v->mapping, v->graph, "", name, &is))
        return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED, WEFT_AT(.file = v->c->in, .key = name),
                          "this tensor has no name in the %s format", v->mapping->name);
    int64_t at = 0;
    while (at < v->mades && strcmp(v->made[at].is.name, is.name))
        at++;
    if (at == v->mades) {
        WEFT_TRY(weft_grow((void **)&v->made, v->mades, &v->capacity, sizeof *v->made));
        v->made[v->mades++] = (made){.is = is, .dtype = dtype_for(v, t), .channels = channels};
    }
    for (int i = 0; i < is.parts; i++)
        if (!strcmp(is.part[i], name))
            v->made[at].part[i] = t;
    if (!is.copies || !strcmp(is.part[0], name))
        v->all += channels ? t->count / t->dim[1] * channels : t->count;
    return WEFT_OK;
}

/* The mean, deviation or variance of an autoencoder's latents, which is not a parameter. */
static bool is_statistic(const converting *v, const char *name)
{
    return weft_family_is_autoencoder(v->c->model->family) &&
           !strncmp(name, "latents_", strlen("latents_"));
}

/* Adds statistics by their name in the files that are written. They keep their type. */
static weft_status add_statistic(converting *v, const weft_stored_tensor *t)
{
    const weft_family *f = v->c->model->family;
    const weft_key_mapping *d = v->mapping;
    if (!d)
        d = weft_key_mapping_named(f, v->graph, "", "diffusers");
    made m = {.is = {.parts = 1}, .part = {t}, .dtype = t->dtype};
    snprintf(m.is.name, sizeof m.is.name, "%.299s", t->name);
    snprintf(m.is.part[0], sizeof m.is.part[0], "%.299s", t->name);
    for (int i = 0; d && i < d->rules; i++)
        if (!strcmp(d->rule[i].name, t->name))
            snprintf(m.is.name, sizeof m.is.name, "%.299s", d->rule[i].foreign_name);
    WEFT_TRY(weft_grow((void **)&v->made, v->mades, &v->capacity, sizeof *v->made));
    v->made[v->mades++] = m;
    v->all += t->count;
    return WEFT_OK;
}

/* Adds the embeddings of an empty text (weft_text_encoder_row.no_text), not a parameter. */
static weft_status add_no_text(converting *v)
{
    const weft_family *f = v->c->model->family;
    for (int i = 0; i < f->text_encoders; i++) {
        const char *name = f->text_encoder[i].no_text;
        if (!name)
            continue;
        WEFT_TRY(weft_tensors_open(v->c->in, &v->as_stored));
        const weft_stored_tensor *t = weft_tensors_find(v->as_stored, name);
        if (!t)
            return WEFT_OK;
        made m = {.is = {.parts = 1}, .part = {t}, .dtype = dtype_for(v, t)};
        snprintf(m.is.name, sizeof m.is.name, "%.299s", name);
        snprintf(m.is.part[0], sizeof m.is.part[0], "%.299s", name);
        WEFT_TRY(weft_grow((void **)&v->made, v->mades, &v->capacity, sizeof *v->made));
        v->made[v->mades++] = m;
        v->all += t->count;
        return WEFT_OK;
    }
    return WEFT_OK;
}

typedef struct lists {
    weft_listing missing, wrong, extra;
} lists;

static weft_status take(converting *v, const char *name, const weft_shape *shape, int first,
                        lists *l)
{
    const weft_stored_tensor *t = weft_tensors_find(v->file, name);
    const bool widens = t && v->c->widens && lacks_channels(t, shape, first);
    if (!t)
        weft_listing_add(&l->missing, name);
    else if (!widens && !same_shape(t, shape, first))
        weft_listing_add(&l->wrong, name);
    return t ? add_param(v, name, t, widens ? shape->dim[1] : 0) : WEFT_OK;
}

static weft_status take_all(converting *v, lists *l)
{
    int64_t known = 0;
    for (int32_t n = 0; n < weft_graph_node_count(v->graph); n++) {
        const weft_node *node = weft_graph_node(v->graph, n);
        if (node->op != WEFT_OP_PARAM)
            continue;
        const weft_value_info *info = weft_value_get(v->graph, node->out[0]);
        const bool stack = weft_name_is_stack(info->name);
        for (int64_t i = 0; i < (stack ? info->shape.dim[0] : 1); i++) {
            char name[600];
            weft_stack_item(info->name, i, name, sizeof name);
            WEFT_TRY(take(v, name, &info->shape, stack, l));
            known += weft_tensors_find(v->file, name) != NULL;
        }
    }
    for (int64_t i = 0; i < weft_tensors_count(v->file) && known < weft_tensors_count(v->file);
         i++) {
        const char *name = weft_tensors_at(v->file, i)->name;
        bool used = false;
        if (is_statistic(v, name)) {
            WEFT_TRY(add_statistic(v, weft_tensors_at(v->file, i)));
            continue;
        }
        for (int64_t k = 0; k < v->mades && !used; k++)
            for (int p = 0; p < v->made[k].is.parts && !used; p++)
                used = !strcmp(v->made[k].is.part[p], name);
        if (!used)
            weft_listing_add(&l->extra, name);
    }
    return WEFT_OK;
}

static weft_status check(const converting *v, const lists *l)
{
    const char *in = v->c->in, *class = v->c->model->family->class_name;
    if (l->missing.count)
        return weft_error(
            WEFT_MSG_TENSOR_MISSING, WEFT_AT(.file = in, WEFT_NUMBER(l->missing.count)),
            "%" PRId64 " parameters of this %s are missing: %s. Check that the config "
            "belongs to these weights.",
            l->missing.count, class, weft_listing_text(&l->missing));
    if (l->wrong.count && v->c->widens)
        return weft_error(
            WEFT_MSG_OPTION_INVALID, WEFT_AT(.file = in, .key = "--in-channels", .value = class),
            "only a convolution gets more input channels, and the first layer of this "
            "%s is linear, or the config is of other weights: %s has another shape",
            class, weft_listing_text(&l->wrong));
    if (l->wrong.count)
        return weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = in, WEFT_NUMBER(l->wrong.count)),
                          "%" PRId64 " parameters have another shape than in the config: %s",
                          l->wrong.count, weft_listing_text(&l->wrong));
    if (l->extra.count)
        return weft_error(WEFT_MSG_TENSOR_NAMES, WEFT_AT(.file = in, WEFT_NUMBER(l->extra.count)),
                          "%" PRId64 " tensors are not parameters of this %s: %s", l->extra.count,
                          class, weft_listing_text(&l->extra));
    return WEFT_OK;
}

/* Prefix of a model's tensors in a file of several models. */
static const char *prefix_of(weft_role role)
{
    switch (role) {
    case WEFT_ROLE_AUTOENCODER: return "vae.";
    case WEFT_ROLE_AUDIO_AUTOENCODER: return "audio_vae.";
    case WEFT_ROLE_VOCODER: return "vocoder.";
    case WEFT_ROLE_TEXT_CONNECTORS: return ""; /* their names have it */
    default: return "model.diffusion_model.";
    }
}

static weft_status open_in(converting *v)
{
    const weft_model_conversion *c = v->c;
    lists l = {0};
    if (c->to != WEFT_TO_DIFFUSERS) {
        v->mapping = weft_key_mapping_named(c->model->family, v->graph, "", "original");
        if (!v->mapping)
            return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED, WEFT_AT(.file = c->in, .key = "--to"),
                              "weft has only the diffusers names of a %s; use --to diffusers",
                              c->model->family->class_name);
    }
    if (c->to == WEFT_TO_COMFYUI)
        v->prefix = prefix_of(c->model->family->role);
    WEFT_TRY(weft_key_mapping_open(c->model->family, v->graph, "", c->in, &v->file));
    WEFT_TRY(weft_tensors_verify(v->file));
    weft_status_code status = WEFT_OK;
    WEFT_GO(take_all(v, &l));
    WEFT_GO(check(v, &l));
    WEFT_GO(add_no_text(v));
out:
    weft_listing_free(&l.missing);
    weft_listing_free(&l.wrong);
    weft_listing_free(&l.extra);
    return status;
}

/* ---- data ----------------------------------------------------------------------------------- */

static weft_status put_chunk(converting *v, const char *name, weft_dtype dtype, float *from,
                             int64_t count)
{
    for (int64_t i = 0; dtype == WEFT_F8E4M3 && i < count; i++)
        from[i] = weft_f8e4m3_clamp(from[i]);
    for (int64_t i = 0; dtype == WEFT_F16 && i < count; i++)
        if (fabsf(from[i]) >= F16_INFINITE && isfinite(from[i]))
            return weft_error(WEFT_MSG_VALUE_NOT_FINITE,
                              WEFT_AT(.file = v->c->in, .key = name, WEFT_NUMBER(from[i])),
                              "%g is beyond the range of f16 (65504); use --dtype bf16",
                              (double)from[i]);
    weft_convert(v->converted, dtype, from, WEFT_F32, count);
    WEFT_TRY(
        weft_tensors_writer_some(v->writer, name, v->converted, count * weft_dtype_bytes(dtype)));
    v->done += count;
    weft_progress_update(&v->progress, v->done >> 10, NULL);
    return weft_interrupt_check();
}

/* Writes elements [first, first + count) of a stored tensor. */
static weft_status put_stored(converting *v, const char *name, weft_dtype dtype,
                              const weft_stored_tensor *t, int64_t first, int64_t count)
{
    const bool as_it_is = weft_stored_is_plain(t) && t->dtype == dtype;
    const int64_t each = weft_dtype_bytes(dtype), own = weft_dtype_bytes(t->dtype);
    for (int64_t at = first; at < first + count; at += CHUNK) {
        const int64_t here = first + count - at < CHUNK ? first + count - at : CHUNK;
        if (as_it_is) {
            WEFT_TRY(weft_tensors_writer_some(v->writer, name, (const char *)t->data + at * each,
                                              here * each));
            weft_map_forget((const char *)t->data + at * each, here * each);
            v->done += here;
            weft_progress_update(&v->progress, v->done >> 10, NULL);
            WEFT_TRY(weft_interrupt_check());
        } else {
            weft_stored_read(t, at, here, v->wide);
            if (weft_stored_is_plain(t))
                weft_map_forget((const char *)t->data + at * own, here * own);
            WEFT_TRY(put_chunk(v, name, dtype, v->wide, here));
        }
    }
    return WEFT_OK;
}

/* Returns the parameter that has `name`, or the stack that has it as an item. */
static const weft_value_info *param_of(const weft_graph *g, const char *name, int64_t *item)
{
    char stack[600];
    weft_value v = weft_graph_find(g, name);
    *item = -1;
    for (int i = 0; !weft_value_ok(v) && weft_stack_of(name, i, stack, sizeof stack, item); i++)
        v = weft_graph_find(g, stack);
    return weft_value_ok(v) ? weft_value_get(g, v) : NULL;
}

/* Sets *merged to part `p` of `m` with the adapters merged, whole and in f32 (heap). NULL: the
 * adapters do not change the part. */
static weft_status merge(const converting *v, const made *m, int p, float **merged)
{
    const weft_stored_tensor *t = m->part[p];
    int64_t item;
    bool changed = false;
    const weft_value_info *info = param_of(v->graph, m->is.part[p], &item);
    *merged = NULL;
    if (!v->c->adapters || !info)
        return WEFT_OK;
    float *data = weft_alloc(t->count * (int64_t)sizeof *data + 1);
    WEFT_TRY(WEFT_ALLOCATED(data, "%s: \"%s\"", v->c->in, t->name));
    weft_adapter_box box = {.param = info->name,
                            .dtype = WEFT_F32,
                            .whole = info->shape,
                            .shape = info->shape,
                            .data = data};
    if (item >= 0) {
        box.shape.dim[0] = 1;
        box.start[0] = item;
    }
    weft_tensor_to_f32(t, data);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_adapters_merge(v->c->adapter, v->c->adapters, &box, &changed));
    if (changed) {
        *merged = data;
        data = NULL;
    }
out:
    weft_free(data);
    return status;
}

/* Number of parts in the file that is written. */
static int parts_written(const made *m)
{
    return m->is.copies ? 1 : m->is.parts;
}

/* Writes elements [first, first + count) of a part, with the adapters merged if any. */
static weft_status put_part(converting *v, const char *name, const made *m, int p, float *merged,
                            int64_t first, int64_t count)
{
    if (!merged)
        return put_stored(v, name, m->dtype, m->part[p], first, count);
    for (int64_t at = first; at < first + count; at += CHUNK)
        WEFT_TRY(put_chunk(v, name, m->dtype, merged + at,
                           first + count - at < CHUNK ? first + count - at : CHUNK));
    return WEFT_OK;
}

/* Reads `count` elements of a part from `first` on, with the adapters merged if any. */
static void read_part(const weft_stored_tensor *t, const float *merged, int64_t first,
                      int64_t count, float *to)
{
    if (merged)
        memcpy(to, merged + first, (size_t)count * sizeof *to);
    else
        weft_stored_read(t, first, count, to);
}

/* Compares two parts, of which the file that is written has one. */
static weft_status compare_copies(const converting *v, const made *m, int p)
{
    float *merged[2] = {0}, *a = v->wide, *b = v->converted;
    const weft_stored_tensor *const part[] = {m->part[0], m->part[p]};
    bool equal = part[0]->count == part[1]->count;
    weft_status_code status = WEFT_OK;
    WEFT_GO(merge(v, m, 0, &merged[0]));
    WEFT_GO(merge(v, m, p, &merged[1]));
    for (int64_t at = 0; equal && at < part[0]->count; at += CHUNK) {
        const int64_t here = part[0]->count - at < CHUNK ? part[0]->count - at : CHUNK;
        read_part(part[0], merged[0], at, here, a);
        read_part(part[1], merged[1], at, here, b);
        equal = !memcmp(a, b, (size_t)here * sizeof *a);
    }
    if (!equal)
        status =
            weft_error(WEFT_MSG_FORMAT_UNSUPPORTED, WEFT_AT(.file = v->c->in, .key = m->is.part[p]),
                       "it differs from \"%s\", and the authors' file has one tensor for "
                       "both, \"%s\"; use --to diffusers",
                       m->is.part[0], m->is.name);
out:
    weft_free(merged[0]);
    weft_free(merged[1]);
    return status;
}

static weft_status check_copies(const converting *v)
{
    for (int64_t i = 0; i < v->mades; i++)
        for (int p = 1; v->made[i].is.copies && p < v->made[i].is.parts; p++)
            WEFT_TRY(compare_copies(v, &v->made[i], p));
    return WEFT_OK;
}

static bool is_of_companion(const converting *v, const char *name)
{
    const size_t length = v->split ? strlen(v->split) : 0;
    return length && !strncmp(name, v->split, length) && name[length] == '.';
}

/* Whether the tensor is in the files that are written. */
static bool is_written(const converting *v, const made *m)
{
    return is_of_companion(v, m->is.name) == v->companion;
}

static void name_of(const converting *v, const made *m, char name[400])
{
    const char *own = v->companion ? m->is.name + strlen(v->split) + 1 : m->is.name;
    snprintf(name, 400, "%s%s", v->prefix, own);
}

/* Writes part `p` in the layout of `m`: all of it, its halves exchanged, or one half (0 or 1). */
static weft_status put_halves(converting *v, const char *name, const made *m, int p, int only)
{
    float *merged;
    const int64_t count = m->part[p]->count, half = m->is.turned || only >= 0 ? count / 2 : 0;
    WEFT_TRY(merge(v, m, p, &merged));
    weft_status_code status = WEFT_OK;
    if (only != 0)
        WEFT_GO(put_part(v, name, m, p, merged, half, count - half));
    if (half && only != 1)
        WEFT_GO(put_part(v, name, m, p, merged, 0, half));
out:
    weft_free(merged);
    weft_map_forget(m->part[p]->data, m->part[p]->bytes);
    return status;
}

/* Writes kernels with zeros for the input channels that are not stored. */
static weft_status put_widened(converting *v, const char *name, const made *m)
{
    const weft_stored_tensor *t = m->part[0];
    const int64_t kernels = t->dim[0], own = t->count / kernels,
                  zeros = own / t->dim[1] * (m->channels - t->dim[1]);
    for (int64_t k = 0; k < kernels; k++) {
        WEFT_TRY(put_stored(v, name, m->dtype, t, k * own, own));
        for (int64_t at = 0; at < zeros; at += CHUNK) {
            const int64_t here = zeros - at < CHUNK ? zeros - at : CHUNK;
            memset(v->wide, 0, (size_t)here * sizeof *v->wide);
            WEFT_TRY(put_chunk(v, name, m->dtype, v->wide, here));
        }
    }
    return WEFT_OK;
}

static weft_status put_made(converting *v, const made *m)
{
    char name[400];
    name_of(v, m, name);
    if (m->channels)
        return put_widened(v, name, m);
    for (int i = 0; i < (m->is.interleaved ? 2 : 1); i++)
        for (int p = 0; p < parts_written(m); p++)
            WEFT_TRY(put_halves(v, name, m, p, m->is.interleaved ? i : -1));
    return WEFT_OK;
}

static weft_status declare(const converting *v, const made *m)
{
    char name[400];
    int64_t dim[WEFT_TENSORS_MAX_RANK] = {0};
    const weft_stored_tensor *first = m->part[0];
    int rank = first->rank;
    name_of(v, m, name);
    memcpy(dim, first->dim, (size_t)rank * sizeof *dim);
    if (m->channels)
        dim[1] = m->channels;
    for (int p = 1; p < parts_written(m); p++)
        dim[0] += m->part[p]->dim[0];
    for (int i = 0; i < m->is.ones && first->rank >= 2 && rank < WEFT_TENSORS_MAX_RANK; i++)
        dim[rank++] = 1;
    if (m->is.channels && rank == 1) {
        for (rank = 0; rank < 4; rank++)
            dim[rank] = rank == 1 ? first->dim[0] : 1;
    }
    return weft_tensors_writer_declare(v->writer, name, m->dtype, rank, dim);
}

/* Writes config.json: of the companion, or of the rest. */
static weft_status write_config(const converting *v, const char *folder)
{
    char path[1300];
    json_t *json = weft_model_write(v->c->model), *inside = NULL;
    snprintf(path, sizeof path, "%s/config.json", folder);
    WEFT_TRY(WEFT_ALLOCATED(json, "%s", path));
    if (v->split) {
        inside = json_incref(json_object_get(json, v->split));
        json_object_del(json, v->split);
    }
    const weft_status_code status = weft_json_save(path, v->companion ? inside : json);
    json_decref(inside);
    json_decref(json);
    return status;
}

static weft_status write_files(converting *v, const char *folder)
{
    const weft_model_conversion *c = v->c;
    WEFT_TRY(weft_make_dirs(folder));
    WEFT_TRY(weft_tensors_writer_create(folder, c->stem, c->shard_bytes, &v->writer));
    for (int64_t i = 0; i < v->mades; i++)
        if (is_written(v, &v->made[i]))
            WEFT_TRY(declare(v, &v->made[i]));
    for (int64_t i = 0; i < v->mades; i++)
        if (is_written(v, &v->made[i]))
            WEFT_TRY(put_made(v, &v->made[i]));
    WEFT_TRY(weft_tensors_writer_finish(v->writer));
    weft_tensors_writer_free(v->writer);
    v->writer = NULL;
    return c->to == WEFT_TO_DIFFUSERS ? write_config(v, folder) : WEFT_OK;
}

static weft_status write_all(converting *v)
{
    const weft_model_conversion *c = v->c;
    char folder[1200];
    const weft_companion *companion = weft_model_companion(c->model);
    v->wide = weft_calloc(CHUNK, sizeof *v->wide);
    v->converted = weft_calloc(CHUNK, sizeof *v->wide);
    WEFT_TRY(WEFT_ALLOCATED(v->wide && v->converted, "%s", c->in));
    v->split = companion && c->to == WEFT_TO_DIFFUSERS ? companion->folder : NULL;
    WEFT_TRY(check_copies(v));
    weft_progress_begin(&v->progress, "convert", v->all >> 10, 0);
    WEFT_TRY(write_files(v, c->folder));
    if (v->split) {
        v->companion = true;
        snprintf(folder, sizeof folder, "%s/%s", c->folder, v->split);
        WEFT_TRY(write_files(v, folder));
    }
    weft_progress_end(&v->progress, v->done >> 10, NULL);
    return WEFT_OK;
}

weft_status weft_convert_model(const weft_model_conversion *c, const weft_graph *graph)
{
    converting v = {.c = c, .graph = graph, .prefix = ""};
    weft_status_code status = WEFT_OK;
    WEFT_GO(open_in(&v));
    WEFT_GO(write_all(&v));
out:
    weft_tensors_writer_free(v.writer);
    weft_tensors_close(v.file);
    weft_tensors_close(v.as_stored);
    weft_free(v.made);
    weft_free(v.wide);
    weft_free(v.converted);
    return status;
}

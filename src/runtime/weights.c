#include "runtime/weights.h"

#include "format/safetensors.h"

#include <stdio.h>
#include <string.h>

/* The store's tensor of param node `n` if it is one under `prefix`, and its name in files. */
static weft_tensor *param_at(weft_store *store, const weft_graph *g, int32_t n, const char *prefix,
                             const char **file_name)
{
    const weft_node *node = weft_graph_node(g, n);
    if (node->op != WEFT_OP_PARAM)
        return NULL;
    const char *name = weft_value_get(g, node->out[0])->name;
    const size_t len = strlen(prefix);
    if (strncmp(name, prefix, len) != 0)
        return NULL;
    *file_name = name + len;
    return weft_store_find(store, name);
}

/* A list in a message, cut after some names. */
typedef struct listing {
    weft_buf text;
    int64_t count;
} listing;

static void list_name(listing *l, const char *name)
{
    enum { SHOWN = 20 };
    if (l->count < SHOWN)
        weft_buf_printf(&l->text, "%s%s", l->count ? ", " : "", name);
    else if (l->count == SHOWN)
        weft_buf_printf(&l->text, ", ...");
    l->count++;
}

static bool same_shape(const weft_stored_tensor *stored, const weft_shape *shape)
{
    if (stored->rank != shape->rank)
        return false;
    for (int i = 0; i < shape->rank; i++)
        if (stored->dim[i] != shape->dim[i])
            return false;
    return true;
}

static weft_status check(weft_store *store, const weft_graph *g, const char *prefix,
                         const char *path, bool partial, const weft_tensors *file)
{
    listing missing = {0}, wrong = {0}, kind = {0}, extra = {0};
    int64_t params = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const char *name;
        const weft_tensor *t = param_at(store, g, n, prefix, &name);
        if (!t)
            continue;
        params++;
        const weft_stored_tensor *stored = weft_tensors_find(file, name);
        if (!stored)
            list_name(&missing, name);
        else if (!same_shape(stored, &t->shape))
            list_name(&wrong, name);
        else if (!weft_dtype_is_float(stored->dtype)) {
            char text[300];
            snprintf(text, sizeof text, "%s (%s)", name, weft_dtype_name(stored->dtype));
            list_name(&kind, text);
        }
    }
    for (int64_t i = 0; !partial && i < weft_tensors_count(file); i++) {
        weft_buf full = {0};
        weft_buf_printf(&full, "%s%s", prefix, weft_tensors_at(file, i)->name);
        if (full.data && !weft_value_ok(weft_graph_find(g, full.data)))
            list_name(&extra, weft_tensors_at(file, i)->name);
        weft_buf_free(&full);
    }
    weft_status_code status = WEFT_OK;
    if (missing.count)
        status = weft_fail(WEFT_E_FORMAT,
                           "%s: %lld of the model's %lld parameters are missing: %s. Is this "
                           "another model's file?",
                           path, (long long)missing.count, (long long)params, missing.text.data);
    else if (wrong.count)
        status = weft_fail(
            WEFT_E_SHAPE, "%s: %lld parameters have another shape than the model's config says: %s",
            path, (long long)wrong.count, wrong.text.data);
    else if (kind.count)
        status = weft_fail(WEFT_E_FORMAT, "%s: %lld parameters are no floating-point numbers: %s",
                           path, (long long)kind.count, kind.text.data);
    else if (extra.count)
        status = weft_fail(WEFT_E_FORMAT, "%s: %lld tensors are no parameters of this model: %s",
                           path, (long long)extra.count, extra.text.data);
    weft_buf_free(&missing.text);
    weft_buf_free(&wrong.text);
    weft_buf_free(&kind.text);
    weft_buf_free(&extra.text);
    return status;
}

static weft_status copy_in(const weft_stored_tensor *from, weft_tensor *to)
{
    if (from->dtype == to->dtype) {
        memcpy(to->data, from->data, (size_t)from->bytes);
        return WEFT_OK;
    }
    if (to->dtype == WEFT_BF16) {
        float *wide = weft_alloc(from->count * (int64_t)sizeof *wide);
        if (!wide)
            return weft_fail(WEFT_E_MEMORY, "out of memory for \"%s\"", from->name);
        weft_tensor_to_f32(from, wide);
        for (int64_t i = 0; i < from->count; i++)
            ((uint16_t *)to->data)[i] = weft_f32_to_bf16(wide[i]);
        weft_free(wide);
        return WEFT_OK;
    }
    if (to->dtype != WEFT_F32)
        return weft_fail(WEFT_E_UNSUPPORTED,
                         "%s: \"%s\" is %s in the file and %s in the model: no such conversion",
                         from->file, from->name, weft_dtype_name(from->dtype),
                         weft_dtype_name(to->dtype));
    weft_tensor_to_f32(from, to->data);
    return WEFT_OK;
}

weft_status weft_weights_load(weft_store *store, const weft_graph *g, const char *prefix,
                              const char *path, bool partial)
{
    weft_tensors *file;
    WEFT_TRY(weft_tensors_open(path, &file));
    weft_status_code status = check(store, g, prefix, path, partial, file);
    for (int32_t n = 0; status == WEFT_OK && n < weft_graph_node_count(g); n++) {
        const char *name;
        weft_tensor *t = param_at(store, g, n, prefix, &name);
        if (t)
            status = copy_in(weft_tensors_find(file, name), t);
    }
    weft_tensors_close(file);
    return status;
}

weft_status weft_weights_dtype(const char *path, weft_dtype *dtype)
{
    weft_tensors *file;
    bool first = true;
    WEFT_TRY(weft_tensors_open(path, &file));
    *dtype = WEFT_F32;
    for (int64_t i = 0; i < weft_tensors_count(file); i++) {
        const weft_stored_tensor *t = weft_tensors_at(file, i);
        if (t->rank < 2)
            continue;
        *dtype = (first || t->dtype == *dtype) && (t->dtype == WEFT_BF16 || t->dtype == WEFT_F16)
                     ? t->dtype
                     : WEFT_F32;
        if (*dtype == WEFT_F32)
            break;
        first = false;
    }
    weft_tensors_close(file);
    return WEFT_OK;
}

static const weft_tensor *variant_of(weft_store *store, const char *variant, const weft_tensor *t)
{
    weft_buf name = {0};
    if (!variant || !*variant)
        return t;
    weft_buf_printf(&name, "%s%s", variant, t->name);
    const weft_tensor *v = name.data ? weft_store_find(store, name.data) : NULL;
    weft_buf_free(&name);
    return v ? v : t;
}

weft_status weft_weights_save(weft_store *store, const weft_graph *g, const char *prefix,
                              const char *variant, const char *folder, const char *stem,
                              weft_dtype dtype, int64_t max_shard_bytes)
{
    weft_tensors_writer *w;
    WEFT_TRY(weft_tensors_writer_create(folder, stem, max_shard_bytes, &w));
    weft_status_code status = WEFT_OK;
    for (int pass = 0; pass < 2; pass++)
        for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
            const char *name;
            const weft_tensor *t = param_at(store, g, n, prefix, &name);
            if (!t)
                continue;
            if (pass == 0)
                WEFT_GO(weft_tensors_writer_declare(w, name, dtype, t->shape.rank, t->shape.dim));
            else
                WEFT_GO(weft_tensors_writer_data(w, name, t->dtype,
                                                 variant_of(store, variant, t)->data));
        }
    status = weft_tensors_writer_finish(w);
out:
    weft_tensors_writer_free(w);
    return status;
}

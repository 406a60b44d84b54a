#include "exec/store/weights.h"

#include "base/convert.h"
#include "base/fs.h"
#include "base/listing.h"
#include "comm/comm_world.h"
#include "exec/store/tensor_copy.h"
#include "exec/store/tensor_shard.h"
#include "format/tensors/safetensors.h"
#include "format/tensors/safetensors_read.h"
#include "format/tensors/safetensors_write.h"
#include "format/tensors/tensors_finite.h"
#include "graph/builder_helpers.h"
#include "graph/graph.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Returns the store's tensor of param node `n` if its name has `prefix`, and its name in files. */
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

/* ---- stacks: one parameter from several tensors of the file (graph/graph.h) ---------------- */

static int64_t items_of(const weft_tensor *t, const char *name)
{
    return weft_name_is_stack(name) ? t->whole.dim[0] : 1;
}

/* The name of item `i` in files; `name` if the param is not a stack. */
static const char *item_name(const char *name, int64_t i, char buffer[600])
{
    if (!weft_name_is_stack(name))
        return name;
    weft_stack_item(name, i, buffer, 600);
    return buffer;
}

/* Compares shapes of quantized data. The last two dims of `shape` are blocks per row and bytes per
 * block (graph op unpack). */
static bool same_packed(const weft_stored_tensor *stored, const weft_shape *shape, bool stack)
{
    const weft_packing *p = stored->packing;
    if (!p || stored->scaling || stored->column || stored->rank + stack + 1 != shape->rank ||
        shape->dim[shape->rank - 1] != p->bytes ||
        shape->dim[shape->rank - 2] * p->elements != stored->dim[stored->rank - 1])
        return false;
    for (int i = 0; i < stored->rank - 1; i++)
        if (stored->dim[i] != shape->dim[i + stack])
            return false;
    return true;
}

/* Compares shapes of a matrix and of its rounding to int8 (graph op linear). */
static bool same_int8(const weft_stored_tensor *stored, const weft_shape *shape, bool stack)
{
    const int64_t elements = weft_int8_elements(WEFT_U8, shape);
    return !stack && elements && stored->rank == 2 && stored->dim[0] == shape->dim[0] &&
           stored->dim[1] == shape->dim[1] * elements;
}

static bool same_shape(const weft_stored_tensor *stored, const weft_tensor *t, bool stack)
{
    const weft_shape *shape = &t->whole;
    if (t->dtype == WEFT_U8)
        return same_packed(stored, shape, stack) || same_int8(stored, shape, stack);
    if (stored->rank + stack != shape->rank)
        return false;
    for (int i = 0; i < stored->rank; i++)
        if (stored->dim[i] != shape->dim[i + stack])
            return false;
    return true;
}

static weft_status check(weft_store *store, const weft_graph *g, const char *prefix, bool partial,
                         const weft_tensors *file)
{
    const char *path = weft_tensors_path(file);
    weft_listing missing = {0}, wrong = {0}, kind = {0}, extra = {0};
    int64_t params = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const char *name;
        const weft_tensor *t = param_at(store, g, n, prefix, &name);
        if (!t)
            continue;
        for (int64_t i = 0; i < items_of(t, name); i++) {
            char buffer[600], text[700];
            const char *own = item_name(name, i, buffer);
            const weft_stored_tensor *stored = weft_tensors_find(file, own);
            params++;
            if (!stored)
                weft_listing_add(&missing, own);
            else if (!same_shape(stored, t, weft_name_is_stack(name)))
                weft_listing_add(&wrong, own);
            else if (!weft_dtype_is_float(stored->dtype)) {
                snprintf(text, sizeof text, "%s (%s)", own, weft_stored_type(stored));
                weft_listing_add(&kind, text);
            }
        }
    }
    for (int64_t i = 0; !partial && i < weft_tensors_count(file); i++) {
        weft_buf full = {0};
        weft_buf_printf(&full, "%s%s", prefix, weft_tensors_at(file, i)->name);
        if (full.data && !weft_graph_knows(g, full.data))
            weft_listing_add(&extra, weft_tensors_at(file, i)->name);
        weft_buf_free(&full);
    }
    weft_status_code status = WEFT_OK;
    if (missing.count)
        status = weft_error(WEFT_MSG_TENSOR_MISSING, WEFT_AT(.file = path),
                            "%" PRId64 " of the model's %" PRId64
                            " parameters are missing: %s. The file may be of "
                            "another model.",
                            missing.count, params, weft_listing_text(&missing));
    else if (wrong.count)
        status = weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = path),
                            "%" PRId64
                            " parameters have another shape than the model's config states: %s",
                            wrong.count, weft_listing_text(&wrong));
    else if (kind.count)
        status = weft_error(WEFT_MSG_TENSOR_NAMES, WEFT_AT(.file = path),
                            "%" PRId64 " parameters do not have a floating-point type: %s",
                            kind.count, weft_listing_text(&kind));
    else if (extra.count)
        status =
            weft_error(WEFT_MSG_TENSOR_NAMES, WEFT_AT(.file = path),
                       "%" PRId64 " tensors are not parameters of this model: %s. Check that the "
                       "file belongs to the model.",
                       extra.count, weft_listing_text(&extra));
    weft_listing_free(&missing);
    weft_listing_free(&wrong);
    weft_listing_free(&kind);
    weft_listing_free(&extra);
    return status;
}

/* Copies this rank's rows (along dim `d`) of the stored box `whole`, about CHUNK elements at a
 * time. Quantized data is dequantized. Pages of the map are evicted after the copy, so that the
 * file is not in memory a second time. */
static weft_status copy_rows(const weft_stored_tensor *from, const weft_box *whole, int d,
                             weft_tensor *to)
{
    enum { CHUNK = 1 << 20 };
    const bool rows_there = whole->shape.rank > d, plain = weft_stored_is_plain(from);
    const weft_box own = weft_box_of(to);
    const int64_t all = rows_there ? whole->shape.dim[d] : 1, each = from->count / all,
                  most = CHUNK / each > 0 ? CHUNK / each : 1, begin = rows_there ? own.start[d] : 0,
                  end = rows_there ? begin + own.shape.dim[d] : 1,
                  bytes = weft_dtype_bytes(from->dtype);
    weft_box part = *whole;
    float *expanded = plain ? NULL : weft_alloc((most < all ? most : all) * each * 4);
    if (!plain && !expanded)
        return weft_no_memory("%s: \"%s\"", from->file, from->name);
    weft_status_code status = WEFT_OK;
    for (int64_t row = begin; row < end; row += most) {
        const int64_t here = end - row < most ? end - row : most;
        const char *stored = (const char *)from->data + row * each * bytes; /* plain data only */
        if (!plain)
            weft_stored_read(from, row * each, here * each, expanded);
        WEFT_GO(weft_stored_check_data(from, row * each, plain ? (const void *)stored : expanded,
                                       plain ? from->dtype : WEFT_F32, here * each));
        if (rows_there) {
            part.start[d] = row;
            part.shape.dim[d] = here;
        }
        WEFT_GO(weft_tensor_put(to, &part, plain ? (const void *)stored : expanded,
                                plain ? from->dtype : WEFT_F32, NULL));
        if (plain)
            weft_map_forget(stored, here * each * bytes);
        weft_tensor_evict(to);
    }
out:
    if (!plain)
        weft_map_forget(from->data, from->bytes);
    weft_free(expanded);
    return status;
}

/* Copies quantized data unchanged: the rows of this rank's box along dim `d`. */
static weft_status copy_packed(const weft_stored_tensor *from, const weft_box *whole, int d,
                               weft_tensor *to)
{
    const weft_box own = weft_box_of(to);
    const int64_t rows = whole->shape.dim[d], each = weft_shape_count(&whole->shape) / rows;
    const char *data = from->data;
    weft_box part = *whole;
    part.shape.dim[d] = 1;
    for (int64_t row = own.start[d]; row < own.start[d] + own.shape.dim[d]; row++) {
        part.start[d] = row;
        WEFT_TRY(
            weft_tensor_put(to, &part, data + weft_stored_row(from, row) * each, WEFT_U8, NULL));
    }
    weft_map_forget(data + from->first * each, (rows + from->between) * each);
    return WEFT_OK;
}

/* Reads and rounds `count` rows from row `first` on. Each row is computed alone, so that bytes do
 * not depend on the number of threads. */
static weft_status round_rows(const weft_stored_tensor *from, int64_t first, int64_t count,
                              const weft_shape *packed_shape, float *row, unsigned char *packed)
{
    const int64_t K = from->dim[1], blocks = packed_shape->dim[1], bytes = packed_shape->dim[2];
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < count; n++)
        weft_stored_read(from, (first + n) * K, K, row + n * K);
    WEFT_TRY(weft_stored_check_data(from, first * K, row, WEFT_F32, count * K));
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < count; n++)
        weft_int8_pack(row + n * K, blocks, bytes - 2, packed + n * blocks * bytes);
    return WEFT_OK;
}

/* Rounds the rows of this rank's box to int8, about CHUNK elements at a time. */
static weft_status round_to_int8(const weft_stored_tensor *from, const weft_box *whole,
                                 weft_tensor *to)
{
    enum { CHUNK = 1 << 18 };
    const weft_box own = weft_box_of(to);
    const int64_t K = from->dim[1], each = whole->shape.dim[1] * whole->shape.dim[2],
                  most = CHUNK / K > 0 ? CHUNK / K : 1, end = own.start[0] + own.shape.dim[0];
    weft_box part = *whole;
    float *row = weft_alloc(most * K * 4);
    unsigned char *packed = weft_alloc(most * each);
    weft_status_code status;
    WEFT_GO(WEFT_ALLOCATED(row && packed, "%s: \"%s\"", from->file, from->name));
    for (int64_t n = own.start[0]; n < end; n += most) {
        part.start[0] = n;
        part.shape.dim[0] = end - n < most ? end - n : most;
        WEFT_GO(round_rows(from, n, part.shape.dim[0], &whole->shape, row, packed));
        WEFT_GO(weft_tensor_put(to, &part, packed, WEFT_U8, NULL));
    }
    weft_map_forget(from->data, from->bytes);
out:
    weft_free(row);
    weft_free(packed);
    return status;
}

/* Copies this rank's box from the complete stored tensor; of a stack only item `item`. */
static weft_status copy_in(const weft_stored_tensor *from, bool stack, int64_t item,
                           weft_tensor *to)
{
    weft_box all = weft_box_whole(&to->whole);
    if (stack) {
        all.shape.dim[0] = 1;
        all.start[0] = item;
    }
    if (to->dtype == WEFT_U8 && !same_packed(from, &to->whole, stack))
        return round_to_int8(from, &all, to);
    if (to->dtype == WEFT_U8) {
        WEFT_TRY(weft_stored_check_finite(from));
        return copy_packed(from, &all, stack ? 1 : 0, to);
    }
    if (!weft_dtype_is_float(to->dtype))
        return weft_error(
            WEFT_MSG_FORMAT_UNSUPPORTED, WEFT_AT(.file = from->file, .key = from->name),
            "the tensor is %s in the file and %s in the model; weft does not convert between them",
            weft_stored_type(from), weft_dtype_name(to->dtype));
    return from->count > 0 ? copy_rows(from, &all, stack ? 1 : 0, to) : WEFT_OK;
}

/* Address of this rank's shard in the file; NULL: the file's bytes cannot be used unchanged. */
static const char *part_of_file(const weft_stored_tensor *from, const weft_tensor *to)
{
    const int64_t each = weft_dtype_bytes(to->dtype);
    const bool packed = from && to->dtype == WEFT_U8 && same_packed(from, &to->whole, false);
    if (!from || from->count == 0 || from->swapped || !same_shape(from, to, false) ||
        (!packed && (from->dtype != to->dtype || !weft_stored_is_plain(from))))
        return NULL;
    for (int i = 1; i < to->whole.rank; i++)
        if (to->shape.dim[i] != to->whole.dim[i])
            return NULL;
    const int64_t row = to->whole.rank ? weft_shape_count(&to->whole) / to->whole.dim[0] : 0;
    const char *data = (const char *)from->data + (from->first + to->start[0]) * row * each;
    return (uintptr_t)data % (uintptr_t)each ? NULL : data;
}

/* Bytes of the params of `g` that `store` lacks, without offloaded ones. */
static int64_t missing_bytes(weft_store *store, weft_graph *g)
{
    int count;
    int64_t bytes = 0;
    const weft_value *param = weft_graph_params(g, &count);
    for (int i = 0; i < count; i++) {
        const weft_value_info *info = weft_value_get(g, param[i]);
        const weft_attr_source *attr = weft_graph_node(g, info->node)->attr;
        if (!attr->offloaded && !weft_store_find(store, info->name))
            bytes += weft_shape_count(&info->shape) * weft_dtype_bytes(info->dtype);
    }
    return bytes;
}

weft_status weft_weights_reserve(weft_store *store, weft_graph *g)
{
    int count;
    const weft_value *param = weft_graph_params(g, &count);
    WEFT_TRY(weft_device_check_memory(
        weft_store_device(store), weft_store_bytes(store) + missing_bytes(store, g), "weights"));
    for (int i = 0; i < count; i++) {
        const weft_tensor like = weft_tensor_of(g, param[i]);
        weft_tensor *t = weft_store_find(store, like.name);
        WEFT_TRY(t ? weft_store_init_value(store, g, param[i], 0) /* compares the types */
                   : weft_store_add_like(store, &like, &t));
    }
    return WEFT_OK;
}

weft_status weft_weights_prepare(weft_store *store, weft_graph *g)
{
    WEFT_TRY(weft_weights_reserve(store, g));
    return weft_store_init(store, g, 0);
}

weft_status weft_weights_lend(weft_store *store, const weft_graph *g, const char *prefix,
                              const weft_tensors *file)
{
    if (weft_device_is_apart(weft_store_device(store)))
        return WEFT_OK; /* a file's map is not pinned */
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        if (node->op != WEFT_OP_PARAM || !((const weft_attr_source *)node->attr)->offloaded)
            continue;
        weft_tensor t = weft_tensor_of(g, node->out[0]);
        const size_t len = strlen(prefix);
        if (strncmp(t.name, prefix, len) != 0 || weft_store_find(store, t.name))
            continue;
        const weft_stored_tensor *from = weft_tensors_find(file, t.name + len);
        t.data = (void *)(uintptr_t)part_of_file(from, &t);
        if (!t.data)
            continue;
        WEFT_TRY(weft_stored_check_finite(from));
        weft_map_forget(from->data, from->bytes);
        WEFT_TRY(weft_store_alias(store, &t));
    }
    return WEFT_OK;
}

/* Returns true on the ranks that verify the file: those whose shards all begin at 0. With
 * replicated params these are all ranks. */
static bool verifies(weft_store *store, const weft_graph *g, const char *prefix)
{
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const char *name;
        const weft_tensor *t = param_at(store, g, n, prefix, &name);
        for (int i = 0; t && i < t->whole.rank; i++)
            if (t->start[i] != 0)
                return false;
    }
    return true;
}

weft_status weft_weights_check_rest(weft_store *store, const char *prefix, const weft_tensors *file)
{
    for (int64_t i = 0; i < weft_tensors_count(file); i++) {
        const weft_stored_tensor *t = weft_tensors_at(file, i);
        char name[600];
        snprintf(name, sizeof name, "%s%s", prefix, t->name);
        if (weft_store_find(store, name))
            continue;
        WEFT_TRY(weft_stored_check_finite(t));
        weft_map_forget(t->data, t->bytes);
    }
    return WEFT_OK;
}

weft_status weft_weights_load(weft_store *store, const weft_graph *g, const char *prefix,
                              weft_tensors *file, bool partial)
{
    weft_status_code status = WEFT_OK;
    WEFT_GO(check(store, g, prefix, partial, file));
    if (verifies(store, g, prefix))
        WEFT_GO(weft_tensors_verify(file));
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const char *name;
        weft_tensor *t = param_at(store, g, n, prefix, &name);
        const bool there = t && t->lent && t->mapped; /* added by weft_weights_lend */
        for (int64_t i = 0; t && !there && i < items_of(t, name); i++) {
            char buffer[600];
            WEFT_GO(copy_in(weft_tensors_find(file, item_name(name, i, buffer)),
                            weft_name_is_stack(name), i, t));
        }
        if (t)
            t->deferred = (weft_init){0};
    }
out:
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
        if (t->dtype == WEFT_F8E4M3 || t->packing) {
            *dtype = WEFT_BF16;
            break;
        }
        *dtype = (first || t->dtype == *dtype) && (t->dtype == WEFT_BF16 || t->dtype == WEFT_F16)
                     ? t->dtype
                     : WEFT_F32;
        first = false;
    }
    weft_tensors_close(file);
    return WEFT_OK;
}

static bool is_power_of_two(float x)
{
    int exponent;
    return fabsf(frexpf(x, &exponent)) == 0.5f;
}

/* Whether bf16 has every value of a matrix: elements of at most 8 bits, with factors that only
 * change the exponent. */
static bool fits_bf16(const weft_stored_tensor *t)
{
    const weft_scaling *s = t->scaling;
    for (int64_t i = 0; s && i < s->rows * s->columns; i++)
        if (!is_power_of_two(s->factor[i]))
            return false;
    if (t->packing)
        return t->packing->elements == 1 && t->packing->bytes == 1;
    return t->dtype == WEFT_F8E4M3 || t->dtype == WEFT_BF16 || t->dtype == WEFT_U8;
}

weft_status weft_weights_rounded(const char *path, int64_t *matrices, int64_t *rounded)
{
    weft_tensors *file;
    bool quantized = false;
    WEFT_TRY(weft_tensors_open(path, &file));
    *matrices = *rounded = 0;
    for (int64_t i = 0; i < weft_tensors_count(file); i++) {
        const weft_stored_tensor *t = weft_tensors_at(file, i);
        if (t->rank < 2)
            continue;
        quantized |= t->dtype == WEFT_F8E4M3 || t->packing;
        ++*matrices;
        *rounded += !fits_bf16(t);
    }
    *rounded *= quantized;
    weft_tensors_close(file);
    return WEFT_OK;
}

/* Writes data of the tensor's type or of F32; the writer converts either to the file's type. */
static weft_status write_whole(weft_tensors_writer *w, const weft_tensor *t, const char *name,
                               int64_t count, const void *data, weft_dtype dtype)
{
    if (t->dtype == dtype || t->dtype == WEFT_F32)
        return weft_tensors_writer_data(w, name, t->dtype, data);
    float *wide = weft_alloc(count * (int64_t)sizeof *wide + 1);
    WEFT_TRY(WEFT_ALLOCATED(wide, "\"%s\"", name));
    weft_convert(wide, WEFT_F32, data, t->dtype, count);
    const weft_status_code status = weft_tensors_writer_data(w, name, WEFT_F32, wide);
    weft_free(wide);
    return status;
}

static weft_status write_param(weft_tensors_writer *w, weft_comm *comm, const weft_tensor *t,
                               const char *name, weft_dtype dtype)
{
    void *made;
    WEFT_TRY(weft_tensor_gather(comm, 0, t, &made));
    const int64_t items = items_of(t, name),
                  count = items ? weft_shape_count(&t->whole) / items : 0;
    const char *data = made ? made : t->data;
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; w && i < items; i++) {
        char buffer[600];
        WEFT_GO(write_whole(w, t, item_name(name, i, buffer), count,
                            data + i * count * weft_dtype_bytes(t->dtype), dtype));
    }
out:
    weft_free(made);
    return status;
}

static weft_status declare_param(weft_tensors_writer *w, const weft_tensor *t, const char *name,
                                 weft_dtype dtype)
{
    const bool stack = weft_name_is_stack(name);
    for (int64_t i = 0; i < items_of(t, name); i++) {
        char buffer[600];
        WEFT_TRY(weft_tensors_writer_declare(w, item_name(name, i, buffer), dtype,
                                             t->whole.rank - stack, t->whole.dim + stack));
    }
    return WEFT_OK;
}

weft_status weft_weights_save(weft_store *store, weft_comm *comm, const weft_graph *g,
                              const char *prefix, const char *folder, const char *stem,
                              weft_dtype dtype, int64_t max_shard_bytes)
{
    return weft_weights_save_changed(store, comm, g, prefix, (weft_weights_change){0}, folder, stem,
                                     dtype, max_shard_bytes);
}

static weft_status write_stored(weft_tensors_writer *w, const weft_stored_tensor *t)
{
    float *wide = weft_alloc(t->count * (int64_t)sizeof *wide + 1);
    WEFT_TRY(WEFT_ALLOCATED(wide, "\"%s\"", t->name));
    weft_tensor_to_f32(t, wide);
    const weft_status_code status = weft_tensors_writer_data(w, t->name, WEFT_F32, wide);
    weft_free(wide);
    return status;
}

weft_status weft_weights_save_changed(weft_store *store, weft_comm *comm, const weft_graph *g,
                                      const char *prefix, weft_weights_change change,
                                      const char *folder, const char *stem, weft_dtype dtype,
                                      int64_t max_shard_bytes)
{
    const char *without = change.without;
    const weft_stored_tensor *also = change.also;
    weft_tensors_writer *w = NULL; /* NULL except on rank 0 */
    weft_status_code status = WEFT_OK;
    if (!comm || weft_comm_rank(comm) == 0)
        WEFT_GO(weft_tensors_writer_create(folder, stem, max_shard_bytes, &w));
    for (int pass = 0; pass < 2; pass++) {
        if (w && also)
            WEFT_GO(pass
                        ? write_stored(w, also)
                        : weft_tensors_writer_declare(w, also->name, dtype, also->rank, also->dim));
        for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
            const char *name;
            const weft_tensor *t = param_at(store, g, n, prefix, &name);
            if (!t || (without && !strncmp(name, without, strlen(without))))
                continue;
            if (pass == 1)
                WEFT_GO(write_param(w, comm, t, name, dtype));
            else if (w)
                WEFT_GO(declare_param(w, t, name, dtype));
        }
    }
    if (w)
        status = weft_tensors_writer_finish(w);
out:
    weft_tensors_writer_free(w);
    if (status != WEFT_OK && comm)
        weft_comm_abort(comm);
    else if (comm)
        status = weft_comm_barrier(comm); /* all ranks return after the files exist */
    return status;
}

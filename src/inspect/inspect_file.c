#include "inspect/inspect_file.h"

#include "base/config.h"
#include "base/listing.h"
#include "exec/store/weights.h"
#include "graph/builder_helpers.h"
#include "model/key_mapping.h"
#include "model/model.h"

#include <stdio.h>
#include <string.h>

typedef struct subject {
    const char *path;
    weft_tensors *file;
    const weft_family *family;
    const weft_key_mapping *mapping;
    const char *prefix;
} subject;

static bool has_tensor(void *file, const char *name)
{
    return weft_tensors_find(file, name) != NULL;
}

void weft_inspect_put_tensor(const char *name, const char *type, int rank, const int64_t *dim,
                             weft_buf *out)
{
    weft_buf_printf(out, "%s %s ", name, type);
    for (int d = 0; d < rank; d++)
        weft_buf_printf(out, "%s%" PRId64, d ? "," : "", dim[d]);
}

static weft_status put_tensors(const subject *s, weft_buf *out)
{
    for (int64_t i = 0; i < weft_tensors_count(s->file); i++) {
        const weft_stored_tensor *t = weft_tensors_at(s->file, i);
        const size_t skip = strncmp(t->name, s->prefix, strlen(s->prefix)) ? 0 : strlen(s->prefix);
        char name[600];
        if (!weft_key_mapping_rename(s->mapping, t->name + skip, name, sizeof name))
            return weft_error(WEFT_MSG_TENSOR_NAMES, WEFT_AT(.file = s->path),
                              "the name of a tensor is too long: %.80s", t->name);
        weft_inspect_put_tensor(name, weft_stored_type(t), t->rank, t->dim, out);
        weft_buf_printf(out, "\n");
    }
    return WEFT_OK;
}

/* "412 bf16, 20 Q4_K, 20 with factors" */
static void put_types(const weft_tensors *file, weft_buf *out)
{
    const char *seen[32];
    int kinds = 0;
    int64_t scaled = 0;
    for (int64_t i = 0; i < weft_tensors_count(file); i++) {
        const char *type = weft_stored_type(weft_tensors_at(file, i));
        scaled += weft_tensors_at(file, i)->scaling != NULL;
        int k = 0;
        while (k < kinds && strcmp(seen[k], type))
            k++;
        if (k < kinds || kinds == WEFT_COUNT(seen))
            continue;
        int64_t count = 0;
        for (int64_t j = i; j < weft_tensors_count(file); j++)
            count += !strcmp(weft_stored_type(weft_tensors_at(file, j)), type);
        weft_buf_printf(out, "%s%" PRId64 " %s", kinds ? ", " : "", count, type);
        seen[kinds++] = type;
    }
    if (scaled)
        weft_buf_printf(out, "; %" PRId64 " with separate scales", scaled);
}

typedef struct difference {
    weft_listing missing, extra, wrong;
} difference;

static void free_difference(difference *d)
{
    weft_listing_free(&d->missing);
    weft_listing_free(&d->extra);
    weft_listing_free(&d->wrong);
    *d = (difference){0};
}

static int64_t count_of(const difference *d)
{
    return d->missing.count + d->extra.count + d->wrong.count;
}

static void compare_param(const weft_tensors *file, const char *name, const weft_shape *shape,
                          int first, difference *d)
{
    const weft_stored_tensor *t = weft_tensors_find(file, name);
    if (!t)
        weft_listing_add(&d->missing, name);
    else if (t->rank != shape->rank - first ||
             memcmp(t->dim, shape->dim + first, (size_t)t->rank * sizeof *t->dim) != 0)
        weft_listing_add(&d->wrong, name);
}

static void compare(const weft_graph *g, const weft_tensors *file, difference *d)
{
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        if (node->op != WEFT_OP_PARAM)
            continue;
        const weft_value_info *v = weft_value_get(g, node->out[0]);
        const bool stack = weft_name_is_stack(v->name);
        if (!stack)
            compare_param(file, v->name, &v->shape, 0, d);
        for (int64_t i = 0; stack && i < v->shape.dim[0]; i++) {
            char name[600];
            weft_stack_item(v->name, i, name, sizeof name);
            compare_param(file, name, &v->shape, 1, d);
        }
    }
    for (int64_t i = 0; i < weft_tensors_count(file); i++)
        if (!weft_graph_knows(g, weft_tensors_at(file, i)->name))
            weft_listing_add(&d->extra, weft_tensors_at(file, i)->name);
}

/* Compares the file with a model of this size. WEFT_E_SHAPE: fused tensors cannot be split at this
 * size. */
static weft_status differ(const subject *s, const char *size, difference *d)
{
    weft_model model;
    weft_tensors *file = NULL;
    WEFT_TRY(weft_model_open(size, &model));
    const weft_model_size smallest = weft_model_smallest(&model);
    weft_graph *g = weft_graph_create();
    WEFT_TRY(WEFT_ALLOCATED(g, "a graph"));
    weft_model_build(g, &model, &smallest, false);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_graph_check(g));
    WEFT_GO(weft_key_mapping_open(s->family, g, "", s->path, &file));
    compare(g, file, d);
out:
    weft_tensors_close(file);
    weft_graph_free(g);
    return status;
}

static void put_listing(const char *what, const weft_listing *l, weft_buf *out)
{
    if (l->count)
        weft_buf_printf(out, "  %-22s %" PRId64 ": %s\n", what, l->count, weft_listing_text(l));
}

/* Finds the family's published size with the fewest differences; *name NULL: none. */
static weft_status find_size(const subject *s, const char **name, difference *best)
{
    *best = (difference){0};
    *name = NULL;
    for (const weft_named_config *size = s->family->sizes; size && size->name; size++) {
        difference d = {0};
        const weft_status_code status = differ(s, size->name, &d);
        if (status != WEFT_OK && status != WEFT_E_SHAPE) {
            free_difference(&d);
            free_difference(best);
            return status;
        }
        if (status == WEFT_OK && (!*name || count_of(&d) < count_of(best))) {
            free_difference(best);
            *best = d;
            *name = size->name;
        } else {
            free_difference(&d);
        }
    }
    return WEFT_OK;
}

static weft_status put_size(const subject *s, weft_buf *out)
{
    difference best;
    const char *name;
    WEFT_TRY(find_size(s, &name, &best));
    if (name && count_of(&best) == 0) {
        weft_buf_printf(out, "  %-22s %s, nothing missing, nothing extra\n", "published size",
                        name);
    } else if (name && 2 * count_of(&best) < weft_tensors_count(s->file)) {
        weft_buf_printf(out, "  %-22s %s, but\n", "published size", name);
        put_listing("  missing", &best.missing, out);
        put_listing("  extra", &best.extra, out);
        put_listing("  of another shape", &best.wrong, out);
    } else {
        weft_buf_printf(out, "  %-22s none; store the model's config.json next to the file\n",
                        "published size");
    }
    free_difference(&best);
    return WEFT_OK;
}

static weft_status put_summary(const subject *s, weft_buf *out)
{
    int64_t bytes = 0;
    char text[32];
    for (int64_t i = 0; i < weft_tensors_count(s->file); i++)
        bytes += weft_tensors_at(s->file, i)->bytes;
    weft_buf_printf(out, "%s\n  %-22s %s (%s)\n  %-22s %s%s%s\n  %-22s %" PRId64 ", %s: ", s->path,
                    "family", s->family->class_name, weft_role_name(s->family->role), "names",
                    s->mapping->name, s->prefix[0] ? ", with the prefix " : "", s->prefix,
                    "tensors", weft_tensors_count(s->file), weft_format_bytes(bytes, text));
    put_types(s->file, out);
    weft_buf_printf(out, "\n");
    return put_size(s, out);
}

static weft_status open_subject(const char *path, subject *s)
{
    *s = (subject){.path = path};
    WEFT_TRY(weft_tensors_open(path, &s->file));
    s->family = weft_key_mapping_detect(has_tensor, s->file, &s->mapping, &s->prefix);
    return s->family ? WEFT_OK
                     : weft_error(WEFT_MSG_FORMAT_UNSUPPORTED, WEFT_AT(.file = path),
                                  "the names of the %" PRId64
                                  " tensors match no model family that weft implements",
                                  weft_tensors_count(s->file));
}

weft_status weft_inspect_published(const char *path, const char **size)
{
    subject s;
    difference best = {0};
    const char *name = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_GO(open_subject(path, &s));
    WEFT_GO(find_size(&s, &name, &best));
    if (!name || count_of(&best))
        WEFT_GO(weft_error(WEFT_MSG_MODEL_NOT_FOUND, WEFT_AT(.file = path),
                           "this %s has none of the published sizes", s.family->class_name));
out:
    free_difference(&best);
    weft_tensors_close(s.file);
    *size = name;
    return status;
}

weft_status weft_inspect_file(const char *path, bool tensors)
{
    subject s;
    weft_buf text = {0};
    weft_status_code status;
    WEFT_GO(open_subject(path, &s));
    WEFT_GO(tensors ? put_tensors(&s, &text) : put_summary(&s, &text));
    WEFT_GO(weft_buf_check(&text));
    fwrite(text.data, 1, (size_t)text.len, stdout);
out:
    weft_buf_free(&text);
    weft_tensors_close(s.file);
    return status;
}

#include "runtime/part.h"

#include "base/fs.h"
#include "base/listing.h"
#include "format/safetensors.h"
#include "runtime/convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- boxes --------------------------------------------------------------------------------- */

weft_box weft_box_whole(const weft_shape *whole)
{
    return (weft_box){.shape = *whole};
}

weft_box weft_box_of(const weft_tensor *tensor)
{
    weft_box box = {.shape = tensor->shape};
    memcpy(box.start, tensor->start, sizeof box.start);
    return box;
}

bool weft_box_inside(const weft_box *box, const weft_shape *whole)
{
    bool inside = box->shape.rank == whole->rank;
    for (int d = 0; inside && d < whole->rank; d++)
        inside = box->start[d] >= 0 && box->shape.dim[d] >= 0 &&
                 box->start[d] <= whole->dim[d] - box->shape.dim[d];
    return inside;
}

bool weft_tensor_is_whole(const weft_tensor *tensor)
{
    return weft_shape_equal(&tensor->shape, &tensor->whole);
}

bool weft_tensor_is_writer(const weft_tensor *tensor)
{
    return tensor->replica == 0 && weft_shape_count(&tensor->shape) > 0;
}

/* Offset in a dense box of row `row` of the rows that two boxes share, [lo, lo + len) per dim; dims
 * from `inner` on are inside the row. */
static int64_t row_offset(const weft_box *box, const int64_t *lo, const int64_t *len, int inner,
                          int64_t row)
{
    int64_t at = 0, step = 1;
    for (int d = box->shape.rank - 1; d >= 0; d--) {
        at += (lo[d] - box->start[d]) * step;
        if (d < inner) {
            at += row % len[d] * step;
            row /= len[d];
        }
        step *= box->shape.dim[d];
    }
    return at;
}

int64_t weft_box_copy(const weft_box *to, void *to_data, weft_dtype to_dtype, const weft_box *from,
                      const void *from_data, weft_dtype from_dtype)
{
    enum { PIECE = 1 << 18 }; /* elements that one thread copies at a time */
    int64_t lo[WEFT_MAX_RANK], len[WEFT_MAX_RANK], rows = 1, row = 1;
    int inner = to->shape.rank;
    for (int d = 0; d < to->shape.rank; d++) {
        const int64_t to_end = to->start[d] + to->shape.dim[d],
                      from_end = from->start[d] + from->shape.dim[d],
                      end = to_end < from_end ? to_end : from_end;
        lo[d] = to->start[d] > from->start[d] ? to->start[d] : from->start[d];
        len[d] = end - lo[d];
        if (len[d] <= 0)
            return 0;
    }
    while (inner > 0) { /* the row goes over as many dims as both boxes hold without a gap */
        const int d = --inner;
        row *= len[d];
        if (len[d] != to->shape.dim[d] || len[d] != from->shape.dim[d])
            break;
    }
    for (int d = 0; d < inner; d++)
        rows *= len[d];
    const int64_t to_bytes = weft_dtype_bytes(to_dtype), from_bytes = weft_dtype_bytes(from_dtype),
                  pieces = (row + PIECE - 1) / PIECE;
#pragma omp parallel for schedule(static) if (rows * row > PIECE)
    for (int64_t i = 0; i < rows * pieces; i++) {
        const int64_t r = i / pieces, at = i % pieces * PIECE,
                      n = row - at < PIECE ? row - at : PIECE;
        weft_convert(
            (char *)to_data + (row_offset(to, lo, len, inner, r) + at) * to_bytes, to_dtype,
            (const char *)from_data + (row_offset(from, lo, len, inner, r) + at) * from_bytes,
            from_dtype, n);
    }
    return rows * row;
}

/* ---- the whole tensor on one rank ---------------------------------------------------------- */

typedef struct part_note {
    weft_box box;
    int64_t writes; /* bool, without padding */
} part_note;

/* The box of rank `rank` comes to `root` in messages of bounded size. Every rank takes part, and
 * drops what it hears. */
static weft_status bring(weft_comm *comm, int rank, int root, const void *own, char *box,
                         int64_t bytes)
{
    enum { MESSAGE = 4 << 20 };
    const int self = weft_comm_rank(comm);
    char *heard =
        self == rank || self == root ? NULL : weft_alloc(bytes < MESSAGE ? bytes : MESSAGE);
    weft_status_code status = WEFT_OK;
    if (self != rank && self != root && !heard)
        return weft_fail(WEFT_E_MEMORY, "out of memory for a message");
    for (int64_t at = 0; at < bytes && status == WEFT_OK; at += MESSAGE) {
        const int64_t n = bytes - at < MESSAGE ? bytes - at : MESSAGE;
        void *data = self == rank ? (char *)(uintptr_t)own + at : self == root ? box + at : heard;
        status = weft_comm_broadcast(comm, data, n, rank);
    }
    weft_free(heard);
    return status;
}

static weft_status gather_boxes(weft_comm *comm, int root, const weft_tensor *tensor,
                                const part_note *note, char *whole)
{
    const weft_box all = weft_box_whole(&tensor->whole);
    const int self = weft_comm_rank(comm);
    const int64_t element = weft_dtype_bytes(tensor->dtype);
    weft_status_code status = WEFT_OK;
    for (int r = 0; r < weft_comm_ranks(comm) && status == WEFT_OK; r++) {
        const weft_box *box = &note[r].box;
        const int64_t bytes = weft_shape_count(&box->shape) * element;
        if (!note[r].writes)
            continue;
        if (r == root) {
            if (self == root)
                weft_box_copy(&all, whole, tensor->dtype, box, tensor->data, tensor->dtype);
            continue;
        }
        char *data = self == root ? weft_alloc(bytes) : NULL;
        if (self == root && !data)
            return weft_fail(WEFT_E_MEMORY, "out of memory for a part of \"%s\"", tensor->name);
        status = bring(comm, r, root, tensor->data, data, bytes);
        if (status == WEFT_OK && self == root)
            weft_box_copy(&all, whole, tensor->dtype, box, data, tensor->dtype);
        weft_free(data);
    }
    return status;
}

weft_status weft_tensor_gather(weft_comm *comm, int root, const weft_tensor *tensor, void **made)
{
    const int ranks = comm ? weft_comm_ranks(comm) : 1;
    const part_note own = {weft_box_of(tensor), weft_tensor_is_writer(tensor)};
    *made = NULL;
    if (ranks == 1)
        return weft_tensor_is_whole(tensor)
                   ? WEFT_OK
                   : weft_fail(WEFT_E_ARG,
                               "\"%s\": this rank holds a part, and there are no others to ask",
                               tensor->name);
    part_note *note = weft_alloc(ranks * (int64_t)sizeof *note);
    const int64_t bytes = weft_shape_count(&tensor->whole) * weft_dtype_bytes(tensor->dtype);
    char *whole = NULL, text[32];
    weft_status_code status =
        note ? weft_comm_all_gather(comm, &own, sizeof own, note)
             : weft_fail(WEFT_E_MEMORY, "out of memory for the parts of \"%s\"", tensor->name);
    if (status == WEFT_OK && !weft_shape_equal(&note[root].box.shape, &tensor->whole)) {
        whole = weft_comm_rank(comm) == root ? weft_alloc(bytes) : NULL;
        status = weft_comm_rank(comm) == root && !whole
                     ? weft_fail(WEFT_E_MEMORY, "no memory to gather \"%s\" (%s)", tensor->name,
                                 weft_format_bytes(bytes, text))
                     : gather_boxes(comm, root, tensor, note, whole);
    }
    if (status == WEFT_OK)
        *made = whole;
    else
        weft_free(whole);
    weft_free(note);
    return status;
}

/* ---- files of parts ------------------------------------------------------------------------ */

static weft_status part_name(const weft_tensor *tensor, weft_buf *name)
{
    weft_buf_printf(name, "%s", tensor->name);
    if (!weft_tensor_is_whole(tensor))
        for (int d = 0; d < tensor->shape.rank; d++)
            weft_buf_printf(name, "%s%lld:%lld/%lld%s", d ? "," : "[", (long long)tensor->start[d],
                            (long long)(tensor->start[d] + tensor->shape.dim[d]),
                            (long long)tensor->whole.dim[d],
                            d == tensor->shape.rank - 1 ? "]" : "");
    return name->data ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory for a name");
}

/* The box that a stored tensor's name tells, its whole shape, and the length of the tensor's own
 * name; false when the brackets are damaged or the data has another shape. */
static bool parse_name(const weft_stored_tensor *stored, weft_box *box, weft_shape *whole,
                       int *length)
{
    const char *name = stored->name, *at = strrchr(name, '[');
    if (stored->rank > WEFT_MAX_RANK)
        return false;
    *box = (weft_box){.shape.rank = stored->rank};
    whole->rank = stored->rank;
    for (int d = 0; d < stored->rank; d++)
        box->shape.dim[d] = whole->dim[d] = stored->dim[d];
    *length = (int)strlen(name);
    if (!at || name[*length - 1] != ']')
        return true;
    *length = (int)(at - name);
    for (int d = 0; d < stored->rank; d++) {
        long long begin, end, all;
        int used = 0;
        if (sscanf(at + 1, "%lld:%lld/%lld%n", &begin, &end, &all, &used) != 3 ||
            end - begin != stored->dim[d])
            return false;
        box->start[d] = begin;
        whole->dim[d] = all;
        at += 1 + used;
    }
    return strcmp(at, "]") == 0 && weft_box_inside(box, whole);
}

static bool begins(const char *name, const char *prefix)
{
    return !strncmp(name, prefix, strlen(prefix));
}

weft_status weft_parts_save(weft_store *store, const char *prefix, const char *folder,
                            const char *stem, int rank, int ranks)
{
    char own[300];
    weft_tensors_writer *writer;
    int64_t count = 0;
    for (int64_t i = 0; i < weft_store_count(store); i++) {
        const weft_tensor *t = weft_store_at(store, i);
        count += begins(t->name, prefix) && weft_tensor_is_writer(t);
    }
    if (count == 0 && rank > 0)
        return WEFT_OK;
    snprintf(own, sizeof own, ranks > 1 ? "%s-rank-%05d-of-%05d" : "%s", stem, rank, ranks);
    WEFT_TRY(weft_tensors_writer_create(folder, own, (int64_t)4 << 30, &writer));
    weft_status_code status = weft_tensors_writer_metadata(writer, "format", "pt");
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < weft_store_count(store) && status == WEFT_OK; i++) {
            const weft_tensor *t = weft_store_at(store, i);
            weft_buf name = {0};
            if (!begins(t->name, prefix) || !weft_tensor_is_writer(t))
                continue;
            status = part_name(t, &name);
            if (status == WEFT_OK)
                status = pass ? weft_tensors_writer_data(writer, name.data, t->dtype, t->data)
                              : weft_tensors_writer_declare(writer, name.data, t->dtype,
                                                            t->shape.rank, t->shape.dim);
            weft_buf_free(&name);
        }
    if (status == WEFT_OK)
        status = weft_tensors_writer_finish(writer);
    weft_tensors_writer_free(writer);
    return status;
}

typedef struct part_reader {
    weft_store *store;
    const char *prefix;
    int64_t *filled; /* elements, by index in the store */
    weft_listing unknown;
    int64_t files;
} part_reader;

static weft_status read_part(part_reader *r, const weft_stored_tensor *stored)
{
    weft_box box;
    weft_shape whole;
    int length;
    if (!parse_name(stored, &box, &whole, &length))
        return weft_fail(WEFT_E_FORMAT, "%s: \"%s\": the name does not fit the data", stored->file,
                         stored->name);
    char *name = weft_strdup(stored->name);
    if (!name)
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory", stored->file);
    name[length] = 0;
    const int64_t index = begins(name, r->prefix) ? weft_store_index(r->store, name) : -1;
    if (index < 0)
        weft_listing_add(&r->unknown, name);
    weft_free(name);
    if (index < 0)
        return WEFT_OK;
    const weft_tensor *tensor = weft_store_at(r->store, index);
    const weft_box own = weft_box_of(tensor);
    if (stored->dtype != tensor->dtype || !weft_shape_equal(&whole, &tensor->whole))
        return weft_fail(WEFT_E_SHAPE, "%s: \"%s\" has another shape or type than this run's",
                         stored->file, stored->name);
    r->filled[index] +=
        weft_box_copy(&own, tensor->data, tensor->dtype, &box, stored->data, stored->dtype);
    return WEFT_OK;
}

static weft_status read_file(part_reader *r, const char *path)
{
    weft_tensors *file;
    WEFT_TRY(weft_tensors_open(path, &file));
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < weft_tensors_count(file) && status == WEFT_OK; i++)
        status = read_part(r, weft_tensors_at(file, i));
    weft_tensors_close(file);
    r->files++;
    return status;
}

/* <stem>.safetensors, or one of a set <stem>-.... */
static bool is_part_file(const char *name, const char *stem)
{
    const char *extension = ".safetensors";
    const size_t length = strlen(name), from = strlen(stem), tail = strlen(extension);
    return length >= from + tail && !strncmp(name, stem, from) &&
           !strcmp(name + length - tail, extension) && (name[from] == '-' || length == from + tail);
}

static weft_status check_filled(const part_reader *r, const char *folder, const char *stem)
{
    weft_listing missing = {0}, twice = {0};
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < weft_store_count(r->store); i++) {
        const weft_tensor *t = weft_store_at(r->store, i);
        const int64_t count = weft_shape_count(&t->shape);
        if (begins(t->name, r->prefix) && r->filled[i] != count)
            weft_listing_add(r->filled[i] < count ? &missing : &twice, t->name);
    }
    if (missing.count || r->unknown.count)
        status = weft_fail(
            WEFT_E_FORMAT,
            "%s/%s is of another model, or files are missing: %lld parameters missing%s%s, %lld "
            "unknown%s%s",
            folder, stem, (long long)missing.count, missing.count ? ": " : "",
            weft_listing_text(&missing), (long long)r->unknown.count, r->unknown.count ? ": " : "",
            weft_listing_text(&r->unknown));
    else if (twice.count)
        status = weft_fail(WEFT_E_FORMAT,
                           "%s/%s: files of different meshes side by side: %lld parameters are "
                           "there more than once: %s",
                           folder, stem, (long long)twice.count, weft_listing_text(&twice));
    weft_listing_free(&missing);
    weft_listing_free(&twice);
    return status;
}

weft_status weft_parts_load(weft_store *store, const char *prefix, const char *folder,
                            const char *stem)
{
    weft_names names = {0};
    part_reader r = {.store = store, .prefix = prefix};
    r.filled = weft_alloc((weft_store_count(store) + 1) * (int64_t)sizeof *r.filled);
    weft_status_code status = r.filled ? weft_list_dir(folder, false, &names)
                                       : weft_fail(WEFT_E_MEMORY, "%s: out of memory", folder);
    for (int64_t i = 0; i < names.count && status == WEFT_OK; i++) {
        if (!is_part_file(names.name[i], stem))
            continue;
        char *path = weft_path_join(folder, names.name[i]);
        status = path ? read_file(&r, path) : weft_fail(WEFT_E_MEMORY, "%s: out of memory", folder);
        weft_free(path);
    }
    if (status == WEFT_OK && r.files == 0)
        status = weft_fail(WEFT_E_NOT_FOUND, "%s: no file %s.safetensors or %s-....safetensors",
                           folder, stem, stem);
    if (status == WEFT_OK)
        status = check_filled(&r, folder, stem);
    weft_free(r.filled);
    weft_listing_free(&r.unknown);
    weft_names_free(&names);
    return status;
}

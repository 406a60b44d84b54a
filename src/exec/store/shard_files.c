#include "exec/store/shard_files.h"

#include "base/config.h"
#include "base/fs.h"
#include "base/listing.h"
#include "exec/store/tensor_copy.h"
#include "format/tensors/safetensors.h"
#include "format/tensors/safetensors_write.h"
#include "graph/infer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool begins(const char *name, const char *prefix)
{
    return !strncmp(name, prefix, strlen(prefix));
}

static bool is_in(const weft_part_set *set, const weft_tensor *t)
{
    return begins(t->name, set->prefix) && !(set->trained && t->frozen);
}

static int64_t tensor_bytes(const weft_tensor *t)
{
    return weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype);
}

/* Returns "<folder>/<set's folder>", in path[1024]. */
static const char *set_folder(const weft_part_set *set, const char *folder, char path[1024])
{
    snprintf(path, 1024, "%s%s%s", folder, set->folder[0] ? "/" : "", set->folder);
    return path;
}

/* ---- names --------------------------------------------------------------------------------- */

static weft_status part_name(const weft_part_set *set, const weft_tensor *tensor, weft_buf *name)
{
    weft_buf_printf(name, "%s", tensor->name + (set->strip ? strlen(set->prefix) : 0));
    if (!weft_tensor_is_whole(tensor))
        for (int d = 0; d < tensor->shape.rank; d++)
            weft_buf_printf(name, "%s%" PRId64 ":%" PRId64 "/%" PRId64 "%s", d ? "," : "[",
                            tensor->start[d], tensor->start[d] + tensor->shape.dim[d],
                            tensor->whole.dim[d], d == tensor->shape.rank - 1 ? "]" : "");
    return weft_buf_check(name);
}

/* Parses a stored tensor's name into its box, complete shape, and the length of the name without
 * brackets. Returns false when the brackets are damaged or disagree with the data's shape. */
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
        int64_t begin, end, all;
        int used = 0;
        if (sscanf(at + 1, "%" SCNd64 ":%" SCNd64 "/%" SCNd64 "%n", &begin, &end, &all, &used) !=
                3 ||
            end - begin != stored->dim[d])
            return false;
        box->start[d] = begin;
        whole->dim[d] = all;
        at += 1 + used;
    }
    return strcmp(at, "]") == 0 && weft_box_inside(box, whole);
}

/* ---- writing ------------------------------------------------------------------------------- */

typedef struct piece {
    const weft_tensor *tensor;
    int set;
    char *name; /* name in the file; owned */
    int64_t bytes;
} piece;

struct weft_part_stream {
    weft_part_set set[8];
    int sets;
    weft_part_writer who;
    piece *piece; /* sorted by set */
    int64_t pieces, piece_capacity, bytes;
    char *ring;
    int64_t capacity;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t fed, drained; /* total bytes; the ring contains the bytes between */
    bool broken;          /* the writer has failed */
};

enum { CHUNK = 4 << 20 }; /* maximum bytes per transfer between owner and writer */

static weft_status add_piece(weft_part_stream *s, const weft_tensor *t, int set)
{
    weft_buf name = {0};
    WEFT_TRY(weft_grow((void **)&s->piece, s->pieces, &s->piece_capacity, sizeof *s->piece));
    const weft_status_code status = part_name(&s->set[set], t, &name);
    if (status != WEFT_OK) {
        weft_buf_free(&name);
        return status;
    }
    s->piece[s->pieces++] =
        (piece){.tensor = t, .set = set, .name = name.data, .bytes = tensor_bytes(t)};
    s->bytes += tensor_bytes(t);
    return WEFT_OK;
}

/* Chooses the shards that this rank writes. The writing replica follows from the tensor's position
 * in the bytes of all tensors, so all ranks agree without messages. */
static weft_status choose_pieces(weft_part_stream *s, weft_store *store)
{
    int64_t before = 0, total = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int set = 0; set < s->sets; set++)
            for (int64_t i = 0; i < weft_store_count(store); i++) {
                const weft_tensor *t = weft_store_at(store, i);
                const int64_t bytes = weft_shape_count(&t->whole) * weft_dtype_bytes(t->dtype);
                if (!is_in(&s->set[set], t) || t->replica < 0)
                    continue;
                const double share = (double)before / (double)(total ? total : 1);
                const int replica = (int)(share * (t->replicas > 1 ? t->replicas : 1));
                if (pass == 0)
                    total += bytes;
                else
                    before += bytes;
                if (pass == 1 && replica == t->replica && weft_shape_count(&t->shape) > 0)
                    WEFT_TRY(add_piece(s, t, set));
            }
    return WEFT_OK;
}

weft_status weft_part_stream_create(weft_store *store, const weft_part_set *sets, int count,
                                    const weft_part_writer *writer, weft_part_stream **out)
{
    weft_part_stream *s;
    WEFT_TRY(WEFT_NEW(s, 1, "a copy of the weights"));
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    weft_status_code status = WEFT_OK;
    if (count > WEFT_COUNT(s->set))
        WEFT_GO(weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(WEFT_NUMBER(count)),
                           "%d sets of tensors cannot be written at once", count));
    memcpy(s->set, sets, (size_t)count * sizeof *sets);
    s->sets = count;
    s->who = *writer;
    WEFT_GO(choose_pieces(s, store));
    s->capacity = writer->staging > 0 && writer->staging < s->bytes ? writer->staging : s->bytes;
    s->ring = weft_alloc_aligned(s->capacity + 64);
    WEFT_GO(WEFT_ALLOCATED(s->ring, "a staging of %" PRId64 " bytes", s->capacity));
    *out = s;
    return WEFT_OK;
out:
    weft_part_stream_free(s);
    return status;
}

int64_t weft_part_stream_bytes(const weft_part_stream *stream)
{
    return stream->bytes;
}

void weft_part_stream_free(weft_part_stream *s)
{
    if (!s)
        return;
    for (int64_t i = 0; i < s->pieces; i++)
        weft_free(s->piece[i].name);
    weft_free(s->piece);
    weft_free(s->ring);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    weft_free(s);
}

/* Waits until contiguous bytes at position `at` are free (or filled). Returns their number, at most
 * `want` and CHUNK, and not past the ring's end. 0: broken. */
static int64_t wait_bytes(weft_part_stream *s, bool filled, int64_t at, int64_t want)
{
    const int64_t to_end = s->capacity - at % s->capacity;
    int64_t n = 0;
    pthread_mutex_lock(&s->lock);
    while (!s->broken && !(n = filled ? s->fed - at : s->capacity - (at - s->drained)))
        pthread_cond_wait(&s->changed, &s->lock);
    if (s->broken)
        n = 0;
    pthread_mutex_unlock(&s->lock);
    n = n < want ? n : want;
    n = n < CHUNK ? n : CHUNK;
    return n < to_end ? n : to_end;
}

static void note(weft_part_stream *s, int64_t *counter, int64_t bytes)
{
    pthread_mutex_lock(&s->lock);
    *counter += bytes;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* Ends the writing before the last byte: the writer returns an error. */
static void end_feeding(weft_part_stream *s)
{
    pthread_mutex_lock(&s->lock);
    s->broken = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

weft_status weft_part_stream_feed(weft_part_stream *s)
{
    int64_t at = 0;
    for (int64_t i = 0; i < s->pieces; i++)
        for (int64_t done = 0, n; done < s->piece[i].bytes; done += n, at += n) {
            n = wait_bytes(s, false, at, s->piece[i].bytes - done);
            if (n <= 0)
                return WEFT_OK; /* the writer has failed, and reports it */
            const weft_status_code status =
                weft_tensor_get_bytes(s->piece[i].tensor, done, n, s->ring + at % s->capacity);
            if (status != WEFT_OK) {
                end_feeding(s);
                return status;
            }
            weft_tensor_evict_part(s->piece[i].tensor, done, n);
            note(s, &s->fed, n);
        }
    return WEFT_OK;
}

static weft_status drain_piece(weft_part_stream *s, weft_tensors_writer *writer, const piece *p)
{
    for (int64_t done = 0, n; done < p->bytes; done += n) {
        n = wait_bytes(s, true, s->drained, p->bytes - done);
        if (n <= 0)
            return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(.key = p->name),
                              "the values of the tensor could not be read");
        WEFT_TRY(weft_tensors_writer_some(writer, p->name, s->ring + s->drained % s->capacity, n));
        note(s, &s->drained, n);
    }
    return p->bytes ? WEFT_OK : weft_tensors_writer_some(writer, p->name, "", 0);
}

/* Writes the pieces [first, last), which are those of one set. */
static weft_status drain_set(weft_part_stream *s, const char *folder, int64_t first, int64_t last)
{
    const weft_part_set *set = &s->set[s->piece[first].set];
    char path[1024], stem[300];
    set_folder(set, folder, path);
    snprintf(stem, sizeof stem, s->who.ranks > 1 ? "%s-rank-%05d-of-%05d" : "%s", set->stem,
             s->who.rank, s->who.ranks);
    weft_tensors_writer *writer;
    WEFT_TRY(weft_tensors_writer_create(path, stem, s->who.shard_bytes, &writer));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_tensors_writer_metadata(writer, "format", "pt"));
    for (int64_t i = first; i < last; i++) {
        const weft_tensor *t = s->piece[i].tensor;
        WEFT_GO(weft_tensors_writer_declare(writer, s->piece[i].name, t->dtype, t->shape.rank,
                                            t->shape.dim));
    }
    for (int64_t i = first; i < last; i++)
        WEFT_GO(drain_piece(s, writer, &s->piece[i]));
    WEFT_GO(weft_tensors_writer_finish(writer));
out:
    weft_tensors_writer_free(writer);
    return status;
}

weft_status weft_part_stream_drain(weft_part_stream *s, const char *folder)
{
    weft_status_code status = WEFT_OK;
    for (int64_t first = 0, last; first < s->pieces; first = last) {
        for (last = first; last < s->pieces && s->piece[last].set == s->piece[first].set;)
            last++;
        WEFT_GO(drain_set(s, folder, first, last));
    }
out:
    if (status != WEFT_OK)
        end_feeding(s);
    return status;
}

/* ---- the index ----------------------------------------------------------------------------- */

/* Matches <stem>.safetensors and <stem>-....safetensors. */
static bool is_part_file(const char *name, const char *stem)
{
    const char *extension = ".safetensors";
    const size_t length = strlen(name), from = strlen(stem), suffix = strlen(extension);
    return length >= from + suffix && !strncmp(name, stem, from) &&
           !strcmp(name + length - suffix, extension) &&
           (name[from] == '-' || length == from + suffix);
}

static weft_status index_file(const char *folder, const char *name, json_t *map, int64_t *bytes)
{
    weft_tensors *file;
    char *path = weft_path_join(folder, name);
    weft_status_code status =
        path ? weft_tensors_open(path, &file) : weft_no_memory("the tensors of a file");
    weft_free(path);
    WEFT_TRY(status);
    for (int64_t i = 0; i < weft_tensors_count(file); i++) {
        const weft_stored_tensor *t = weft_tensors_at(file, i);
        *bytes += t->bytes;
        json_object_set_new(map, t->name, json_string(name));
    }
    weft_tensors_close(file);
    return WEFT_OK;
}

weft_status weft_part_set_index(const weft_part_set *set, const char *folder)
{
    char own[1024], path[1300];
    weft_names names = {0};
    WEFT_TRY(weft_list_dir(set_folder(set, folder, own), false, &names));
    json_t *map = json_object(), *index = NULL;
    int64_t bytes = 0;
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < names.count; i++)
        if (is_part_file(names.name[i], set->stem))
            WEFT_GO(index_file(own, names.name[i], map, &bytes));
    if (json_object_size(map) == 0)
        goto out;
    index =
        json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)bytes, "weight_map", map);
    snprintf(path, sizeof path, "%s/%s.safetensors.index.json", own, set->stem);
    status = index ? weft_json_save(path, index) : weft_no_memory("%s", path);
out:
    weft_names_free(&names);
    json_decref(index);
    json_decref(map);
    return status;
}

/* ---- reading ------------------------------------------------------------------------------- */

typedef struct part_reader {
    weft_store *store;
    const weft_part_set *set;
    int64_t *filled; /* elements read, by index in the store */
    weft_listing unknown;
    int64_t files;
} part_reader;

static weft_status read_part(part_reader *r, const weft_stored_tensor *stored)
{
    weft_box box;
    weft_shape whole;
    int length;
    if (!parse_name(stored, &box, &whole, &length))
        return weft_error(WEFT_MSG_CHECKPOINT_DAMAGED,
                          WEFT_AT(.file = stored->file, .key = stored->name),
                          "the name of the tensor does not fit its data");
    weft_buf name = {0};
    weft_buf_printf(&name, "%s%.*s", r->set->strip ? r->set->prefix : "", length, stored->name);
    WEFT_TRY(weft_buf_check(&name));
    int64_t index = weft_store_index(r->store, name.data);
    if (index >= 0 && !is_in(r->set, weft_store_at(r->store, index)))
        index = -1;
    if (index < 0)
        weft_listing_add(&r->unknown, name.data);
    weft_buf_free(&name);
    if (index < 0)
        return WEFT_OK;
    const weft_tensor *tensor = weft_store_at(r->store, index);
    if (!weft_stored_is_plain(stored) || stored->dtype != tensor->dtype ||
        !weft_shape_equal(&whole, &tensor->whole))
        return weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = stored->file, .key = stored->name),
                          "the tensor has another shape or type than in this run");
    int64_t count;
    WEFT_TRY(weft_tensor_put(tensor, &box, stored->data, stored->dtype, &count));
    r->filled[index] += count;
    weft_tensor_evict(tensor);
    return WEFT_OK;
}

static weft_status read_file(part_reader *r, const char *path)
{
    weft_tensors *file;
    WEFT_TRY(weft_tensors_open(path, &file));
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < weft_tensors_count(file); i++)
        WEFT_GO(read_part(r, weft_tensors_at(file, i)));
out:
    weft_tensors_close(file);
    r->files++;
    return status;
}

static weft_status check_filled(const part_reader *r, const char *folder)
{
    weft_listing missing = {0}, twice = {0};
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < weft_store_count(r->store); i++) {
        const weft_tensor *t = weft_store_at(r->store, i);
        const int64_t count = weft_shape_count(&t->shape);
        if (is_in(r->set, t) && r->filled[i] != count)
            weft_listing_add(r->filled[i] < count ? &missing : &twice, t->name);
    }
    if (missing.count || r->unknown.count)
        status = weft_error(
            missing.count ? WEFT_MSG_TENSOR_MISSING : WEFT_MSG_TENSOR_NAMES,
            WEFT_AT(.file = folder, .key = r->set->stem),
            "the files are of another model, or some are missing: %" PRId64 " parameters "
            "missing%s%s, %" PRId64 " unknown%s%s",
            missing.count, missing.count ? ": " : "", weft_listing_text(&missing), r->unknown.count,
            r->unknown.count ? ": " : "", weft_listing_text(&r->unknown));
    else if (twice.count)
        status =
            weft_error(WEFT_MSG_CHECKPOINT_DAMAGED, WEFT_AT(.file = folder, .key = r->set->stem),
                       "the folder has files of different meshes: %" PRId64
                       " parameters occur more than once: %s",
                       twice.count, weft_listing_text(&twice));
    weft_listing_free(&missing);
    weft_listing_free(&twice);
    return status;
}

static bool any_of(weft_store *store, const weft_part_set *set)
{
    for (int64_t i = 0; i < weft_store_count(store); i++)
        if (is_in(set, weft_store_at(store, i)))
            return true;
    return false;
}

weft_status weft_part_set_load(weft_store *store, const weft_part_set *set, const char *folder)
{
    char own[1024];
    weft_names names = {0};
    part_reader r = {.store = store, .set = set};
    set_folder(set, folder, own);
    r.filled = weft_calloc(weft_store_count(store) + 1, sizeof *r.filled);
    weft_status_code status = WEFT_OK;
    WEFT_GO(r.filled ? weft_list_dir(own, false, &names) : weft_no_memory("%s", own));
    for (int64_t i = 0; i < names.count; i++) {
        if (!is_part_file(names.name[i], set->stem))
            continue;
        char *path = weft_path_join(own, names.name[i]);
        status = path ? read_file(&r, path) : weft_no_memory("%s", own);
        weft_free(path);
        WEFT_GO(status);
    }
    if (r.files == 0 && any_of(store, set))
        WEFT_GO(weft_error(WEFT_MSG_FILE_NOT_FOUND, WEFT_AT(.file = own),
                           "the folder has no file %s.safetensors or %s-....safetensors", set->stem,
                           set->stem));
    WEFT_GO(check_filled(&r, own));
out:
    weft_free(r.filled);
    weft_listing_free(&r.unknown);
    weft_names_free(&names);
    return status;
}

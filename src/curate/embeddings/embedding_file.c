#include "curate/embeddings/embedding_file.h"

#include "base/fs.h"
#include "base/memory.h"
#include "format/tensors/safetensors_write.h"
#include "format/tensors/tensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void weft_embeddings_free(weft_embeddings *e)
{
    weft_free(e->span);
    weft_free(e->vector);
    *e = (weft_embeddings){0};
}

static int64_t find(const weft_embeddings *e, int64_t start, int64_t end)
{
    for (int64_t i = 0; i < e->count; i++)
        if (e->span[i][0] == start && e->span[i][1] == end)
            return i;
    return -1;
}

bool weft_embeddings_tried(const weft_embeddings *e, int64_t start, int64_t end)
{
    return find(e, start, end) >= 0;
}

const float *weft_embeddings_find(const weft_embeddings *e, int64_t start, int64_t end)
{
    const int64_t i = e->width ? find(e, start, end) : -1;
    return i >= 0 && isfinite(e->vector[i * e->width]) ? e->vector + i * e->width : NULL;
}

/* Reserves place for another row of `width` floats. */
static weft_status grow(weft_embeddings *e, int64_t width)
{
    const int64_t capacity = e->count < e->capacity ? e->capacity : 2 * e->capacity + 16;
    if (capacity > e->capacity || width != e->width) {
        int64_t(*span)[2];
        float *vector;
        WEFT_TRY(WEFT_NEW(span, capacity, "embeddings"));
        WEFT_TRY(WEFT_NEW(vector, capacity * (width ? width : 1), "embeddings"));
        if (e->count)
            memcpy(span, e->span, (size_t)e->count * sizeof *span);
        for (int64_t i = 0; i < e->count * width; i++) /* failed rows have no width before */
            vector[i] = width == e->width ? e->vector[i] : NAN;
        weft_free(e->span);
        weft_free(e->vector);
        e->span = span;
        e->vector = vector;
        e->capacity = capacity;
        e->width = width;
    }
    return WEFT_OK;
}

weft_status weft_embeddings_add(weft_embeddings *e, const int64_t span[2], const float *vector,
                                int64_t width)
{
    int64_t at = find(e, span[0], span[1]);
    if (vector && e->width && width != e->width)
        return weft_error(WEFT_MSG_MODEL_SERVER, WEFT_AT(.key = "embeddings", WEFT_NUMBER(width)),
                          "the embedding has %" PRId64 " numbers, and the others of the video have "
                          "%" PRId64,
                          width, e->width);
    WEFT_TRY(grow(e, vector ? width : e->width));
    at = at < 0 ? e->count++ : at;
    e->span[at][0] = span[0];
    e->span[at][1] = span[1];
    for (int64_t i = 0; i < e->width; i++)
        e->vector[at * e->width + i] = vector ? vector[i] : NAN;
    return WEFT_OK;
}

static bool same_number(const weft_tensors *file, const char *key, int64_t number)
{
    const char *text = weft_tensors_metadata(file, key);
    return text && strtoll(text, NULL, 10) == number;
}

static weft_status take_rows(const weft_tensors *file, bool failures, weft_embeddings *e)
{
    const weft_stored_tensor *vectors = weft_tensors_find(file, "embeddings"),
                             *spans = weft_tensors_find(file, "spans");
    if (!vectors || !spans || vectors->rank != 2 || spans->rank != 2 || spans->dim[1] != 2 ||
        spans->dim[0] != vectors->dim[0] || spans->dtype != WEFT_I64)
        return WEFT_OK; /* computed again */
    float *row;
    WEFT_TRY(WEFT_NEW(row, vectors->dim[1] + 1, "embeddings"));
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < spans->dim[0]; i++) {
        int64_t span[2];
        memcpy(span, (const char *)spans->data + i * (int64_t)sizeof span, sizeof span);
        weft_stored_read(vectors, i * vectors->dim[1], vectors->dim[1], row);
        const bool failed = !isfinite(row[0]);
        if (!failed || !failures)
            WEFT_GO(weft_embeddings_add(e, span, failed ? NULL : row, vectors->dim[1]));
    }
out:
    weft_free(row);
    return status;
}

weft_status weft_embeddings_read(const char *path, const weft_embeddings_of *of, bool failures,
                                 weft_embeddings *e)
{
    weft_tensors *file;
    *e = (weft_embeddings){0};
    if (!weft_path_exists(path) || weft_tensors_open(path, &file) != WEFT_OK)
        return WEFT_OK; /* computed again */
    weft_status_code status = WEFT_OK;
    const char *definition = weft_tensors_metadata(file, "definition"),
               *failed = weft_tensors_metadata(file, "failed");
    if (definition && strcmp(definition, of->definition) == 0 &&
        same_number(file, "source_bytes", of->bytes) &&
        same_number(file, "source_mtime_ns", of->mtime_ns)) {
        status = take_rows(file, failures, e);
        if (failed && !failures)
            snprintf(e->failed, sizeof e->failed, "%s", failed);
    }
    weft_tensors_close(file);
    return status;
}

static weft_status add_metadata(weft_tensors_writer *w, const weft_embeddings_of *of,
                                const weft_embeddings *e)
{
    char number[32];
    WEFT_TRY(weft_tensors_writer_metadata(w, "definition", of->definition));
    snprintf(number, sizeof number, "%" PRId64, of->bytes);
    WEFT_TRY(weft_tensors_writer_metadata(w, "source_bytes", number));
    snprintf(number, sizeof number, "%" PRId64, of->mtime_ns);
    WEFT_TRY(weft_tensors_writer_metadata(w, "source_mtime_ns", number));
    return e->failed[0] ? weft_tensors_writer_metadata(w, "failed", e->failed) : WEFT_OK;
}

weft_status weft_embeddings_write(const char *folder, const char *stem,
                                  const weft_embeddings_of *of, const weft_embeddings *e)
{
    weft_tensors_writer *w = NULL;
    weft_status_code status = WEFT_OK;
    const float none = NAN; /* rows of failed attempts before the width is known */
    const int64_t width = e->width ? e->width : 1;
    float *rows = NULL;
    WEFT_GO(WEFT_NEW(rows, e->count * width + 1, "embeddings"));
    for (int64_t i = 0; i < e->count * width; i++)
        rows[i] = e->width ? e->vector[i] : none;
    WEFT_GO(weft_tensors_writer_create(folder, stem, 0, &w));
    weft_tensors_writer_hasten(w);
    WEFT_GO(add_metadata(w, of, e));
    WEFT_GO(
        weft_tensors_writer_declare(w, "embeddings", WEFT_F32, 2, (int64_t[]){e->count, width}));
    WEFT_GO(weft_tensors_writer_declare(w, "spans", WEFT_I64, 2, (int64_t[]){e->count, 2}));
    WEFT_GO(weft_tensors_writer_data(w, "embeddings", WEFT_F32, rows));
    WEFT_GO(weft_tensors_writer_data(w, "spans", WEFT_I64, e->span ? (void *)e->span : rows));
    status = weft_tensors_writer_finish(w);
out:
    weft_tensors_writer_free(w);
    weft_free(rows);
    return status;
}

#include "exec/store/tensor_shard.h"

#include "base/convert.h"
#include "comm/comm.h"
#include "comm/comm_request.h"
#include "comm/comm_world.h"
#include "comm/group.h"
#include "graph/infer.h"

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

/* Offset in a dense box of row `row` of the intersection [lo, lo + len) per dim. Dims from `inner`
 * on are inside the row. */
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
    enum { PIECE = 1 << 18 }; /* elements per parallel task */
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
    while (inner > 0) { /* extends the row while it is contiguous in both boxes */
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

/* ---- gathering the complete tensor --------------------------------------------------------- */

typedef struct part_note {
    weft_box box;
    int32_t writes, holds; /* bool; int32_t leaves no padding */
} part_note;

/* Sends the box of rank `rank` to `root`. Only these two ranks call it. */
static weft_status bring(weft_comm *comm, int rank, int root, const void *own, char *box,
                         int64_t bytes)
{
    const int self = weft_comm_rank(comm), ranks = weft_comm_ranks(comm);
    weft_comm_request *x;
    weft_group *world;
    WEFT_TRY(weft_comm_world(comm, &world));
    weft_status_code status =
        self == rank
            ? weft_comm_request_create_send(ranks, self, root, bytes, WEFT_U8, "a part", &x)
            : weft_comm_request_create_recv(ranks, self, rank, bytes, WEFT_U8, "a part", &x);
    WEFT_TRY(status);
    status = weft_comm_request_attach(x, world, WEFT_CHANNEL_CONTROL);
    if (status == WEFT_OK) {
        weft_comm_request_bind(x, own, box, NULL); /* a send reads `own`, a receive writes `box` */
        weft_comm_request_start(x);
        status = weft_comm_request_wait(x);
    }
    weft_comm_request_free(x);
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
        if (!note[r].writes || (self != r && self != root))
            continue;
        if (r == root) {
            if (self == root)
                weft_box_copy(&all, whole, tensor->dtype, box, tensor->data, tensor->dtype);
            continue;
        }
        char *data = self == root ? weft_alloc(bytes + 1) : NULL;
        if (self == root && !data)
            return weft_no_memory("a part of \"%s\"", tensor->name);
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
    const part_note own = {weft_box_of(tensor), weft_tensor_is_writer(tensor),
                           tensor->replica >= 0};
    *made = NULL;
    if (ranks == 1)
        return weft_tensor_is_whole(tensor)
                   ? WEFT_OK
                   : weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.key = tensor->name),
                                "this rank has a part of the tensor, and the job has no other rank "
                                "with the rest");
    part_note *note = weft_calloc(ranks, sizeof *note);
    const int64_t bytes = weft_shape_count(&tensor->whole) * weft_dtype_bytes(tensor->dtype);
    char *whole = NULL, text[32];
    weft_status_code status = note ? weft_comm_all_gather(comm, &own, sizeof own, note)
                                   : weft_no_memory("the parts of \"%s\"", tensor->name);
    if (status == WEFT_OK &&
        !(note[root].holds && weft_shape_equal(&note[root].box.shape, &tensor->whole))) {
        whole = weft_comm_rank(comm) == root ? weft_alloc(bytes) : NULL;
        status = weft_comm_rank(comm) == root && !whole
                     ? weft_no_memory("gathering \"%s\" (%s)", tensor->name,
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

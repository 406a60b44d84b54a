#include "exec/store/tensor_shard.h"

#include "base/convert.h"
#include "comm/comm.h"
#include "comm/comm_request.h"
#include "comm/comm_world.h"
#include "comm/group.h"
#include "exec/store/tensor_copy.h"
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

weft_box_runs weft_box_overlap(const weft_box *a, const weft_box *b)
{
    weft_box_runs r = {.inner = a->shape.rank, .runs = 1, .length = 1};
    for (int d = 0; d < a->shape.rank; d++) {
        const int64_t a_end = a->start[d] + a->shape.dim[d], b_end = b->start[d] + b->shape.dim[d],
                      end = a_end < b_end ? a_end : b_end;
        r.start[d] = a->start[d] > b->start[d] ? a->start[d] : b->start[d];
        r.size[d] = end - r.start[d];
        if (r.size[d] <= 0)
            return (weft_box_runs){0};
    }
    while (r.inner > 0) { /* extends the run while it is contiguous in both boxes */
        const int d = --r.inner;
        r.length *= r.size[d];
        if (r.size[d] != a->shape.dim[d] || r.size[d] != b->shape.dim[d])
            break;
    }
    for (int d = 0; d < r.inner; d++)
        r.runs *= r.size[d];
    return r;
}

int64_t weft_box_run_offset(const weft_box *box, const weft_box_runs *runs, int64_t run)
{
    int64_t at = 0, step = 1;
    for (int d = box->shape.rank - 1; d >= 0; d--) {
        at += (runs->start[d] - box->start[d]) * step;
        if (d < runs->inner) {
            at += run % runs->size[d] * step;
            run /= runs->size[d];
        }
        step *= box->shape.dim[d];
    }
    return at;
}

int64_t weft_box_copy(const weft_box *to, void *to_data, weft_dtype to_dtype, const weft_box *from,
                      const void *from_data, weft_dtype from_dtype)
{
    enum { PIECE = 1 << 18 }; /* elements per parallel task */
    const weft_box_runs runs = weft_box_overlap(to, from);
    const int64_t to_bytes = weft_dtype_bytes(to_dtype), from_bytes = weft_dtype_bytes(from_dtype),
                  total = runs.runs * runs.length, pieces = (runs.length + PIECE - 1) / PIECE;
#pragma omp parallel for schedule(static) if (total > PIECE)
    for (int64_t i = 0; i < runs.runs * pieces; i++) {
        const int64_t r = i / pieces, at = i % pieces * PIECE,
                      n = runs.length - at < PIECE ? runs.length - at : PIECE;
        weft_convert(
            (char *)to_data + (weft_box_run_offset(to, &runs, r) + at) * to_bytes, to_dtype,
            (const char *)from_data + (weft_box_run_offset(from, &runs, r) + at) * from_bytes,
            from_dtype, n);
    }
    return total;
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
    WEFT_GO(weft_comm_request_attach(x, world, WEFT_CHANNEL_CONTROL));
    weft_comm_request_bind(x, own, box, NULL); /* a send reads `own`, a receive writes `box` */
    weft_comm_request_start(x);
    WEFT_GO(weft_comm_request_wait(x));
out:
    weft_comm_request_free(x);
    return status;
}

/* Copies the part of `rank` into `whole` of `root`. Both ranks call it. */
static weft_status gather_box(weft_comm *comm, int rank, int root, const weft_tensor *tensor,
                              const weft_box *box, char *whole)
{
    const weft_box all = weft_box_whole(&tensor->whole);
    const int self = weft_comm_rank(comm);
    const int64_t bytes = weft_shape_count(&box->shape) * weft_dtype_bytes(tensor->dtype);
    if (rank == root)
        return weft_tensor_get(tensor, &all, whole, tensor->dtype, NULL);
    char *data = self == root ? weft_alloc(bytes + 1) : NULL;
    const void *own = NULL;
    void *made = NULL;
    weft_status_code status = WEFT_OK;
    if (self == root)
        WEFT_GO(WEFT_ALLOCATED(data, "a part of \"%s\"", tensor->name));
    if (self == rank)
        WEFT_GO(weft_tensor_on_host(tensor, &own, &made));
    WEFT_GO(bring(comm, rank, root, own, data, bytes));
    if (self == root)
        weft_box_copy(&all, whole, tensor->dtype, box, data, tensor->dtype);
out:
    weft_free(made);
    weft_free(data);
    return status;
}

static weft_status gather_boxes(weft_comm *comm, int root, const weft_tensor *tensor,
                                const part_note *note, char *whole)
{
    const int self = weft_comm_rank(comm);
    for (int r = 0; r < weft_comm_ranks(comm); r++)
        if (note[r].writes && (self == r || self == root))
            WEFT_TRY(gather_box(comm, r, root, tensor, &note[r].box, whole));
    return WEFT_OK;
}

weft_status weft_tensor_gather(weft_comm *comm, int root, const weft_tensor *tensor, void **made)
{
    const int ranks = comm ? weft_comm_ranks(comm) : 1;
    const part_note own = {weft_box_of(tensor), weft_tensor_is_writer(tensor),
                           tensor->replica >= 0};
    const void *data;
    *made = NULL;
    if (ranks == 1)
        return weft_tensor_is_whole(tensor)
                   ? weft_tensor_on_host(tensor, &data, made)
                   : weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.key = tensor->name),
                                "this rank has a part of the tensor, and the job has no other rank "
                                "with the rest");
    part_note *note = weft_calloc(ranks, sizeof *note);
    const int64_t bytes = weft_shape_count(&tensor->whole) * weft_dtype_bytes(tensor->dtype);
    char *whole = NULL, text[32];
    weft_status_code status = WEFT_OK;
    WEFT_GO(note ? weft_comm_all_gather(comm, &own, sizeof own, note)
                 : weft_no_memory("the parts of \"%s\"", tensor->name));
    const bool there = note[root].holds && weft_shape_equal(&note[root].box.shape, &tensor->whole);
    if (there && weft_comm_rank(comm) == root) {
        void *copy;
        WEFT_GO(weft_tensor_on_host(tensor, &data, &copy));
        whole = copy;
    } else if (!there) {
        whole = weft_comm_rank(comm) == root ? weft_alloc(bytes) : NULL;
        WEFT_GO(weft_comm_rank(comm) == root && !whole
                    ? weft_no_memory("gathering \"%s\" (%s)", tensor->name,
                                     weft_format_bytes(bytes, text))
                    : gather_boxes(comm, root, tensor, note, whole));
    }
    *made = whole;
    whole = NULL;
out:
    weft_free(whole);
    weft_free(note);
    return status;
}

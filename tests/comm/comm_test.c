/* Collectives on the in-process communicator: every op on 1 to 5 ranks, with shards of unequal
 * length, compared with the definition. Results are bitwise identical for any segments. Killed and
 * silent ranks are reported. */
#include "comm/comm.h"
#include "comm/comm_fake.h"
#include "comm/comm_request.h"
#include "comm/comm_world.h"
#include "comm/group.h"
#include "graph/graph.h"
#include "stepped_clock.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct job {
    weft_comm *comm;
    const weft_mesh *mesh;
    weft_op op;
    weft_attr_comm attr;
    weft_shape whole; /* of the tensor before it was split */
    weft_dtype dtype;
    const char *error; /* of this rank, "" */
    int rank;
    int repeat;
    int64_t cut; /* 0: segments as usual */
    char text[512];
} job;

/* Value of element i of the complete tensor on rank r (terms of a sum differ by rank). */
static double element(int64_t i, int rank)
{
    return (double)((i * 7919 + 13) % 1009) / 64 + (double)rank * 1000.25;
}

/* Elements are f32, except in the tests of other dtypes. */
static void put(const job *j, void *data, int64_t i, double value)
{
    if (j->dtype == WEFT_F64)
        ((double *)data)[i] = value;
    else
        ((float *)data)[i] = (float)value;
}

static double get(const job *j, const void *data, int64_t i)
{
    return j->dtype == WEFT_F64 ? ((const double *)data)[i] : ((const float *)data)[i];
}

static weft_shape part(const job *j, int dim, int k, int me, int64_t *start)
{
    weft_shape s = j->whole;
    int64_t len;
    weft_part(j->whole.dim[dim], k, me, start, &len);
    s.dim[dim] = len;
    return s;
}

/* Index in the complete tensor of element i of the shard that begins at `start` along `dim`. */
static int64_t global_index(const job *j, const weft_shape *s, int dim, int64_t start, int64_t i)
{
    int64_t index = 0, step = 1;
    for (int d = s->rank - 1; d >= 0; d--) {
        int64_t at = i % s->dim[d];
        i /= s->dim[d];
        index += (at + (d == dim ? start : 0)) * step;
        step *= j->whole.dim[d];
    }
    return index;
}

static void fail(job *j, const char *what, int64_t i, double got, double wanted)
{
    if (!j->error)
        j->error =
            (snprintf(j->text, sizeof j->text, "rank %d %s: element %" PRId64 " is %.9g, not %.9g",
                      j->rank, what, i, got, wanted),
             j->text);
}

static void *run_job(void *argument)
{
    job *j = argument;
    int at[WEFT_MAX_AXES];
    weft_mesh_coordinates(j->mesh, j->rank, at);
    const int axis = j->attr.axis, k = j->mesh->axis[axis].size, me = at[axis];
    weft_shape in = j->whole, out = j->whole;
    int64_t in_start = 0, out_start = 0;
    int in_dim = j->attr.dim, out_dim = j->attr.dim;
    if (j->op == WEFT_OP_ALL_GATHER)
        in = part(j, in_dim, k, me, &in_start);
    if (j->op == WEFT_OP_REDUCE_SCATTER)
        out = part(j, out_dim, k, me, &out_start);
    if (j->op == WEFT_OP_ALL_TO_ALL) {
        in = part(j, in_dim, k, me, &in_start);
        out_dim = j->attr.dim2;
        out = part(j, out_dim, k, me, &out_start);
    }
    if (j->op == WEFT_OP_RING_SHIFT) {
        in = part(j, in_dim, k, me, &in_start);
        out = part(j, in_dim, k, ((me - j->attr.shift) % k + k) % k, &out_start);
    }
    const bool adds = j->op == WEFT_OP_ALL_REDUCE || j->op == WEFT_OP_REDUCE_SCATTER;
    weft_comm_request *x;
    weft_group *world, *group;
    if (weft_comm_request_create(k, me, j->op, &j->attr, &in, &out, j->dtype, "test", &x) !=
            WEFT_OK ||
        (j->cut && weft_comm_request_cut(x, j->cut) != WEFT_OK) ||
        weft_comm_world(j->comm, &world) != WEFT_OK ||
        weft_comm_axis_group(world, j->mesh, j->rank, axis, &group) != WEFT_OK ||
        weft_comm_request_attach(x, group, WEFT_CHANNEL_LAYERS) != WEFT_OK) {
        j->error = strcpy(j->text, weft_error_message());
        return NULL;
    }
    const int64_t n_in = weft_shape_count(&in), n_out = weft_shape_count(&out);
    void *a = weft_alloc_aligned(n_in * 8),
         *scratch = weft_alloc_aligned(weft_comm_request_scratch(x));
    void *b = j->op == WEFT_OP_ALL_REDUCE ? a : weft_alloc_aligned(n_out * 8);
    weft_comm_request_bind(x, a, b, scratch);
    for (int r = 0; r < j->repeat && !j->error; r++) {
        for (int64_t i = 0; i < n_in; i++)
            put(j, a, i, element(global_index(j, &in, in_dim, in_start, i) + r, adds ? me : 0));
        weft_comm_request_start(x);
        if (weft_comm_request_wait(x) != WEFT_OK) {
            j->error = strcpy(j->text, weft_error_message());
            break;
        }
        for (int64_t i = 0; i < n_out; i++) {
            const int64_t g = global_index(j, &out, out_dim, out_start, i) + r;
            double wanted = 0;
            if (!adds)
                wanted = j->dtype == WEFT_F64 ? element(g, 0) : (float)element(g, 0);
            for (int m = 0; m < k && adds; m++)
                wanted += j->dtype == WEFT_F64 ? element(g, m) : (float)element(g, m);
            if (adds && j->dtype == WEFT_F32)
                wanted = (float)wanted;
            if (!(get(j, b, i) == wanted))
                fail(j, weft_op_get(j->op)->name, i, get(j, b, i), wanted);
        }
    }
    weft_comm_request_free(x);
    if (b != a)
        weft_free(b);
    weft_free(a);
    weft_free(scratch);
    return NULL;
}

static void run_world(const char *mesh_text, const job *base)
{
    weft_mesh mesh;
    weft_comm *comm[16];
    job job_of[16];
    pthread_t thread[16];
    cr_assert_eq(weft_mesh_parse(mesh_text, &mesh), WEFT_OK);
    const int ranks = weft_mesh_ranks(&mesh);
    cr_assert_eq(weft_comm_open_threads(ranks, comm), WEFT_OK);
    for (int r = 0; r < ranks; r++) {
        job_of[r] = *base;
        job_of[r].comm = comm[r];
        job_of[r].mesh = &mesh;
        job_of[r].rank = r;
        pthread_create(&thread[r], NULL, run_job, &job_of[r]);
    }
    for (int r = 0; r < ranks; r++)
        pthread_join(thread[r], NULL);
    for (int r = 0; r < ranks; r++) {
        weft_comm_free(comm[r]);
        cr_expect(!job_of[r].error, "mesh %s: %s", mesh_text, job_of[r].error);
    }
}

Test(comm, every_collective_gives_what_it_says)
{
    static const struct {
        const char *mesh;
        int axis;
    } meshes[] = {{"dp=1", 0}, {"dp=2", 0},      {"dp=3", 0},
                  {"dp=5", 0}, {"dp=2,tp=3", 0}, {"dp=2,tp=3", 1}};
    const weft_shape shapes[] = {WEFT_SHAPE(7, 5, 4), WEFT_SHAPE(2, 3, 1), WEFT_SHAPE(1, 4, 6)};
    const weft_op ops[] = {WEFT_OP_ALL_REDUCE, WEFT_OP_ALL_GATHER, WEFT_OP_REDUCE_SCATTER,
                           WEFT_OP_ALL_TO_ALL, WEFT_OP_RING_SHIFT};
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
        for (size_t s = 0; s < 3; s++)
            for (size_t o = 0; o < 5; o++)
                for (int dim = 0; dim < 3; dim++) {
                    job base = {.op = ops[o],
                                .whole = shapes[s],
                                .dtype = dim == 1 ? WEFT_F64 : WEFT_F32,
                                .repeat = 2};
                    base.attr = (weft_attr_comm){.axis = meshes[m].axis,
                                                 .dim = dim,
                                                 .dim2 = (dim + 1) % 3,
                                                 .shift = dim == 2 ? -1 : 1};
                    base.attr.global = base.whole.dim[dim];
                    base.attr.global2 = base.whole.dim[(dim + 1) % 3];
                    run_world(meshes[m].mesh, &base);
                }
}

/* Longer than a segment, so that rounds take several steps, with parts of unequal length; in
 * shorter ones, and all at once. */
Test(comm, long_ones_are_cut_in_segments)
{
    const weft_op ops[] = {WEFT_OP_ALL_REDUCE, WEFT_OP_ALL_GATHER, WEFT_OP_REDUCE_SCATTER,
                           WEFT_OP_ALL_TO_ALL};
    for (size_t o = 0; o < 4; o++) {
        job base = {
            .op = ops[o], .whole = WEFT_SHAPE(7, 220001, 2), .dtype = WEFT_F32, .repeat = 1};
        base.attr = (weft_attr_comm){.dim = 1, .dim2 = 0, .global = 220001, .global2 = 7};
        run_world("dp=3", &base);
        base.cut = 64 << 10;
        run_world("dp=3", &base);
        base.cut = 256 << 20;
        run_world("dp=3", &base);
    }
}

typedef struct straggler {
    weft_comm *comm;
    atomic_int *arrived; /* ranks that have passed the first barrier */
    int mode;            /* 0 works, 1 is killed, 2 never comes, 3 gives up */
    weft_status_code status;
    weft_message_class kind;
    int concerned; /* the rank that the error names */
    double waited; /* seconds in the error */
    char message[1024];
} straggler;

static void *run_straggler(void *argument)
{
    straggler *s = argument;
    stepped_clock_exclude();
    s->status = weft_comm_barrier(s->comm);
    atomic_fetch_add(s->arrived, 1);
    if (s->mode == 1) {
        weft_comm_fake_kill(s->comm);
        return NULL;
    }
    if (s->mode == 2)
        return NULL;
    if (s->mode == 3) {
        s->status = weft_error(WEFT_MSG_LOSS_NOT_FINITE, WEFT_NOWHERE, "loss left its range");
        weft_comm_abort(s->comm);
        return NULL;
    }
    s->status = weft_comm_barrier(s->comm);
    s->kind = weft_error_class();
    s->concerned = weft_error_fields()->has_rank ? weft_error_fields()->rank : -1;
    s->waited = weft_error_fields()->has_number ? weft_error_fields()->number : 0;
    snprintf(s->message, sizeof s->message, "%s", weft_error_message());
    return NULL;
}

static void run_stragglers(int mode, double deadline, straggler *s)
{
    weft_comm *comm[3];
    pthread_t thread[3];
    atomic_int arrived = 0;
    cr_assert_eq(weft_comm_open_threads(3, comm), WEFT_OK);
    for (int r = 0; r < 3; r++) {
        weft_comm_set_deadline(comm[r], deadline);
        s[r] = (straggler){.comm = comm[r], .arrived = &arrived, .mode = r == 1 ? mode : 0};
        pthread_create(&thread[r], NULL, run_straggler, &s[r]);
    }
    while (atomic_load(&arrived) < 3)
        sched_yield();
    stepped_clock_go();
    for (int r = 0; r < 3; r++)
        pthread_join(thread[r], NULL);
    for (int r = 0; r < 3; r++)
        weft_comm_free(comm[r]);
}

static void expect_named(const straggler *s)
{
    cr_expect_eq(s->kind, WEFT_MSG_RANK_FAILED, "%s", s->message);
    cr_expect_eq(s->concerned, 1, "%s", s->message);
}

/* Without detection these ranks would wait forever. */
static const double never = 1e9;

Test(comm, a_killed_rank_is_named_without_a_deadline)
{
    straggler s[3];
    run_stragglers(1, never, s);
    for (int r = 0; r < 3; r += 2) {
        cr_expect_eq(s[r].status, WEFT_E_COMM);
        expect_named(&s[r]);
    }
}

Test(comm, a_rank_that_does_not_come_is_named_at_the_deadline)
{
    straggler s[3];
    stepped_clock_begin(3);
    run_stragglers(2, 2, s);
    for (int r = 0; r < 3; r += 2) {
        cr_expect_eq(s[r].status, WEFT_E_COMM);
        expect_named(&s[r]);
        cr_expect(strstr(s[r].message, "rank 1 (alive, not in a collective)"), "%s", s[r].message);
        cr_expect(s[r].waited > 2 && s[r].waited < 3, "%g s", s[r].waited);
    }
}

typedef struct voter {
    weft_comm *comm;
    weft_status_code status; /* own result, then the common one */
    weft_message_class kind; /* class of the error afterwards */
    char message[256];
    double sum; /* of the ranks after the agreement */
} voter;

static void *run_voter(void *argument)
{
    voter *v = argument;
    if (v->status != WEFT_OK)
        v->status = weft_error(WEFT_MSG_LOSS_NOT_FINITE, WEFT_NOWHERE, "rank %d has no file",
                               weft_comm_rank(v->comm));
    v->status = weft_comm_agree(v->comm, v->status, "open the files");
    v->kind = v->status != WEFT_OK ? weft_error_class() : 0;
    snprintf(v->message, sizeof v->message, "%s", v->status != WEFT_OK ? weft_error_message() : "");
    v->sum = weft_comm_rank(v->comm) + 1;
    if (weft_comm_sum(v->comm, &v->sum, 1) != WEFT_OK)
        v->sum = -1;
    return NULL;
}

/* Bit r of `failing`: rank r has an error. A rank with an error keeps its own, the others get the
 * common one, and the communicator still works. */
static void expect_agreement(int ranks, unsigned failing)
{
    weft_comm *comm[4];
    pthread_t thread[4];
    voter v[4];
    cr_assert_eq(weft_comm_open_threads(ranks, comm), WEFT_OK);
    for (int r = 0; r < ranks; r++) {
        v[r] = (voter){.comm = comm[r], .status = failing >> r & 1 ? WEFT_E_COMM : WEFT_OK};
        pthread_create(&thread[r], NULL, run_voter, &v[r]);
    }
    for (int r = 0; r < ranks; r++)
        pthread_join(thread[r], NULL);
    for (int r = 0; r < ranks; r++) {
        char own[32];
        snprintf(own, sizeof own, "rank %d has no file", r);
        cr_expect_eq(v[r].status == WEFT_OK, failing == 0, "rank %d of %d, %x", r, ranks, failing);
        cr_expect_eq(v[r].sum, ranks * (ranks + 1) / 2, "rank %d of %d, %x", r, ranks, failing);
        if (failing >> r & 1) {
            cr_expect_eq(v[r].kind, WEFT_MSG_LOSS_NOT_FINITE, "%s", v[r].message);
            cr_expect(strstr(v[r].message, own), "rank %d: %s", r, v[r].message);
        } else if (failing) {
            cr_expect_eq(v[r].kind, WEFT_MSG_RANK_FAILED, "%s", v[r].message);
            cr_expect(strstr(v[r].message, "cannot open the files"), "%s", v[r].message);
        }
        weft_comm_free(comm[r]);
    }
}

Test(comm, ranks_agree_whether_one_has_failed)
{
    for (int ranks = 1; ranks <= 4; ranks++)
        for (unsigned failing = 0; failing < 1U << ranks; failing++)
            expect_agreement(ranks, failing);
}

Test(comm, a_rank_that_gives_up_tells_why)
{
    straggler s[3];
    run_stragglers(3, never, s);
    for (int r = 0; r < 3; r += 2) {
        cr_expect_eq(s[r].status, WEFT_E_COMM);
        expect_named(&s[r]);
        cr_expect(strstr(s[r].message, "loss left its range"), "%s", s[r].message);
    }
}

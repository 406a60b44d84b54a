/* Coalesced all-reduces are bitwise identical to single ones, on 2, 3 and 2x3 ranks: with lengths
 * that do not divide, large reductions and reductions of another type and axis in between, results
 * that are needed early, and ranks that coalesce differently. */

#include "base/dtype.h"
#include "base/status.h"
#include "comm/comm.h"
#include "comm/comm_fake.h"
#include "comm/group.h"
#include "exec/execute.h"
#include "exec/program.h"
#include "graph/builder_helpers.h"
#include "graph/graph.h"
#include "graph/op.h"
#include "kernel/cpu/table.h"
#include "kernel/kernel.h"
#include "kernel/ref/table.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { SUMS = 40, RANKS = 6 };

typedef struct rank_job {
    weft_comm *comm;
    const weft_mesh *mesh;
    const weft_backend *backend;
    int rank;
    int exchanges[2];
    char error[512];
} rank_job;

typedef struct sum {
    weft_dtype dtype;
    int64_t count;
    int axis;
} sum;

/* Every fifth is large, every seventh bf16, every ninth on the second axis. The lengths of the sums
 * on the first axis differ by the coordinate on the second, some around the size that is still
 * bundled. */
static sum sum_of(const rank_job *j, int i)
{
    static const int64_t counts[] = {1, 3, 7, 250, 1001, 65536, 65537, 2, 61};
    int at[WEFT_MAX_AXES];
    weft_mesh_coordinates(j->mesh, j->rank, at);
    sum s = {.dtype = i % 7 == 6 ? WEFT_BF16 : WEFT_F32,
             .count = i % 5 == 4 ? 70001 : counts[i % 9]};
    s.axis = j->mesh->axis_count > 1 && i % 9 == 8;
    if (j->mesh->axis_count > 1 && s.axis == 0 && i % 4 == 1)
        s.count *= 1 + 20 * at[1];
    return s;
}

static weft_graph *build(const rank_job *j)
{
    weft_graph *g = weft_graph_create();
    weft_graph_set_mesh(g, j->mesh, j->rank);
    weft_value before = WEFT_NONE;
    for (int i = 0; i < SUMS; i++) {
        const sum s = sum_of(j, i);
        char name[32];
        snprintf(name, sizeof name, "x%d", i);
        weft_value x = weft_input(g, name, s.dtype, WEFT_SHAPE(s.count));
        if (i % 3 == 1 &&
            s.dtype == WEFT_F32) /* made by a kernel, so that its last use is the reduction */
            x = weft_affine(g, x, 1.5, 0);
        x = weft_emit(g, WEFT_OP_ALL_REDUCE, &x, 1, &(weft_attr_comm){.axis = s.axis});
        if (i % 11 == 10 && weft_value_ok(before)) { /* needs a sum of before at once */
            snprintf(name, sizeof name, "early%d", i);
            weft_output(g, name, weft_affine(g, before, 2, 0));
        }
        snprintf(name, sizeof name, "y%d", i);
        weft_output(g, name, x);
        before = s.dtype == WEFT_F32 ? x : before;
    }
    return g;
}

static weft_status run_once(rank_job *j, const weft_graph *g, bool no_bundle, weft_program **out)
{
    weft_program *p = NULL;
    const weft_program_options options = {
        .backend = j->backend, .guard = true, .no_coalesce = no_bundle};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_program_compile(g, &options, &p));
    weft_group *group;
    WEFT_GO(weft_comm_world(j->comm, &group));
    WEFT_GO(weft_program_bind(p, NULL, group));
    for (int run = 0; run < 2; run++) {
        for (int i = 0; i < SUMS; i++) {
            char name[32];
            snprintf(name, sizeof name, "x%d", i);
            weft_tensor *t = weft_program_input(p, name);
            for (int64_t k = 0; k < t->shape.dim[0]; k++) {
                const float value = weft_random_normal((uint64_t)(100 * run + j->rank),
                                                       WEFT_RNG_TEST, (uint64_t)(k * SUMS + i));
                if (t->dtype == WEFT_BF16)
                    ((uint16_t *)t->data)[k] = weft_f32_to_bf16(value);
                else
                    ((float *)t->data)[k] = value;
            }
        }
        WEFT_GO(weft_program_run(p));
    }
    j->exchanges[no_bundle] = weft_program_comm_times(p).requests;
    *out = p;
    return WEFT_OK;
out:
    weft_program_free(p);
    return status;
}

static void compare(rank_job *j, weft_program *bundled, weft_program *single, const char *name)
{
    const weft_tensor *a = weft_program_output(bundled, name),
                      *b = weft_program_output(single, name);
    const int64_t bytes = a ? weft_shape_count(&a->shape) * weft_dtype_bytes(a->dtype) : 0;
    if (a && memcmp(a->data, b->data, (size_t)bytes) != 0)
        snprintf(j->error, sizeof j->error, "rank %d: %s differs", j->rank, name);
}

static void *run_rank(void *argument)
{
    rank_job *j = argument;
    weft_program *bundled = NULL, *single = NULL;
    weft_graph *g = build(j);
    if (run_once(j, g, false, &bundled) != WEFT_OK || run_once(j, g, true, &single) != WEFT_OK) {
        snprintf(j->error, sizeof j->error, "rank %d: %.400s", j->rank, weft_error_message());
        weft_comm_abort(j->comm);
    }
    for (int i = 0; i < SUMS && !j->error[0]; i++) {
        char name[32];
        snprintf(name, sizeof name, "y%d", i);
        compare(j, bundled, single, name);
        snprintf(name, sizeof name, "early%d", i);
        compare(j, bundled, single, name);
    }
    weft_program_free(bundled);
    weft_program_free(single);
    weft_graph_free(g);
    return NULL;
}

static void compare_world(const char *mesh_text, const weft_backend *backend, int at_most)
{
    weft_mesh mesh;
    weft_comm *comm[RANKS];
    rank_job job[RANKS];
    pthread_t thread[RANKS];
    cr_assert_eq(weft_mesh_parse(mesh_text, &mesh), WEFT_OK);
    const int ranks = weft_mesh_ranks(&mesh);
    cr_assert_eq(weft_comm_open_threads(ranks, comm), WEFT_OK);
    for (int r = 0; r < ranks; r++) {
        job[r] = (rank_job){.comm = comm[r], .mesh = &mesh, .backend = backend, .rank = r};
        pthread_create(&thread[r], NULL, run_rank, &job[r]);
    }
    for (int r = 0; r < ranks; r++)
        pthread_join(thread[r], NULL);
    for (int r = 0; r < ranks; r++) {
        weft_comm_free(comm[r]);
        cr_expect(!job[r].error[0], "mesh %s: %s", mesh_text, job[r].error);
        cr_expect_eq(job[r].exchanges[1], SUMS);
        cr_expect_leq(job[r].exchanges[0], at_most, "mesh %s, rank %d: %d exchanges", mesh_text, r,
                      job[r].exchanges[0]);
    }
}

/* An all-reduce of the result of another: both cannot be coalesced, because the second reads the
 * result of the first. */
static void *sum_twice(void *argument)
{
    rank_job *j = argument;
    weft_graph *g = weft_graph_create();
    weft_program *p = NULL;
    weft_group *group;
    weft_status_code status = WEFT_OK;
    weft_graph_set_mesh(g, j->mesh, j->rank);
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(5));
    for (int i = 0; i < 3; i++)
        x = weft_emit(g, WEFT_OP_ALL_REDUCE, &x, 1, &(weft_attr_comm){.axis = 0});
    weft_output(g, "y", x);
    WEFT_GO(weft_program_compile(g, &(weft_program_options){.backend = j->backend}, &p));
    WEFT_GO(weft_comm_world(j->comm, &group));
    WEFT_GO(weft_program_bind(p, NULL, group));
    for (int k = 0; k < 5; k++)
        ((float *)weft_program_input(p, "x")->data)[k] = (float)(10 * k + j->rank);
    WEFT_GO(weft_program_run(p));
    j->exchanges[0] = weft_program_comm_times(p).requests;
    for (int k = 0; k < 5; k++) {
        const float got = ((float *)weft_program_output(p, "y")->data)[k];
        if (got != (float)(4 * (20 * k + 1))) /* over two ranks, three times */
            snprintf(j->error, sizeof j->error, "rank %d: element %d is %g", j->rank, k, got);
    }
out:
    if (status != WEFT_OK) {
        snprintf(j->error, sizeof j->error, "rank %d: %.400s", j->rank, weft_error_message());
        weft_comm_abort(j->comm);
    }
    weft_program_free(p);
    weft_graph_free(g);
    return NULL;
}

Test(bundle, a_sum_waits_for_the_sum_that_it_reads)
{
    weft_mesh mesh;
    weft_comm *comm[2];
    rank_job job[2];
    pthread_t thread[2];
    cr_assert_eq(weft_mesh_parse("dp=2", &mesh), WEFT_OK);
    cr_assert_eq(weft_comm_open_threads(2, comm), WEFT_OK);
    for (int r = 0; r < 2; r++) {
        job[r] =
            (rank_job){.comm = comm[r], .mesh = &mesh, .backend = &weft_backend_cpu, .rank = r};
        pthread_create(&thread[r], NULL, sum_twice, &job[r]);
    }
    for (int r = 0; r < 2; r++) {
        pthread_join(thread[r], NULL);
        cr_expect(!job[r].error[0], "%s", job[r].error);
        cr_expect_eq(job[r].exchanges[0], 3);
    }
    for (int r = 0; r < 2; r++)
        weft_comm_free(comm[r]);
}

Test(bundle, two_ranks)
{
    compare_world("dp=2", &weft_backend_cpu, 20);
}

Test(bundle, three_ranks)
{
    compare_world("dp=3", &weft_backend_cpu, 20);
    compare_world("dp=3", &weft_backend_ref, 20);
}

Test(bundle, two_axes_whose_ranks_bundle_differently)
{
    compare_world("dp=3,tp=2", &weft_backend_cpu, 22);
}

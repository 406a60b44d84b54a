/* Collectives on devices that are apart: the host adds a whole run to the stream, which waits at
 * gates for the messages. Also what happens to the stream when a collective fails, and the pinned
 * memory of messages. */
#include "comm/comm.h"
#include "comm/comm_fake.h"
#include "comm/group.h"
#include "exec/execute.h"
#include "exec/program.h"
#include "exec/store/store.h"
#include "graph/builder_helpers.h"
#include "graph/graph.h"
#include "kernel/device.h"
#include "kernel/far/far.h"
#include "transform/sharding/shard.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>

enum { RANKS = 2, ROWS = 8, WIDTH = 3 };

/* Rows are split by dp; three sums over the axis, of which each needs the one before. */
static weft_graph *whole_graph(void)
{
    weft_graph *g = weft_graph_create();
    const weft_value x = weft_input(g, "batch.x", WEFT_F32, WEFT_SHAPE(ROWS, WIDTH)),
                     w = weft_param(g, "w", WEFT_F32, WEFT_SHAPE(4, WIDTH),
                                    (weft_init){WEFT_INIT_FILL, 2});
    weft_value y = weft_matmul(g, x, w, false, true), sum = weft_sum_all(g, y);
    for (int i = 0; i < 2; i++) {
        y = weft_mul(
            g, y, weft_broadcast(g, weft_reshape(g, sum, WEFT_SHAPE(1, 1)), WEFT_SHAPE(ROWS, 4)));
        sum = weft_sum_all(g, y);
    }
    weft_output(g, "sum", sum);
    return g;
}

typedef struct rank_job {
    const weft_backend *backend;
    weft_comm *comm;
    int rank;
    weft_graph *own;
    weft_store *store;
    weft_program *program;
    weft_status_code status;
    char error[300];
} rank_job;

static weft_status prepare(rank_job *j)
{
    weft_graph *whole = whole_graph();
    weft_mesh mesh;
    weft_group *world;
    weft_status_code status = weft_mesh_parse("dp=2", &mesh);
    if (status == WEFT_OK)
        status = weft_pass_shard(whole, &mesh, j->rank, &weft_recipe_dp, &j->own);
    weft_graph_free(whole);
    WEFT_TRY(status);
    WEFT_TRY(
        weft_program_compile(j->own, &(weft_program_options){.backend = j->backend}, &j->program));
    j->store = weft_store_create_on(j->backend->device);
    WEFT_TRY(weft_store_init(j->store, j->own, 1));
    WEFT_TRY(weft_comm_world(j->comm, &world));
    return weft_program_bind(j->program, j->store, world);
}

static void feed(rank_job *j, float value)
{
    weft_tensor *x = weft_program_input(j->program, "batch.x");
    for (int64_t i = 0; i < weft_shape_count(&x->shape); i++)
        ((float *)x->data)[i] = value;
}

static void *run_once(void *user)
{
    rank_job *j = user;
    feed(j, 1);
    j->status = weft_program_run(j->program);
    snprintf(j->error, sizeof j->error, "%s", weft_error_message());
    return NULL;
}

static void begin(rank_job job[RANKS], const weft_backend *backend)
{
    weft_comm *comm[RANKS];
    cr_assert_eq(weft_comm_open_threads(RANKS, comm), WEFT_OK);
    for (int r = 0; r < RANKS; r++) {
        job[r] = (rank_job){.comm = comm[r], .rank = r, .backend = backend};
        weft_comm_set_deadline(comm[r], 30);
        cr_assert_eq(prepare(&job[r]), WEFT_OK, "%s", weft_error_message());
    }
}

static void run_both(rank_job job[RANKS])
{
    pthread_t thread[RANKS];
    for (int r = 0; r < RANKS; r++)
        pthread_create(&thread[r], NULL, run_once, &job[r]);
    for (int r = 0; r < RANKS; r++)
        pthread_join(thread[r], NULL);
}

static void end(rank_job job[RANKS])
{
    for (int r = 0; r < RANKS; r++) {
        weft_program_free(job[r].program);
        weft_store_free(job[r].store);
        weft_graph_free(job[r].own);
    }
    for (int r = 0; r < RANKS; r++)
        weft_comm_free(job[r].comm);
}

static double sum_of(rank_job *j)
{
    return (double)*(const float *)weft_program_output(j->program, "sum")->data;
}

/* One thread launches the runs of both ranks in sequence: a call that waited for a message
 * of the other rank would not return. */
static void launch_in_turn(const weft_backend *backend)
{
    rank_job job[RANKS];
    begin(job, backend);
    run_both(job); /* the first run compares the lists of collectives */
    const double first = sum_of(&job[0]);
    for (int run = 0; run < 3; run++) {
        for (int r = 0; r < RANKS; r++) {
            feed(&job[r], (float)(1 + run));
            cr_assert_eq(weft_program_launch(job[r].program), WEFT_OK, "%s", weft_error_message());
        }
        const double want = first * pow(1 + run, 4); /* each sum doubles the power */
        for (int r = 0; r < RANKS; r++) {
            cr_expect_eq(sum_of(&job[r]), run ? want : first, "run %d: %g", run, sum_of(&job[r]));
            cr_expect_eq(weft_program_finish(job[r].program), WEFT_OK);
        }
    }
    const weft_comm_times times = weft_program_comm_times(job[0].program);
    cr_expect_eq(times.requests, 3);
    cr_expect(times.exposed >= 0 && times.busy > 0);
    end(job);
}

Test(gates, the_host_adds_a_run_before_its_messages_arrive)
{
    launch_in_turn(&weft_backend_far);
}

/* Rank 1 leaves: rank 0, whose stream waits at a gate, returns the reason. */
Test(gates, a_rank_that_fails_ends_the_stream_of_the_other)
{
    rank_job job[RANKS];
    begin(job, &weft_backend_far);
    run_both(job);
    cr_assert_eq(job[0].status, WEFT_OK, "%s", job[0].error);
    feed(&job[0], 1);
    cr_assert_eq(weft_program_launch(job[0].program), WEFT_OK);
    (void)weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_NOWHERE, "enough");
    weft_comm_abort(job[1].comm);
    cr_expect_eq(weft_program_finish(job[0].program), WEFT_E_COMM);
    cr_expect_eq(weft_error_class(), WEFT_MSG_RANK_FAILED, "%s", weft_error_message());
    cr_expect_eq(weft_error_fields()->rank, 1);
    end(job);
}

/* ---- pinned memory --------------------------------------------------------------------------- */

/* The device `far`, which counts what is allocated. */
static struct {
    int64_t bytes;
    int pinned;
} taken;

static void *count_alloc(const weft_device *device, int64_t bytes)
{
    taken.bytes += bytes;
    return weft_backend_far.device->alloc(device, bytes);
}

static void *count_pinned(const weft_device *device, int64_t bytes)
{
    taken.bytes += bytes;
    taken.pinned++;
    return weft_backend_far.device->alloc_host(device, bytes);
}

Test(gates, predicted_bytes_are_reserved_at_bind)
{
    weft_device device = *weft_backend_far.device;
    weft_backend backend = weft_backend_far;
    rank_job job[RANKS];
    weft_group *world;
    device.alloc = count_alloc;
    device.alloc_host = count_pinned;
    backend.device = &device;
    begin(job, &backend);
    const int64_t told = weft_program_bytes(job[0].program);
    weft_program_unbind(job[0].program);
    taken.bytes = taken.pinned = 0;
    cr_assert_eq(weft_comm_world(job[0].comm, &world), WEFT_OK);
    cr_assert_eq(weft_program_bind(job[0].program, job[0].store, world), WEFT_OK);
    cr_expect_eq(taken.bytes, told, "reserved %lld bytes, predicted %lld", (long long)taken.bytes,
                 (long long)told);
    cr_expect_eq(taken.pinned, 2, "messages; inputs, outputs and gates");
    taken.bytes = 0;
    run_both(job);
    cr_expect_eq(job[0].status, WEFT_OK, "%s", job[0].error);
    cr_expect_eq(taken.bytes, 0, "a run reserved %lld bytes", (long long)taken.bytes);
    end(job);
}

/* A program is compiled for a rank of a mesh and launched on any group of ranks. Also the cache of
 * such programs. */
#include "comm/comm.h"
#include "comm/comm_fake.h"
#include "comm/group.h"
#include "exec/execute.h"
#include "exec/program.h"
#include "exec/program_cache.h"
#include "graph/builder_helpers.h"
#include "graph/dump.h"
#include "graph/graph.h"
#include "transform/sharding/shard.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 8, LAUNCHES = 4, ROWS = 8, WIDTH = 3 };

/* Ranks of the job by mesh rank of "dp=2,tp=2". */
static const int groups[LAUNCHES][4] = {{0, 1, 2, 3}, {7, 1, 2, 5}, {4, 1, 6, 3}, {0, 1, 2, 3}};

/* Rows are split by dp, columns of w by tp: a sum over each axis. */
static const weft_recipe_row rows[] = {
    {"batch.*", "dp", {WEFT_S, 0}},
    {"w", "tp", {WEFT_S, 0}},
};
static const weft_recipe recipe = {"test", rows, sizeof rows / sizeof *rows};

static weft_graph *whole_graph(void)
{
    weft_graph *g = weft_graph_create();
    const weft_value x = weft_input(g, "batch.x", WEFT_F32, WEFT_SHAPE(ROWS, WIDTH)),
                     w = weft_param(g, "w", WEFT_F32, WEFT_SHAPE(4, WIDTH),
                                    (weft_init){WEFT_INIT_FILL, 2});
    weft_output(g, "sum", weft_sum_all(g, weft_matmul(g, x, w, false, true)));
    return g;
}

typedef struct rank_job {
    weft_comm *comm;
    int rank;
    double sum[LAUNCHES];
    weft_program *program[LAUNCHES]; /* which one was launched; for the places that stay */
    char error[300];
} rank_job;

static int place_in(const int *group, int rank)
{
    for (int i = 0; i < 4; i++)
        if (group[i] == rank)
            return i;
    return -1;
}

/* Rows of x hold 1 + the rank that feeds them. Both ranks of a tp pair must feed the same values,
 * so the first rank of the pair counts. */
static weft_status launch(rank_job *j, weft_program *p, weft_store *store, int l)
{
    weft_group *group;
    const int place = place_in(groups[l], j->rank);
    WEFT_TRY(weft_comm_group(j->comm, groups[l], 4, &group));
    WEFT_TRY(weft_program_bind(p, store, group));
    weft_tensor *x = weft_program_input(p, "batch.x");
    for (int64_t i = 0; i < weft_shape_count(&x->shape); i++)
        ((float *)x->data)[i] = (float)(1 + groups[l][place & 2]);
    const weft_status_code status = weft_program_run(p);
    j->sum[l] = status == WEFT_OK ? (double)*(const float *)weft_program_output(p, "sum")->data : 0;
    weft_program_unbind(p);
    return status;
}

typedef struct compiled {
    weft_graph *graph;
    weft_program *program;
} compiled;

static void release(void *value)
{
    compiled *c = value;
    weft_program_free(c->program);
    weft_graph_free(c->graph);
    weft_free(c);
}

static weft_status compile(weft_program_cache *cache, int place, compiled **out)
{
    weft_program_key key = {.index = place};
    weft_graph *whole = whole_graph();
    key.graph = weft_graph_hash(whole);
    weft_status_code status = weft_mesh_parse("dp=2,tp=2", &key.mesh);
    *out = status == WEFT_OK ? weft_program_cache_take(cache, &key) : NULL;
    if (!*out && status == WEFT_OK) {
        *out = weft_alloc(sizeof **out);
        status = weft_pass_shard(whole, &key.mesh, place, &recipe, &(*out)->graph);
        if (status == WEFT_OK)
            status = weft_program_compile((*out)->graph, &(weft_program_options){.guard = true},
                                          &(*out)->program);
        if (status == WEFT_OK)
            status = weft_program_cache_put(cache, &key, *out, 1);
    }
    weft_graph_free(whole);
    return status;
}

static weft_status run_launches(rank_job *j, weft_program_cache *cache)
{
    for (int l = 0; l < LAUNCHES; l++) {
        const int place = place_in(groups[l], j->rank);
        compiled *c;
        if (place < 0)
            continue;
        WEFT_TRY(compile(cache, place, &c));
        j->program[l] = c->program;
        weft_store *store = weft_store_create();
        weft_status_code status = weft_store_init(store, c->graph, 1);
        if (status == WEFT_OK)
            status = launch(j, c->program, store, l);
        weft_store_free(store);
        weft_program_cache_drop(cache, c);
        WEFT_TRY(status);
    }
    return WEFT_OK;
}

static void *rank_main(void *user)
{
    rank_job *j = user;
    weft_program_cache *cache = weft_program_cache_create(100, release);
    if (run_launches(j, cache) != WEFT_OK)
        snprintf(j->error, sizeof j->error, "%s", weft_error_message());
    weft_program_cache_free(cache);
    return NULL;
}

Test(launch, one_program_runs_on_any_group)
{
    weft_comm *comm[RANKS];
    rank_job job[RANKS];
    pthread_t thread[RANKS];
    cr_assert_eq(weft_comm_open_threads(RANKS, comm), WEFT_OK);
    for (int r = 0; r < RANKS; r++) {
        job[r] = (rank_job){.comm = comm[r], .rank = r};
        weft_comm_set_deadline(comm[r], 60);
        pthread_create(&thread[r], NULL, rank_main, &job[r]);
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(thread[r], NULL);
    for (int r = 0; r < RANKS; r++) {
        weft_comm_free(comm[r]);
        cr_expect_str_empty(job[r].error, "rank %d: %s", r, job[r].error);
        for (int l = 0; l < LAUNCHES; l++)
            if (place_in(groups[l], r) >= 0)
                cr_expect_eq(job[r].sum[l],
                             ROWS / 2 * WIDTH * 4 * 2 * (2 + groups[l][0] + groups[l][2]),
                             "launch %d, rank %d: %g", l, r, job[r].sum[l]);
    }
    for (int l = 1; l < LAUNCHES; l++)
        cr_expect_eq(job[1].program[l], job[1].program[0], "rank 1 is at place 1 each time");
}

Test(launch, groups_that_do_not_fit_are_refused)
{
    weft_comm *comm[3];
    weft_mesh mesh;
    weft_graph *whole = whole_graph(), *own;
    weft_program *p;
    weft_group *all, *two;
    cr_assert_eq(weft_comm_open_threads(3, comm), WEFT_OK);
    cr_assert_eq(weft_mesh_parse("dp=2", &mesh), WEFT_OK);
    cr_assert_eq(weft_pass_shard(whole, &mesh, 1, &weft_recipe_dp, &own), WEFT_OK);
    cr_assert_eq(weft_program_compile(own, NULL, &p), WEFT_OK, "%s", weft_error_message());
    weft_store *store = weft_store_create();
    cr_assert_eq(weft_store_init(store, own, 1), WEFT_OK);
    cr_expect_eq(weft_program_bind(p, store, NULL), WEFT_E_ARG);
    cr_assert_eq(weft_comm_world(comm[0], &all), WEFT_OK);
    cr_expect_eq(weft_program_bind(p, store, all), WEFT_E_ARG, "three ranks");
    cr_assert_eq(weft_comm_group(comm[0], (int[]){0, 2}, 2, &two), WEFT_OK);
    cr_expect_eq(weft_program_bind(p, store, two), WEFT_E_ARG, "the wrong place");
    cr_expect_eq(weft_error_class(), WEFT_MSG_ARGUMENT_INVALID, "%s", weft_error_message());
    cr_expect_eq(weft_error_fields()->rank, 1);
    cr_assert_eq(weft_comm_group(comm[0], (int[]){2, 0}, 2, &two), WEFT_OK);
    cr_expect_eq(weft_program_bind(p, store, two), WEFT_OK, "%s", weft_error_message());
    weft_program_free(p);
    weft_store_free(store);
    weft_graph_free(own);
    weft_graph_free(whole);
    for (int r = 0; r < 3; r++)
        weft_comm_free(comm[r]);
}

static int released;
static void count_release(void *value)
{
    (void)value;
    released++;
}

Test(launch, the_cache_forgets_what_was_used_longest_ago)
{
    int value[6];
    weft_program_cache *c = weft_program_cache_create(100, count_release);
    weft_program_key key[6];
    for (int i = 0; i < 6; i++) {
        key[i] = (weft_program_key){.graph = 7, .options = (uint64_t)i / 2, .index = i % 2};
        cr_assert_eq(weft_mesh_parse("dp=2", &key[i].mesh), WEFT_OK);
    }
    for (int i = 0; i < 3; i++) { /* 30 bytes each */
        cr_assert_eq(weft_program_cache_put(c, &key[i], &value[i], 30), WEFT_OK);
        weft_program_cache_drop(c, &value[i]);
    }
    cr_expect_eq(weft_program_cache_take(c, &key[0]), &value[0]);
    cr_assert_eq(weft_program_cache_put(c, &key[3], &value[3], 30), WEFT_OK);
    cr_expect_null(weft_program_cache_take(c, &key[1]), "the oldest went");
    cr_expect_eq(weft_program_cache_take(c, &key[2]), &value[2]);
    cr_assert_eq(weft_program_cache_put(c, &key[4], &value[4], 30), WEFT_OK);
    cr_expect_eq(weft_program_cache_count(c).bytes, 120, "all four are held");
    weft_program_cache_drop(c, &value[3]);
    cr_expect_eq(weft_program_cache_count(c).bytes, 90, "as soon as one may go");
    cr_expect_null(weft_program_cache_take(c, &key[3]));
    weft_program_key other = key[0];
    other.mesh.axis[0].name[0] = 't';
    cr_expect_null(weft_program_cache_take(c, &other), "another mesh");
    other = key[0];
    other.index = 1;
    other.options = 5;
    cr_expect_null(weft_program_cache_take(c, &other));
    cr_expect_eq(released, 2);
    cr_expect_eq(weft_program_cache_count(c).evicted, 2);
    weft_program_cache_free(c);
    cr_expect_eq(released, 5);
}

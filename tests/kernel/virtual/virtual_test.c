/* The virtual backend: real programs and collectives, simulated time, no memory. On the real clock
 * work is never shorter than simulated. The upper bound is tested on simulated clocks. */
#include "../../ranks_of.h"
#include "base/log.h"
#include "comm/comm.h"
#include "comm/comm_fake.h"
#include "comm/comm_request.h"
#include "comm/group.h"
#include "comm/link_model.h"
#include "exec/execute.h"
#include "exec/program.h"
#include "graph/autodiff.h"
#include "graph/builder_helpers.h"
#include "graph/graph.h"
#include "kernel/cpu/table.h"
#include "kernel/ref/table.h"
#include "kernel/registry/backend.h"
#include "kernel/virtual/virtual.h"
#include "transform/sharding/shard.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 2, LAYERS = 6, WIDTH = 8192, ROWS = 16384, RUNS = 2 };

/* A stack of linear layers with gradients, 1.5 GiB of weights and several of activations a rank. */
static weft_graph *deep(void)
{
    weft_graph *g = weft_graph_create();
    weft_value x = weft_input(g, "batch.x", WEFT_F32, WEFT_SHAPE(ROWS, WIDTH));
    for (int l = 0; l < LAYERS; l++) {
        char name[32];
        snprintf(name, sizeof name, "w%d", l);
        const weft_value w = weft_param(g, name, WEFT_F32, WEFT_SHAPE(WIDTH, WIDTH),
                                        (weft_init){WEFT_INIT_NORMAL, 0.02});
        x = weft_emit(g, WEFT_OP_LINEAR, (weft_value[]){x, w, WEFT_NONE}, 3,
                      &(weft_attr_linear){0});
        x = weft_unary(g, WEFT_OP_SILU, x);
    }
    weft_output(g, "objective", weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, x)));
    return g;
}

typedef struct rank_job {
    weft_backend *backend;
    weft_comm *comm;
    int rank;
    double clock; /* simulated seconds of this rank */
    double simulated, took, exposed;
    int64_t bytes, exchanges;
} rank_job;

static weft_status add_gradients(weft_graph *g)
{
    int count;
    const weft_value *params = weft_graph_params(g, &count);
    weft_value grad[LAYERS];
    weft_autodiff(g, weft_graph_find(g, "objective"), params, count, grad);
    for (int i = 0; i < count; i++) {
        const weft_value step = weft_affine(g, grad[i], -1e-3, 0);
        weft_update(g, params[i], weft_add(g, params[i], step));
    }
    return weft_graph_check(g);
}

static weft_status run_step(rank_job *j, weft_graph *g, weft_store *store)
{
    weft_program *p;
    weft_mesh mesh;
    WEFT_TRY(weft_mesh_parse("dp=2", &mesh));
    const weft_program_options options = {.backend = j->backend, .mesh = &mesh};
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        if (j->backend->kernel[weft_graph_node(g, n)->op])
            j->simulated +=
                weft_virtual_seconds(weft_backend_virtual_rates(j->backend),
                                     weft_graph_node(g, n)->op, WEFT_F32, weft_node_cost(g, n));
    WEFT_TRY(weft_store_init(store, g, 1));
    WEFT_TRY(weft_program_compile(g, &options, &p));
    weft_group *group;
    weft_status_code status = weft_comm_world(j->comm, &group);
    if (status == WEFT_OK)
        status = weft_program_bind(p, store, group);
    for (int run = 0; run < RUNS && status == WEFT_OK; run++) {
        const double begin = j->clock;
        status = weft_program_run(p);
        j->took = j->clock - begin;
        j->exposed = weft_program_comm_times(p).exposed;
    }
    j->bytes = weft_program_bytes(p) + weft_store_bytes(store);
    j->exchanges = weft_program_comm_times(p).requests;
    weft_program_free(p);
    return status;
}

static weft_status_code train(void *user)
{
    rank_job *j = user;
    weft_graph *whole = deep(), *own = NULL;
    weft_mesh mesh;
    weft_store *store = weft_store_create_on(j->backend->device);
    weft_status_code status = weft_mesh_parse("dp=2", &mesh);
    if (status == WEFT_OK)
        status = weft_pass_shard(whole, &mesh, j->rank, &weft_recipe_dp, &own);
    if (status == WEFT_OK)
        status = add_gradients(own);
    if (status == WEFT_OK)
        status = run_step(j, own, store);
    weft_store_free(store);
    weft_graph_free(own);
    weft_graph_free(whole);
    return status;
}

/* Bytes of physical memory that the process holds. */
static int64_t resident(void)
{
    long pages = 0, all;
    FILE *f = fopen("/proc/self/statm", "r");
    cr_assert_not_null(f);
    cr_assert_eq(fscanf(f, "%ld %ld", &all, &pages), 2);
    fclose(f);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

/* Two nodes over 80 Gbit/s. Sums are exchanged while kernels compute, and at worst after them. */
Test(virtual, a_step_needs_the_simulated_time_and_no_memory)
{
    weft_link_model model;
    weft_comm *comm[RANKS];
    rank_job job[RANKS];
    const int64_t before = resident();
    cr_assert_eq(weft_link_model_parse("80 Gbit/s, 5 us", &model), WEFT_OK);
    model.clocked = true;
    cr_assert_eq(weft_comm_open_threads_linked(RANKS, &model, comm), WEFT_OK);
    for (int r = 0; r < RANKS; r++) {
        job[r] = (rank_job){.comm = comm[r], .rank = r};
        const weft_virtual_rates rates = {
            .flops = 300e12, .bytes = 2e12, .launch = 1e-5, .scale = 1, .clock = &job[r].clock};
        cr_assert_eq(weft_backend_virtual_create(&rates, &job[r].backend), WEFT_OK);
    }
    run_ranks("a step", RANKS, comm, train, job, sizeof *job);
    for (int r = 0; r < RANKS; r++) {
        cr_expect_gt(job[r].bytes, (int64_t)5 << 30);
        cr_expect_gt(job[r].exchanges, 0, "gradients are summed");
        cr_expect_geq(job[r].took, 0.99 * job[r].simulated, "%g s, simulated %g", job[r].took,
                      job[r].simulated);
        cr_expect_leq(job[r].took, 1.01 * (job[r].simulated + job[r].exposed),
                      "%g s, simulated %g, waited for reductions %g", job[r].took, job[r].simulated,
                      job[r].exposed);
        weft_backend_virtual_free(job[r].backend);
    }
    cr_expect_lt(resident() - before, (int64_t)512 << 20, "%" PRId64 " bytes became resident",
                 resident() - before);
}

typedef struct time_of_steps {
    double simulated;      /* seconds of a step by the rates */
    double took, profiled; /* seconds of a step by the clock, and by the profile of its nodes */
} time_of_steps;

/* `clock` NULL: the real clock. */
static time_of_steps run_steps(double scale, double *clock)
{
    enum { STEPS = 3 };
    weft_virtual_rates rates = {.flops = 100e12, .bytes = 1e12, .scale = scale, .clock = clock};
    weft_backend *backend;
    weft_program *p;
    cr_assert_eq(weft_backend_virtual_create(&rates, &backend), WEFT_OK);
    weft_graph *g = deep();
    weft_store *store = weft_store_create_on(backend->device);
    time_of_steps t = {0};
    cr_assert_eq(add_gradients(g), WEFT_OK, "%s", weft_error_message());
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        if (backend->kernel[weft_graph_node(g, n)->op])
            t.simulated += scale * weft_virtual_seconds(&rates, weft_graph_node(g, n)->op, WEFT_F32,
                                                        weft_node_cost(g, n));
    cr_assert_eq(weft_store_init(store, g, 1), WEFT_OK, "%s", weft_error_message());
    const weft_program_options options = {.backend = backend, .profile = true};
    cr_assert_eq(weft_program_compile(g, &options, &p), WEFT_OK);
    cr_assert_eq(weft_program_bind(p, store, NULL), WEFT_OK, "%s", weft_error_message());
    const double begin = clock ? *clock : weft_now();
    for (int run = 0; run < STEPS; run++)
        cr_assert_eq(weft_program_run(p), WEFT_OK, "%s", weft_error_message());
    t.took = ((clock ? *clock : weft_now()) - begin) / STEPS;
    int64_t runs;
    const double *seconds = weft_program_seconds(p, &runs);
    for (int32_t n = 0; n < weft_graph_node_count(g); n++)
        t.profiled += seconds[n] / (double)runs;
    weft_program_free(p);
    weft_store_free(store);
    weft_graph_free(g);
    weft_backend_virtual_free(backend);
    return t;
}

/* One rank, no collectives. */
Test(virtual, time_is_scaled)
{
    const double scales[] = {1, 0.25};
    for (int i = 0; i < 2; i++) {
        double clock = 0;
        time_of_steps t = run_steps(scales[i], &clock);
        cr_expect(t.took >= t.simulated && t.took < 1.01 * t.simulated, "%g s of %g", t.took,
                  t.simulated); /* and inputs are filled */
        t = run_steps(scales[i], NULL);
        cr_expect_geq(t.took, 0.99 * t.simulated, "%g s of %g", t.took, t.simulated);
        cr_expect_geq(t.profiled, 0.99 * t.simulated, "%g s of %g", t.profiled, t.simulated);
    }
}

#ifndef __SANITIZE_THREAD__ /* whose addresses do not reach so far */
Test(virtual, memory_of_any_size_can_be_written)
{
    const int64_t bytes = (int64_t)1 << 40, before = resident();
    char *data = weft_device_virtual.alloc(&weft_device_virtual, bytes);
    cr_assert_not_null(data);
    for (int64_t at = 0; at < bytes; at += (int64_t)1 << 30)
        data[at] = 1;
    data[bytes - 1] = 1;
    cr_expect_lt(resident() - before, (int64_t)160 << 20);
    weft_device_virtual.free(&weft_device_virtual, data);
}
#endif

Test(virtual, stores_and_programs_share_a_device)
{
    weft_graph *g = weft_graph_create();
    weft_program *p;
    weft_output(g, "y", weft_affine(g, weft_input(g, "x", WEFT_F32, WEFT_SHAPE(3)), 2, 0));
    cr_assert_eq(weft_program_compile(
                     g, &(weft_program_options){.backend = weft_backend_find("virtual")}, &p),
                 WEFT_OK);
    weft_store *store = weft_store_create();
    cr_expect_eq(weft_program_bind(p, store, NULL), WEFT_E_ARG);
    cr_expect(strstr(weft_error_text(), "weft_store_create_on"), "%s", weft_error_message());
    weft_store_free(store);
    weft_program_free(p);
    weft_graph_free(g);
}

Test(virtual, backends_are_found_by_name)
{
    weft_backend other = *weft_backend_find("virtual");
    cr_expect_eq(weft_backend_find("cpu"), &weft_backend_cpu);
    cr_expect_eq(weft_backend_find("ref"), &weft_backend_ref);
    cr_expect_null(weft_backend_find("plugin"));
    cr_expect_eq(weft_backend_add(&other), WEFT_E_ARG, "there is one of that name");
    other.name = "plugin";
    cr_expect_eq(weft_backend_add(&other), WEFT_OK, "%s", weft_error_message());
    cr_expect_eq(weft_backend_find("plugin"), &other);
    cr_expect(strstr(weft_backend_names(), "plugin"));
    static weft_backend lacking;
    lacking = other;
    lacking.name = "lacking";
    lacking.kernel[WEFT_OP_MATMUL] = NULL;
    cr_expect_eq(weft_backend_add(&lacking), WEFT_E_ARG);
    cr_expect(strstr(weft_error_message(), "matmul"), "%s", weft_error_message());
}

/* ---- simulated time ------------------------------------------------------------------------- */

enum { CLOCKED = 4, TURNS = 5 };

typedef struct clocked_rank {
    weft_comm *comm;
    double now;
    double seen[TURNS]; /* times of its clock */
} clocked_rank;

/* Every rank computes for longer than the one before it, then a megabyte goes down the line, then
 * all add 64 MiB up. */
static weft_status_code run_clocked(void *user)
{
    clocked_rank *r = user;
    const weft_virtual_rates rates = {
        .flops = 1e12, .bytes = 1e18, .launch = 0, .scale = 1, .clock = &r->now};
    const int self = weft_comm_rank(r->comm);
    const int64_t few = 1 << 18, many = 16 << 20;
    const weft_shape shape = WEFT_SHAPE(many);
    weft_backend *backend;
    weft_device_stream *work, *stream;
    weft_group *world;
    weft_comm_request *in = NULL, *out = NULL, *sum = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_backend_virtual_create(&rates, &backend));
    WEFT_TRY(backend->device->open(backend->device, backend, &work));
    WEFT_TRY(backend->device->open(backend->device, backend, &stream));
    WEFT_TRY(weft_comm_world(r->comm, &world));
    char *data = backend->device->alloc(backend->device, 4 * many), *scratch = NULL;
    if (self > 0)
        WEFT_GO(weft_comm_request_create_recv(CLOCKED, self, self - 1, few, WEFT_F32, "x", &in));
    if (self + 1 < CLOCKED)
        WEFT_GO(weft_comm_request_create_send(CLOCKED, self, self + 1, few, WEFT_F32, "x", &out));
    WEFT_GO(weft_comm_request_create(CLOCKED, self, WEFT_OP_ALL_REDUCE, &(weft_attr_comm){0},
                                     &shape, &shape, WEFT_F32, "y", &sum));
    scratch = backend->device->alloc(backend->device, weft_comm_request_scratch(sum));
    for (int i = 0; i < 3; i++) {
        weft_comm_request *x = i == 0 ? in : i == 1 ? out : sum;
        if (!x)
            continue;
        WEFT_GO(weft_comm_request_attach(x, world, WEFT_CHANNEL_LAYERS));
        weft_comm_request_set_device(x, backend->device, stream);
        weft_comm_request_bind(x, data, data, scratch);
    }
    for (int turn = 0; turn < TURNS; turn++) {
        const weft_kernel_args args = {
            .op = WEFT_OP_LINEAR, .cost = {.flops = (self + 1) * (int64_t)1e9}, .stream = work};
        WEFT_GO(backend->kernel[WEFT_OP_LINEAR]->run(&args));
        WEFT_GO(backend->device->wait(work));
        for (int i = 0; i < 3; i++) {
            weft_comm_request *x = i == 0 ? in : i == 1 ? out : sum;
            if (!x)
                continue;
            weft_comm_request_start(x);
            WEFT_GO(weft_comm_request_wait(x));
            if (i == 1 && turn == 0) /* the first rank sends when it has computed */
                r->seen[0] = r->now;
        }
        r->seen[turn] = turn ? r->now : r->seen[0];
    }
out:
    weft_comm_request_free(in);
    weft_comm_request_free(out);
    weft_comm_request_free(sum);
    backend->device->free(backend->device, data);
    backend->device->free(backend->device, scratch);
    backend->device->close(work);
    backend->device->close(stream);
    weft_backend_virtual_free(backend);
    return status;
}

static void run_world(clocked_rank *rank)
{
    /* 8 GB/s, 2 ms; two ranks a node, where it is 80 GB/s, 1 ms */
    weft_link_model model;
    weft_comm *comm[CLOCKED];
    cr_assert_eq(
        weft_link_model_parse("64 Gbit/s, 2000 us, 2 per node; inside 640 Gbit/s, 1000 us", &model),
        WEFT_OK);
    model.clocked = true;
    cr_assert_eq(weft_comm_open_threads_linked(CLOCKED, &model, comm), WEFT_OK);
    for (int r = 0; r < CLOCKED; r++) {
        rank[r] = (clocked_rank){.comm = comm[r]};
    }
    run_ranks("a world", CLOCKED, comm, run_clocked, rank, sizeof *rank);
}

/* Clocks have the computed times, bitwise identical in each run, for any order of the threads. */
Test(virtual, messages_carry_the_time)
{
    clocked_rank first[CLOCKED], again[CLOCKED];
    const double megabyte = 4.0 * (1 << 18), inside = megabyte / 80e9, between = megabyte / 8e9;
    run_world(first);
    /* a rank waits for the later event: the end of its compute, or the message with its latency */
    double there = 1e-3 + inside + 1e-3; /* at rank 1, which has computed for 2 ms */
    cr_expect_float_eq(first[0].seen[0], 1e-3 + inside, 1e-12);
    cr_expect_float_eq(first[1].seen[0], fmax(there, 2e-3) + between, 1e-12);
    there = fmax(there, 2e-3) + between + 2e-3;
    cr_expect_float_eq(first[2].seen[0], fmax(there, 3e-3) + inside, 1e-12);
    for (int i = 0; i < 4; i++) {
        run_world(again);
        for (int r = 0; r < CLOCKED; r++)
            cr_expect_arr_eq(first[r].seen, again[r].seen, sizeof first[r].seen,
                             "rank %d: other times", r);
    }
    /* 64 MiB are summed between two nodes: each link carries half of it twice at least */
    const double least = (double)(64 << 20) / 8e9;
    for (int t = 1; t < TURNS; t++)
        cr_expect_geq(first[0].seen[t], (t + 1) * least, "%g s, at least %g", first[0].seen[t],
                      (t + 1) * least);
    cr_expect_leq(first[0].seen[TURNS - 1], 1.0, "%g s", first[0].seen[TURNS - 1]);
}

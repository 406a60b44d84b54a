/* A data-parallel training loop of a small network under mpirun, written with the collectives by
 * hand:
 *   ranks train STEPS [plain|order] [BACKEND]
 *                                       prints every loss and a checksum of the weights, in
 *                                       hexadecimal
 *   ranks overlap STEPS [plain|order]   a larger one; prints the share of the communication that is
 *                                       hidden behind compute
 *   ranks link                          seconds that 4 MB take from the first rank to the last
 *   ranks gpus                          prints, as JSON, the rates of the connections of all GPUs
 *   ranks place                         prints the local rank, its GPU, and the cores that it may use
 *   ranks quiet                         microseconds of each sleep between polls of the first rank,
 *                                       which computes while an expected message does not arrive
 *   ranks stall | kill | fail           prints, as JSON, the errors of the other ranks when rank 1
 *                                       sleeps, is killed, or has an error */
#include "base/log.h"
#include "comm/comm.h"
#include "comm/comm_mpi.h"
#include "comm/comm_request.h"
#include "comm/comm_world.h"
#include "comm/group.h"
#include "comm/link_rates.h"
#include "comm/rank_gpus.h"
#include "exec/execute.h"
#include "exec/program.h"
#include "exec/store/tensor_copy.h"
#include "graph/autodiff.h"
#include "graph/builder_helpers.h"
#include "graph/graph.h"
#include "kernel/cuda/cuda_device.h"
#include "kernel/cuda/cuda_gpu.h"
#include "kernel/device.h"
#include "kernel/registry/backend.h"
#include "transform/memory/comm_order.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

enum { BATCH = 12, WIDTH = 24, LAYERS = 4 };
enum { LARGE_BATCH = 1536, LARGE_WIDTH = 512 };

typedef struct setup {
    weft_mesh mesh;
    int rank, ranks;
    int64_t start, len; /* this rank's samples */
    int64_t batch, width;
} setup;

static weft_value reduce(weft_graph *g, weft_value term)
{
    return weft_emit(g, WEFT_OP_ALL_REDUCE, &term, 1, &(weft_attr_comm){.axis = 0});
}

/* x -> LAYERS of silu(x w^T + b) -> mean square error to y over the whole batch; AdamW. */
static weft_graph *network(const setup *s)
{
    weft_graph *g = weft_graph_create();
    if (s->ranks > 1)
        weft_graph_set_mesh(g, &s->mesh, s->rank);
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(s->len, s->width));
    const weft_value y = weft_input(g, "y", WEFT_F32, WEFT_SHAPE(s->len, s->width));
    if (s->ranks > 1) { /* each rank has its samples */
        const weft_layout split[WEFT_MAX_AXES] = {{WEFT_S, 0}};
        weft_graph_set_layout(g, x, split);
        weft_graph_set_layout(g, y, split);
    }
    weft_value param[2 * LAYERS], grad[2 * LAYERS];
    for (int l = 0; l < LAYERS; l++) {
        weft_graph_push(g, "layers.%d", l);
        param[2 * l] = weft_param(g, "weight", WEFT_F32, WEFT_SHAPE(s->width, s->width),
                                  (weft_init){WEFT_INIT_NORMAL, 0.3});
        param[2 * l + 1] = weft_param(g, "bias", WEFT_F32, WEFT_SHAPE(s->width),
                                      (weft_init){WEFT_INIT_NORMAL, 0.1});
        weft_value in[3] = {x, param[2 * l], param[2 * l + 1]};
        for (int i = 1; i < 3 && s->ranks > 1; i++)
            in[i] = weft_emit(g, WEFT_OP_VARY, &in[i], 1, &(weft_attr_comm){.axis = 0});
        x = weft_unary(g, WEFT_OP_SILU,
                       weft_emit(g, WEFT_OP_LINEAR, in, 3, &(weft_attr_linear){WEFT_ACT_NONE}));
        weft_graph_pop(g);
    }
    const weft_value error = weft_sub(g, x, y);
    weft_value loss = weft_affine(g, weft_sum_all(g, weft_mul(g, error, error)),
                                  1.0 / ((double)(s->batch * s->width)), 0);
    if (s->ranks > 1)
        loss = reduce(g, loss);
    weft_autodiff(g, loss, param, 2 * LAYERS, grad);
    const weft_value lr = weft_fill(g, WEFT_F32, WEFT_SCALAR, 1e-2),
                     one = weft_fill(g, WEFT_F32, WEFT_SCALAR, 1);
    const weft_value step = weft_input(g, "step", WEFT_F32, WEFT_SCALAR);
    for (int i = 0; i < 2 * LAYERS; i++) {
        const weft_shape shape = weft_value_get(g, param[i])->shape;
        char name[32];
        snprintf(name, sizeof name, "m.%d", i);
        const weft_value m = weft_state(g, name, WEFT_F32, shape, (weft_init){0});
        name[0] = 'v';
        const weft_value v = weft_state(g, name, WEFT_F32, shape, (weft_init){0});
        weft_value out[WEFT_MAX_OUTPUTS];
        weft_emit_all(g, WEFT_OP_ADAMW, (weft_value[]){param[i], grad[i], m, v, lr, step, one}, 7,
                      &(weft_attr_adamw){0.9, 0.99, 1e-8, 0.01}, out);
        weft_update(g, param[i], out[0]);
        weft_update(g, m, out[1]);
        weft_update(g, v, out[2]);
    }
    weft_output(g, "loss", loss);
    return g;
}

static void feed(weft_program *p, const setup *s, int step)
{
    float *x = weft_program_input(p, "x")->data, *y = weft_program_input(p, "y")->data;
    for (int64_t i = 0; i < s->len * s->width; i++) {
        x[i] = weft_random_normal(1, WEFT_RNG_TEST,
                                  (uint64_t)(s->start * s->width + i + (step % 3) * 100000));
        y[i] = weft_random_normal(2, WEFT_RNG_TEST,
                                  (uint64_t)(s->start * s->width + i + (step % 3) * 100000));
    }
    *(float *)weft_program_input(p, "step")->data = (float)step;
}

static uint64_t checksum(weft_store *store)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < weft_store_count(store); i++) {
        const weft_tensor *t = weft_store_at(store, i);
        const void *data;
        void *made = NULL;
        if (weft_tensor_on_host(t, &data, &made) == WEFT_OK)
            sum = weft_seed_mix(sum, XXH64(data, (size_t)weft_shape_count(&t->shape) * 4, 0));
        weft_free(made);
    }
    return sum;
}

/* Rank 1 fails at step 3. */
static weft_status trouble(const char *mode, const setup *s, weft_comm *comm, int step)
{
    if (s->rank != 1 || step != 3)
        return WEFT_OK;
    while (!strcmp(mode, "stall"))
        pause(); /* until the launcher ends this rank */
    if (!strcmp(mode, "kill"))
        raise(SIGKILL);
    if (!strcmp(mode, "fail")) {
        const weft_status_code status =
            weft_error(WEFT_MSG_LOSS_NOT_FINITE, WEFT_NOWHERE, "the loss is not a number");
        weft_comm_abort(comm);
        return status;
    }
    return WEFT_OK;
}

static weft_status train(const char *mode, int steps, bool ordered, const weft_backend *backend,
                         weft_comm *comm)
{
    setup s = {.rank = weft_comm_rank(comm), .ranks = weft_comm_ranks(comm)};
    s.mesh = (weft_mesh){.axis_count = 1, .axis[0] = {"dp", s.ranks}};
    const bool large = !strcmp(mode, "overlap");
    s.batch = large ? LARGE_BATCH : BATCH;
    s.width = large ? LARGE_WIDTH : WIDTH;
    weft_part(s.batch, s.ranks, s.rank, &s.start, &s.len);
    weft_graph *g = network(&s), *final = NULL;
    weft_store *store = weft_store_create_on(backend->device);
    weft_program *p = NULL;
    weft_status_code status = WEFT_OK;
    if (ordered)
        WEFT_GO(weft_pass_order(g, 0, &final));
    const weft_program_options options = {.guard = !large && !weft_device_is_apart(backend->device),
                                          .no_overlap = large && !ordered,
                                          .backend = backend};
    WEFT_GO(weft_store_init(store, g, 3));
    WEFT_GO(weft_program_compile(ordered ? final : g, &options, &p));
    weft_group *group;
    WEFT_GO(weft_comm_world(comm, &group));
    WEFT_GO(weft_program_bind(p, store, group));
    for (int step = 1; step <= steps; step++) {
        WEFT_GO(trouble(mode, &s, comm, step));
        feed(p, &s, step);
        const double begin = weft_now();
        WEFT_GO(weft_program_run(p));
        const double seconds = weft_now() - begin;
        const weft_comm_times times = weft_program_comm_times(p);
        if (large && s.rank == 0 && step > 1)
            printf("%d exchanges, %.1f MB sent, %.1f ms on the wire, %.1f ms exposed, hidden %.0f "
                   "%%, step %.1f ms\n",
                   times.requests, (double)times.wire_bytes * 1e-6, times.busy * 1e3,
                   times.exposed * 1e3, 100 * (1 - times.exposed / times.busy), seconds * 1e3);
        const float loss = *(const float *)weft_program_output(p, "loss")->data;
        if (s.rank == 0)
            printf("step %d loss %a %.9g\n", step, (double)loss, (double)loss);
    }
    uint64_t mine = checksum(store), all[64];
    WEFT_GO(weft_comm_all_gather(comm, &mine, sizeof mine, all));
    for (int r = 0; r < s.ranks && s.rank == 0; r++)
        printf("weights of rank %d: %016" PRIx64 "\n", r, all[r]);
out:
    weft_program_free(p);
    weft_store_free(store);
    weft_graph_free(final);
    weft_graph_free(g);
    return status;
}

/* The best of three. */
static weft_status time_link(weft_comm *comm)
{
    enum { BYTES = 4000000 };
    const int rank = weft_comm_rank(comm), last = weft_comm_ranks(comm) - 1;
    char *data = weft_alloc(BYTES);
    double best = 1e9;
    weft_group *world;
    weft_status_code status = data ? WEFT_OK : weft_no_memory("the test");
    if (status == WEFT_OK)
        status = weft_comm_world(comm, &world);
    for (int i = 0; i < 3 && status == WEFT_OK; i++) {
        WEFT_GO(weft_comm_barrier(comm));
        const double begin = weft_now();
        if (rank == 0)
            WEFT_GO(weft_group_send(world, WEFT_CHANNEL_STAGES, last, data, BYTES));
        if (rank == last)
            WEFT_GO(weft_group_recv(world, WEFT_CHANNEL_STAGES, 0, data, BYTES));
        const double took = weft_now() - begin;
        best = took < best ? took : best;
    }
    WEFT_GO(weft_comm_barrier(comm));
    if (rank == last)
        printf("%.6f\n", best);
out:
    weft_free(data);
    return status;
}

static weft_status measure_gpus(weft_comm *comm)
{
    weft_group *world;
    weft_link_rates rates;
    WEFT_TRY(weft_comm_world(comm, &world));
    WEFT_TRY(weft_link_rates_measure(world, &weft_device_cuda, 1 << 20, &rates));
    printf("{\"library\": \"%s\", \"ring\": %g, \"all_reduce\": %g}\n",
           rates.library ? rates.library : "", rates.ring, rates.all_reduce);
    return WEFT_OK;
}

static weft_status print_place(weft_comm *comm)
{
    const weft_cuda_gpu *gpu;
    cpu_set_t cores;
    WEFT_TRY(weft_rank_gpus_choose("cuda", comm));
    WEFT_TRY(weft_cuda_gpu_get(&gpu));
    printf("%d: GPU %d, cores", weft_cuda_local_rank(), gpu->ordinal);
    sched_getaffinity(0, sizeof cores, &cores);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &cores))
            printf(" %d", i);
    printf("\n");
    return WEFT_OK;
}

/* ---- polls ----------------------------------------------------------------------------------- */

/* Sleeps that the communication thread requests: the load of the machine does not change the
 * requests. It reads the clock and then waits until a time on it. */
enum { LOOKS = 60 };
static struct {
    atomic_bool on;
    atomic_int count;
    int64_t ns[LOOKS];
} looks;

#if !defined __SANITIZE_THREAD__ && !defined __SANITIZE_ADDRESS__
static _Thread_local struct timespec last_read;

static int64_t ns_between(struct timespec from, struct timespec to)
{
    return (to.tv_sec - from.tv_sec) * 1000000000LL + (to.tv_nsec - from.tv_nsec);
}

/* Replaces the function of the C library. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    const long result = syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_MONOTONIC)
        last_read = *now;
    return (int)result;
}

int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                           const struct timespec *until)
{
    const int64_t ns = ns_between(last_read, *until);
    const bool monotonic = ns >= 0 && ns < 1000000000;
    const int count = atomic_load(&looks.count);
    if (monotonic && atomic_load(&looks.on) && count < LOOKS) {
        looks.ns[count] = ns;
        atomic_store(&looks.count, count + 1);
    }
    return pthread_cond_clockwait(cond, mutex, monotonic ? CLOCK_MONOTONIC : CLOCK_REALTIME, until);
}
#endif

/* Rank 1 sends when rank 0 has polled LOOKS times; a file signals that. */
static weft_status list_looks(weft_comm *comm)
{
    static const char file[] = "looked";
    char byte = 0;
    weft_group *world;
    weft_comm_request *x;
    WEFT_TRY(weft_comm_world(comm, &world));
    if (weft_comm_rank(comm) == 0)
        remove(file);
    WEFT_TRY(weft_comm_barrier(comm));
    if (weft_comm_rank(comm) == 1) {
        while (access(file, F_OK) != 0)
            usleep(1000);
        return weft_group_send(world, WEFT_CHANNEL_HANDOFF, 0, &byte, 1);
    }
    WEFT_TRY(weft_comm_request_create_recv(2, 0, 1, 1, WEFT_U8, "a byte", &x));
    WEFT_TRY(weft_comm_request_attach(x, world, WEFT_CHANNEL_HANDOFF));
    weft_comm_request_bind(x, &byte, &byte, NULL);
    atomic_store(&looks.on, true);
    weft_comm_request_start(x);
    while (atomic_load(&looks.count) < LOOKS)
        sched_yield(); /* computes */
    fclose(fopen(file, "w"));
    const weft_status_code status = weft_comm_request_wait(x);
    weft_comm_request_free(x);
    for (int i = 0; i < LOOKS; i++)
        printf("%.0f\n", 1e-3 * (double)looks.ns[i]);
    return status;
}

static void print_error(void)
{
    char *line = weft_message_json("error", NULL, weft_error_class(), weft_error_fields(),
                                   weft_error_message());
    fprintf(stderr, "%s\n", line ? line : weft_error_message());
    weft_free(line);
}

int main(int argc, char **argv)
{
    weft_comm *comm = NULL;
    const char *mode = argc > 1 ? argv[1] : "train";
    weft_status_code status = weft_comm_open_mpi(&comm);
    if (status == WEFT_OK) {
        weft_comm_set_deadline(comm, !strcmp(mode, "stall") ? 3 : 1e9);
        if (!strcmp(mode, "link"))
            status = time_link(comm);
        else if (!strcmp(mode, "gpus"))
            status = measure_gpus(comm);
        else if (!strcmp(mode, "place"))
            status = print_place(comm);
        else if (!strcmp(mode, "quiet"))
            status = list_looks(comm);
        else
            status =
                train(mode, argc > 2 ? atoi(argv[2]) : 5, argc > 3 && !strcmp(argv[3], "order"),
                      weft_backend_find(argc > 4 ? argv[4] : "cpu"), comm);
    }
    if (status != WEFT_OK)
        print_error();
    weft_comm_free(comm);
    return status == WEFT_OK ? 0 : 3;
}

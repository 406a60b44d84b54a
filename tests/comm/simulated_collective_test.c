/* Collectives of equal ranks that run for all members in one thread: the same times, messages and
 * bytes as messages through the transport, and each plan is made once for all layers and groups. */
#include "comm/coll_plans.h"
#include "comm/comm_fake.h"
#include "comm/comm_internal.h"
#include "comm/comm_request.h"
#include "graph/graph.h"
#include "kernel/virtual/virtual.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

enum { RANKS = 8, PER_NODE = 2, KINDS = 6, LAYERS = 3, GROUPS = 2 };

typedef struct outcome {
    double end[RANKS][LAYERS][KINDS][GROUPS];
    int64_t messages[RANKS], bytes[RANKS];
    weft_coll_plans_made made;
} outcome;

typedef struct job {
    weft_comm *comm;
    int rank;
    weft_comm_request *(*like)[KINDS]; /* [GROUPS] requests of member 0 */
    outcome *out;
} job;

/* Parts of equal size, as equal ranks have them. A small cut makes several segments. */
static weft_comm_request *make_like(int ranks, int kind)
{
    const weft_shape part = WEFT_SHAPE(3, 16, 1000), all = WEFT_SHAPE(3 * ranks, 16, 1000),
                     wide = WEFT_SHAPE(3, 16 * ranks, 1000);
    const int64_t pieces[] = {1000, 7, 3001};
    weft_comm_request *x = NULL;
    weft_status_code status = WEFT_OK;
    switch (kind) {
    case 0:
        status = weft_comm_request_create(ranks, 0, WEFT_OP_ALL_REDUCE, &(weft_attr_comm){0}, &part,
                                          &part, WEFT_F32, "a", &x);
        break;
    case 1:
        status = weft_comm_request_create(ranks, 0, WEFT_OP_ALL_REDUCE, &(weft_attr_comm){0}, &part,
                                          &part, WEFT_BF16, "b", &x);
        break;
    case 2:
        status = weft_comm_request_create(ranks, 0, WEFT_OP_ALL_GATHER, &(weft_attr_comm){.dim = 0},
                                          &part, &all, WEFT_F32, "c", &x);
        break;
    case 3:
        status =
            weft_comm_request_create(ranks, 0, WEFT_OP_REDUCE_SCATTER, &(weft_attr_comm){.dim = 1},
                                     &wide, &part, WEFT_F32, "d", &x);
        break;
    case 4:
        status = weft_comm_request_create(ranks, 0, WEFT_OP_ALL_TO_ALL,
                                          &(weft_attr_comm){.dim = 0, .dim2 = 1}, &wide, &all,
                                          WEFT_F32, "e", &x);
        break;
    default:
        status = weft_comm_request_create_bundle(ranks, 0, WEFT_F32, pieces, 3, "f", &x);
        break;
    }
    cr_assert_eq(status, WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_comm_request_cut(x, 64 << 10), WEFT_OK, "%s", weft_error_message());
    return x;
}

static void run_one(job *j, weft_group *group, const weft_comm_request *like, double *clock,
                    weft_device_stream *stream, double *end)
{
    weft_comm_request *x;
    char *memory = weft_device_empty.alloc(&weft_device_empty, 1 << 20);
    cr_assert_eq(weft_comm_request_create_like(like, weft_group_index(group), &x), WEFT_OK, "%s",
                 weft_error_message());
    weft_comm_request_set_device(x, &weft_device_empty, stream);
    cr_assert_eq(weft_comm_request_attach(x, group, WEFT_CHANNEL_GRADIENTS), WEFT_OK, "%s",
                 weft_error_message());
    if (x->buffers.piece_count)
        weft_comm_request_bind_bundle(x, memory);
    else
        weft_comm_request_bind(x, memory, memory + 64, memory);
    *clock += 1e-6 * j->rank;
    weft_comm_request_start(x);
    cr_assert_eq(weft_comm_request_wait(x), WEFT_OK, "%s", weft_error_message());
    *end = x->simulated.end;
    weft_comm_request_free(x);
}

static void *run_rank(void *user)
{
    job *j = user;
    double clock = 0;
    const weft_virtual_rates rates = {
        .flops = 1e12, .bytes = 1e12, .launch = 5e-6, .scale = 1, .clock = &clock, .empty = true};
    weft_backend *backend;
    weft_device_stream *stream;
    weft_group *group[GROUPS];
    int half[RANKS / 2];
    for (int i = 0; i < RANKS / 2; i++)
        half[i] = 2 * i + j->rank % 2;
    cr_assert_eq(weft_backend_virtual_create(&rates, &backend), WEFT_OK);
    cr_assert_eq(weft_device_empty.open(&weft_device_empty, backend, &stream), WEFT_OK);
    cr_assert_eq(weft_comm_world(j->comm, &group[0]), WEFT_OK);
    cr_assert_eq(weft_comm_group(j->comm, half, RANKS / 2, &group[1]), WEFT_OK);
    for (int l = 0; l < LAYERS; l++)
        for (int k = 0; k < KINDS; k++)
            for (int g = 0; g < GROUPS; g++)
                run_one(j, group[g], j->like[g][k], &clock, stream, &j->out->end[j->rank][l][k][g]);
    weft_comm_sent(j->comm, &j->out->messages[j->rank], &j->out->bytes[j->rank]);
    weft_comm_leave(j->comm);
    weft_device_empty.close(stream);
    weft_backend_virtual_free(backend);
    return NULL;
}

/* Runs all ranks: together over the links of `cluster`, or through the transport if it is NULL. */
static void play(const weft_cluster *cluster, weft_comm_request *(*like)[KINDS], outcome *out)
{
    const weft_link_model links = {.between = {.bytes_per_second = 1e9, .latency = 3e-6},
                                   .inside = {.bytes_per_second = 1e10, .latency = 1e-6},
                                   .per_node = PER_NODE,
                                   .clocked = true,
                                   .cluster = cluster};
    weft_comm *comm[RANKS];
    pthread_t thread[RANKS];
    job j[RANKS];
    cr_assert_eq(weft_comm_open_threads_linked(RANKS, &links, comm), WEFT_OK, "%s",
                 weft_error_message());
    for (int r = 0; r < RANKS; r++) {
        j[r] = (job){.comm = comm[r], .rank = r, .like = like, .out = out};
        pthread_create(&thread[r], NULL, run_rank, &j[r]);
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(thread[r], NULL);
    out->made = weft_coll_plans_count(comm[0]->transport.plans);
    for (int r = 0; r < RANKS; r++)
        weft_comm_free(comm[r]);
}

Test(simulated_collective, equals_messages_through_the_transport_and_is_planned_once)
{
    static const char yaml[] = "nodes: 4\ndevices: 2\nhost: {}\n"
                               "device: {memory: 1GiB, flops: 1e12, memory_bandwidth: 1e12}\n"
                               "link: {bandwidth: 1e10, latency: 1e-6}\n"
                               "nics:\n  - {switch: spine, bandwidth: 1e9, latency: 3e-6}\n"
                               "switches:\n  - {name: spine}\n";
    static outcome together, apart;
    weft_comm_request *like[GROUPS][KINDS];
    weft_arena *arena = weft_arena_create();
    weft_cluster c;
    cr_assert_eq(
        weft_config_parse(arena, yaml, strlen(yaml), "four", NULL, 0, &weft_cluster_section, &c),
        WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_cluster_resolve(&c, "four"), WEFT_OK, "%s", weft_error_message());
    for (int k = 0; k < KINDS; k++) {
        like[0][k] = make_like(RANKS, k);
        like[1][k] = make_like(RANKS / 2, k);
    }
    play(&c, like, &together);
    play(NULL, like, &apart);
    for (int r = 0; r < RANKS; r++) {
        for (int i = 0; i < LAYERS * KINDS * GROUPS; i++)
            cr_expect_eq((&together.end[r][0][0][0])[i], (&apart.end[r][0][0][0])[i],
                         "rank %d, collective %d: ends at %.17g, and at %.17g with messages", r, i,
                         (&together.end[r][0][0][0])[i], (&apart.end[r][0][0][0])[i]);
        cr_expect_eq(together.messages[r], apart.messages[r]);
        cr_expect_eq(together.bytes[r], apart.bytes[r]);
    }
    /* a plan for each member of both groups' sizes, for all layers and all groups of a size */
    cr_expect_eq(together.made.plans, KINDS * (RANKS + RANKS / 2), "%d", (int)together.made.plans);
    cr_expect_eq(together.made.choices, KINDS * GROUPS, "%d", (int)together.made.choices);
    cr_expect_leq(together.made.schedules, together.made.plans);
    cr_expect_eq(apart.made.plans, 0);
    for (int k = 0; k < KINDS; k++) {
        weft_comm_request_free(like[0][k]);
        weft_comm_request_free(like[1][k]);
    }
    weft_arena_free(arena);
}

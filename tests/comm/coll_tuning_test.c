/* Tables of measured algorithms: which row applies, valid and invalid files, and that collectives
 * of a communicator use the row's algorithm. Messages are counted, and sums are bitwise identical.
 * */
#include "comm/coll_tuner.h"
#include "comm/comm.h"
#include "comm/comm_fake.h"
#include "comm/comm_request.h"
#include "comm/group.h"
#include "comm/measure.h"
#include "graph/graph.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 8, FLOATS = 2048 };
static const weft_span span = {RANKS, 1, RANKS};

static weft_coll_tuning table_of(const weft_coll_tuning_row *row, int count)
{
    weft_coll_tuning c = {0};
    for (int i = 0; i < count; i++)
        cr_assert_eq(weft_coll_tuning_add(&c, &row[i]), WEFT_OK);
    return c;
}

Test(choices, the_last_row_at_or_below_a_size_counts)
{
    const weft_coll_tuning_row rows[] = {{WEFT_COMM_ALL_REDUCE, span, 4096, WEFT_ALGORITHM_HALVING},
                                         {WEFT_COMM_ALL_REDUCE, span, 0, WEFT_ALGORITHM_DOUBLING},
                                         {WEFT_COMM_ALL_GATHER, span, 0, WEFT_ALGORITHM_RING},
                                         {WEFT_COMM_BROADCAST, span, 0, WEFT_ALGORITHM_HALVING}};
    const weft_span other = {RANKS, 2, RANKS / 2};
    weft_coll_tuning c = table_of(rows, 4);
    weft_algorithm a;
    cr_assert(weft_coll_tuning_find(&c, WEFT_COMM_ALL_REDUCE, &span, 4095, false, &a));
    cr_expect_eq(a, WEFT_ALGORITHM_DOUBLING);
    cr_assert(weft_coll_tuning_find(&c, WEFT_COMM_ALL_REDUCE, &span, 4096, false, &a));
    cr_expect_eq(a, WEFT_ALGORITHM_HALVING);
    cr_assert(weft_coll_tuning_find(&c, WEFT_COMM_ALL_GATHER, &span, 1, false, &a));
    cr_expect_eq(a, WEFT_ALGORITHM_RING);
    cr_expect(!weft_coll_tuning_find(&c, WEFT_COMM_ALL_REDUCE, &other, 64, false, &a),
              "other nodes");
    cr_expect(!weft_coll_tuning_find(&c, WEFT_COMM_REDUCE_SCATTER, &span, 64, false, &a), "no row");
    cr_expect(!weft_coll_tuning_find(&c, WEFT_COMM_BROADCAST, &span, 64, false, &a), "cannot");
    weft_coll_tuning_free(&c);
}

Test(choices, a_file_gives_them_back_and_what_is_none_is_refused)
{
    const weft_coll_tuning_row rows[] = {{WEFT_COMM_ALL_REDUCE, span, 0, WEFT_ALGORITHM_DOUBLING},
                                         {WEFT_COMM_ALL_REDUCE, span, 77, WEFT_ALGORITHM_PAIRWISE}};
    static const struct {
        const char *text;
        weft_message_class kind;
        const char *key, *value;
    } bad[] = {
        {"{\"format\": \"weft.plan/1\", \"choices\": []}", WEFT_MSG_FORMAT_UNKNOWN, "format",
         "weft.plan/1"},
        {"{\"format\": \"weft.collectives/1\"}", WEFT_MSG_JSON_VALUE, "choices", NULL},
        {"{\"format\": \"weft.collectives/1\", \"choices\": [{\"op\": \"sum\", \"ranks\": 2, "
         "\"nodes\": 1, \"per_node\": 2, \"from\": 0, \"algorithm\": \"ring\"}]}",
         WEFT_MSG_JSON_VALUE, "op", "sum"},
        {"{\"format\": \"weft.collectives/1\", \"choices\": [{\"op\": \"broadcast\", \"ranks\": 2, "
         "\"nodes\": 1, \"per_node\": 2, \"from\": 0, \"algorithm\": \"rings\"}]}",
         WEFT_MSG_JSON_VALUE, "algorithm", "rings"},
        {"{\"format\": \"weft.collectives/1\", \"choices\": [{\"op\": \"broadcast\", \"ranks\": 2, "
         "\"nodes\": 3, \"per_node\": 2, \"from\": 0, \"algorithm\": \"ring\"}]}",
         WEFT_MSG_JSON_VALUE, NULL, NULL},
        {"{\"format\": \"weft.collectives/1\", \"choices\": [{\"op\": \"broadcast\", \"ranks\": 2, "
         "\"nodes\": 1, \"per_node\": 2, \"form\": 0, \"algorithm\": \"ring\"}]}",
         WEFT_MSG_JSON_VALUE, "form", NULL}};
    char path[] = "/tmp/weft-choices-XXXXXX", text[4096] = {0};
    weft_coll_tuning c = table_of(rows, 2), again = {0};
    const int fd = mkstemp(path);
    cr_assert(fd >= 0);
    close(fd);
    cr_assert_eq(weft_coll_tuning_save(&c, path), WEFT_OK, "%s", weft_error_message());
    FILE *f = fopen(path, "r");
    const size_t bytes = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    unlink(path);
    cr_assert_eq(weft_coll_tuning_parse(text, (int64_t)bytes, "kept", &again), WEFT_OK, "%s",
                 weft_error_message());
    cr_assert_eq(again.count, 2);
    for (int i = 0; i < 2; i++)
        cr_expect(again.row[i].op == rows[i].op && again.row[i].from == rows[i].from &&
                  again.row[i].algorithm == rows[i].algorithm &&
                  !memcmp(&again.row[i].span, &span, sizeof span));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const weft_status_code status =
            weft_coll_tuning_parse(bad[i].text, (int64_t)strlen(bad[i].text), "f", &again);
        const weft_message_fields *at = weft_error_fields();
        cr_expect_neq(status, WEFT_OK, "%s", bad[i].text);
        cr_expect_eq(weft_error_class(), bad[i].kind, "%s", weft_error_message());
        cr_expect(bad[i].key ? at->key && !strcmp(at->key, bad[i].key) : !at->key, "%s",
                  weft_error_message());
        cr_expect(!bad[i].value || (at->value && !strcmp(at->value, bad[i].value)), "%s",
                  weft_error_message());
    }
    cr_expect_eq(again.count, 2, "the earlier rows were removed");
    weft_coll_tuning_free(&c);
    weft_coll_tuning_free(&again);
}

typedef struct job {
    weft_comm *comm;
    weft_algorithm algorithm;
    float sum[FLOATS];
    int64_t messages;
    weft_status_code status;
    char error[256];
} job;

static weft_status sum_up(job *j)
{
    const weft_shape shape = WEFT_SHAPE(FLOATS);
    const weft_coll_tuning_row row = {WEFT_COMM_ALL_REDUCE, span, 0, j->algorithm};
    weft_coll_tuning choices = {0};
    weft_comm_request *x;
    weft_group *world;
    int64_t before, bytes;
    float own[FLOATS];
    for (int i = 0; i < FLOATS; i++)
        own[i] = 1.0f / (float)(1 + i + 7 * weft_comm_rank(j->comm));
    WEFT_TRY(weft_coll_tuning_add(&choices, &row));
    weft_comm_set_tuning(j->comm, &choices);
    WEFT_TRY(weft_comm_world(j->comm, &world));
    WEFT_TRY(weft_comm_request_create(RANKS, weft_comm_rank(j->comm), WEFT_OP_ALL_REDUCE,
                                      &(weft_attr_comm){0}, &shape, &shape, WEFT_F32, "a test",
                                      &x));
    char *scratch = weft_alloc_aligned(weft_comm_request_scratch(x) + 1);
    WEFT_TRY(weft_comm_request_attach(x, world, WEFT_CHANNEL_LAYERS));
    weft_comm_request_bind(x, own, j->sum, scratch);
    weft_comm_sent(j->comm, &before, &bytes);
    weft_comm_request_start(x);
    const weft_status_code status = weft_comm_request_wait(x);
    weft_comm_sent(j->comm, &j->messages, &bytes);
    j->messages -= before;
    weft_comm_request_free(x);
    weft_free(scratch);
    return status;
}

static void *run(void *self)
{
    job *j = self;
    j->status = sum_up(j);
    snprintf(j->error, sizeof j->error, "%s", weft_error_message());
    return NULL;
}

static void play(weft_algorithm algorithm, job *j)
{
    weft_comm *comm[RANKS];
    pthread_t thread[RANKS];
    cr_assert_eq(weft_comm_open_threads(RANKS, comm), WEFT_OK, "%s", weft_error_message());
    for (int r = 0; r < RANKS; r++) {
        j[r] = (job){.comm = comm[r], .algorithm = algorithm};
        pthread_create(&thread[r], NULL, run, &j[r]);
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(thread[r], NULL);
    for (int r = 0; r < RANKS; r++) {
        cr_assert_eq(j[r].status, WEFT_OK, "rank %d: %s", r, j[r].error);
        weft_comm_free(comm[r]);
    }
}

Test(choices, exchanges_take_what_the_table_says)
{
    static const struct {
        weft_algorithm algorithm;
        int64_t messages; /* of a rank */
    } rows[] = {{WEFT_ALGORITHM_DIRECT, RANKS - 1},
                {WEFT_ALGORITHM_DOUBLING, 3},
                {WEFT_ALGORITHM_HALVING, 6}};
    static job j[3][RANKS];
    for (int i = 0; i < 3; i++) {
        play(rows[i].algorithm, j[i]);
        for (int r = 0; r < RANKS; r++) {
            cr_expect_eq(j[i][r].messages, rows[i].messages, "%s: rank %d sends %" PRId64,
                         weft_algorithm_name(rows[i].algorithm), r, j[i][r].messages);
            cr_expect(!memcmp(j[i][r].sum, j[0][0].sum, sizeof j[0][0].sum), "other bits");
        }
    }
}

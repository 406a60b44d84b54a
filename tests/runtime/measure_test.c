/* Exchanges as a profile times them: every op, among all ranks and among pairs at the same time. */
#include "runtime/measure.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>

enum { RANKS = 4 };

typedef struct job {
    weft_comm *comm;
    weft_status_code status;
    char message[256];
    int measured;
    double drag;
} job;

static weft_status measure_all(job *j)
{
    for (int k = 2; k <= RANKS; k += 2)
        for (int op = 0; op <= WEFT_COMM_SEND; op++) {
            double seconds = 0;
            if (op == WEFT_COMM_BROADCAST || (op == WEFT_COMM_SEND && k > 2))
                continue;
            WEFT_TRY(weft_comm_measure_exchange(j->comm, k, (weft_comm_op)op, 8 << 10, &seconds));
            j->measured += seconds > 0;
        }
    return weft_comm_measure_drag(j->comm, &j->drag);
}

static void *run(void *self)
{
    job *j = self;
    j->status = measure_all(j);
    snprintf(j->message, sizeof j->message, "%s", weft_error_message());
    return NULL;
}

Test(measure, exchanges_of_all_ops_among_pairs_and_all)
{
    weft_comm *comm[RANKS];
    job j[RANKS] = {0};
    pthread_t thread[RANKS];
    cr_assert_eq(weft_comm_open_fake(RANKS, comm), WEFT_OK, "%s", weft_error_message());
    for (int r = 0; r < RANKS; r++) {
        j[r].comm = comm[r];
        pthread_create(&thread[r], NULL, run, &j[r]);
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(thread[r], NULL);
    for (int r = 0; r < RANKS; r++) {
        cr_expect_eq(j[r].status, WEFT_OK, "rank %d: %s", r, j[r].message);
        cr_expect_eq(j[r].measured, 6 + 5, "rank %d: %d", r, j[r].measured);
        cr_expect(j[r].drag >= 0 && j[r].drag <= 1, "%g", j[r].drag);
        weft_comm_free(comm[r]);
    }
}

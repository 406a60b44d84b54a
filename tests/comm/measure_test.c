/* Collectives as a profile times them: every op, among all ranks and among pairs at the same time.
 * */
#include "comm/comm.h"
#include "comm/comm_fake.h"
#include "comm/comm_measure.h"
#include "comm/measure.h"
#include "exec/copy_engine.h"
#include "exec/measure_products.h"
#include "kernel/cpu/table.h"
#include "kernel/ref/table.h"

#include <criterion/criterion.h>
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
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
    cr_assert_eq(weft_comm_open_threads(RANKS, comm), WEFT_OK, "%s", weft_error_message());
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

/* Copies by a thread that has to share the only core with the kernels. */
Test(measure, copies_take_the_core_that_kernels_compute_on)
{
    cpu_set_t mine, one;
    CPU_ZERO(&one);
    cr_assert_eq(sched_getaffinity(0, sizeof mine, &mine), 0);
    for (int c = 0; c < CPU_SETSIZE && CPU_COUNT(&one) == 0; c++)
        if (CPU_ISSET(c, &mine))
            CPU_SET(c, &one);
    cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
    omp_set_num_threads(1);
    weft_copy_engine_rates rates = {0};
    for (int turn = 0; turn < 5 && !(rates.slowdown > 0.3); turn++) { /* others may use it, too */
        cr_assert_eq(weft_copy_engine_measure("/tmp", &rates), WEFT_OK, "%s", weft_error_message());
        cr_expect(rates.bytes_per_second > 0 && rates.slowdown >= 0 && rates.slowdown <= 1,
                  "%g, %g", rates.bytes_per_second, rates.slowdown);
    }
    cr_expect_gt(rates.slowdown, 0.3, "%g", rates.slowdown);
}

/* ---- the peak that training is compared with
 * --------------------------------------------------- */

Test(measure, peak_is_the_fastest_core_times_the_cores_in_use)
{
    const int one[4] = {0, 0, 0, 0}, two[4] = {0, 1, 0, 1};
    weft_core_rate r[4];
    for (int i = 0; i < 4; i++)
        r[i] = (weft_core_rate){.gflops = 50, .threads = 1, .cores = 2, .online = 2};
    cr_expect_float_eq(weft_measure_together(r, one, 1), 50, 1e-9, "one thread of two cores");
    cr_expect_float_eq(weft_measure_together(r, one, 2), 100, 1e-9, "each has its core");
    cr_expect_float_eq(weft_measure_together(r, one, 4), 100, 1e-9, "two threads share a core");
    cr_expect_float_eq(weft_measure_together(r, two, 4), 200, 1e-9, "two machines");
    r[2].gflops = 60;
    cr_expect_float_eq(weft_measure_together(r, two, 4), 220, 1e-9, "the fastest of a machine");
    for (int i = 0; i < 4; i++)
        r[i] = (weft_core_rate){.gflops = 50, .threads = 8, .cores = 2, .online = 8};
    cr_expect_float_eq(weft_measure_together(r, one, 2), 200, 1e-9, "ranks bound to two cores");
}

Test(measure, core_rate_of_every_backend)
{
    const weft_backend *const backend[] = {&weft_backend_ref, &weft_backend_cpu};
    for (int i = 0; i < 2; i++) {
        double core = 0;
        for (int bf16 = 0; bf16 < 2; bf16++) {
            const weft_dtype dtype = bf16 ? WEFT_BF16 : WEFT_F32;
            cr_assert_eq(weft_measure_core(backend[i], dtype, 0.01, &core), WEFT_OK, "%s",
                         weft_error_message());
            cr_expect(core > 0 && isfinite(core), "%g", core);
            for (int work = 0; work < WEFT_WORK_MEMORY; work++) {
                cr_assert_eq(weft_measure_node(backend[i], (weft_work)work, dtype, 0, &core),
                             WEFT_OK, "%s", weft_error_message());
                cr_expect(core > 0 && isfinite(core), "%g", core);
            }
        }
    }
}

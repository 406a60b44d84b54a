/* Clocks of ranks that differ by hours are mapped to a common time, within the reported error. */
#include "comm/common_clock.h"

#include "../ranks_of.h"
#include "base/log.h"
#include "comm/comm_fake.h"
#include "comm/comm_world.h"
#include "comm/group.h"
#include "comm/link_model.h"
#include "exec/trace/run_trace.h"

#include <criterion/criterion.h>
#include <math.h>

enum { MOST = 9 };

/* tolerance for the rounding of added seconds */
static const double rounding = 1e-6;

typedef struct job {
    weft_comm *comm;
    double shift;
    weft_common_clock clock;
    weft_timeline timeline;
    double sent,
        received; /* common times: of a message to the next rank, and of one from the last */
} job;

static double shifted(void *user)
{
    const job *j = user;
    return weft_now() + j->shift;
}

static weft_status_code measure(void *user)
{
    job *j = user;
    const int rank = weft_comm_rank(j->comm), ranks = weft_comm_ranks(j->comm);
    weft_group *world;
    char byte = 0;
    j->clock.own = (weft_own_clock){shifted, j};
    cr_expect(isinf(weft_common_clock_age(&j->clock)));
    WEFT_TRY(weft_common_clock_measure(j->comm, &j->clock));
    cr_expect(weft_common_clock_age(&j->clock) >= 0);
    WEFT_TRY(weft_comm_world(j->comm, &world));
    if (rank > 0)
        WEFT_TRY(weft_group_recv(world, WEFT_CHANNEL_CONTROL, rank - 1, &byte, 1));
    j->received = weft_common_now(&j->clock);
    j->sent = weft_common_now(&j->clock);
    if (rank + 1 < ranks)
        WEFT_TRY(weft_group_send(world, WEFT_CHANNEL_CONTROL, rank + 1, &byte, 1));
    return weft_timeline_open_together(j->comm, &j->clock.own, &j->timeline);
}

static void run(int ranks, const char *links, double shift, job *jobs)
{
    weft_comm *comm[MOST];
    weft_link_model model;
    if (links)
        cr_assert_eq(weft_link_model_parse(links, &model), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(links ? weft_comm_open_threads_linked(ranks, &model, comm)
                       : weft_comm_open_threads(ranks, comm),
                 WEFT_OK);
    for (int r = 0; r < ranks; r++)
        jobs[r] = (job){.comm = comm[r], .shift = shift * (r * r - 3.5 * r)};
    run_ranks("clocks", ranks, comm, measure, jobs, sizeof *jobs);
}

static void end(int ranks, job *jobs)
{
    for (int r = 0; r < ranks; r++)
        weft_timeline_free(&jobs[r].timeline);
}

static void check(int ranks, const char *links, double shift)
{
    job jobs[MOST];
    run(ranks, links, shift, jobs);
    for (int r = 0; r < ranks; r++) {
        const weft_common_clock *c = &jobs[r].clock;
        cr_expect(fabs(c->offset + jobs[r].shift) <= c->error + rounding,
                  "rank %d of %d: offset %g, is %g; error %g", r, ranks, c->offset, -jobs[r].shift,
                  c->error);
        if (r)
            cr_expect(jobs[r].received >=
                          jobs[r - 1].sent - c->error - jobs[r - 1].clock.error - rounding,
                      "rank %d of %d: a message comes before it was sent", r, ranks);
        /* a second measurement, whose error is not known here */
        const double origin = jobs[r].timeline.origin - jobs[r].shift;
        cr_expect(fabs(origin - jobs[0].timeline.origin) < 1800, "rank %d: origin %g and %g", r,
                  origin, jobs[0].timeline.origin);
    }
    end(ranks, jobs);
}

Test(common_clock, offsets_are_within_their_error)
{
    static const int counts[] = {1, 2, 3, 8, 9};
    for (int i = 0; i < WEFT_COUNT(counts); i++)
        check(counts[i], NULL, 3600);
    check(4, "1 Gbit/s, 500 us, 1 per node", 3600);
}

Test(common_clock, ranks_of_a_machine_have_one_clock)
{
    job jobs[MOST];
    run(MOST, NULL, 0, jobs);
    for (int r = 0; r < MOST; r++) {
        cr_expect_eq(jobs[r].clock.offset, 0, "rank %d: %g", r, jobs[r].clock.offset);
        cr_expect_eq(jobs[r].clock.error, 0, "rank %d: %g", r, jobs[r].clock.error);
        cr_expect_eq(jobs[r].timeline.origin, jobs[0].timeline.origin);
    }
    end(MOST, jobs);
}

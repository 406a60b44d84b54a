/* Finds the fastest algorithms by timing all, and applies tuning tables. */
#include "comm/coll_tuner.h"

#include "comm/comm_internal.h"

#include "base/fs.h"
#include "base/log.h"
#include "comm/coll_algorithms.h"
#include "comm/comm_measure.h"
#include "comm/comm_world.h"
#include "comm/measure.h"

#include <stdlib.h>
#include <string.h>

/* ---- applying a table ------------------------------------------------------------------------ */

void weft_comm_set_tuning(weft_comm *comm, weft_coll_tuning *tuning)
{
    weft_coll_tuning_free(&comm->choice.tuning);
    comm->choice.tuning = *tuning;
    *tuning = (weft_coll_tuning){0};
}

static weft_status take_text(weft_comm *comm, const char *text, int64_t bytes, const char *path)
{
    weft_coll_tuning tuning = {0};
    WEFT_TRY(weft_coll_tuning_parse(text, bytes, path, &tuning));
    weft_comm_set_tuning(comm, &tuning);
    return WEFT_OK;
}

static weft_status read_table(const char *path, char **text, int64_t *bytes)
{
    enum { MOST = 1 << 20 };
    if (!path || !*path)
        return WEFT_OK;
    WEFT_TRY(weft_file_read(path, MOST, text, bytes));
    return *bytes > 0 ? WEFT_OK
                      : weft_error(WEFT_MSG_FORMAT_UNKNOWN,
                                   WEFT_AT(.file = path, .key = "WEFT_COLLECTIVES"),
                                   "the file is empty; expected a table of collectives");
}

weft_status weft_comm_set_tuning_file(weft_comm *comm)
{
    const char *path = comm->rank == 0 ? getenv("WEFT_COLLECTIVES") : NULL;
    int64_t bytes = 0; /* 0: no table; -1: rank 0 prints why it cannot be read */
    char *text = NULL;
    weft_status_code status = WEFT_OK;
    const weft_status_code read = read_table(path, &text, &bytes);
    bytes = read == WEFT_OK ? bytes : -1;
    WEFT_GO(weft_status_first(read, weft_comm_broadcast(comm, &bytes, sizeof bytes, 0)));
    if (bytes < 0)
        WEFT_GO(weft_error(WEFT_MSG_FILE_IO, WEFT_AT(.key = "WEFT_COLLECTIVES", WEFT_RANK(0)),
                           "rank 0 cannot read the file; see the message of rank 0"));
    if (bytes == 0)
        goto out;
    if (comm->rank > 0) {
        text = weft_alloc(bytes + 1);
        WEFT_GO(WEFT_ALLOCATED(text, "WEFT_COLLECTIVES"));
    }
    WEFT_GO(weft_comm_broadcast(comm, text, bytes, 0));
    WEFT_GO(take_text(comm, text, bytes, path ? path : "WEFT_COLLECTIVES"));
out:
    weft_free(text);
    return status;
}

/* ---- measuring ------------------------------------------------------------------------------- */

enum { LEAST = 256, MOST = 16 << 20, STEP = 4, HALVINGS = 4, ROUNDS = 2 };

typedef struct trial {
    weft_comm *comm;
    const weft_link_costs *costs;
    weft_span span;
    weft_comm_op op;
    weft_coll_tuning *tuning;
    weft_buf *text;
} trial;

/* Returns the seconds of the slowest rank. A table of one row selects the algorithm. */
static weft_status time_one(const trial *t, weft_algorithm algorithm, int64_t bytes,
                            double *seconds)
{
    weft_coll_tuning_row row = {t->op, t->span, bytes / 2, algorithm};
    const weft_coll_tuning before = t->comm->choice.tuning;
    const int ranks = t->comm->ranks;
    double own = 0, *all;
    WEFT_TRY(WEFT_NEW(all, ranks, "measuring collectives"));
    t->comm->choice.tuning = (weft_coll_tuning){&row, 1, 1};
    weft_status_code status = weft_comm_measure_exchange(t->comm, ranks, t->op, bytes, &own);
    t->comm->choice.tuning = before;
    *seconds = 0;
    WEFT_GO(status);
    WEFT_GO(weft_comm_all_gather(t->comm, &own, sizeof own, all));
    for (int r = 0; r < ranks; r++)
        *seconds = all[r] > *seconds ? all[r] : *seconds;
out:
    weft_free(all);
    return status;
}

/* Between lo, where `before` is as quick, and hi, where `after` is quicker. */
static weft_status find_crossing(const trial *t, int64_t lo, int64_t hi, weft_algorithm before,
                                 weft_algorithm after, int64_t *at)
{
    for (int i = 0; i < HALVINGS; i++) {
        const int64_t middle = lo + (hi - lo) / 2;
        double a, b;
        if (!weft_algorithm_fits(before, t->op, &t->span, middle, false)) {
            hi = middle;
            continue;
        }
        WEFT_TRY(time_one(t, before, middle, &a));
        WEFT_TRY(time_one(t, after, middle, &b));
        *(b < a ? &hi : &lo) = middle;
    }
    *at = hi;
    return WEFT_OK;
}

/* Times each algorithm that fits at this size, in turn. took: the smallest seconds. 0: does not
 * fit. */
static weft_status time_algorithms(const trial *t, int64_t bytes, double took[WEFT_ALGORITHM_COUNT])
{
    for (int i = 0; i < ROUNDS * WEFT_ALGORITHM_COUNT; i++) {
        const weft_algorithm a = (weft_algorithm)(i % WEFT_ALGORITHM_COUNT);
        double seconds;
        if (!weft_algorithm_fits(a, t->op, &t->span, bytes, false))
            continue;
        WEFT_TRY(time_one(t, a, bytes, &seconds));
        took[a] = took[a] == 0 || seconds < took[a] ? seconds : took[a];
    }
    return WEFT_OK;
}

/* Returns the fastest algorithm. `before` (at first the choice of the default costs) is kept if it
 * is within 10 % of the fastest. Repeated measurements differ by about 10 %, and some algorithms
 * are equal among few ranks. */
static weft_status time_all(const trial *t, int64_t bytes, weft_algorithm before,
                            weft_algorithm *quickest)
{
    double took[WEFT_ALGORITHM_COUNT] = {0};
    int best = WEFT_ALGORITHM_COUNT;
    weft_algorithm model[2];
    double cost[2];
    char text[32];
    WEFT_TRY(time_algorithms(t, bytes, took));
    for (int a = 0; a < WEFT_ALGORITHM_COUNT; a++)
        if (took[a] > 0 && (best == WEFT_ALGORITHM_COUNT || took[a] < took[best]))
            best = a;
    WEFT_TRY(weft_algorithm_choose(t->op, &t->span, bytes, false, t->costs, &model[0], &cost[0]));
    WEFT_TRY(weft_algorithm_choose(t->op, &t->span, bytes, false, &weft_link_costs_default,
                                   &model[1], &cost[1]));
    before = before < WEFT_ALGORITHM_COUNT ? before : model[1];
    if (took[before] > 0 && 0.9 * took[before] < took[best])
        best = (int)before;
    *quickest = (weft_algorithm)best;
    weft_buf_printf(t->text, "%-16s %10s  %-12s %-12s %-12s", weft_comm_op_name(t->op),
                    weft_format_bytes(bytes, text), weft_algorithm_name(*quickest),
                    weft_algorithm_name(model[0]), weft_algorithm_name(model[1]));
    for (int a = 0; a < WEFT_ALGORITHM_COUNT; a++)
        if (took[a] > 0)
            weft_buf_printf(t->text, "  %s %s", weft_algorithm_name((weft_algorithm)a),
                            weft_format_seconds(took[a], text));
    weft_buf_printf(t->text, "\n");
    return WEFT_OK;
}

static int count_fitting(const trial *t)
{
    int count = 0;
    for (int a = 0; a < WEFT_ALGORITHM_COUNT; a++)
        count += weft_algorithm_fits((weft_algorithm)a, t->op, &t->span, LEAST, false) ||
                 weft_algorithm_fits((weft_algorithm)a, t->op, &t->span, MOST, false);
    return count;
}

static weft_status measure_op(const trial *t)
{
    weft_algorithm before = WEFT_ALGORITHM_COUNT, now;
    char text[32];
    for (int64_t bytes = LEAST; bytes <= MOST && count_fitting(t) > 1; bytes *= STEP) {
        weft_coll_tuning_row row = {t->op, t->span, 0, 0};
        WEFT_TRY(time_all(t, bytes, before, &now));
        if (now == before)
            continue;
        if (bytes > LEAST) {
            WEFT_TRY(find_crossing(t, bytes / STEP, bytes, before, now, &row.from));
            weft_buf_printf(t->text, "%-16s %10s  from here %s\n", "",
                            weft_format_bytes(row.from, text), weft_algorithm_name(now));
        }
        row.algorithm = before = now;
        WEFT_TRY(weft_coll_tuning_add(t->tuning, &row));
    }
    return WEFT_OK;
}

weft_status weft_comm_measure_choices(weft_comm *comm, const weft_link_costs *costs,
                                      weft_coll_tuning *tuning, weft_buf *text)
{
    weft_group *world;
    WEFT_TRY(weft_comm_world(comm, &world));
    trial t = {.comm = comm, .costs = costs, .span = world->span, .tuning = tuning, .text = text};
    weft_buf_printf(text,
                    "collectives of %d ranks on %d node%s, f32, each algorithm timed\n"
                    "%-16s %10s  %-12s %-12s %-12s  seconds of each\n",
                    t.span.ranks, t.span.nodes, t.span.nodes == 1 ? "" : "s", "", "", "quickest",
                    "by costs", "built in");
    for (int op = 0; op <= WEFT_COMM_BROADCAST; op++) {
        t.op = (weft_comm_op)op;
        WEFT_TRY(measure_op(&t));
    }
    return weft_buf_check(text);
}

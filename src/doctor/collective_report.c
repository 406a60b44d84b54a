/* The algorithm of each collective, by size. */
#include "doctor/collective_report.h"

#include "base/fs.h"
#include "comm/coll_algorithms.h"
#include "comm/coll_tuner.h"
#include "comm/comm.h"
#include "comm/comm_measure.h"
#include "comm/comm_mpi.h"
#include "comm/comm_world.h"
#include "comm/measure.h"

#include <stdio.h>

/* Parses "1024/8": ranks, and ranks per node. */
static weft_status read_span(const char *text, weft_span *span)
{
    char end;
    *span = (weft_span){.nodes = 1};
    const int found = sscanf(text, "%d/%d%c", &span->ranks, &span->per_node, &end);
    if ((found != 1 && found != 2) || span->ranks < 2 || span->ranks > 65536 ||
        (found == 2 && (span->per_node < 1 || span->ranks % span->per_node)))
        return weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--collectives", .value = text),
                          "'%.80s' is not RANKS or RANKS/RANKS_PER_NODE, with 2 to 65536 ranks "
                          "that fill whole nodes",
                          text);
    if (found == 1)
        span->per_node = span->ranks;
    span->nodes = span->ranks / span->per_node;
    return WEFT_OK;
}

/* Times the collectives of the ranks of this job. */
static weft_status time_collectives(weft_comm *comm, const weft_link_costs *costs, const char *out,
                                    weft_buf *table)
{
    weft_coll_tuning tuning = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_comm_measure_choices(comm, costs, &tuning, table));
    if (out && weft_comm_rank(comm) == 0)
        WEFT_GO(weft_coll_tuning_save(&tuning, out));
    if (out)
        weft_buf_printf(table,
                        "jobs with the same rank placement use the fastest algorithms with "
                        "WEFT_COLLECTIVES=%s in their environment, otherwise the built-in ones\n",
                        out);
    else
        weft_buf_printf(table, "jobs use the algorithms under \"built in\"; --out FILE writes "
                               "the fastest ones for jobs\n");
out:
    weft_coll_tuning_free(&tuning);
    return status;
}

weft_status weft_doctor_collectives(const char *text, const char *out)
{
    weft_span span;
    weft_buf table = {0};
    weft_link_costs costs = weft_link_costs_default;
    weft_comm *comm = NULL;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(read_span(text, &span));
    WEFT_GO(weft_comm_open_mpi(&comm));
    const int ranks = weft_comm_ranks(comm);
    if (out && ranks != span.ranks)
        WEFT_GO(weft_error(WEFT_MSG_OPTION_CONFLICT, WEFT_AT(.key = "--out", WEFT_NUMBER(ranks)),
                           "this option stores measured times of %d ranks, and %d %s started; run "
                           "mpirun -n %d weft doctor --collectives %s --out %s",
                           span.ranks, ranks, ranks == 1 ? "is" : "are", span.ranks, text, out));
    if (out && weft_comm_rank(comm) == 0)
        WEFT_GO(weft_file_try(out));
    if (ranks > 1)
        WEFT_GO(weft_comm_measure(comm, &costs));
    WEFT_GO(weft_algorithm_table(&span, &costs, &table));
    weft_buf_printf(&table, "by the model: costs of messages %s\n\n",
                    ranks > 1 ? "measured between these ranks" : "built in");
    if (ranks == span.ranks)
        WEFT_GO(time_collectives(comm, &costs, out, &table));
    WEFT_GO(weft_buf_check(&table));
    if (weft_comm_rank(comm) == 0)
        fputs(table.data, stdout);
    status = weft_comm_barrier(comm);
out:
    if (status != WEFT_OK)
        weft_comm_abort(comm);
    weft_comm_free(comm);
    weft_buf_free(&table);
    return status;
}

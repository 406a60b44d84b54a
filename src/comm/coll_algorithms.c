/* Chooses the algorithm of a collective: the cheapest that fits. Its cost is computed from the
 * collective schedule itself, so that the two cannot disagree. */
#include "comm/coll_algorithms.h"

#include "comm/coll_schedule.h"
#include "plan/cluster/cluster_path.h"

#include <math.h>
#include <string.h>

/* Two ranks of one machine through shared memory, 10 Gbit/s Ethernet between machines, additions on
 * one core. Measured by `weft doctor --collectives` under mpirun. */
const weft_link_costs weft_link_costs_default = {
    .message = {6e-6, 30e-6}, .byte = {1 / 5e9, 1 / 1.1e9}, .add = 1 / 8e9};

weft_link_costs weft_link_costs_of(const weft_cluster *cluster)
{
    weft_link_costs c = {.message = {cluster->link.latency, cluster->link.latency},
                         .byte = {1 / cluster->link.bandwidth, 1 / cluster->link.bandwidth},
                         .add = 3 / weft_device_bytes(&cluster->device)};
    double bandwidth = 0;
    for (int64_t i = 0; i < cluster->nics.count; i++) {
        const weft_nic *nic = &((const weft_nic *)cluster->nics.item)[i];
        bandwidth += nic->bandwidth;
        c.message[1] = fmax(c.message[1], 2 * nic->latency);
    }
    if (bandwidth > 0)
        c.byte[1] = 1 / bandwidth;
    return c;
}

enum { SEGMENT = 1 << 20, LOOKED_AT = 6 };

typedef struct round_cost {
    double send, recv, add;
} round_cost;

static bool between_nodes(const weft_span *span, int a, int b)
{
    if (span->nodes <= 1)
        return false;
    return !span->per_node || a / span->per_node != b / span->per_node;
}

/* Returns the number of ranks of a node that use its link to another node at the same time. */
static double sharing(weft_algorithm algorithm, const weft_span *span)
{
    const bool one = algorithm == WEFT_ALGORITHM_HIERARCHICAL || algorithm == WEFT_ALGORITHM_RING ||
                     algorithm == WEFT_ALGORITHM_TREE;
    return one || span->nodes < 2 ? 1 : (double)span->ranks / span->nodes;
}

/* Raises cost[round] to the cost of rank `own` where that is larger. */
static void add_cost(const weft_coll_schedule *s, const weft_span *span, int own, double chunk,
                     double shared, const weft_link_costs *costs, double *cost)
{
    for (int64_t i = 0; i < s->count;) {
        const int round = s->step[i].round;
        round_cost c = {0};
        for (; i < s->count && s->step[i].round == round; i++) {
            const weft_coll_step *m = &s->step[i];
            const int far = between_nodes(span, own, m->peer);
            const double bytes = m->count * chunk;
            *(m->kind == WEFT_COLL_STEP_SEND ? &c.send : &c.recv) +=
                bytes * costs->byte[far] * (far ? shared : 1);
            c.send += m->kind == WEFT_COLL_STEP_SEND ? costs->message[far] : 0;
            c.recv += m->kind == WEFT_COLL_STEP_SEND ? 0 : costs->message[far];
            c.add +=
                m->kind == WEFT_COLL_STEP_ADD || m->kind == WEFT_COLL_STEP_RECEIVE_TERM ? bytes : 0;
        }
        const double all = (c.send > c.recv ? c.send : c.recv) + c.add * costs->add;
        cost[round] = all > cost[round] ? all : cost[round];
    }
}

weft_status weft_algorithm_cost(weft_algorithm algorithm, weft_comm_op op, const weft_span *span,
                                int64_t bytes, const weft_link_costs *costs, double *seconds)
{
    return weft_algorithm_cost_cut(algorithm, op, span, bytes, SEGMENT, costs, seconds);
}

weft_status weft_algorithm_cost_cut(weft_algorithm algorithm, weft_comm_op op,
                                    const weft_span *span, int64_t bytes, int64_t segment,
                                    const weft_link_costs *costs, double *seconds)
{
    const int k = span->ranks;
    /* first, last, second of a pair, inner ranks, first of the last node */
    const int rank[LOOKED_AT] = {0,     k - 1, 1,
                                 k / 2, k / 3, span->per_node ? k - span->per_node : 0};
    const bool flat = op == WEFT_COMM_ALL_REDUCE || op == WEFT_COMM_BROADCAST;
    const int64_t segments = flat && bytes > segment ? (bytes + segment - 1) / segment : 1;
    double *cost = NULL, sum = 0, most = 0;
    int rounds = 0, seen = 0;
    weft_status_code status = WEFT_OK;
    *seconds = 0;
    for (int i = 0; i < LOOKED_AT && k > 1; i++) {
        weft_coll_schedule s;
        const int argument = op == WEFT_COMM_SEND || op == WEFT_COMM_RECV
                                 ? (rank[i] + 1) % k
                                 : op == WEFT_COMM_RING_SHIFT;
        WEFT_GO(weft_coll_schedule_make(algorithm, op, span, rank[i], argument, &s));
        if (!cost) {
            rounds = s.rounds;
            cost = weft_calloc(rounds + 1, sizeof *cost);
        }
        if (cost)
            add_cost(&s, span, rank[i], (double)bytes / (double)(s.chunks * segments),
                     sharing(algorithm, span), costs, cost);
        const bool pipelined = s.pipelined;
        weft_coll_schedule_free(&s);
        WEFT_GO(WEFT_ALLOCATED(cost, "choosing an algorithm"));
        if (i + 1 < LOOKED_AT)
            continue;
        for (int r = 0; r < rounds; r++) {
            sum += cost[r];
            most = cost[r] > most ? cost[r] : most;
            seen += cost[r] > 0;
        }
        /* rounds without any sampled rank cost as much as the others */
        sum *= seen ? (double)rounds / seen : 0;
        *seconds = pipelined ? sum + (double)(segments - 1) * most : sum * (double)segments;
    }
out:
    weft_free(cost);
    return status;
}

/* Seconds that the algorithm takes at least: 0, or of the messages that a rank sends to all others
 * in sequence. */
static double least_seconds(weft_algorithm algorithm, weft_comm_op op, const weft_span *span,
                            const weft_link_costs *costs)
{
    const bool sums = op == WEFT_COMM_ALL_REDUCE || op == WEFT_COMM_REDUCE_SCATTER;
    const double near =
        costs->message[0] < costs->message[1] ? costs->message[0] : costs->message[1];
    const int inside = span->per_node ? span->per_node : span->ranks;
    if ((algorithm != WEFT_ALGORITHM_PAIRWISE && algorithm != WEFT_ALGORITHM_RING) ||
        !(sums || op == WEFT_COMM_ALL_GATHER || op == WEFT_COMM_ALL_TO_ALL))
        return 0;
    const double rounding = 1 - 1e-9; /* of the sum over thousands of rounds */
    return rounding * ((inside - 1) * near + (span->ranks - inside) * costs->message[1]);
}

weft_status weft_algorithm_choose(weft_comm_op op, const weft_span *span, int64_t bytes,
                                  bool is_16bit, const weft_link_costs *costs,
                                  weft_algorithm *algorithm, double *seconds)
{
    int fitting = 0;
    for (int a = 0; a < WEFT_ALGORITHM_COUNT; a++)
        if (weft_algorithm_fits((weft_algorithm)a, op, span, bytes, is_16bit) && !fitting++)
            *algorithm = (weft_algorithm)a;
    double best = -1;
    /* Schedules with a step per rank come last: few of thousands of ranks are made. */
    for (int i = 0; i < 2 * WEFT_ALGORITHM_COUNT && fitting > 1; i++) {
        const weft_algorithm a = (weft_algorithm)(i % WEFT_ALGORITHM_COUNT);
        const double least = least_seconds(a, op, span, costs);
        double cost;
        if ((least > 0) != (i >= WEFT_ALGORITHM_COUNT) || (best >= 0 && least > best) ||
            !weft_algorithm_fits(a, op, span, bytes, is_16bit))
            continue;
        WEFT_TRY(weft_algorithm_cost(a, op, span, bytes, costs, &cost));
        if (best < 0 || cost < best || (cost == best && a < *algorithm)) {
            best = cost;
            *algorithm = a;
        }
    }
    if (fitting == 1 && seconds)
        WEFT_TRY(weft_algorithm_cost(*algorithm, op, span, bytes, costs, &best));
    if (seconds)
        *seconds = fitting ? best : 0;
    return fitting ? WEFT_OK
                   : weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE,
                                "no algorithm fits %s among %d ranks", weft_comm_op_name(op),
                                span->ranks);
}

/* Finds the smallest size above lo at which the choice is not `before`, by bisection up to hi. */
static weft_status crossover(weft_comm_op op, const weft_span *span, bool is_16bit,
                             const weft_link_costs *costs, int64_t lo, int64_t hi,
                             weft_algorithm before, int64_t *at)
{
    while (hi - lo > lo / 16 + 1) {
        const int64_t middle = lo + (hi - lo) / 2;
        weft_algorithm a;
        double seconds;
        WEFT_TRY(weft_algorithm_choose(op, span, middle, is_16bit, costs, &a, &seconds));
        *(a == before ? &lo : &hi) = middle;
    }
    *at = hi;
    return WEFT_OK;
}

weft_status weft_algorithm_table(const weft_span *span, const weft_link_costs *costs,
                                 weft_buf *text)
{
    const int64_t least = 64, most = (int64_t)1 << 30;
    weft_buf_printf(text,
                    "collectives of %d ranks on %d node%s, f32; a message %.1f us inside a node, "
                    "%.1f between nodes; %.1f and %.1f GB/s; sums %.1f GB/s\n",
                    span->ranks, span->nodes, span->nodes == 1 ? "" : "s", costs->message[0] * 1e6,
                    costs->message[1] * 1e6, 1e-9 / costs->byte[0], 1e-9 / costs->byte[1],
                    1e-9 / costs->add);
    for (int op = 0; op <= WEFT_COMM_SEND; op++) {
        weft_algorithm before = WEFT_ALGORITHM_COUNT;
        for (int64_t bytes = least, last = 0; bytes <= most; last = bytes, bytes *= 16) {
            weft_algorithm now;
            double seconds;
            char size[32], time[32];
            WEFT_TRY(
                weft_algorithm_choose((weft_comm_op)op, span, bytes, false, costs, &now, &seconds));
            if (now != before && last) {
                int64_t at;
                WEFT_TRY(crossover((weft_comm_op)op, span, false, costs, last, bytes, before, &at));
                weft_buf_printf(text, "%-16s %10s  from here %s\n", "", weft_format_bytes(at, size),
                                weft_algorithm_name(now));
            }
            weft_buf_printf(text, "%-16s %10s  %-12s %10s\n",
                            last ? "" : weft_comm_op_name((weft_comm_op)op),
                            weft_format_bytes(bytes, size), weft_algorithm_name(now),
                            weft_format_seconds(seconds, time));
            before = now;
        }
    }
    return weft_buf_check(text);
}

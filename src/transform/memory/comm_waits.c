/* Start and wait of collectives, offloads and fetches. Each starts at its node. The wait precedes
 * the first node that reads the result; an alias reads nothing:
 *
 *   node   10 all_reduce   11 matmul   12 reshape(10)   13 linear   14 add(12, 13)
 *           start                                                   wait
 *
 * The operand stays live until the wait. A reduce-scattered gradient is read only at the end, and
 * an offloaded value only in the backward, so all their operands would stay live. These waits are
 * earlier if the operands exceed the bytes of the two largest collectives, or the prefetch budget
 * of copies (op.h, weft_attr_move). */

#include "transform/memory/comm_waits.h"

#include "graph/dump.h"
#include "graph/graph.h"

/* Returns true if only the running request keeps the node's operand live. `offload`: of offloads;
 * otherwise of collectives. */
static bool holds_operand(const weft_graph *g, const weft_node *node, bool offload)
{
    if (!weft_op_has(node->op, WEFT_TRAIT_HOLDS) ||
        weft_op_has(node->op, WEFT_TRAIT_MOVES) != offload)
        return false;
    if (offload)
        return true;
    const weft_node *from = weft_graph_node(g, weft_value_get(g, node->in[0])->node);
    while (weft_op_is_alias(from->op))
        from = weft_graph_node(g, weft_value_get(g, from->in[0])->node);
    return !weft_op_has(from->op, WEFT_TRAIT_GIVEN);
}

static int64_t operand_bytes(const weft_graph *g, int32_t n)
{
    const weft_value_info *in = weft_value_get(g, weft_graph_node(g, n)->in[0]);
    return weft_shape_count(&in->shape) * weft_dtype_bytes(in->dtype);
}

static void wait_for_consumers(const weft_graph *g, int32_t *wait)
{
    const int32_t nodes = weft_graph_node_count(g);
    for (int32_t n = 0; n < nodes; n++)
        wait[n] = weft_op_runs_concurrently(weft_graph_node(g, n)->op) ? nodes : -1;
    for (int32_t n = nodes - 1; n >= 0; n--) {
        const weft_node *node = weft_graph_node(g, n);
        if (weft_op_is_alias(node->op))
            continue;
        for (int i = 0; i < node->in_count; i++) {
            if (!weft_value_ok(node->in[i]))
                continue;
            int32_t made = weft_value_get(g, node->in[i])->node;
            while (weft_op_is_alias(weft_graph_node(g, made)->op))
                made = weft_value_get(g, weft_graph_node(g, made)->in[0])->node;
            if (wait[made] >= 0)
                wait[made] = n;
        }
    }
}

static int64_t max_operand_bytes(const weft_graph *g, bool offload)
{
    int64_t most = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        if (!holds_operand(g, node, offload))
            continue;
        const int64_t bytes = offload ? operand_bytes(g, n) : 2 * operand_bytes(g, n),
                      limit = offload ? ((const weft_attr_move *)node->attr)->prefetch_bytes : 0;
        most = bytes > most ? bytes : most;
        most = limit > most ? limit : most;
    }
    return most;
}

static weft_status limit_in_flight(const weft_graph *g, bool offload, int32_t *wait)
{
    const int32_t nodes = weft_graph_node_count(g);
    const int64_t most = max_operand_bytes(g, offload);
    int32_t *flying = NULL; /* running requests with live operands, oldest first */
    int64_t count = 0, capacity = 0, held = 0;
    weft_status_code status = WEFT_OK;
    for (int32_t n = 0; n < nodes; n++) {
        if (!holds_operand(g, weft_graph_node(g, n), offload))
            continue;
        int64_t left = 0;
        for (int64_t i = 0; i < count; i++) {
            if (wait[flying[i]] > n)
                flying[left++] = flying[i];
            else
                held -= operand_bytes(g, flying[i]);
        }
        count = left;
        int64_t done = 0;
        for (; done < count && held + operand_bytes(g, n) > most; done++) {
            held -= operand_bytes(g, flying[done]);
            wait[flying[done]] = n;
        }
        for (int64_t i = done; i < count; i++)
            flying[i - done] = flying[i];
        count -= done;
        WEFT_GO(weft_grow((void **)&flying, count, &capacity, sizeof *flying));
        flying[count++] = n;
        held += operand_bytes(g, n);
    }
out:
    weft_free(flying);
    return status;
}

weft_status weft_comm_waits(const weft_graph *g, int32_t *wait)
{
    wait_for_consumers(g, wait);
    WEFT_TRY(limit_in_flight(g, false, wait));
    return limit_in_flight(g, true, wait);
}

weft_status weft_pp_schedule_print(const weft_graph *g, weft_buf *out)
{
    const int32_t nodes = weft_graph_node_count(g);
    /* Lists per node of the requests whose wait precedes the node. */
    int32_t *wait = weft_calloc(nodes + 1, sizeof *wait);
    int32_t *first = weft_calloc(nodes + 1, sizeof *first);
    int32_t *next = weft_calloc(nodes + 1, sizeof *next);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(wait && first && next, "printing a graph of %d nodes", (int)nodes));
    WEFT_GO(weft_comm_waits(g, wait));
    for (int32_t n = 0; n <= nodes; n++)
        first[n] = -1;
    /* reversed, so that each list is in starting order */
    for (int32_t n = nodes - 1; n >= 0; n--) {
        if (wait[n] < 0)
            continue;
        next[n] = first[wait[n]];
        first[wait[n]] = n;
    }
    for (int32_t n = 0; n <= nodes; n++) {
        for (int32_t c = first[n]; c >= 0; c = next[c])
            weft_buf_printf(out, "wait %%%d\n", (int)weft_graph_node(g, c)->out[0].id);
        if (n == nodes)
            break;
        if (wait[n] >= 0)
            weft_buf_printf(out, "start ");
        weft_graph_print_node(g, n, out);
    }
    weft_graph_print_ends(g, out);
    status = weft_buf_check(out);
out:
    weft_free(wait);
    weft_free(first);
    weft_free(next);
    return status;
}

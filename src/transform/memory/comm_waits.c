/* Where a collective, or a copy to or from elsewhere, starts and where it is waited for. It starts
 * at its node; it is waited for before the first node that reads its result, and an alias reads
 * nothing:
 *
 *   node   10 all_reduce   11 matmul   12 reshape(10)   13 linear   14 add(12, 13)
 *           start                                                   wait
 *
 * What is sent has to stay until then. A gradient that is scattered is read at the end only, and an
 * offloaded value in the backward: all of them would be there whole. So they are waited for earlier
 * where more would be kept for collectives than the two largest need, or for copies than their room
 * (op.h, weft_attr_move). */
#include "pass/pass.h"

/* Its operand stays for its sake. */
static bool is_kept_for(const weft_graph *g, const weft_node *node, bool moves)
{
    if (moves)
        return node->op == WEFT_OP_OFFLOAD;
    /* An all_reduce is its own result; an all_to_all is read by the layer behind it, of which many
     * may be pieces. */
    if (!weft_op_is_collective(node->op) || node->op == WEFT_OP_ALL_REDUCE ||
        node->op == WEFT_OP_ALL_TO_ALL)
        return false;
    const weft_node *from = weft_graph_node(g, weft_value_get(g, node->in[0])->node);
    while (weft_op_is_alias(from->op))
        from = weft_graph_node(g, weft_value_get(g, from->in[0])->node);
    return !weft_op_has(from->op, WEFT_TRAIT_GIVEN);
}

static int64_t kept_bytes(const weft_graph *g, int32_t n)
{
    const weft_value_info *in = weft_value_get(g, weft_graph_node(g, n)->in[0]);
    return weft_shape_count(&in->shape) * weft_dtype_bytes(in->dtype);
}

static void wait_for_readers(const weft_graph *g, int32_t *wait)
{
    const int32_t nodes = weft_graph_node_count(g);
    for (int32_t n = 0; n < nodes; n++)
        wait[n] = weft_op_runs_beside(weft_graph_node(g, n)->op) ? nodes : -1;
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

static int64_t most_kept(const weft_graph *g, bool moves)
{
    int64_t most = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        if (!is_kept_for(g, node, moves))
            continue;
        const int64_t bytes = moves ? kept_bytes(g, n) : 2 * kept_bytes(g, n),
                      room = moves ? ((const weft_attr_move *)node->attr)->room : 0;
        most = bytes > most ? bytes : most;
        most = room > most ? room : most;
    }
    return most;
}

static weft_status wait_for_room(const weft_graph *g, bool moves, int32_t *wait)
{
    const int32_t nodes = weft_graph_node_count(g);
    const int64_t most = most_kept(g, moves);
    int32_t *flying = NULL; /* whose operands are kept, oldest first */
    int64_t count = 0, room = 0, kept = 0;
    weft_status_code status = WEFT_OK;
    for (int32_t n = 0; n < nodes; n++) {
        if (!is_kept_for(g, weft_graph_node(g, n), moves))
            continue;
        int64_t left = 0;
        for (int64_t i = 0; i < count; i++) {
            if (wait[flying[i]] > n)
                flying[left++] = flying[i];
            else
                kept -= kept_bytes(g, flying[i]);
        }
        count = left;
        int64_t done = 0;
        for (; done < count && kept + kept_bytes(g, n) > most; done++) {
            kept -= kept_bytes(g, flying[done]);
            wait[flying[done]] = n;
        }
        for (int64_t i = done; i < count; i++)
            flying[i - done] = flying[i];
        count -= done;
        WEFT_GO(weft_grow((void **)&flying, count, &room, sizeof *flying));
        flying[count++] = n;
        kept += kept_bytes(g, n);
    }
out:
    weft_free(flying);
    return status;
}

weft_status weft_schedule_waits(const weft_graph *g, int32_t *wait)
{
    wait_for_readers(g, wait);
    WEFT_TRY(wait_for_room(g, false, wait));
    return wait_for_room(g, true, wait);
}

weft_status weft_schedule_print(const weft_graph *g, weft_buf *out)
{
    const int32_t nodes = weft_graph_node_count(g);
    /* By the node before which they are waited for: a list per node. */
    int32_t *wait = weft_alloc((nodes + 1) * (int64_t)sizeof *wait);
    int32_t *first = weft_alloc((nodes + 1) * (int64_t)sizeof *first);
    int32_t *next = weft_alloc((nodes + 1) * (int64_t)sizeof *next);
    weft_status_code status = WEFT_OK;
    if (!wait || !first || !next) {
        status = weft_fail(WEFT_E_MEMORY, "no memory to print a graph of %d nodes", (int)nodes);
        goto out;
    }
    WEFT_GO(weft_schedule_waits(g, wait));
    for (int32_t n = 0; n <= nodes; n++)
        first[n] = -1;
    for (int32_t n = nodes - 1; n >= 0; n--) { /* so that lists are in the order of starting */
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

/* Checks that the ranks of a group start the same collectives in the same order. The check runs
 * before a program, so that a difference is an error with both lists instead of a hang or a wrong
 * sum. Sends and receives are not checked.
 *
 *   1. every rank sends the hash of its list to the group: one all_gather of 16 bytes
 *   2. if two hashes differ: the first member and the first member that differs write their lists
 *      as text and broadcast them, and every rank reports the first difference
 *
 * Text is written only for a difference, because a simulation compares the lists of thousands of
 * ranks. */
#include "comm/comm_check.h"

#include "comm/comm_internal.h"
#include "comm/comm_request.h"
#include "comm/comm_world.h"
#include "graph/graph.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

static const char *const channel_name[] = {"layers", "gradients", "stages", "hand-off", "control"};

/* Fields of a request that must be equal on all ranks: the text of `describe` up to the tab. */
typedef struct fields {
    int64_t op, dtype, channel, argument, bytes, pieces;
} fields;

static fields fields_of(const weft_comm_request *x)
{
    const weft_comm_op op = x->spec.op;
    return (fields){
        .op = op,
        .dtype = x->spec.dtype,
        .channel = x->channel,
        .argument = op == WEFT_COMM_BROADCAST || op == WEFT_COMM_RING_SHIFT ? x->spec.argument : 0,
        .bytes = op == WEFT_COMM_RING_SHIFT || op == WEFT_COMM_ALL_TO_ALL ? 0 : x->spec.bytes,
        .pieces = x->buffers.piece_count,
    };
}

/* Writes one line, whose text up to the tab is equal if the fields are. */
static void describe(const weft_comm_request *x, weft_buf *text)
{
    weft_buf_printf(text, "%s %s on %s", weft_comm_op_name(x->spec.op),
                    weft_dtype_name(x->spec.dtype), channel_name[x->channel]);
    if (x->spec.op == WEFT_COMM_BROADCAST)
        weft_buf_printf(text, " from member %d", x->spec.argument);
    if (x->spec.op == WEFT_COMM_RING_SHIFT)
        weft_buf_printf(text, " by %d", x->spec.argument);
    else if (x->spec.op != WEFT_COMM_ALL_TO_ALL)
        weft_buf_printf(text, ", %" PRId64 " bytes", x->spec.bytes);
    if (x->buffers.piece_count)
        weft_buf_printf(text, " of %d tensors", x->buffers.piece_count);
    weft_buf_printf(text, "\t%s\n", x->what);
}

/* Requests of the program. */
typedef struct requests {
    weft_comm_request *const *item;
    int count;
} requests;

typedef struct list {
    weft_group *group;
    struct {
        uint64_t hash;
        int64_t count; /* requests on the list */
    } own, *all;       /* by member */
    weft_comm_request *gather;
    void *scratch;
} list;

/* Returns whether the list of some group has the request. */
static bool is_listed(const weft_comm_request *x)
{
    const bool single = x->spec.op == WEFT_COMM_SEND || x->spec.op == WEFT_COMM_RECV;
    return x->spec.ranks > 1 && x->group && !single;
}

static void add_to(list *l, const weft_comm_request *x)
{
    const fields f = fields_of(x);
    l->own.hash = XXH64(&f, sizeof f, l->own.hash);
    l->own.count++;
}

static weft_status write_list(const list *l, const requests *all, weft_buf *text)
{
    for (int i = 0; i < all->count; i++)
        if (is_listed(all->item[i]) && all->item[i]->group == l->group)
            describe(all->item[i], text);
    return weft_buf_check(text);
}

/* ---- reporting a difference ------------------------------------------------------------------ */

static const char *line_at(const char *text, int index)
{
    for (; index > 0 && *text; index--)
        text = strchr(text, '\n') + 1;
    return *text ? text : NULL;
}

static bool same_line(const char *a, const char *b)
{
    if (!a || !b)
        return a == b;
    const size_t n = strcspn(a, "\t");
    return n == strcspn(b, "\t") && memcmp(a, b, n) == 0;
}

static void format_context(const char *name, int rank, const char *text, int at, weft_buf *out)
{
    weft_buf_printf(out, "%s rank %d:", name, rank);
    for (int i = at > 1 ? at - 2 : 0; i <= at + 2; i++) {
        const char *line = line_at(text, i);
        if (!line) {
            weft_buf_printf(out, " %s%d: nothing more;", i == at ? "-> " : "", i + 1);
            break;
        }
        const char *tab = line + strcspn(line, "\t");
        weft_buf_printf(out, " %s%d: %.*s (%.*s);", i == at ? "-> " : "", i + 1, (int)(tab - line),
                        line, (int)strcspn(tab + 1, "\n"), tab + 1);
    }
}

/* Returns the list of member `member` on all ranks. */
static weft_status broadcast_list(const list *l, const requests *all, int member, char **text)
{
    weft_buf own = {0};
    int64_t bytes = 0;
    weft_status_code status = WEFT_OK;
    if (l->group->own == member)
        WEFT_GO(write_list(l, all, &own));
    bytes = own.len;
    WEFT_GO(weft_group_broadcast(l->group, &bytes, sizeof bytes, member));
    WEFT_GO(WEFT_NEW(*text, bytes + 1, "comparing requests"));
    if (own.len)
        memcpy(*text, own.data, (size_t)own.len);
    WEFT_GO(weft_group_broadcast(l->group, *text, bytes, member));
out:
    weft_buf_free(&own);
    return status;
}

/* Broadcasts the lists of member 0 and member `other`. */
static weft_status report_difference(const list *l, const requests *all, int other)
{
    char *text[2] = {0};
    weft_buf message = {0};
    weft_status_code status = WEFT_OK;
    const weft_group *g = l->group;
    for (int i = 0; i < 2; i++)
        WEFT_GO(broadcast_list(l, all, i ? other : 0, &text[i]));
    int at = 0;
    while (same_line(line_at(text[0], at), line_at(text[1], at)) && line_at(text[0], at))
        at++;
    format_context("", g->rank[0], text[0], at, &message);
    format_context("", g->rank[other], text[1], at, &message);
    WEFT_GO(weft_buf_check(&message));
    status = weft_error(WEFT_MSG_RANKS_DISAGREE, WEFT_AT(WEFT_RANK(g->rank[other])),
                        "ranks %d and %d of a group of %d would exchange different data. They "
                        "differ from exchange %d on:%s",
                        g->rank[0], g->rank[other], g->count, at + 1, message.data);
out:
    weft_free(text[0]);
    weft_free(text[1]);
    weft_buf_free(&message);
    return status;
}

/* ---- comparing hashes ------------------------------------------------------------------------ */

static weft_status begin_list(list *l)
{
    const int k = l->group->count;
    const weft_shape in = WEFT_SHAPE(1, (int64_t)sizeof l->own),
                     all = WEFT_SHAPE(k, (int64_t)sizeof l->own);
    l->all = weft_calloc(k, sizeof *l->all);
    WEFT_TRY(weft_comm_request_create(k, l->group->own, WEFT_OP_ALL_GATHER,
                                      &(weft_attr_comm){.dim = 0}, &in, &all, WEFT_U8,
                                      "a check of requests", &l->gather));
    l->scratch = weft_alloc_aligned(weft_comm_request_scratch(l->gather) + 1);
    WEFT_TRY(WEFT_ALLOCATED(l->all && l->scratch, "comparing requests"));
    WEFT_TRY(weft_comm_request_attach(l->gather, l->group, WEFT_CHANNEL_CONTROL));
    weft_comm_request_bind(l->gather, &l->own, l->all, l->scratch);
    weft_comm_request_start(l->gather);
    return WEFT_OK;
}

static weft_status end_list(list *l, const requests *all)
{
    WEFT_TRY(weft_comm_request_wait(l->gather));
    for (int i = 1; i < l->group->count; i++)
        if (l->all[i].hash != l->all[0].hash || l->all[i].count != l->all[0].count)
            return report_difference(l, all, i);
    return WEFT_OK;
}

static list *list_of(list *lists, int *count, weft_group *group)
{
    for (int i = 0; i < *count; i++)
        if (lists[i].group == group)
            return &lists[i];
    lists[*count].group = group;
    return &lists[(*count)++];
}

weft_status weft_comm_requests_check(weft_comm_request *const *request, int count,
                                     weft_group *const *also, int also_count)
{
    const requests all = {request, count};
    list *lists = weft_calloc(count + also_count + 1, sizeof *lists);
    int n = 0;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_ALLOCATED(lists, "comparing requests"));
    for (int i = 0; i < also_count; i++)
        if (also[i]->count > 1)
            list_of(lists, &n, also[i]);
    for (int i = 0; i < count; i++)
        if (is_listed(request[i]))
            add_to(list_of(lists, &n, request[i]->group), request[i]);
    /* all at the same time: ranks may have their groups in different orders */
    for (int i = 0; i < n; i++)
        WEFT_GO(begin_list(&lists[i]));
    for (int i = 0; i < n; i++)
        WEFT_GO(end_list(&lists[i], &all));
out:
    for (int i = 0; i < n; i++) {
        weft_comm_request_free(lists[i].gather);
        weft_free(lists[i].scratch);
        weft_free(lists[i].all);
    }
    weft_free(lists);
    return status;
}

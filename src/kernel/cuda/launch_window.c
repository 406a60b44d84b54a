#include "kernel/cuda/launch_window.h"

#include "base/config.h"
#include "base/memory.h"
#include "kernel/cuda/kernels/list_args.h"

#include <string.h>

enum {
    BATCHES = 48,     /* batches of the window */
    SPANS = 256,      /* of a batch */
    NODE_SPANS = 128, /* of a node */
    TABLE_AT = 8      /* bytes of a list before first[] */
};

/* ---- kernels with a list --------------------------------------------------------------------- */

typedef struct listed {
    const char *kernel, *list;
    size_t args_bytes, list_bytes;
    int rows;
} listed;

#define LISTED(name, type)                                                                         \
    {#name, #name "_list", sizeof(type), sizeof(type##_list), LIST_ROWS(type)},
static const listed kinds[] = {WEFT_LISTED_KERNELS(LISTED)};

/* Sums of many scalars are a chain of launches of one block. */
static const char serial_kernel[] = "weft_add", serial_list[] = "weft_add_serial";

static const listed *kind_of(const weft_cuda_launch *launch)
{
    for (int i = 0; i < WEFT_COUNT(kinds); i++)
        if (!strcmp(kinds[i].kernel, launch->kernel) && launch->grid[2] == 1 && !launch->shared)
            return &kinds[i];
    return NULL;
}

/* ---- batches --------------------------------------------------------------------------------- */

/* Launches of one kernel that are issued together. */
typedef struct batch {
    const listed *kind; /* NULL: always one launch */
    weft_cuda_launch launch;
    weft_cuda_node node;
    int count;
    int32_t member[LIST_MOST]; /* nodes of the launches */
    int64_t blocks;
    bool serial; /* one block computes the launches in their order */
    bool pinned; /* a later batch conflicts with this one */
    int spans;
    weft_cuda_span span[SPANS];
    _Alignas(16) char args[LIST_BYTES]; /* of the launch, or the list */
} batch;

struct weft_cuda_window {
    weft_cuda_issue_to issue;
    void *user;
    weft_cuda_node node;
    int node_spans;
    weft_cuda_span node_span[NODE_SPANS];
    int count;
    batch *order[BATCHES]; /* the first is issued first; the rest are free */
    batch *memory;
};

weft_status weft_cuda_window_open(weft_cuda_issue_to issue, void *user, weft_cuda_window **out)
{
    weft_cuda_window *w;
    WEFT_TRY(WEFT_NEW(w, 1, "a window of launches"));
    w->issue = issue;
    w->user = user;
    w->memory = weft_calloc(BATCHES, sizeof *w->memory);
    for (int i = 0; i < BATCHES && w->memory; i++)
        w->order[i] = &w->memory[i];
    const weft_status_code status = WEFT_ALLOCATED(w->memory, "a window of launches");
    if (status == WEFT_OK)
        *out = w;
    else
        weft_cuda_window_close(w);
    return status;
}

void weft_cuda_window_close(weft_cuda_window *w)
{
    if (w)
        weft_free(w->memory);
    weft_free(w);
}

void weft_cuda_window_begin(weft_cuda_window *w, const weft_cuda_node *node)
{
    w->node = *node;
    w->node_spans = 0;
}

void weft_cuda_window_access(weft_cuda_window *w, const void *data, int64_t bytes, bool writes)
{
    if (bytes <= 0)
        return;
    const char *begin = data;
    for (int i = 0; i < w->node_spans; i++)
        if (w->node_span[i].begin == begin && w->node_span[i].end == begin + bytes) {
            w->node_span[i].writes |= writes;
            return;
        }
    if (w->node_spans < NODE_SPANS)
        w->node_span[w->node_spans++] = (weft_cuda_span){begin, begin + bytes, writes};
    else /* all memory */
        w->node_span[0] = (weft_cuda_span){NULL, (const char *)UINTPTR_MAX, true};
}

void weft_cuda_window_split(weft_cuda_window *w, const void *data, int64_t bytes)
{
    const char *begin = data, *end = begin + bytes;
    for (int i = 0; i < w->node_spans && w->node_spans < NODE_SPANS; i++) {
        weft_cuda_span *whole = &w->node_span[i];
        if (whole->begin != begin || whole->end <= end)
            continue;
        whole->begin = end;
        w->node_span[w->node_spans++] = (weft_cuda_span){begin, end, whole->writes};
        return;
    }
}

/* ---- accesses -------------------------------------------------------------------------------- */

/* Sets the spans of the node that the parameter has an address of. None: all memory. */
static int spans_of(const weft_cuda_window *w, const weft_cuda_launch *l, weft_cuda_span *span)
{
    int count = 0;
    for (int i = 0; i < w->node_spans; i++) {
        const weft_cuda_span *s = &w->node_span[i];
        bool is_used = false;
        for (size_t at = 0; at + sizeof(char *) <= l->args_bytes; at += sizeof(char *)) {
            const char *word;
            memcpy(&word, (const char *)l->args + at, sizeof word);
            is_used = is_used || (word >= s->begin && word < s->end);
        }
        if (is_used || s->begin == NULL)
            span[count++] = *s;
    }
    if (count == 0)
        span[count++] = (weft_cuda_span){NULL, (const char *)UINTPTR_MAX, true};
    return count;
}

static bool conflicts(const batch *b, const weft_cuda_span *span, int spans)
{
    for (int i = 0; i < spans; i++)
        for (int k = 0; k < b->spans; k++)
            if (span[i].begin < b->span[k].end && b->span[k].begin < span[i].end &&
                (span[i].writes || b->span[k].writes))
                return true;
    return false;
}

static void add_spans(batch *b, const weft_cuda_span *span, int spans)
{
    for (int i = 0; i < spans; i++) {
        int k = 0;
        while (k < b->spans &&
               (b->span[k].begin != span[i].begin || b->span[k].end != span[i].end ||
                b->span[k].writes != span[i].writes))
            k++;
        if (k == b->spans)
            b->span[b->spans++] = span[i];
    }
}

/* ---- issuing --------------------------------------------------------------------------------- */

/* Moves the batch at `from` to the end of the first `count`. */
static void move_last(weft_cuda_window *w, int from, int count)
{
    batch *b = w->order[from];
    memmove(&w->order[from], &w->order[from + 1], (size_t)(count - from - 1) * sizeof *w->order);
    w->order[count - 1] = b;
}

/* Rows after the last have parameters of earlier launches, whose memory may be freed. */
static void clear_rest(batch *b)
{
    const listed *k = b->kind;
    const size_t rest = (size_t)(k->rows - b->count) * k->args_bytes;
    memset(b->args + k->list_bytes - rest, 0, rest);
}

static weft_status issue_at(weft_cuda_window *w, int at)
{
    batch *b = w->order[at];
    weft_cuda_issue issue = {.launch = b->launch,
                             .node = b->node,
                             .joined = b->count,
                             .member = b->member,
                             .span = b->span,
                             .spans = b->spans};
    issue.launch.args = b->args;
    if (b->count > 1) {
        clear_rest(b);
        memcpy(b->args, &(int32_t){b->count}, sizeof(int32_t));
        issue.launch.kernel = b->serial ? serial_list : b->kind->list;
        issue.launch.grid[0] = b->serial ? 1 : (uint32_t)b->blocks;
        issue.launch.grid[1] = 1;
        issue.launch.args_bytes = b->kind->list_bytes;
    }
    move_last(w, at, w->count--);
    return w->issue(w->user, &issue);
}

weft_status_code weft_cuda_window_flush(weft_cuda_window *w)
{
    weft_status_code status = WEFT_OK;
    while (w->count > 0 && status == WEFT_OK)
        status = issue_at(w, 0);
    w->count = 0;
    return status;
}

/* Tables to which launches can still be added may be issued after all others. */
static bool may_stay(const batch *b)
{
    return b->kind && !b->pinned && b->count < b->kind->rows;
}

static weft_status make_room(weft_cuda_window *w)
{
    int at = 0;
    if (w->count < BATCHES)
        return WEFT_OK;
    while (at < w->count && may_stay(w->order[at]))
        at++;
    return issue_at(w, at < w->count ? at : 0);
}

/* ---- adding ---------------------------------------------------------------------------------- */

/* Adds the parameter to the table of the batch, which is made of the single one first. The bytes
 * before the rows are zero: halves of its addresses would look like other addresses. */
static void add_row(batch *b, const weft_cuda_launch *l)
{
    const listed *k = b->kind;
    const size_t rows = (size_t)k->rows;
    int32_t *first = (int32_t *)(void *)(b->args + TABLE_AT), *columns = first + rows;
    char *row = (char *)(columns + rows);
    if (b->count == 1) {
        memmove(row, b->args, k->args_bytes);
        memset(b->args, 0, (size_t)(row - b->args));
        columns[0] = (int32_t)b->launch.grid[0];
    }
    first[b->count] = (int32_t)b->blocks;
    columns[b->count] = (int32_t)l->grid[0];
    memcpy(row + (size_t)b->count * k->args_bytes, l->args, k->args_bytes);
    b->count++;
    b->blocks += (int64_t)l->grid[0] * l->grid[1];
}

static weft_status add_batch(weft_cuda_window *w, const weft_cuda_launch *l, const listed *kind,
                             const weft_cuda_span *span, int spans)
{
    if (l->args_bytes > LIST_BYTES) { /* too large to keep */
        WEFT_TRY(weft_cuda_window_flush(w));
        const weft_cuda_issue issue = {*l, w->node, 1, &w->node.number, span, spans};
        return w->issue(w->user, &issue);
    }
    WEFT_TRY(make_room(w));
    batch *b = w->order[w->count++];
    b->kind = kind;
    b->launch = *l;
    b->node = w->node;
    b->count = 1;
    b->member[0] = w->node.number;
    b->blocks = (int64_t)l->grid[0] * l->grid[1];
    b->pinned = b->serial = false;
    b->spans = 0;
    memcpy(b->args, l->args, l->args_bytes);
    add_spans(b, span, spans);
    return WEFT_OK;
}

/* `kind` of the launch */
static bool has_room(const batch *b, const weft_cuda_launch *l, const listed *kind, int spans)
{
    const int64_t blocks = (int64_t)l->grid[0] * l->grid[1];
    return kind && b->kind == kind && b->count < kind->rows && b->spans + spans <= SPANS &&
           !(b->serial && l->grid[0] > 1) && b->launch.block[0] == l->block[0] &&
           b->blocks + blocks <= INT32_MAX;
}

/* Whether one block may compute the batch and then the launch, which conflict. */
static bool is_chain(const batch *b, const weft_cuda_launch *l, const listed *kind, int spans)
{
    return has_room(b, l, kind, spans) && !strcmp(l->kernel, serial_kernel) &&
           b->blocks == b->count && l->grid[0] == 1 && l->grid[1] == 1;
}

/* Finds a batch that the launch can join where the batch is, or at the end of the window. Sets
 * `pinned` of the batches before that conflict. -1: none. */
static int find_batch(weft_cuda_window *w, const weft_cuda_launch *l, const listed *kind,
                      const weft_cuda_span *span, int spans)
{
    int here = -1, at_end = -1, last = -1; /* last: the last batch that conflicts */
    bool conflict[BATCHES];
    for (int i = w->count - 1; i >= 0; i--) {
        const batch *b = w->order[i];
        conflict[i] = conflicts(b, span, spans);
        if (conflict[i] && last < 0)
            last = i;
        if (conflict[i] || !has_room(b, l, kind, spans))
            continue;
        if (last < 0)
            here = i;
        else if (!b->pinned && at_end < 0)
            at_end = i;
    }
    for (int i = 0; i < w->count; i++)
        w->order[i]->pinned |= conflict[i];
    if (last >= 0 && is_chain(w->order[last], l, kind, spans)) {
        w->order[last]->serial = true;
        return last;
    }
    if (here < 0 && at_end >= 0) {
        move_last(w, at_end, w->count);
        here = w->count - 1;
    }
    return here;
}

weft_status_code weft_cuda_window_add(weft_cuda_window *w, const weft_cuda_launch *l)
{
    weft_cuda_span span[NODE_SPANS];
    const int spans = spans_of(w, l, span);
    const listed *kind = kind_of(l);
    const int at = find_batch(w, l, kind, span, spans);
    if (at < 0)
        return add_batch(w, l, kind, span, spans);
    w->order[at]->member[w->order[at]->count] = w->node.number;
    add_row(w->order[at], l);
    add_spans(w->order[at], span, spans);
    return WEFT_OK;
}

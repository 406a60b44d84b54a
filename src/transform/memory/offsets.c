/* Offline best fit. Each box goes into the smallest sufficient gap between the placed boxes that
 * are live at the same time: the lowest of equal gaps, or above all boxes if no gap suffices. Four
 * orders are tried until the height is the peak of live bytes: earliest first, largest first,
 * largest bytes x nodes first, longest-lived first. The lowest result wins. An order stops when its
 * height reaches the best so far.
 *
 *   offset
 *     ^   +---------+   +------------------+
 *     |   |  %3     |   |   %9             |      two boxes never overlap;
 *     |   +------+--+-----+------+---------+      the height is the top of the highest box
 *     |   |  %2  |  | %5  |      | %11  |
 *     +---+------+--+-----+------+------+---->  node
 *
 * A box must avoid the union of all boxes that are live during its live range. Placed boxes touch
 * each other, so the union is a few runs of bytes, for any number of boxes: some tens of runs for a
 * thousand live buffers. With n boxes and r runs, earliest first costs n r: it keeps the runs of
 * the current node, and adds and removes boxes. The other orders cost n r log log n: a binary tree
 * over the nodes. It stores for each time interval the runs of the boxes that cover the interval
 * (`cover`), and of all boxes that overlap the interval (`any`).
 *
 *   box over nodes 1..5:        [0 ........... 7]           any    at every interval on the path
 *                          [0 .... 3]      [4 .... 7]       any
 *                       [0 1]   [2 3]#   [4 5]#   [6 7]     any and cover at #
 *                          [1]#                             any and cover
 *
 *   live during 2..3:           cover of the intervals above [2 3], and any of [2 3] */
#include "transform/memory/offsets.h"

#include "base/config.h"

#include <stdlib.h>
#include <string.h>

typedef struct run {
    int64_t low, high; /* bytes [low, high) */
} run;

/* Sorted runs that neither overlap nor touch. */
typedef struct runs {
    run *at;
    int64_t count, capacity;
} runs;

/* Unvisited runs of an interval. */
typedef struct cursor {
    const run *at, *end;
} cursor;

enum { CURSORS = 4 * 32 }; /* intervals of a query: per level two for cover, two for any */

typedef struct tree {
    runs *cover, *any;    /* per interval: 1 is the complete time, 2i and 2i + 1 the halves of i */
    int32_t leaves;       /* a power of two */
    cursor heap[CURSORS]; /* runs of a query, lowest first */
    int count;
} tree;

/* Index of the first run that ends at or after `low`. */
static int64_t find_run(const runs *r, int64_t low)
{
    int64_t from = 0, to = r->count;
    while (from < to) {
        const int64_t middle = (from + to) / 2;
        if (r->at[middle].high < low)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static weft_status add_run(runs *r, int64_t low, int64_t high)
{
    const int64_t at = find_run(r, low);
    int64_t end = at;
    for (; end < r->count && r->at[end].low <= high; end++) {
        low = r->at[end].low < low ? r->at[end].low : low;
        high = r->at[end].high > high ? r->at[end].high : high;
    }
    if (end == at)
        WEFT_TRY(weft_grow((void **)&r->at, r->count, &r->capacity, sizeof *r->at));
    memmove(r->at + at + 1, r->at + end, (size_t)(r->count - end) * sizeof *r->at);
    r->count += 1 - (end - at);
    r->at[at] = (run){low, high};
    return WEFT_OK;
}

/* Removes [low, high), which must be inside one run. */
static weft_status remove_run(runs *r, int64_t low, int64_t high)
{
    const int64_t at = find_run(r, low + 1);
    const run whole = r->at[at];
    if (whole.low < low && high < whole.high) {
        WEFT_TRY(weft_grow((void **)&r->at, r->count, &r->capacity, sizeof *r->at));
        memmove(r->at + at + 1, r->at + at, (size_t)(r->count++ - at) * sizeof *r->at);
        r->at[at].high = low;
        r->at[at + 1].low = high;
    } else if (whole.low < low) {
        r->at[at].high = low;
    } else if (high < whole.high) {
        r->at[at].low = high;
    } else {
        memmove(r->at + at, r->at + at + 1, (size_t)(--r->count - at) * sizeof *r->at);
    }
    return WEFT_OK;
}

/* Finds the smallest gap of at least `bytes` between runs that arrive in order of `low` and may
 * overlap. */
typedef struct gap {
    int64_t bytes, end, best, least;
} gap;

static gap begin_gap(int64_t bytes)
{
    return (gap){.bytes = bytes, .best = -1, .least = INT64_MAX};
}

/* Passes the next run. Returns false if no later gap can be better. */
static bool pass_run(gap *g, const run *r)
{
    const int64_t size = r->low - g->end;
    if (size >= g->bytes && size < g->least) {
        g->best = g->end;
        g->least = size;
    }
    g->end = r->high > g->end ? r->high : g->end;
    return g->least > g->bytes;
}

static int64_t end_gap(const gap *g)
{
    return g->best >= 0 ? g->best : g->end;
}

static int64_t best_gap(const runs *r, int64_t bytes)
{
    gap g = begin_gap(bytes);
    for (int64_t i = 0; i < r->count && pass_run(&g, &r->at[i]); i++)
        ;
    return end_gap(&g);
}

/* ---- earliest first ------------------------------------------------------------------------ */

static int compare(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

static int by_size(const void *a, const void *b)
{
    const weft_offset_request *x = a, *y = b;
    if (x->bytes != y->bytes)
        return compare(y->bytes, x->bytes);
    if (x->last - x->first != y->last - y->first)
        return compare(y->last - y->first, x->last - x->first);
    return compare(x->value, y->value);
}

static int by_first(const void *a, const void *b)
{
    const weft_offset_request *x = a, *y = b;
    return x->first != y->first ? compare(x->first, y->first) : by_size(a, b);
}

static int64_t life_of(const weft_offset_request *b)
{
    return (int64_t)b->last - b->first + 1;
}

static int by_area(const void *a, const void *b)
{
    const weft_offset_request *x = a, *y = b;
    const double p = (double)x->bytes * (double)life_of(x),
                 q = (double)y->bytes * (double)life_of(y);
    return p != q ? (q < p ? -1 : 1) : by_size(a, b);
}

static int by_life(const void *a, const void *b)
{
    const weft_offset_request *x = a, *y = b;
    return life_of(x) != life_of(y) ? compare(life_of(y), life_of(x)) : by_size(a, b);
}

static int by_last(const void *a, const void *b)
{
    const weft_offset_request *const *x = a, *const *y = b;
    return compare((*x)->last, (*y)->last);
}

static weft_status pack_by_time(weft_offset_request *box, int32_t count, int64_t *height)
{
    runs live = {0};
    weft_status_code status = WEFT_OK;
    weft_offset_request **ending;
    WEFT_TRY(WEFT_NEW(ending, count + 1, "placing %d buffers", (int)count));
    qsort(box, (size_t)count, sizeof *box, by_first);
    for (int32_t b = 0; b < count; b++)
        ending[b] = &box[b];
    qsort(ending, (size_t)count, sizeof *ending, by_last);
    *height = 0;
    for (int32_t b = 0, e = 0; b < count; b++) {
        for (; ending[e]->last < box[b].first; e++) /* all are placed, because first <= last */
            if (ending[e]->bytes)
                WEFT_GO(remove_run(&live, ending[e]->offset, ending[e]->offset + ending[e]->bytes));
        box[b].offset = best_gap(&live, box[b].bytes);
        const int64_t end = box[b].offset + box[b].bytes;
        *height = end > *height ? end : *height;
        if (box[b].bytes)
            WEFT_GO(add_run(&live, box[b].offset, end));
    }
out:
    weft_free(live.at);
    weft_free(ending);
    return status;
}

/* ---- in any order --------------------------------------------------------------------------- */

static weft_status insert(tree *t, int32_t piece, int32_t from, int32_t to,
                          const weft_offset_request *b)
{
    const int64_t end = b->offset + b->bytes;
    WEFT_TRY(add_run(&t->any[piece], b->offset, end));
    if (b->first <= from && to <= b->last)
        return add_run(&t->cover[piece], b->offset, end);
    const int32_t middle = from + (to - from) / 2;
    if (b->first <= middle)
        WEFT_TRY(insert(t, 2 * piece, from, middle, b));
    return b->last > middle ? insert(t, 2 * piece + 1, middle + 1, to, b) : WEFT_OK;
}

static void sink(tree *t, int at)
{
    const cursor c = t->heap[at];
    for (int child; (child = 2 * at + 1) < t->count; at = child) {
        if (child + 1 < t->count && t->heap[child + 1].at->low < t->heap[child].at->low)
            child++;
        if (c.at->low <= t->heap[child].at->low)
            break;
        t->heap[at] = t->heap[child];
    }
    t->heap[at] = c;
}

static void collect(tree *t, const runs *r)
{
    if (r->count)
        t->heap[t->count++] = (cursor){r->at, r->at + r->count};
}

static void query(tree *t, int32_t piece, int32_t from, int32_t to, const weft_offset_request *b)
{
    if (b->first <= from && to <= b->last) {
        collect(t, &t->any[piece]);
        return;
    }
    collect(t, &t->cover[piece]);
    const int32_t middle = from + (to - from) / 2;
    if (b->first <= middle)
        query(t, 2 * piece, from, middle, b);
    if (b->last > middle)
        query(t, 2 * piece + 1, middle + 1, to, b);
}

/* Finds the offset of a box. Merges the runs of all intervals of the query, so that each run is
 * visited once. */
static int64_t find_offset(tree *t, const weft_offset_request *b)
{
    gap g = begin_gap(b->bytes);
    t->count = 0;
    query(t, 1, 0, t->leaves - 1, b);
    for (int i = t->count / 2; i-- > 0;)
        sink(t, i);
    while (t->count && pass_run(&g, t->heap[0].at)) {
        if (++t->heap[0].at == t->heap[0].end)
            t->heap[0] = t->heap[--t->count];
        if (t->count)
            sink(t, 0);
    }
    return end_gap(&g);
}

/* Places boxes in `order` until the height reaches `lowest`. */
static weft_status pack_in_order(weft_offset_request *box, int32_t count, int32_t nodes,
                                 int (*order)(const void *, const void *), int64_t lowest,
                                 int64_t *height)
{
    tree t = {.leaves = 1};
    weft_status_code status = WEFT_OK;
    while (t.leaves <= nodes)
        t.leaves *= 2;
    t.cover = weft_calloc(2 * (int64_t)t.leaves, sizeof *t.cover);
    t.any = weft_calloc(2 * (int64_t)t.leaves, sizeof *t.any);
    WEFT_GO(WEFT_ALLOCATED(t.cover && t.any, "placing %d buffers", (int)count));
    qsort(box, (size_t)count, sizeof *box, order);
    *height = 0;
    for (int32_t b = 0; b < count && *height < lowest; b++) {
        box[b].offset = find_offset(&t, &box[b]);
        if (box[b].bytes)
            WEFT_GO(insert(&t, 1, 0, t.leaves - 1, &box[b]));
        const int64_t end = box[b].offset + box[b].bytes;
        *height = end > *height ? end : *height;
    }
out:
    for (int32_t i = 0; i < 2 * t.leaves; i++) {
        weft_free(t.cover ? t.cover[i].at : NULL);
        weft_free(t.any ? t.any[i].at : NULL);
    }
    weft_free(t.cover);
    weft_free(t.any);
    return status;
}

/* ---- the best order ------------------------------------------------------------------------ */

static weft_status live_peak(const weft_offset_request *box, int32_t count, int32_t nodes,
                             int64_t *peak)
{
    int64_t *change;
    WEFT_TRY(WEFT_NEW(change, (int64_t)(nodes + 3), "placing %d buffers", (int)count));
    for (int32_t b = 0; b < count; b++) {
        change[box[b].first] += box[b].bytes;
        change[box[b].last + 1] -= box[b].bytes;
    }
    int64_t live = 0;
    *peak = 0;
    for (int32_t n = 0; n <= nodes; n++) {
        live += change[n];
        *peak = live > *peak ? live : *peak;
    }
    weft_free(change);
    return WEFT_OK;
}

weft_status weft_offset_requests_plan(weft_offset_request *box, int32_t count, int32_t nodes,
                                      int64_t *height, int64_t *live)
{
    static int (*const order[])(const void *, const void *) = {NULL, by_size, by_area, by_life};
    const int64_t bytes = count * (int64_t)sizeof *box;
    weft_offset_request *best = weft_alloc(bytes + 1);
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_ALLOCATED(best, "placing %d buffers", (int)count));
    WEFT_GO(live_peak(box, count, nodes, live));
    *height = INT64_MAX;
    for (int i = 0; i < WEFT_COUNT(order) && *height > *live; i++) {
        int64_t is = 0;
        WEFT_GO(order[i] ? pack_in_order(box, count, nodes, order[i], *height, &is)
                         : pack_by_time(box, count, &is));
        if (is >= *height)
            continue;
        *height = is;
        memcpy(best, box, (size_t)bytes);
    }
    memcpy(box, best, (size_t)bytes);
out:
    weft_free(best);
    return status;
}

/* Offline best fit: each box goes into the smallest gap that takes it among the boxes placed before
 * that live at the same time; the lowest of equal gaps; on top of all where none takes it. Four
 * orders are tried, the earliest boxes first, the biggest, those of most bytes x nodes, and those
 * that live longest, until a stack is as low as can be; the lowest wins, and one that is no lower
 * than those before is left where that shows.
 *
 *   offset
 *     ^   +---------+   +------------------+
 *     |   |  %3     |   |   %9             |      two boxes never overlap;
 *     |   +------+--+-----+------+---------+      the height is that of the highest box
 *     |   |  %2  |  | %5  |      | %11  |
 *     +---+------+--+-----+------+------+---->  node
 *
 * What counts for a box is the union of what lives while it lives. Boxes lie on each other, so that
 * union is a few runs of bytes, whatever the number of boxes in it: some tens where a thousand
 * buffers live. With r runs, the earliest first takes n r: the runs at the present node are kept,
 * boxes are put in and taken out. Other orders take n r log n: a binary tree over the nodes
 * has for each piece of time the runs of the boxes that cover it (`cover`), and of all that touch
 * it (`any`).
 *
 *   box over nodes 1..5:        [0 ........... 7]           any    at every piece on the way
 *                          [0 .... 3]      [4 .... 7]       any
 *                       [0 1]   [2 3]#   [4 5]#   [6 7]     any and cover at #
 *                          [1]#                             any and cover
 *
 *   what lives during 2..3:     cover of the pieces above [2 3], and any of [2 3]                */
#include "pass/offsets.h"

#include "base/config.h"

#include <stdlib.h>
#include <string.h>

typedef struct run {
    int64_t low, high; /* bytes [low, high) */
} run;

/* Sorted, apart from each other. */
typedef struct runs {
    run *at;
    int64_t count, room;
} runs;

typedef struct tree {
    runs *cover, *any;  /* by piece: 1 is all the time, 2i and 2i + 1 the halves of i */
    int32_t leaves;     /* a power of two */
    run *found, *other; /* what a query collects, and room to merge it */
    int64_t found_count, found_room, other_room;
} tree;

/* The first run that ends at `low` or behind it. */
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
        WEFT_TRY(weft_grow((void **)&r->at, r->count, &r->room, sizeof *r->at));
    memmove(r->at + at + 1, r->at + end, (size_t)(r->count - end) * sizeof *r->at);
    r->count += 1 - (end - at);
    r->at[at] = (run){low, high};
    return WEFT_OK;
}

/* [low, high) is part of one run. */
static weft_status remove_run(runs *r, int64_t low, int64_t high)
{
    const int64_t at = find_run(r, low + 1);
    const run whole = r->at[at];
    if (whole.low < low && high < whole.high) {
        WEFT_TRY(weft_grow((void **)&r->at, r->count, &r->room, sizeof *r->at));
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

/* The place for `bytes` between runs that are sorted by `low` and may overlap. */
static int64_t best_gap(const run *at, int64_t count, int64_t bytes)
{
    int64_t end = 0, best = -1, least = INT64_MAX;
    for (int64_t i = 0; i < count; i++) {
        const int64_t gap = at[i].low - end;
        if (gap >= bytes && gap < least) {
            best = end;
            least = gap;
        }
        end = at[i].high > end ? at[i].high : end;
    }
    return best >= 0 ? best : end;
}

/* ---- the earliest first -------------------------------------------------------------------- */

static int compare(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

static int by_size(const void *a, const void *b)
{
    const weft_brick *x = a, *y = b;
    if (x->bytes != y->bytes)
        return compare(y->bytes, x->bytes);
    if (x->last - x->first != y->last - y->first)
        return compare(y->last - y->first, x->last - x->first);
    return compare(x->value, y->value);
}

static int by_first(const void *a, const void *b)
{
    const weft_brick *x = a, *y = b;
    return x->first != y->first ? compare(x->first, y->first) : by_size(a, b);
}

static int64_t life_of(const weft_brick *b)
{
    return (int64_t)b->last - b->first + 1;
}

static int by_area(const void *a, const void *b)
{
    const weft_brick *x = a, *y = b;
    const double p = (double)x->bytes * (double)life_of(x),
                 q = (double)y->bytes * (double)life_of(y);
    return p != q ? (q < p ? -1 : 1) : by_size(a, b);
}

static int by_life(const void *a, const void *b)
{
    const weft_brick *x = a, *y = b;
    return life_of(x) != life_of(y) ? compare(life_of(y), life_of(x)) : by_size(a, b);
}

static int by_last(const void *a, const void *b)
{
    const weft_brick *const *x = a, *const *y = b;
    return compare((*x)->last, (*y)->last);
}

static weft_status place_by_time(weft_brick *box, int32_t count, int64_t *height)
{
    runs live = {0};
    weft_status_code status = WEFT_OK;
    weft_brick **ending = weft_alloc((count + 1) * (int64_t)sizeof *ending);
    if (!ending)
        return weft_fail(WEFT_E_MEMORY, "no memory to place %d buffers", (int)count);
    qsort(box, (size_t)count, sizeof *box, by_first);
    for (int32_t b = 0; b < count; b++)
        ending[b] = &box[b];
    qsort(ending, (size_t)count, sizeof *ending, by_last);
    *height = 0;
    for (int32_t b = 0, e = 0; b < count; b++) {
        for (; ending[e]->last < box[b].first; e++) /* all of them are placed: first <= last */
            if (ending[e]->bytes)
                WEFT_GO(remove_run(&live, ending[e]->offset, ending[e]->offset + ending[e]->bytes));
        box[b].offset = best_gap(live.at, live.count, box[b].bytes);
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

static weft_status insert(tree *t, int32_t piece, int32_t from, int32_t to, const weft_brick *b)
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

/* Merges `r` into the runs found so far; runs that overlap become one. */
static weft_status collect(tree *t, const runs *r)
{
    const int64_t count = t->found_count + r->count;
    if (!r->count)
        return WEFT_OK;
    while (t->other_room < count || t->found_room < count) {
        WEFT_TRY(weft_grow((void **)&t->found, t->found_room, &t->found_room, sizeof *t->found));
        WEFT_TRY(weft_grow((void **)&t->other, t->other_room, &t->other_room, sizeof *t->other));
    }
    int64_t kept = 0;
    for (int64_t a = 0, b = 0; a + b < count;) {
        const run next = b == r->count || (a < t->found_count && t->found[a].low <= r->at[b].low)
                             ? t->found[a++]
                             : r->at[b++];
        run *before = kept ? &t->other[kept - 1] : NULL;
        if (!before || next.low >= before->high)
            t->other[kept++] = next;
        else if (next.high > before->high) /* they overlap: no gap is between them */
            before->high = next.high;
    }
    run *const merged = t->other;
    const int64_t room = t->other_room;
    t->other = t->found;
    t->other_room = t->found_room;
    t->found = merged;
    t->found_room = room;
    t->found_count = kept;
    return WEFT_OK;
}

static weft_status query(tree *t, int32_t piece, int32_t from, int32_t to, const weft_brick *b)
{
    if (b->first <= from && to <= b->last)
        return collect(t, &t->any[piece]);
    WEFT_TRY(collect(t, &t->cover[piece]));
    const int32_t middle = from + (to - from) / 2;
    if (b->first <= middle)
        WEFT_TRY(query(t, 2 * piece, from, middle, b));
    return b->last > middle ? query(t, 2 * piece + 1, middle + 1, to, b) : WEFT_OK;
}

/* Until it is as high as `lowest`. */
static weft_status place_in_order(weft_brick *box, int32_t count, int32_t nodes,
                                  int (*order)(const void *, const void *), int64_t lowest,
                                  int64_t *height)
{
    tree t = {.leaves = 1};
    weft_status_code status = WEFT_OK;
    while (t.leaves <= nodes)
        t.leaves *= 2;
    t.cover = weft_alloc(2 * (int64_t)t.leaves * (int64_t)sizeof *t.cover);
    t.any = weft_alloc(2 * (int64_t)t.leaves * (int64_t)sizeof *t.any);
    if (!t.cover || !t.any) {
        status = weft_fail(WEFT_E_MEMORY, "no memory to place %d buffers", (int)count);
        goto out;
    }
    qsort(box, (size_t)count, sizeof *box, order);
    *height = 0;
    for (int32_t b = 0; b < count && *height < lowest; b++) {
        t.found_count = 0;
        WEFT_GO(query(&t, 1, 0, t.leaves - 1, &box[b]));
        box[b].offset = best_gap(t.found, t.found_count, box[b].bytes);
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
    weft_free(t.found);
    weft_free(t.other);
    return status;
}

/* ---- the lowest of all -------------------------------------------------------------------- */

static weft_status live_peak(const weft_brick *box, int32_t count, int32_t nodes, int64_t *peak)
{
    int64_t *change = weft_alloc((int64_t)(nodes + 3) * (int64_t)sizeof *change);
    if (!change)
        return weft_fail(WEFT_E_MEMORY, "no memory to place %d buffers", (int)count);
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

weft_status weft_bricks_place(weft_brick *box, int32_t count, int32_t nodes, int64_t *height,
                              int64_t *live)
{
    static int (*const order[])(const void *, const void *) = {NULL, by_size, by_area, by_life};
    const int64_t bytes = count * (int64_t)sizeof *box;
    weft_brick *kept = weft_alloc(bytes + 1);
    weft_status_code status = WEFT_OK;
    if (!kept)
        return weft_fail(WEFT_E_MEMORY, "no memory to place %d buffers", (int)count);
    WEFT_GO(live_peak(box, count, nodes, live));
    *height = INT64_MAX;
    for (int i = 0; i < WEFT_COUNT(order) && *height > *live; i++) {
        int64_t is = 0;
        WEFT_GO(order[i] ? place_in_order(box, count, nodes, order[i], *height, &is)
                         : place_by_time(box, count, &is));
        if (is >= *height)
            continue;
        *height = is;
        memcpy(kept, box, (size_t)bytes);
    }
    memcpy(box, kept, (size_t)bytes);
out:
    weft_free(kept);
    return status;
}

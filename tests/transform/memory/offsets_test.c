/* Allocation of offsets: no two boxes overlap, and the height is that of best fit as written here,
 * box by box, in the same four orders. */
#include "transform/memory/offsets.h"

#include "base/rng.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static int by_size(const void *a, const void *b)
{
    const weft_offset_request *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    if (x->last - x->first != y->last - y->first)
        return x->last - x->first > y->last - y->first ? -1 : 1;
    return x->value < y->value ? -1 : 1;
}

static int by_first(const void *a, const void *b)
{
    const weft_offset_request *x = a, *y = b;
    return x->first != y->first ? (x->first < y->first ? -1 : 1) : by_size(a, b);
}

static int by_area(const void *a, const void *b)
{
    const weft_offset_request *x = a, *y = b;
    const double p = (double)x->bytes * (x->last - x->first + 1),
                 q = (double)y->bytes * (y->last - y->first + 1);
    return p != q ? (p > q ? -1 : 1) : by_size(a, b);
}

static int by_life(const void *a, const void *b)
{
    const weft_offset_request *x = a, *y = b;
    const int p = x->last - x->first, q = y->last - y->first;
    return p != q ? (p > q ? -1 : 1) : by_size(a, b);
}

static int by_offset(const void *a, const void *b)
{
    const weft_offset_request *const *x = a, *const *y = b;
    return (*x)->offset < (*y)->offset ? -1 : (*x)->offset > (*y)->offset;
}

static bool together(const weft_offset_request *a, const weft_offset_request *b)
{
    return a->first <= b->last && b->first <= a->last;
}

static int64_t plain_best_fit(weft_offset_request *box, int count)
{
    weft_offset_request *near[256];
    int64_t height = 0;
    for (int b = 0; b < count; b++) {
        int nears = 0;
        for (int i = 0; i < b; i++)
            if (together(&box[i], &box[b]) && box[i].bytes)
                near[nears++] = &box[i];
        qsort(near, (size_t)nears, sizeof *near, by_offset);
        int64_t end = 0, best = -1, least = INT64_MAX;
        for (int i = 0; i < nears; i++) {
            const int64_t gap = near[i]->offset - end;
            if (gap >= box[b].bytes && gap < least) {
                best = end;
                least = gap;
            }
            const int64_t top = near[i]->offset + near[i]->bytes;
            end = top > end ? top : end;
        }
        box[b].offset = best >= 0 ? best : end;
        height = box[b].offset + box[b].bytes > height ? box[b].offset + box[b].bytes : height;
    }
    return height;
}

Test(offsets, best_fit_on_random_boxes)
{
    int below = 0, lower = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        weft_rng rng = weft_rng_make(seed, WEFT_RNG_TEST);
        const int count = 1 + (int)weft_rng_below(&rng, 256);
        const int nodes = 1 + (int)weft_rng_below(&rng, 300);
        weft_offset_request box[256], other[256];
        for (int b = 0; b < count; b++) {
            const int first = (int)weft_rng_below(&rng, (uint64_t)nodes);
            const int life = (int)weft_rng_below(&rng, seed % 2 ? 8 : (uint64_t)nodes);
            box[b] = (weft_offset_request){
                .value = b,
                .first = first,
                .last = first + life < nodes ? first + life : nodes,
                .bytes = 64 * (int64_t)weft_rng_below(&rng, seed % 3 ? 40 : 3)};
        }
        memcpy(other, box, sizeof box);
        int64_t height, live;
        cr_assert_eq(weft_offset_requests_plan(box, count, nodes, &height, &live), WEFT_OK);
        int64_t top = 0;
        for (int a = 0; a < count; a++) {
            for (int b = 0; b < a; b++)
                cr_assert(!together(&box[a], &box[b]) || !box[a].bytes || !box[b].bytes ||
                              box[a].offset + box[a].bytes <= box[b].offset ||
                              box[b].offset + box[b].bytes <= box[a].offset,
                          "seed %d", (int)seed);
            top = box[a].offset + box[a].bytes > top ? box[a].offset + box[a].bytes : top;
        }
        cr_expect_eq(top, height);
        cr_expect_geq(height, live);
        qsort(other, (size_t)count, sizeof *other, by_size);
        const int64_t size = plain_best_fit(other, count);
        qsort(other, (size_t)count, sizeof *other, by_first);
        const int64_t time = plain_best_fit(other, count);
        qsort(other, (size_t)count, sizeof *other, by_area);
        const int64_t area = plain_best_fit(other, count);
        qsort(other, (size_t)count, sizeof *other, by_life);
        const int64_t length = plain_best_fit(other, count);
        const int64_t two = size < time ? size : time, more = area < length ? area : length;
        cr_expect_eq(height, two < more ? two : more, "seed %d", (int)seed);
        below += time < size;
        lower += more < two;
    }
    cr_expect_gt(below, 10); /* every order wins sometimes */
    cr_expect_gt(lower, 10);
}

#include "curate/doubts.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum {
    WIDE = WEFT_SHOT_WIDTH,
    HIGH = WEFT_SHOT_HEIGHT,
    BLOCK = WEFT_LEAP_BLOCK,
    ACROSS = WIDE / BLOCK,
    DOWN = HIGH / BLOCK,
    AREA = BLOCK * BLOCK,
    REACH = WEFT_LEAP_REACH,
    NOISE = 2 * AREA /* change of a block that is nothing: two levels */
};

/* Levels of weft_leap.leap. Few frames of whole films leap by leap_frame; cuts by 25 and more;
 * damage by 0.2 to 3 where it begins, and by 0.3 and more where it ends. */
static const float leap_frame = 0.12f, leap_key = 0.25f, leap_cut = 20, leap_some = 0.03f;

/* What is left of the change of each block where it may have moved by REACH pixels: the least sum
 * of absolute differences of 25 shifts, one after the other, each row of pixels at once. */
static void changes(const weft_doubts *d, const weft_video_frame *f, uint16_t change[])
{
    for (int k = 0; k < WEFT_LEAP_BLOCKS; k++)
        change[k] = UINT16_MAX;
    for (int shift = 0; shift < (2 * REACH + 1) * (2 * REACH + 1); shift++) {
        const int dy = shift / (2 * REACH + 1), dx = shift % (2 * REACH + 1);
        for (int by = 0; by < DOWN; by++) {
            uint16_t sum[WIDE] = {0};
            for (int y = by * BLOCK; y < (by + 1) * BLOCK; y++) {
                const uint8_t *now = f->plane[0] + y * f->stride[0], *then = &d->last[y + dy][dx];
                for (int x = 0; x < WIDE; x++)
                    sum[x] = (uint16_t)(sum[x] + abs(now[x] - then[x]));
            }
            for (int bx = 0; bx < ACROSS; bx++) {
                int all = 0;
                for (int x = 0; x < BLOCK; x++)
                    all += sum[bx * BLOCK + x];
                uint16_t *least = &change[by * ACROSS + bx];
                *least = all < *least ? (uint16_t)all : *least;
            }
        }
    }
}

/* The greatest change of the last frames in a block and those around it. */
static int usual(const weft_doubts *d, int bx, int by)
{
    int most = 0;
    for (int t = 0; t < WEFT_LEAP_PAST; t++)
        for (int y = by > 0 ? by - 1 : 0; y <= by + 1 && y < DOWN; y++)
            for (int x = bx > 0 ? bx - 1 : 0; x <= bx + 1 && x < ACROSS; x++)
                if (d->change[t][y * ACROSS + x] > most)
                    most = d->change[t][y * ACROSS + x];
    return most;
}

/* By how much a frame changes more than one and a half times what is usual, and more than noise. */
static float leap_of(const weft_doubts *d, const uint16_t change[])
{
    int64_t sum = 0;
    for (int by = 0; by < DOWN; by++)
        for (int bx = 0; bx < ACROSS; bx++) {
            const int now = change[by * ACROSS + bx];
            if (now <= NOISE)
                continue;
            const int more = now - NOISE - 3 * usual(d, bx, by) / 2;
            sum += more > 0 ? more : 0;
        }
    return (float)sum / (AREA * WEFT_LEAP_BLOCKS);
}

static void remember(weft_doubts *d, const weft_video_frame *f)
{
    for (int y = -REACH; y < HIGH + REACH; y++) {
        const uint8_t *row = f->plane[0] + (y < 0 ? 0 : y >= HIGH ? HIGH - 1 : y) * f->stride[0];
        uint8_t *to = d->last[y + REACH];
        memset(to, row[0], REACH);
        memcpy(to + REACH, row, WIDE);
        memset(to + REACH + WIDE, row[WIDE - 1], REACH);
    }
}

weft_status weft_doubts_push(weft_doubts *d, const weft_video_frame *f)
{
    uint16_t change[WEFT_LEAP_BLOCKS] = {0};
    WEFT_TRY(weft_grow((void **)&d->frame, d->frames, &d->capacity, sizeof *d->frame));
    weft_leap *leap = &d->frame[d->frames];
    *leap = (weft_leap){
        .seconds = f->seconds, .key = f->key, .told = f->mixed || f->damaged || f->jump};
    if (d->frames > 0)
        changes(d, f, change);
    if (d->frames > 1) /* nothing is usual yet for the second */
        leap->leap = leap_of(d, change);
    memcpy(d->change[d->frames % WEFT_LEAP_PAST], change, sizeof change);
    remember(d, f);
    d->frames++;
    return WEFT_OK;
}

/* The frame between two key pictures that leaps most; -1: all are told. */
static int64_t greatest(const weft_doubts *d, int64_t key, int64_t next)
{
    int64_t at = -1;
    for (int64_t t = key + 1; t < next; t++)
        if (!d->frame[t].told && (at < 0 || d->frame[t].leap > d->frame[at].leap))
            at = t;
    return at;
}

weft_status weft_doubts_list(const weft_doubts *d, weft_doubt **list, int64_t *count)
{
    int64_t capacity = 0, key = 0;
    enum { NO, YES, WIDE_ONE };
    uint8_t *doubt = weft_alloc(d->frames + 1);
    if (!doubt)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %lld frames", (long long)d->frames);
    for (int64_t t = 0; t < d->frames; t++) {
        const weft_leap *f = &d->frame[t];
        doubt[t] = t == 0 || f->leap > (f->key ? leap_key : leap_frame) ? YES : NO;
        if (!f->key || t == 0)
            continue;
        const int64_t at = f->leap > leap_key ? greatest(d, key, t) : -1;
        if (at >= 0 && (f->leap < leap_cut || d->frame[at].leap > leap_some))
            doubt[at] = WIDE_ONE;
        key = t;
    }
    const int64_t last = greatest(d, key, d->frames); /* no key picture ends what begins here */
    if (last >= 0 && doubt[last] == YES)
        doubt[last] = WIDE_ONE;
    *list = NULL;
    *count = 0;
    weft_status_code status = WEFT_OK;
    for (int64_t t = 0; t < d->frames && status == WEFT_OK; t++) {
        if (doubt[t] == NO || d->frame[t].told)
            continue;
        status = weft_grow((void **)list, *count, &capacity, sizeof **list);
        if (status == WEFT_OK)
            (*list)[(*count)++] =
                (weft_doubt){d->frame[t].seconds, d->frame[t].leap, doubt[t] == WIDE_ONE};
    }
    weft_free(doubt);
    return status;
}

void weft_doubts_clear(weft_doubts *d)
{
    weft_free(d->frame);
    *d = (weft_doubts){0};
}

#include "curate/proof/suspect_frames.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum {
    WIDE = WEFT_SHOT_WIDTH,
    HIGH = WEFT_SHOT_HEIGHT,
    BLOCK = WEFT_FRAME_JUMP_BLOCK,
    ACROSS = WIDE / BLOCK,
    DOWN = HIGH / BLOCK,
    AREA = BLOCK * BLOCK,
    REACH = WEFT_FRAME_JUMP_REACH,
    NOISE = 2 * AREA /* change of an unchanged block: two levels */
};

/* Thresholds of weft_frame_jump.jump, in levels. Few frames of a video exceed jump_frame. Cuts have
 * 25 and more. Damage has 0.2 to 3 where it begins, and at least 0.3 where it ends. */
static const float jump_frame = 0.12f, jump_key = 0.25f, jump_cut = 20, jump_some = 0.03f;

/* Change of each block after motion of up to REACH pixels: the minimum sum of absolute differences
 * over 25 shifts. Processes one shift at a time, a complete row of pixels at once. */
static void changes(const weft_suspect_detector *d, const weft_video_frame *f, uint16_t change[])
{
    for (int k = 0; k < WEFT_FRAME_JUMP_BLOCKS; k++)
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

/* Maximum change in the last frames of a block and its neighbours. */
static int usual(const weft_suspect_detector *d, int bx, int by)
{
    int most = 0;
    for (int t = 0; t < WEFT_FRAME_JUMP_PAST; t++)
        for (int y = by > 0 ? by - 1 : 0; y <= by + 1 && y < DOWN; y++)
            for (int x = bx > 0 ? bx - 1 : 0; x <= bx + 1 && x < ACROSS; x++)
                if (d->change[t][y * ACROSS + x] > most)
                    most = d->change[t][y * ACROSS + x];
    return most;
}

/* Change of a frame above one and a half times the usual change and above noise. */
static float jump_of(const weft_suspect_detector *d, const uint16_t change[])
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
    return (float)sum / (AREA * WEFT_FRAME_JUMP_BLOCKS);
}

static void remember(weft_suspect_detector *d, const weft_video_frame *f)
{
    for (int y = -REACH; y < HIGH + REACH; y++) {
        const uint8_t *row = f->plane[0] + (y < 0 ? 0 : y >= HIGH ? HIGH - 1 : y) * f->stride[0];
        uint8_t *to = d->last[y + REACH];
        memset(to, row[0], REACH);
        memcpy(to + REACH, row, WIDE);
        memset(to + REACH + WIDE, row[WIDE - 1], REACH);
    }
}

weft_status weft_suspect_detector_push(weft_suspect_detector *d, const weft_video_frame *f)
{
    uint16_t change[WEFT_FRAME_JUMP_BLOCKS] = {0};
    WEFT_TRY(weft_grow((void **)&d->frame, d->frames, &d->capacity, sizeof *d->frame));
    weft_frame_jump *jump = &d->frame[d->frames];
    *jump = (weft_frame_jump){
        .seconds = f->seconds, .key = f->key, .known = f->mixed || f->damaged || f->jump};
    if (d->frames > 0)
        changes(d, f, change);
    if (d->frames > 1) /* the second frame has no usual change yet */
        jump->jump = jump_of(d, change);
    memcpy(d->change[d->frames % WEFT_FRAME_JUMP_PAST], change, sizeof change);
    remember(d, f);
    d->frames++;
    return WEFT_OK;
}

/* Frame with the largest jump between two key frames; -1: all are already listed. */
static int64_t greatest(const weft_suspect_detector *d, int64_t key, int64_t next)
{
    int64_t at = -1;
    for (int64_t t = key + 1; t < next; t++)
        if (!d->frame[t].known && (at < 0 || d->frame[t].jump > d->frame[at].jump))
            at = t;
    return at;
}

weft_status weft_suspect_detector_list(const weft_suspect_detector *d, weft_suspect_frame **list,
                                       int64_t *count)
{
    int64_t capacity = 0, key = 0;
    enum { NO, YES, WIDE_ONE };
    uint8_t *suspect;
    WEFT_TRY(WEFT_NEW(suspect, d->frames + 1, "%" PRId64 " frames", d->frames));
    for (int64_t t = 0; t < d->frames; t++) {
        const weft_frame_jump *f = &d->frame[t];
        suspect[t] = t == 0 || f->jump > (f->key ? jump_key : jump_frame) ? YES : NO;
        if (!f->key || t == 0)
            continue;
        const int64_t at = f->jump > jump_key ? greatest(d, key, t) : -1;
        if (at >= 0 && (f->jump < jump_cut || d->frame[at].jump > jump_some))
            suspect[at] = WIDE_ONE;
        key = t;
    }
    /* no later key frame ends damage that begins here */
    const int64_t last = greatest(d, key, d->frames);
    if (last >= 0 && suspect[last] == YES)
        suspect[last] = WIDE_ONE;
    *list = NULL;
    *count = 0;
    weft_status_code status = WEFT_OK;
    for (int64_t t = 0; t < d->frames; t++) {
        if (suspect[t] == NO || d->frame[t].known)
            continue;
        WEFT_GO(weft_grow((void **)list, *count, &capacity, sizeof **list));
        (*list)[(*count)++] =
            (weft_suspect_frame){d->frame[t].seconds, d->frame[t].jump, suspect[t] == WIDE_ONE};
    }
out:
    weft_free(suspect);
    return status;
}

void weft_suspect_detector_clear(weft_suspect_detector *d)
{
    weft_free(d->frame);
    *d = (weft_suspect_detector){0};
}

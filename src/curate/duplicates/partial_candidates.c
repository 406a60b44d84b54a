#include "curate/duplicates/partial_candidates.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHOICES = 4, LOW = 36, FIRST = 6, LAST = 6, LEAST_VOTES = 3, MAX_SHOTS = 1 << 28 };

typedef struct ref {
    uint32_t shot;
    uint16_t frame, point;
} ref;

typedef struct point_index {
    const weft_parts *const *shot;
    ref *ref; /* all points, by shot */
    int64_t refs;
    uint64_t *entry, *spare; /* key << 32 | which */
    uint64_t *vote;          /* later << 36 | earlier << 8 | how many */
    int64_t votes, capacity, unique;
} point_index;

static const weft_point *point_of(const point_index *x, uint32_t which)
{
    const ref *r = &x->ref[which];
    return &x->shot[r->shot]->keypoints[r->frame].point[r->point];
}

static weft_status list_keypoints(point_index *x, int64_t count)
{
    int64_t capacity = 0, at = 0;
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 0; x->shot[i] && k < x->shot[i]->keypoint_frames; k++)
            capacity += x->shot[i]->keypoints[k].count;
    if (capacity >= UINT32_MAX || count >= MAX_SHOTS)
        return weft_error(WEFT_MSG_VIDEO_UNSUPPORTED, WEFT_NOWHERE,
                          "the search for near-duplicates is limited to %u points", UINT32_MAX);
    x->ref = weft_calloc(capacity + 1, sizeof *x->ref);
    x->entry = weft_calloc(capacity + 1, sizeof *x->entry);
    x->spare = weft_calloc(capacity + 1, sizeof *x->spare);
    if (!x->ref || !x->entry || !x->spare)
        return weft_no_memory("%" PRId64 " points of the search for near-duplicates", capacity);
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 0; x->shot[i] && k < x->shot[i]->keypoint_frames; k++)
            for (int32_t p = 0; p < x->shot[i]->keypoints[k].count; p++)
                x->ref[at++] = (ref){(uint32_t)i, (uint16_t)k, (uint16_t)p};
    x->refs = capacity;
    return WEFT_OK;
}

/* One stable radix pass over the 16 bits from `shift` on. */
static void sort_pass(const uint64_t *from, uint64_t *to, int64_t count, int shift, int64_t *starts)
{
    memset(starts, 0, 65537 * sizeof *starts);
    for (int64_t i = 0; i < count; i++)
        starts[(from[i] >> shift & 65535) + 1]++;
    for (int i = 0; i < 65536; i++)
        starts[i + 1] += starts[i];
    for (int64_t i = 0; i < count; i++)
        to[starts[from[i] >> shift & 65535]++] = from[i];
}

/* Bits of the low frequencies, others for each choice. The first bit is the same in all words. */
static void choose_bits(int choice, int width, int bits[LOW])
{
    int order[LOW];
    uint32_t state = 2166136261u + 977u * (uint32_t)choice;
    for (int i = 0; i < LOW; i++)
        order[i] = i + 1;
    for (int i = LOW - 1; i > 0; i--) {
        state = state * 1664525u + 1013904223u;
        const int k = (int)((uint64_t)state * (uint64_t)(i + 1) >> 32), t = order[i];
        order[i] = order[k];
        order[k] = t;
    }
    memcpy(bits, order, (size_t)width * sizeof *bits);
}

int weft_near_ascending(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Adds up the votes of each pair. */
static void add_up(point_index *x)
{
    int64_t kept = 0;
    if (x->votes > 1)
        qsort(x->vote, (size_t)x->votes, sizeof *x->vote, weft_near_ascending);
    for (int64_t i = 0; i < x->votes; i++) {
        const uint64_t pair = x->vote[i] >> 8, more = x->vote[i] & 255;
        if (kept && x->vote[kept - 1] >> 8 == pair) {
            const uint64_t sum = (x->vote[kept - 1] & 255) + more;
            x->vote[kept - 1] = pair << 8 | (sum > 255 ? 255 : sum);
        } else {
            x->vote[kept++] = x->vote[i];
        }
    }
    x->votes = x->unique = kept;
}

static weft_status vote(point_index *x, uint32_t later, uint32_t earlier)
{
    WEFT_TRY(weft_grow((void **)&x->vote, x->votes, &x->capacity, sizeof *x->vote));
    x->vote[x->votes++] = (uint64_t)later << 36 | (uint64_t)earlier << 8 | 1;
    return WEFT_OK;
}

/* Shots of one key, ascending, as the entries are. */
static weft_status meet(point_index *x, int64_t from, int64_t to)
{
    uint32_t first[FIRST], last[LAST];
    int64_t seen = 0;
    for (int64_t i = from; i < to; i++) {
        const uint32_t shot = x->ref[x->entry[i] & UINT32_MAX].shot;
        if (seen && last[(seen - 1) % LAST] == shot)
            continue;
        const int64_t firsts = seen < FIRST ? seen : FIRST;
        for (int64_t k = 0; k < firsts; k++)
            WEFT_TRY(vote(x, shot, first[k]));
        for (int64_t k = seen - 1; k >= FIRST && k >= seen - LAST; k--)
            WEFT_TRY(vote(x, shot, last[k % LAST]));
        if (seen < FIRST)
            first[seen] = shot;
        last[seen++ % LAST] = shot;
    }
    return WEFT_OK;
}

static weft_status meet_in(point_index *x, int choice, int width, int64_t *starts)
{
    int bits[LOW];
    choose_bits(choice, width, bits);
    for (int64_t i = 0; i < x->refs; i++) {
        const weft_point *p = point_of(x, (uint32_t)i);
        const uint64_t word = p->word[0] | (uint64_t)p->word[1] << 32;
        uint64_t key = 0;
        for (int k = 0; k < width; k++)
            key |= (word >> bits[k] & 1) << k;
        x->entry[i] = key << 32 | (uint64_t)i;
    }
    sort_pass(x->entry, x->spare, x->refs, 32, starts);
    sort_pass(x->spare, x->entry, x->refs, 48, starts);
    for (int64_t from = 0, to; from < x->refs; from = to) {
        for (to = from + 1; to < x->refs && x->entry[to] >> 32 == x->entry[from] >> 32;)
            to++;
        WEFT_TRY(meet(x, from, to));
        if (x->votes > 2 * x->unique + (1 << 22))
            add_up(x);
    }
    return WEFT_OK;
}

weft_status weft_near_parts(const weft_parts *const *shots, int64_t count, weft_near_pair **pairs,
                            int64_t *found)
{
    point_index x = {.shot = shots};
    int64_t *starts = weft_calloc(65537, sizeof *starts);
    weft_near_pair *list = NULL;
    weft_status_code status = WEFT_ALLOCATED(starts, "the search for near-duplicates");
    WEFT_GO(status);
    WEFT_GO(list_keypoints(&x, count));
    const int width = (int)fmin(fmax(log2((double)x.refs + 1) + 4, 16), 30);
    for (int choice = 0; choice < CHOICES; choice++)
        WEFT_GO(meet_in(&x, choice, width, starts));
    add_up(&x);
    int64_t n = 0;
    WEFT_GO(WEFT_NEW(list, x.votes + 1, "the search for near-duplicates"));
    for (int64_t i = 0; i < x.votes; i++)
        if ((x.vote[i] & 255) >= LEAST_VOTES)
            list[n++] = (weft_near_pair){(uint32_t)(x.vote[i] >> 36),
                                         (uint32_t)(x.vote[i] >> 8 & (MAX_SHOTS - 1))};
    *pairs = list;
    *found = n;
out:
    weft_free(starts);
    weft_free(x.ref);
    weft_free(x.entry);
    weft_free(x.spare);
    weft_free(x.vote);
    return status;
}

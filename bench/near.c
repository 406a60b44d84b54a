/* Near-duplicate search: time by number of shots, with and without the search for partial copies.
 * The time to compare all pairs is measured on the first shots and scaled. */
#include "base/log.h"
#include "base/memory.h"
#include "curate/duplicates/near_duplicates.h"

#include <stdio.h>
#include <stdlib.h>

/* Shots of 5 s with keypoints of three images, and thumbnails on request. Number of bits that
 * change from one eighth of a second to the next, and in the keypoints of a copy. */
enum { HASHES = 40, DRIFT = 5, FEW = 1500, PICTURES = 3, LOOKS = 20, POINT_BITS = 5 };

static uint64_t state;
static uint64_t next_random(void)
{
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static void flip(weft_phash *h, int bits)
{
    for (int i = 0; i < bits; i++) {
        const uint64_t p = next_random() % WEFT_PHASH_BITS;
        h->word[p / 64] ^= (uint64_t)1 << (p % 64);
    }
}

/* Every tenth shot is a noisy copy of an earlier one. */
static void make_shots(weft_near_shot *shots, weft_phash *hash, int64_t count)
{
    for (int64_t s = 0; s < count; s++) {
        weft_phash *own = hash + s * HASHES;
        shots[s] = (weft_near_shot){.hash = own, .hashes = HASHES};
        const weft_phash *from =
            s % 10 == 9 ? hash + (int64_t)(next_random() % (uint64_t)s) * HASHES : NULL;
        weft_phash h = {0};
        for (int w = 0; w < WEFT_PHASH_WORDS; w++)
            h.word[w] = next_random();
        for (int t = 0; t < HASHES; t++, flip(&h, DRIFT)) {
            own[t] = from ? from[t] : h;
            if (from)
                flip(&own[t], 12);
        }
    }
}

/* Random keypoints. A copy (every tenth shot, of the previous one) has the keypoints of its
 * original, with a few bits flipped. */
static void make_parts(weft_parts *parts, weft_keypoints *points, int64_t count)
{
    for (int64_t s = 0; s < count; s++) {
        parts[s] = (weft_parts){.aspect = 1.7778,
                                .keypoints = points + s * PICTURES,
                                .keypoint_frames = PICTURES,
                                .keypoints_step = 2 * WEFT_KEYPOINTS_STEP,
                                .thumbnails = LOOKS};
        for (int k = 0; k < PICTURES; k++) {
            weft_keypoints *to = &points[s * PICTURES + k];
            to->count = WEFT_KEYPOINTS;
            for (int i = 0; i < WEFT_KEYPOINTS; i++) {
                weft_point *p = &to->point[i];
                const uint64_t r = next_random();
                *p = (weft_point){{(uint32_t)r | 1, (uint32_t)(r >> 33)},
                                  (uint8_t)(r >> 8),
                                  (uint8_t)(r >> 16),
                                  (uint8_t)(i % 5),
                                  0};
                if (s % 10 != 9)
                    continue;
                *p = to[-PICTURES].point[i];
                for (int b = 0; b < POINT_BITS; b++)
                    p->word[next_random() & 1] ^= 2u << next_random() % 30;
            }
        }
    }
}

/* Returns the same thumbnails for all shots; a comparison has its real cost. */
static weft_status_code make_looks(void *user, int64_t shot, weft_thumbnail *to)
{
    (void)user;
    (void)shot;
    for (int t = 0; t < LOOKS; t++)
        for (int y = 0; y < WEFT_THUMBNAIL_HEIGHT; y++)
            for (int x = 0; x < WEFT_THUMBNAIL_WIDTH; x++)
                to[t].luma[y][x] = (uint8_t)((x + t) * 37 ^ y * 91);
    return WEFT_OK;
}

static void measure(const weft_near_shot *shots, int64_t most, double share_of_parts,
                    double seconds_a_pair)
{
    weft_near_result *result = weft_alloc(most * (int64_t)sizeof *result);
    const weft_near_limits limits = {.frames = {32, 10},
                                     .share = 0.7,
                                     .mirrored = true,
                                     .parts = share_of_parts,
                                     .read_thumbnails = make_looks};
    for (int64_t count = 1000; result && count <= most; count *= 10) {
        int64_t pairs, found = 0;
        const double begin = weft_now();
        if (weft_near_duplicates_find(shots, count, &limits, result, &pairs) != WEFT_OK) {
            fprintf(stderr, "%s\n", weft_error_message());
            exit(1);
        }
        const double seconds = weft_now() - begin;
        for (int64_t i = 0; i < count; i++)
            found += result[i].of >= 0;
        printf("| %" PRId64 " | %s | %.2f | %" PRId64 " | %" PRId64 " | %.0f |\n", count,
               share_of_parts > 0 ? "yes" : "no", seconds, found, pairs,
               2 * seconds_a_pair * (double)count * (double)(count - 1) / 2);
        fflush(stdout);
    }
    weft_free(result);
}

int main(int argc, char **argv)
{
    const int64_t most = argc > 1 ? atoll(argv[1]) : 100000;
    const weft_phash_limits limits = {32, 10};
    weft_phash *hash = weft_alloc(most * HASHES * (int64_t)sizeof *hash);
    weft_near_shot *shots = weft_alloc(most * (int64_t)sizeof *shots);
    weft_parts *parts = weft_alloc(most * (int64_t)sizeof *parts);
    weft_keypoints *points = weft_alloc(most * PICTURES * (int64_t)sizeof *points);
    if (!hash || !shots || !parts || !points)
        return 1;
    make_shots(shots, hash, most);
    make_parts(parts, points, most);
    double begin = weft_now(), sum = 0;
    for (int64_t i = 0; i < FEW && i < most; i++)
        for (int64_t k = 0; k < i; k++)
            sum += weft_phash_overlap(shots[i].hash, HASHES, shots[k].hash, HASHES, limits);
    const double pair = (weft_now() - begin) / (FEW * (FEW - 1) / 2);
    fprintf(stderr, "overlap of the timed pairs: %.0f\n", sum); /* keeps the loop above */
    printf("| shots | partial copies | s | duplicates | pairs compared | all pairs s |\n"
           "|---|---|---|---|---|---|\n");
    measure(shots, most, 0, pair);
    for (int64_t i = 0; i < most; i++)
        shots[i].parts = &parts[i];
    measure(shots, most, 0.6, pair);
    weft_free(parts);
    weft_free(points);
    weft_free(hash);
    weft_free(shots);
    return 0;
}

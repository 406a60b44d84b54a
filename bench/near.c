/* Near-duplicate search: time by number of shots, beside comparing all pairs (measured on the first
 * few, scaled up). */
#include "curate/near.h"
#include "base/log.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    HASHES = 40,
    DRIFT = 5,
    FEW = 1500
}; /* shots of 5 s; bits from one eighth of a second to the next */

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
        shots[s] = (weft_near_shot){own, HASHES};
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

int main(int argc, char **argv)
{
    const int64_t most = argc > 1 ? atoll(argv[1]) : 100000;
    const weft_phash_limits limits = {32, 10};
    weft_phash *hash = weft_alloc(most * HASHES * (int64_t)sizeof *hash);
    weft_near_shot *shots = weft_alloc(most * (int64_t)sizeof *shots);
    weft_near_result *result = weft_alloc(most * (int64_t)sizeof *result);
    if (!hash || !shots || !result)
        return 1;
    make_shots(shots, hash, most);
    double begin = weft_now(), sum = 0;
    for (int64_t i = 0; i < FEW && i < most; i++)
        for (int64_t k = 0; k < i; k++)
            sum += weft_phash_overlap(shots[i].hash, HASHES, shots[k].hash, HASHES, limits);
    const double pair = (weft_now() - begin) / (FEW * (FEW - 1) / 2);
    printf("%10s %12s %12s %14s %16s   (%.0f)\n", "shots", "seconds", "duplicates",
           "pairs compared", "all pairs, about", sum);
    for (int64_t count = 1000; count <= most; count *= 10) {
        int64_t pairs, found = 0;
        begin = weft_now();
        if (weft_near_find(shots, count, limits, 0.7, result, &pairs) != WEFT_OK) {
            fprintf(stderr, "%s\n", weft_error_message());
            return 1;
        }
        const double seconds = weft_now() - begin;
        for (int64_t i = 0; i < count; i++)
            found += result[i].of >= 0;
        printf("%10lld %12.2f %12lld %14lld %14.0f s\n", (long long)count, seconds,
               (long long)found, (long long)pairs,
               2 * pair * (double)count * (double)(count - 1) / 2);
        fflush(stdout);
    }
    weft_free(hash);
    weft_free(shots);
    weft_free(result);
    return 0;
}

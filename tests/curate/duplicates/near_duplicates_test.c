/* The index finds the same pairs as a comparison of all pairs: the same shots and shares, bitwise.
 * */
#include "base/memory.h"
#include "curate/duplicates/near_duplicates.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOTS = 220, LONGEST = 60 };

static uint64_t state;
static uint64_t next_random(void) /* splitmix64 */
{
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static int below(int n)
{
    return (int)(next_random() % (uint64_t)n);
}

static void flip(weft_phash *h, int bits)
{
    for (int i = 0; i < bits; i++) {
        const int p = below(WEFT_PHASH_BITS);
        h->word[p / 64] ^= (uint64_t)1 << (p % 64);
    }
}

/* Shots whose frames drift; some are copies of earlier ones: noisy, late, shorter, mirrored,
 * recoloured. */
static void make_shots(weft_near_shot *shots, weft_phash (*hash)[LONGEST], int drift, int noise)
{
    for (int s = 0; s < SHOTS; s++) {
        int count = 1 + below(LONGEST);
        const int from = s ? below(s) : -1, kind = from < 0 ? 0 : below(4);
        if (kind == 0) {
            weft_phash h;
            for (int w = 0; w < WEFT_PHASH_WORDS; w++)
                h.word[w] = next_random();
            for (int i = 0; i < WEFT_PHASH_CELLS; i++)
                h.cb[i] = (uint8_t)(100 + below(50)), h.cr[i] = (uint8_t)(100 + below(50));
            for (int t = 0; t < count; t++, flip(&h, below(drift + 1)))
                hash[s][t] = h;
        } else {
            const int late = below((int)shots[from].hashes), colour = below(3) ? 0 : below(20);
            const bool mirrored = kind == 2;
            count = (int)shots[from].hashes - late < count ? (int)shots[from].hashes - late : count;
            for (int t = 0; t < count; t++) {
                hash[s][t] =
                    mirrored ? weft_phash_mirror(&hash[from][late + t]) : hash[from][late + t];
                flip(&hash[s][t], below(noise + 1));
                hash[s][t].cb[below(WEFT_PHASH_CELLS)] += (uint8_t)colour;
            }
        }
        shots[s] = (weft_near_shot){.hash = hash[s], .hashes = count};
    }
}

static weft_near_limits within(weft_phash_limits frames, double share)
{
    return (weft_near_limits){.frames = frames, .share = share, .mirrored = true};
}

/* The definition. */
static void all_pairs(const weft_near_shot *shots, int count, weft_phash_limits limits,
                      double share, weft_near_result *result)
{
    for (int i = 0; i < count; i++) {
        weft_phash mirrored[LONGEST];
        double covered = 0, most = 0;
        int most_of = -1;
        result[i] = (weft_near_result){.of = -1};
        for (int t = 0; t < shots[i].hashes; t++)
            mirrored[t] = weft_phash_mirror(&shots[i].hash[t]);
        for (int k = 0; k < i && result[i].of < 0; k++) {
            if (result[k].of >= 0)
                continue;
            const double a = weft_phash_overlap(shots[i].hash, shots[i].hashes, shots[k].hash,
                                                shots[k].hashes, limits);
            const double b = weft_phash_overlap(mirrored, shots[i].hashes, shots[k].hash,
                                                shots[k].hashes, limits);
            if ((a > b ? a : b) < share)
                continue;
            const int64_t shorter =
                shots[i].hashes < shots[k].hashes ? shots[i].hashes : shots[k].hashes;
            const double part = (a > b ? a : b) * (double)shorter;
            covered += part;
            if (part > most)
                most = part, most_of = k;
            if (covered >= share * (double)shots[i].hashes)
                result[i] = (weft_near_result){most_of, covered < (double)shots[i].hashes
                                                            ? covered / (double)shots[i].hashes
                                                            : 1};
        }
    }
}

Test(near, the_index_finds_what_all_pairs_do)
{
    static weft_phash hash[SHOTS][LONGEST];
    static weft_near_shot shots[SHOTS];
    static weft_near_result found[SHOTS], wanted[SHOTS];
    static const int bits[] = {0, 1, 5, 20, 32, 33, 47, 64};
    static const double shares[] = {0.01, 0.3, 0.7, 1};
    int64_t indexed = 0;
    for (int run = 0; run < 32; run++) {
        const weft_phash_limits limits = {bits[run % 8], run % 3 ? 10 : 255};
        const double share = shares[run / 8];
        const weft_near_limits wanted_limits = within(limits, share);
        int64_t pairs, duplicates = 0;
        state = (uint64_t)run;
        make_shots(shots, hash, run % 2 ? 12 : 3, limits.bits);
        all_pairs(shots, SHOTS, limits, share, wanted);
        cr_assert_eq(weft_near_duplicates_find(shots, SHOTS, &wanted_limits, found, &pairs),
                     WEFT_OK, "%s", weft_error_message());
        for (int i = 0; i < SHOTS; i++) {
            cr_assert(found[i].of == wanted[i].of &&
                          memcmp(&found[i].share, &wanted[i].share, sizeof(double)) == 0,
                      "seed %d, %d bits, share %g, shot %d: of %d (%.3f), is of %d (%.3f)", run,
                      limits.bits, share, i, (int)found[i].of, found[i].share, (int)wanted[i].of,
                      wanted[i].share);
            duplicates += found[i].of >= 0;
        }
        cr_assert(duplicates > SHOTS / 10 && duplicates < SHOTS, "seed %d: %d duplicates", run,
                  (int)duplicates);
        indexed += pairs < SHOTS * (SHOTS - 1) / 4;
    }
    cr_assert(indexed >= 16, "only %d runs used the index", (int)indexed);
}

Test(near, a_long_shot_is_given_up_for_all_its_excerpts_only)
{
    static weft_phash hash[LONGEST], whole[LONGEST];
    weft_near_result result[3];
    state = 5;
    for (int t = 0; t < 40; t++)
        for (int w = 0; w < WEFT_PHASH_WORDS; w++)
            whole[t].word[w] = hash[t].word[w] = next_random();
    const weft_near_shot shots[3] = {{hash, 20, NULL}, {hash + 20, 16, NULL}, {whole, 40, NULL}};
    const weft_near_limits limits = within((weft_phash_limits){10, 10}, 0.7);
    cr_assert_eq(weft_near_duplicates_find(shots, 3, &limits, result, NULL), WEFT_OK);
    cr_assert(result[0].of == -1 && result[1].of == -1 && result[2].of == 0, "%d %d %d",
              (int)result[0].of, (int)result[1].of, (int)result[2].of);
    cr_assert_float_eq(result[2].share, 0.9, 1e-9);
    const weft_near_shot part[2] = {{hash, 20, NULL}, {whole, 40, NULL}};
    cr_assert_eq(weft_near_duplicates_find(part, 2, &limits, result, NULL), WEFT_OK);
    cr_assert_eq(result[1].of, -1);
    const weft_near_shot turned[2] = {{whole, 40, NULL}, {hash, 20, NULL}};
    cr_assert_eq(weft_near_duplicates_find(turned, 2, &limits, result, NULL), WEFT_OK);
    cr_assert_eq(result[1].of, 0);
}

Test(near, no_shots_and_no_hashes)
{
    weft_near_result result[2];
    int64_t pairs;
    const weft_near_shot none[2] = {{NULL, 0, NULL}, {NULL, 0, NULL}};
    const weft_near_limits limits = within((weft_phash_limits){32, 10}, 0.7);
    cr_assert_eq(weft_near_duplicates_find(NULL, 0, &limits, NULL, &pairs), WEFT_OK);
    cr_assert_eq(weft_near_duplicates_find(none, 2, &limits, result, &pairs), WEFT_OK);
    cr_assert(result[0].of == -1 && result[1].of == -1);
}

Test(near, an_allocation_that_fails_is_an_error)
{
    static weft_phash hash[SHOTS][LONGEST];
    static weft_near_shot shots[SHOTS];
    weft_near_result result[SHOTS];
    state = 7;
    make_shots(shots, hash, 3, 20);
    const weft_near_limits limits = within((weft_phash_limits){20, 10}, 0.7);
    int64_t n = 1;
    for (;; n++) {
        weft_alloc_fail_at(n);
        const weft_status_code status =
            weft_near_duplicates_find(shots, SHOTS, &limits, result, NULL);
        weft_alloc_fail_at(0);
        if (status == WEFT_OK)
            break;
        cr_assert_eq(status, WEFT_E_MEMORY);
    }
    cr_assert(n > 5);
}

Test(near, hashes_are_text_and_mirrors)
{
    weft_phash h, back, mirror;
    char text[WEFT_PHASH_TEXT];
    uint8_t plane[3][90][160], turned[3][90][160];
    state = 3;
    for (int p = 0; p < 3; p++)
        for (int y = 0; y < 90; y++)
            for (int x = 0; x < 160; x++) {
                plane[p][y][x] =
                    (uint8_t)(128 + 60 * ((x / 20 * 7 + y / 15 * 5 + p) % 3 - 1) + below(9));
                turned[p][y][159 - x] = plane[p][y][x];
            }
    const uint8_t *const planes[3] = {plane[0][0], plane[1][0], plane[2][0]};
    const uint8_t *const mirrored[3] = {turned[0][0], turned[1][0], turned[2][0]};
    const int64_t stride[3] = {160, 160, 160};
    weft_phash_make(planes, stride, 160, 90, &h);
    weft_phash_make(mirrored, stride, 160, 90, &mirror);
    back = weft_phash_mirror(&h);
    cr_assert(weft_phash_distance(&back, &mirror) <= 2, "%d", weft_phash_distance(&back, &mirror));
    cr_assert_arr_eq(back.cb, mirror.cb, WEFT_PHASH_CELLS);
    cr_assert_arr_eq(back.cr, mirror.cr, WEFT_PHASH_CELLS);
    weft_phash_print(&h, text);
    cr_assert(weft_phash_parse(text, &back));
    cr_assert_eq(memcmp(&back, &h, sizeof h), 0);
    text[5] = 'x';
    cr_assert_not(weft_phash_parse(text, &back));
    cr_assert_not(weft_phash_parse("12", &back));
    cr_assert_not(weft_phash_parse(NULL, &back));
}

/* Means of a grid of 4 x 4 cells, of planes whose rows are longer than the frame. */
Test(near, colours_are_means_of_cells)
{
    enum { WIDTH = 72, HEIGHT = 44, STRIDE = 90 };
    static uint8_t plane[HEIGHT][STRIDE];
    const uint8_t *const planes[3] = {plane[0], plane[0], plane[0]};
    const int64_t stride[3] = {STRIDE, STRIDE, STRIDE};
    weft_phash h;
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < STRIDE; x++)
            plane[y][x] = (uint8_t)(x < WIDTH ? (x * x / 40 + 3 * y) % 251 : 255);
    weft_phash_make(planes, stride, WIDTH, HEIGHT, &h);
    for (int v = 0; v < 4; v++)
        for (int u = 0; u < 4; u++) {
            double sum = 0;
            for (int y = v * HEIGHT / 4; y < (v + 1) * HEIGHT / 4; y++)
                for (int x = u * WIDTH / 4; x < (u + 1) * WIDTH / 4; x++)
                    sum += plane[y][x];
            const int expected = (int)(sum / (WIDTH / 4 * HEIGHT / 4) + 0.5);
            cr_expect(abs(h.cb[4 * v + u] - expected) <= 1 && abs(h.cr[4 * v + u] - expected) <= 1,
                      "cell %d, %d: %d and %d, not %d", v, u, h.cb[4 * v + u], h.cr[4 * v + u],
                      expected);
        }
}

Test(near, each_colour_of_each_cell_has_a_limit)
{
    const weft_phash_limits limits = {.bits = 10, .colour = 5};
    const weft_phash a = {0};
    for (int i = 0; i < 2 * WEFT_PHASH_CELLS; i++)
        for (int by = 5; by <= 6; by++) {
            weft_phash b = a;
            (i < WEFT_PHASH_CELLS ? b.cb : b.cr)[i % WEFT_PHASH_CELLS] = (uint8_t)by;
            cr_expect_eq(weft_phash_same(&a, &b, limits), by == 5, "cell %d differs by %d", i, by);
        }
}

/* Keypoints of partial duplicates: frames of a drawn scene with moving shapes over a patterned
 * background, edited copies of them, and another take. */
#include "base/memory.h"
#include "curate/duplicates/near_duplicates.h"
#include "curate/duplicates/partial_candidates.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { WIDTH = 256, HEIGHT = 144, SECONDS = 4, LOOKS = 4 * SECONDS, THINGS = 6 };

typedef struct film {
    weft_thumbnail look[LOOKS];
    weft_keypoints points[SECONDS];
    weft_parts parts;
} film;

/* The edit of the scene: u_scene = from + scale * u. */
typedef struct way {
    int ground, take; /* the background, and the motion in front */
    double x, y, scale;
    double gain, tint;           /* of chroma; of brightness to cb */
    bool logo, mirrored, turned; /* turned: another hue */
} way;

static double noise(int seed, int i)
{
    uint32_t h = (uint32_t)i * 2654435761u + (uint32_t)seed * 40503u + 12345u;
    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    return (double)(h & 65535) / 65535;
}

/* Y, Cb, Cr of the scene at u, v (0 .. 1) and time t. */
static void scene(const way *w, double u, double v, double t, double out[3])
{
    out[0] = 110, out[1] = out[2] = 128;
    for (int i = 0; i < 40; i++) { /* boxes on the wall */
        const int seed = 100 + w->ground;
        const double x = noise(seed, 5 * i), y = noise(seed, 5 * i + 1),
                     a = 0.02 + 0.08 * noise(seed, 5 * i + 2);
        if (fabs(u - x) < a && fabs(v - y) < a)
            out[0] = 40 + 170 * noise(seed, 5 * i + 3), out[1] = 88 + 80 * noise(seed, 5 * i + 4),
            out[2] = 168 - 80 * noise(seed, 5 * i + 4);
    }
    for (int i = 0; i < THINGS; i++) {
        const int seed = 900 + 31 * w->ground + w->take;
        const double x = 0.5 + 0.45 * sin(6 * noise(seed, i) + t * (0.5 + noise(seed, i + 50))),
                     y = 0.5 + 0.4 * cos(6 * noise(seed, i + 20) + t * (0.4 + noise(seed, i + 70)));
        if (hypot((u - x) * 1.78, v - y) < 0.1) {
            out[0] = i % 2 ? 230 : 30;
            out[1] = 90 + 70 * noise(1, i), out[2] = 160 - 60 * noise(2, i);
        }
    }
}

static void draw(const way *w, double t, uint8_t plane[3][HEIGHT][WIDTH])
{
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++) {
            const double u = (w->mirrored ? WIDTH - x - 0.5 : x + 0.5) / WIDTH;
            double c[3];
            scene(w, w->x + w->scale * u, w->y + w->scale * (y + 0.5) / HEIGHT, t, c);
            if (w->logo && x > 190 && y > 100 && x < 245 && y < 135)
                c[0] = 90 + 140 * ((x / 7 + y / 5) % 2), c[1] = 60, c[2] = 200;
            double cb = w->gain * (c[1] - 128) + w->tint * c[0], cr = w->gain * (c[2] - 128);
            if (w->turned) {
                const double before = cb;
                cb = -cr, cr = before;
            }
            plane[0][y][x] = (uint8_t)fmax(0, fmin(255, c[0] + 3 * noise(7, x * 977 + y)));
            plane[1][y][x] = (uint8_t)(128 + cb);
            plane[2][y][x] = (uint8_t)(128 + cr);
        }
}

static film *make(way w)
{
    static uint8_t plane[3][HEIGHT][WIDTH];
    const uint8_t *const planes[3] = {plane[0][0], plane[1][0], plane[2][0]};
    const int64_t stride[3] = {WIDTH, WIDTH, WIDTH};
    film *f = weft_alloc(sizeof *f);
    w.scale = w.scale > 0 ? w.scale : 1;
    for (int k = 0; k < LOOKS; k++) {
        draw(&w, k / 4.0, plane);
        weft_thumbnail_make(planes, stride, WIDTH, HEIGHT, &f->look[k]);
        if (k % 4 == 0)
            weft_keypoints_make(plane[0][0], WIDTH, WIDTH, HEIGHT, 16.0 / 9, &f->points[k / 4]);
    }
    f->parts = (weft_parts){.aspect = 16.0 / 9,
                            .keypoints = f->points,
                            .keypoint_frames = SECONDS,
                            .keypoints_step = WEFT_KEYPOINTS_STEP,
                            .thumbnail = f->look,
                            .thumbnails = LOOKS};
    return f;
}

static film *films[2];
static weft_status_code looks_of(void *user, int64_t shot, weft_thumbnail *to)
{
    (void)user;
    memcpy(to, films[shot]->look, sizeof films[shot]->look);
    return WEFT_OK;
}

/* Hashes of complete frames without information, and the keypoints of the videos. */
static void find(weft_near_result *result)
{
    static weft_phash hash[2][8];
    weft_near_shot shots[2];
    const weft_near_limits limits = {.frames = {20, 10},
                                     .share = 0.7,
                                     .mirrored = true,
                                     .parts = 0.6,
                                     .read_thumbnails = looks_of};
    for (int i = 0; i < 2; i++) {
        for (int t = 0; t < 8; t++)
            for (int k = 0; k < WEFT_PHASH_WORDS; k++)
                hash[i][t].word[k] = (uint64_t)(noise(i, 9 * t + k) * 65535) * 0x9E3779B97F4A7C15u;
        shots[i] = (weft_near_shot){hash[i], 8, &films[i]->parts};
    }
    cr_assert_eq(weft_near_duplicates_find(shots, 2, &limits, result, NULL), WEFT_OK, "%s",
                 weft_error_message());
}

static void free_films(void)
{
    for (int i = 0; i < 2; i++) {
        weft_free(films[i]);
        films[i] = NULL;
    }
}

Test(parts, copies_are_found_and_other_takes_are_not)
{
    weft_near_result result[2];
    static const struct {
        const char *what;
        way how;
        bool same;
    } cases[] = {
        {"the same", {.gain = 1}, true},
        {"crop to 95 %", {.gain = 1, .x = 0.02, .y = 0.03, .scale = 0.95}, true},
        {"crop to 90 %", {.gain = 1, .x = 0.1, .y = 0, .scale = 0.9}, true},
        {"crop to 80 %", {.gain = 1, .x = 0.12, .y = 0.08, .scale = 0.8}, true},
        {"logo", {.gain = 1, .logo = true}, true},
        {"mirrored crop", {.gain = 1, .x = 0.05, .y = 0.05, .scale = 0.9, .mirrored = true}, true},
        {"without colours", {.gain = 0}, true},
        {"graded", {.gain = 0.8, .tint = 0.06}, true},
        {"crop with a logo and a grade",
         {.gain = 1.2, .tint = -0.05, .x = 0.05, .y = 0.05, .scale = 0.9, .logo = true},
         true},
        {"another take in the same room", {.gain = 1, .take = 5}, false},
        {"a crop of another take",
         {.gain = 1, .take = 6, .x = 0.05, .y = 0.05, .scale = 0.9},
         false},
        {"another room", {.gain = 1, .ground = 3}, false},
        {"another hue", {.gain = 1, .turned = true}, false},
    };
    films[0] = make((way){.gain = 1});
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        films[1] = make(cases[i].how);
        find(result);
        cr_expect(cases[i].same == (result[1].of == 0),
                  "%s: %s (common %.2f moving %.2f colour %.1f)", cases[i].what,
                  cases[i].same ? "not found" : "taken for a copy", result[1].match.common,
                  result[1].match.moving, result[1].match.colour);
        if (result[1].of == 0 && cases[i].how.scale > 0) {
            const double scale = result[1].match.map.scale_x * cases[i].how.scale;
            cr_expect(fabs(1 / scale - 1) < 0.05 ||
                          fabs(result[1].match.map.scale_x / cases[i].how.scale - 1) < 0.05,
                      "%s: scale %.3f", cases[i].what, result[1].match.map.scale_x);
        }
        weft_free(films[1]);
        films[1] = NULL;
    }
    free_films();
}

Test(parts, copies_meet_and_few_others_do)
{
    enum { SHOTS = 600, PICTURES = 3 };
    static weft_keypoints points[SHOTS][PICTURES];
    static weft_parts parts[SHOTS];
    const weft_parts *list[SHOTS];
    weft_near_pair *pairs;
    int64_t found, copies = 0;
    for (int s = 0; s < SHOTS; s++) { /* every odd one has the points of the one before */
        for (int k = 0; k < PICTURES; k++)
            for (int i = 0; i < WEFT_KEYPOINTS; i++) {
                weft_point *p = &points[s][k].point[i];
                points[s][k].count = WEFT_KEYPOINTS;
                for (int w = 0; w < 2; w++)
                    p->word[w] = (uint32_t)(noise(s + 1000 * w, 91 * k + i) * 65535) << 16 |
                                 (uint32_t)(noise(s + 5000 * w, 77 * k + i + 9) * 65535) | 1;
                for (int turn = 0; s % 2 && turn < 5; turn++) {
                    *p = turn ? *p : points[s - 1][k].point[i];
                    p->word[turn % 2] ^= 2u << (int)(noise(s, 977 * k + 31 * i + turn) * 30);
                }
            }
        parts[s] = (weft_parts){.aspect = 1, .keypoints = points[s], .keypoint_frames = PICTURES};
        list[s] = s % 97 == 96 ? NULL : &parts[s]; /* one that has none */
    }
    cr_assert_eq(weft_near_parts(list, SHOTS, &pairs, &found), WEFT_OK);
    for (int64_t i = 0; i < found; i++) {
        copies += pairs[i].later % 2 && pairs[i].earlier == pairs[i].later - 1;
        cr_assert(pairs[i].later > pairs[i].earlier);
        cr_assert(
            i == 0 || pairs[i].later > pairs[i - 1].later ||
            (pairs[i].later == pairs[i - 1].later && pairs[i].earlier > pairs[i - 1].earlier));
    }
    cr_assert(copies >= SHOTS / 2 - SHOTS / 97 - 3, "%d copies met", (int)copies);
    cr_assert(found <= SHOTS, "%d pairs", (int)found);
    weft_free(pairs);
}

Test(parts, an_allocation_that_fails_is_an_error)
{
    weft_near_pair *pairs;
    int64_t found, n = 1;
    films[0] = make((way){.gain = 1});
    const weft_parts *list[2] = {&films[0]->parts, &films[0]->parts};
    for (;; n++) {
        weft_alloc_fail_at(n);
        const weft_status_code status = weft_near_parts(list, 2, &pairs, &found);
        weft_alloc_fail_at(0);
        if (status == WEFT_OK)
            break;
        cr_assert_eq(status, WEFT_E_MEMORY);
    }
    cr_assert(n > 4 && found == 1);
    weft_free(pairs);
    free_films();
}

Test(parts, flat_and_still_pictures_are_no_copies)
{
    static uint8_t plane[3][HEIGHT][WIDTH];
    const uint8_t *const planes[3] = {plane[0][0], plane[1][0], plane[2][0]};
    const int64_t stride[3] = {WIDTH, WIDTH, WIDTH};
    weft_near_result result[2];
    for (int i = 0; i < 2; i++) {
        films[i] = make((way){.gain = 1});
        for (int k = 0; k < LOOKS; k++) /* one frame held */
            films[i]->look[k] = films[i]->look[0];
    }
    find(result);
    cr_assert_eq(result[1].of, -1);
    memset(plane, 90, sizeof plane);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < LOOKS; k++)
            weft_thumbnail_make(planes, stride, WIDTH, HEIGHT, &films[i]->look[k]);
        for (int k = 0; k < SECONDS; k++)
            weft_keypoints_make(plane[0][0], WIDTH, WIDTH, HEIGHT, 16.0 / 9, &films[i]->points[k]);
        cr_assert_eq(films[i]->points[0].count, 0);
    }
    find(result);
    cr_assert_eq(result[1].of, -1);
    free_films();
}

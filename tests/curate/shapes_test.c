/* The detector of moving shapes on sharp, blurred, noisy and compressed scenes, and on scenes
 * without a shape. */
#include "base/memory.h"
#include "video/shape_reader.h"
#include "video/shapes.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 64 };

static void blur(uint8_t *rgb, double sigma)
{
    static _Thread_local float line[SIZE];
    const int reach = (int)ceil(3 * sigma);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < SIZE; i++)
            for (int c = 0; c < 3; c++) {
                const int step = pass ? SIZE * 3 : 3;
                uint8_t *at = rgb + (pass ? i * 3 : i * SIZE * 3) + c;
                for (int k = 0; k < SIZE; k++)
                    line[k] = at[k * step];
                for (int k = 0; k < SIZE; k++) {
                    double sum = 0, total = 0;
                    for (int j = -reach; j <= reach; j++) {
                        const int q = k + j < 0 ? 0 : k + j >= SIZE ? SIZE - 1 : k + j;
                        const double w = exp(-0.5 * j * j / (sigma * sigma));
                        sum += w * line[q];
                        total += w;
                    }
                    at[k * step] = (uint8_t)(sum / total + 0.5);
                }
            }
}

/* Right answers of (colour, shape, direction) over all 60 combinations. */
static void score(double radius, double sigma, double noise, int64_t frames, uint64_t seed,
                  int right[3])
{
    uint8_t *rgb = weft_alloc(frames * SIZE * SIZE * 3);
    weft_rng rng = weft_rng_make(seed, WEFT_RNG_TEST);
    memset(right, 0, 3 * sizeof *right);
    for (int i = 0; i < WEFT_SHAPE_ALL; i++) {
        const weft_shape_words words = weft_shape_words_of(i);
        cr_assert_eq(weft_shape_combination(words), i);
        const weft_shape_scene scene =
            weft_shape_scene_make(&rng, words, SIZE, radius, frames, 50 + 150 * weft_rng_f64(&rng));
        for (int64_t t = 0; t < frames; t++) {
            uint8_t *frame = rgb + t * SIZE * SIZE * 3;
            weft_shape_scene_draw(&scene, SIZE, (double)t, frame);
            if (sigma > 0)
                blur(frame, sigma);
            for (int k = 0; k < SIZE * SIZE * 3; k++) {
                const double v = frame[k] + noise * weft_rng_normal(&rng);
                frame[k] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
            }
        }
        weft_shape_reading reading;
        cr_assert_eq(weft_shape_read(rgb, frames, SIZE, SIZE, &reading), WEFT_OK);
        cr_assert(reading.found);
        right[0] += reading.words.colour == words.colour;
        right[1] += reading.words.shape == words.shape;
        right[2] += reading.words.direction == words.direction;
    }
    weft_free(rgb);
}

static void expect(double radius, double sigma, double noise, int64_t frames, int least_shape)
{
    int right[3];
    score(radius, sigma, noise, frames, 7, right);
    cr_log_info("sigma %.1f noise %.0f: %d %d %d", sigma, noise, right[0], right[1], right[2]);
    cr_expect_eq(right[0], 60, "sigma %.1f noise %.0f: colour %d of 60", sigma, noise, right[0]);
    cr_expect(right[1] >= least_shape, "sigma %.1f noise %.0f: shape %d of 60", sigma, noise,
              right[1]);
    cr_expect_eq(right[2], 60, "sigma %.1f noise %.0f: direction %d of 60", sigma, noise, right[2]);
}

Test(shapes, sharp_scenes_are_read)
{
    expect(10, 0, 0, 17, 60);
    expect(15, 0, 0, 17, 60);
}

Test(shapes, blurred_scenes_are_read)
{
    expect(10, 1.5, 0, 17, 58);
    expect(10, 2.5, 0, 9, 54);
    expect(15, 2.5, 0, 9, 58);
}

Test(shapes, noisy_scenes_are_read)
{
    expect(10, 0, 12, 17, 58);
    expect(10, 1.2, 8, 9, 58);
    expect(15, 0, 12, 17, 58);
    expect(15, 1.2, 8, 9, 58);
}

Test(shapes, nothing_is_not_found)
{
    uint8_t *rgb = weft_alloc(8 * SIZE * SIZE * 3);
    weft_rng rng = weft_rng_make(3, WEFT_RNG_TEST);
    for (int k = 0; k < 8 * SIZE * SIZE * 3; k++)
        rgb[k] = (uint8_t)(120 + 4 * weft_rng_normal(&rng));
    weft_shape_reading reading;
    cr_assert_eq(weft_shape_read(rgb, 8, SIZE, SIZE, &reading), WEFT_OK);
    cr_assert_not(reading.found);
    cr_assert_eq(weft_shape_read(rgb, 1, SIZE, SIZE, &reading), WEFT_E_ARG);
    weft_free(rgb);
}

Test(shapes, a_shape_that_rests_has_no_direction)
{
    uint8_t *rgb = weft_alloc(8 * SIZE * SIZE * 3);
    weft_rng rng = weft_rng_make(3, WEFT_RNG_TEST);
    const weft_shape_scene scene =
        weft_shape_scene_make(&rng, (weft_shape_words){1, 1, 1}, SIZE, 10, 17, 90);
    for (int t = 0; t < 8; t++)
        weft_shape_scene_draw(&scene, SIZE, 4, rgb + t * SIZE * SIZE * 3);
    weft_shape_reading reading;
    cr_assert_eq(weft_shape_read(rgb, 8, SIZE, SIZE, &reading), WEFT_OK);
    cr_assert(reading.direction_confidence < 0.1);
    cr_assert_eq(reading.words.colour, 1);
    cr_assert_eq(reading.words.shape, 1);
    weft_free(rgb);
}

Test(shapes, captions_and_words)
{
    char text[64];
    for (int i = 0; i < WEFT_SHAPE_ALL; i++) {
        const weft_shape_words words = weft_shape_words_of(i);
        const weft_shape_words back = weft_shape_parse(weft_shape_caption(words, text));
        cr_assert_eq(weft_shape_combination(back), i, "%s", text);
    }
    cr_assert_str_eq(weft_shape_caption((weft_shape_words){0, 0, 0}, text),
                     "a red circle moving left");
    const weft_shape_words none = weft_shape_parse("a dog upright on the reddish square");
    cr_assert_eq(none.colour, -1);
    cr_assert_eq(none.shape, 1);
    cr_assert_eq(none.direction, -1);
}

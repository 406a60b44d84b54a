#include "curate/motion.h"

#include "base/rng.h"

#include <criterion/criterion.h>
#include <math.h>

enum { W = 256, H = 144 };

/* A smooth texture that is known between the pixels too, moved by (dx, dy); `noise` in levels. */
static void paint(uint8_t *to, double dx, double dy, double noise, uint64_t seed)
{
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++) {
            const double u = x - dx, v = y - dy;
            const double level = 128 + 40 * sin(0.31 * u + 0.05 * v) +
                                 30 * cos(0.23 * v - 0.07 * u) + 20 * sin(0.11 * (u + v));
            to[y * W + x] = (uint8_t)lround(fmin(
                255, fmax(0, level + noise * (double)weft_random_normal(seed, WEFT_RNG_TEST,
                                                                        (uint64_t)(y * W + x)))));
        }
}

static uint8_t now[W * H], then[W * H];

Test(block_motion, whole_and_fractional_shifts)
{
    static const double shift[][2] = {{0, 0},     {0.2, 0}, {0, -0.4},
                                      {1.3, 0.6}, {-5, 3},  {-9.5, -2.25}};
    for (size_t i = 0; i < sizeof shift / sizeof *shift; i++) {
        paint(then, 0, 0, 1, 1);
        paint(now, shift[i][0], shift[i][1], 1, 2);
        const double moved = weft_block_motion(now, W, then, W, W, H),
                     want = hypot(shift[i][0], shift[i][1]);
        cr_expect(fabs(moved - want) < 0.05 + 0.05 * want, "%g, %g: %g instead of %g", shift[i][0],
                  shift[i][1], moved, want);
    }
}

Test(block_motion, a_resting_picture_rests_whatever_its_noise)
{
    paint(then, 0, 0, 4, 1);
    paint(now, 0, 0, 4, 2);
    const double moved = weft_block_motion(now, W, then, W, W, H);
    cr_assert(moved >= 0 && moved < 0.15, "%g", moved);
    for (int i = 0; i < W * H; i++)
        then[i] = 90, now[i] = 120; /* flat, and another light */
    cr_assert(weft_block_motion(now, W, then, W, W, H) <= 0);
}

Test(block_motion, another_picture_says_nothing)
{
    paint(then, 0, 0, 60, 1);
    paint(now, 0, 0, 60, 2);
    cr_assert_lt(weft_block_motion(now, W, then, W, W, H), 0);
}

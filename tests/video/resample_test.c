#include "video/resample.h"

#include <criterion/criterion.h>
#include <math.h>

/* The result of Pillow 12 for image[y][x] = (7 i^2 + 13 i) mod 256, i = 5 y + x. */
static const uint8_t lanczos_small[9] = {52, 62, 149, 161, 133, 61, 196, 191, 155};
static const uint8_t bicubic_small[9] = {49, 68, 139, 155, 134, 69, 199, 188, 160};
static const uint8_t bilinear_small[9] = {57, 77, 130, 150, 134, 78, 195, 182, 157};
static const uint8_t lanczos_large[2][8] = {{0, 0, 22, 33, 57, 103, 145, 162},
                                            {140, 83, 29, 91, 107, 71, 139, 200}};
static const uint8_t bicubic_large[2][8] = {{0, 0, 19, 35, 62, 103, 144, 167},
                                            {130, 85, 38, 94, 105, 70, 133, 184}};

static void resized(weft_resample filter, int64_t channels, int64_t w, int64_t h, uint8_t *to)
{
    uint8_t from[20 * 3];
    for (int i = 0; i < 20; i++)
        for (int64_t c = 0; c < channels; c++)
            from[i * channels + c] = (uint8_t)(7 * i * i + 13 * i);
    cr_assert_eq(weft_image_resample(filter, from, 5, 4, channels, to, w, h), WEFT_OK);
}

Test(resample, the_numbers_are_pillows_to_the_bit)
{
    static const uint8_t *const small[] = {lanczos_small, bicubic_small, bilinear_small};
    uint8_t to[48];
    for (int f = 0; f < 3; f++) {
        resized((weft_resample)f, 1, 3, 3, to);
        for (int i = 0; i < 9; i++)
            cr_assert_eq(to[i], small[f][i], "filter %d, pixel %d: %d, not %d", f, i, to[i],
                         small[f][i]);
    }
    resized(WEFT_RESAMPLE_LANCZOS, 1, 8, 6, to);
    cr_assert_arr_eq(to, lanczos_large, 16);
    resized(WEFT_RESAMPLE_BICUBIC, 1, 8, 6, to);
    cr_assert_arr_eq(to, bicubic_large, 16);
}

Test(resample, channels_are_pictures_of_their_own)
{
    uint8_t one[48], three[48 * 3];
    resized(WEFT_RESAMPLE_LANCZOS, 1, 8, 6, one);
    resized(WEFT_RESAMPLE_LANCZOS, 3, 8, 6, three);
    for (int i = 0; i < 48 * 3; i++)
        cr_assert_eq(three[i], one[i / 3]);
}

Test(resample, a_side_that_stays_is_copied)
{
    uint8_t same[20], wide[40];
    resized(WEFT_RESAMPLE_LANCZOS, 1, 5, 4, same);
    for (int i = 0; i < 20; i++)
        cr_assert_eq(same[i], (uint8_t)(7 * i * i + 13 * i));
    resized(WEFT_RESAMPLE_BILINEAR, 1, 10, 4, wide);
    for (int y = 0; y < 4; y++) /* the outermost pixels are those of the edge */
        cr_assert_eq(wide[10 * y], same[5 * y]);
}

/* Up to the rounding of two passes, and outside of [0,255] where the filter overshoots. */
Test(resample, numbers_are_not_rounded)
{
    float from[20], to[48];
    for (int i = 0; i < 20; i++)
        from[i] = (float)(uint8_t)(7 * i * i + 13 * i);
    cr_assert_eq(weft_image_resample_f32(WEFT_RESAMPLE_BICUBIC, from, 5, 4, 1, to, 3, 3), WEFT_OK);
    for (int i = 0; i < 9; i++)
        cr_assert_float_eq(to[i], bicubic_small[i], 1.1, "pixel %d: %g, not %d", i, (double)to[i],
                           bicubic_small[i]);
    cr_assert_eq(weft_image_resample_f32(WEFT_RESAMPLE_BICUBIC, from, 5, 4, 1, to, 8, 6), WEFT_OK);
    cr_assert_lt(to[0], 0); /* limited to 0 in 8 bits */
    for (int i = 0; i < 16; i++)
        cr_assert(to[i] < 0 || fabsf(to[i] - (float)bicubic_large[i / 8][i % 8]) < 1.1f);
}

/* Values of PyTorch's `interpolate` without antialias, to six digits. */
static void interpolated(bool bicubic, int64_t w, int64_t h, const double *expected, int count)
{
    uint8_t from[20];
    float to[48];
    for (int i = 0; i < 20; i++)
        from[i] = (uint8_t)(7 * i * i + 13 * i);
    cr_assert_eq(weft_image_interpolate(bicubic, from, 5, 4, 1, to, w, h), WEFT_OK);
    for (int i = 0; i < count; i++)
        cr_assert_float_eq(to[i], expected[i], 6e-4, "pixel %d: %g, not %g", i, (double)to[i],
                           expected[i]);
}

Test(resample, interpolation_has_no_filter)
{
    const double linear_small[] = {36.3333, 74.6667, 140.778, 150, 159, 82, 207, 186.667, 179.889},
                 linear_large[] = {0,   8.75,    22.125,  43.375,  69,      99,      136.875, 164,
                                   120, 88.0625, 51.3125, 94.4375, 101.938, 73.8125, 125.562, 168},
                 cubic_small[] = {31.019,  72.456,  145.24,  155.819, 165.375,
                                  58.0416, 209.629, 187.303, 181.96},
                 cubic_large[] = {-24.1889, -7.55233, 18.0128, 29.7865, 62.2671, 101.968,
                                  144.449,  168.497,  146.302, 85.1956, 33.2944, 94.789,
                                  108.301,  66.0845,  129.088, 193.061};
    interpolated(false, 3, 3, linear_small, 9);
    interpolated(false, 8, 6, linear_large, 16);
    interpolated(true, 3, 3, cubic_small, 9);
    interpolated(true, 8, 6, cubic_large, 16);
}

#include "evaluate/image_metrics.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { H = 24, W = 32, N = H * W * 3 };
static uint8_t a[N], b[N];

static void make(void)
{
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++)
            for (int c = 0; c < 3; c++) {
                const int i = (y * W + x) * 3 + c;
                a[i] = (uint8_t)((x * 7 + y * 11 + c * 50) % 256);
                b[i] = (uint8_t)((a[i] * 9 / 10 + (x * y + c) % 23) % 256);
            }
}

/* Expected figures from scikit-image 0.25 (gaussian_weights, sigma 1.5, population covariance,
 * data_range 255). */
Test(quality, agrees_with_scikit_image, .init = make)
{
    double ssim;
    cr_assert_eq(weft_ssim(a, b, 1, H, W, &ssim), WEFT_OK);
    cr_assert_float_eq(ssim, 0.961592801139204, 1e-5, "%.7f", ssim);
    cr_assert_float_eq(weft_psnr(a, b, 1, H, W), 27.632467970466443, 1e-9, "%.9f",
                       weft_psnr(a, b, 1, H, W));
    cr_assert_eq(weft_ssim(a, a, 1, H, W, &ssim), WEFT_OK);
    cr_assert_float_eq(ssim, 1, 1e-6);
    cr_assert_eq(weft_ssim(a, b, 1, 8, 8, &ssim), WEFT_E_ARG);
    cr_expect_eq(weft_error_class(), WEFT_MSG_VIDEO_SIZE, "%s", weft_error_message());
}

/* Identical videos have no finite ratio: the mean is that of the others. */
Test(quality, identical_videos_are_counted_apart, .init = make)
{
    weft_psnr_mean mean = {0};
    const double differs = weft_psnr(a, b, 1, H, W);
    cr_assert(isinf(weft_psnr(a, a, 1, H, W)));
    weft_psnr_add(&mean, weft_psnr(a, a, 1, H, W));
    cr_assert(isinf(weft_psnr_mean_of(&mean)));
    json_t *none = weft_psnr_json(weft_psnr_mean_of(&mean));
    cr_assert(json_is_null(none));
    json_decref(none);
    weft_psnr_add(&mean, differs);
    weft_psnr_add(&mean, weft_psnr(b, b, 1, H, W));
    cr_assert_eq(weft_psnr_mean_of(&mean), differs);
    cr_assert_eq(mean.differing, 1);
    cr_assert_eq(mean.identical, 2);
    weft_psnr_add(&mean, differs + 8);
    weft_psnr_add(&mean, differs + 1);
    cr_assert_float_eq(weft_psnr_mean_of(&mean), differs + 3, 1e-9);
    cr_assert_eq(mean.differing, 3);
}

Test(quality, box_average, .init = make)
{
    static uint8_t out[N];
    weft_box_average(a, 1, H, W, 4, 8, 8, out);
    for (int c = 0; c < 3; c++) {
        int sum = 0;
        for (int y = 8; y < 16; y++)
            for (int x = 24; x < 32; x++)
                sum += a[(y * W + x) * 3 + c];
        cr_assert_eq(out[(9 * W + 30) * 3 + c], (sum + 32) / 64);
    }
    weft_box_average(a, 1, H, W, 1, 1, 1, out);
    cr_assert_eq(memcmp(a, out, N), 0);
}

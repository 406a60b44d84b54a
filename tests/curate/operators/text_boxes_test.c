#include "curate/operators/text_boxes.h"

#include "base/memory.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { W = 96, H = 64 };

static void fill(float map[H][W], double cx, double cy, double angle, const double half[2],
                 float value)
{
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++) {
            const double a = (x - cx) * cos(angle) + (y - cy) * sin(angle),
                         b = (y - cy) * cos(angle) - (x - cx) * sin(angle);
            if (fabs(a) <= half[0] && fabs(b) <= half[1])
                map[y][x] = value;
        }
}

/* An upright area of 41 x 11 pixels is dilated to 42 x 12, so its rectangle is 41 x 11. */
Test(text_boxes, upright_box_is_expanded)
{
    static float map[H][W];
    weft_text_box *box;
    int64_t count;
    fill(map, 40, 30, 0, (double[]){20, 5}, 0.9f);
    cr_assert_eq(weft_text_boxes_find(map[0], W, H, &box, &count), WEFT_OK);
    cr_assert_eq(count, 1);
    const double by = 41.0 * 11 * 1.6 / (2 * (41 + 11));
    cr_assert_float_eq(weft_text_box_top(box), 25 - by, 1e-9);
    cr_assert_float_eq(weft_text_box_bottom(box), 36 + by, 1e-9);
    const int64_t all[2] = {0, H}, above[2] = {0, 10};
    double area;
    cr_assert_eq(weft_text_boxes_area(box, count, W, all, &area), WEFT_OK);
    cr_assert_float_eq(area, (41 + 2 * by) * (11 + 2 * by) / (W * H), 0.02);
    cr_assert_eq(weft_text_boxes_area(box, count, W, above, &area), WEFT_OK);
    cr_assert_float_eq(area, 0, 0);
    weft_free(box);
}

/* The smallest rectangle follows the direction of the area. */
Test(text_boxes, tilted_box_is_tilted)
{
    static float map[H][W];
    weft_text_box *box;
    int64_t count;
    fill(map, 48, 32, 0.4, (double[]){24, 5}, 0.9f);
    cr_assert_eq(weft_text_boxes_find(map[0], W, H, &box, &count), WEFT_OK);
    cr_assert_eq(count, 1);
    double longest = 0, angle = 0;
    for (int i = 0; i < 4; i++) {
        const double dx = box->x[(i + 1) % 4] - box->x[i], dy = box->y[(i + 1) % 4] - box->y[i];
        if (hypot(dx, dy) > longest) {
            longest = hypot(dx, dy);
            angle = atan(dy / dx);
        }
    }
    cr_assert_float_eq(angle, 0.4, 0.05, "angle %g", angle);
    weft_free(box);
}

/* Small areas and areas of a low mean are not text; two areas are two boxes, from the top. */
Test(text_boxes, weak_and_small_areas_are_dropped)
{
    static float map[H][W];
    weft_text_box *box;
    int64_t count;
    fill(map, 20, 50, 0, (double[]){15, 4}, 0.8f);
    fill(map, 70, 10, 0, (double[]){15, 4}, 0.8f);
    fill(map, 20, 10, 0, (double[]){15, 4}, 0.35f);
    fill(map, 70, 50, 0, (double[]){0.5, 0.5}, 1);
    cr_assert_eq(weft_text_boxes_find(map[0], W, H, &box, &count), WEFT_OK);
    cr_assert_eq(count, 2);
    cr_assert_lt(weft_text_box_bottom(&box[0]), 32);
    cr_assert_gt(weft_text_box_top(&box[1]), 32);
    weft_free(box);
    memset(map, 0, sizeof map);
    cr_assert_eq(weft_text_boxes_find(map[0], W, H, &box, &count), WEFT_OK);
    cr_assert_eq(count, 0);
    weft_free(box);
}

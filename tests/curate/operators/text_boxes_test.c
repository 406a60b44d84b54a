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

/* A box of rows `top` to `bottom`. */
static weft_text_box row_box(double top, double bottom)
{
    return (weft_text_box){.x = {10, 80, 80, 10}, .y = {top, top, bottom, bottom}};
}

/* Bands are cut where boxes fit into them completely; a box across the border stays. */
Test(text_boxes, bands_of_text_are_cut_off)
{
    const weft_text_box all[] = {row_box(2, 9.5), row_box(20, 40), row_box(54, 61),
                                 row_box(51.5, 60)};
    const struct {
        double most;
        int64_t low, high;
    } cases[] = {{0.21, 10, 51}, {0.2, 10, 54}, {0.1, 0, 64}, {0, 0, 64}, {0.4, 10, 51}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t rows[2] = {0, H};
        weft_text_boxes_narrow(all, 4, H, cases[i].most, rows);
        cr_expect(rows[0] == cases[i].low && rows[1] == cases[i].high, "%g: %d to %d",
                  cases[i].most, (int)rows[0], (int)rows[1]);
    }
    double before, after; /* the filter is evaluated again: the rest has the middle box only */
    const int64_t whole[2] = {0, H}, rest[2] = {10, 51};
    cr_assert_eq(weft_text_boxes_area(all, 4, W, whole, &before), WEFT_OK);
    cr_assert_eq(weft_text_boxes_area(all, 4, W, rest, &after), WEFT_OK);
    cr_expect_float_eq(after, 71.0 * 21 / (W * 41), 1e-9);
    cr_expect_gt(before, 71.0 * (21 + 8 + 10) / (W * H) - 1e-9);
}

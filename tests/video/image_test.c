/* Resized images: all sides are treated alike. */
#include "video/image.h"

#include <criterion/criterion.h>
#include <string.h>

enum { FROM_W = 7, FROM_H = 5, MOST = 16 };

/* image[h][w] rotated about its centre, one byte per pixel. */
static void turn(const uint8_t *from, int w, int h, bool rows, uint8_t *to)
{
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            to[y * w + x] = rows ? from[(h - 1 - y) * w + x] : from[y * w + w - 1 - x];
}

Test(image, resizing_treats_opposite_sides_alike)
{
    static const int sizes[][2] = {{14, 10}, {16, 16}, {7, 12}, {3, 2}, {9, 5}};
    uint8_t from[FROM_W * FROM_H], turned[FROM_W * FROM_H], a[MOST * MOST], b[MOST * MOST],
        back[MOST * MOST];
    for (int i = 0; i < FROM_W * FROM_H; i++)
        from[i] = (uint8_t)(i * 53 % 256);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int rows = 0; rows < 2; rows++) {
            const int w = sizes[s][0], h = sizes[s][1];
            turn(from, FROM_W, FROM_H, rows, turned);
            weft_image_resize(from, FROM_W, FROM_H, 1, a, w, h);
            weft_image_resize(turned, FROM_W, FROM_H, 1, b, w, h);
            turn(b, w, h, rows, back);
            for (int i = 0; i < w * h; i++)
                cr_expect(a[i] - back[i] <= 1 && back[i] - a[i] <= 1, "%dx%d, pixel %d: %d and %d",
                          w, h, i, a[i], back[i]);
        }
}

/* Twice as large: corners are those of the image; new pixels are a quarter of the way between two.
 * */
Test(image, growing_is_bilinear)
{
    const uint8_t from[4] = {0, 100, 200, 40};
    uint8_t to[16];
    weft_image_resize(from, 2, 2, 1, to, 4, 4);
    cr_expect(to[0] == 0 && to[3] == 100 && to[12] == 200 && to[15] == 40);
    cr_expect_eq(to[1], 25);
    cr_expect_eq(to[4], 50);
}

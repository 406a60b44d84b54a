#include "curate/bars.h"

#include <criterion/criterion.h>
#include <string.h>

enum { WIDE = 64, HIGH = 48 };
static uint8_t plane[3][WIDE * HIGH];

static void fill(int x0, int y0, int x1, int y1, int luma, int cb, int cr)
{
    const int colour[3] = {luma, cb, cr};
    for (int k = 0; k < 3; k++)
        for (int y = y0; y < y1; y++)
            memset(&plane[k][y * WIDE + x0], colour[k], (size_t)(x1 - x0));
}

/* A frame with content in every line. */
static void picture(int x0, int y0, int x1, int y1, int frame)
{
    for (int y = y0; y < y1; y++)
        for (int x = x0; x < x1; x++)
            plane[0][y * WIDE + x] = (uint8_t)(40 + (x * 37 + y * 59 + frame * 11) % 150);
    for (int k = 1; k < 3; k++)
        for (int y = y0; y < y1; y++)
            memset(&plane[k][y * WIDE + x0], 128, (size_t)(x1 - x0));
}

static void find(weft_bars *bars)
{
    const uint8_t *const planes[3] = {plane[0], plane[1], plane[2]};
    const int64_t stride[3] = {WIDE, WIDE, WIDE};
    weft_bars_find(planes, stride, WIDE, HIGH, bars);
}

static void expect(const int bar[4], int top, int bottom, int left, int right)
{
    cr_assert(bar[0] == top && bar[1] == bottom && bar[2] == left && bar[3] == right,
              "%d %d %d %d instead of %d %d %d %d", bar[0], bar[1], bar[2], bar[3], top, bottom,
              left, right);
}

Test(bars, bars_of_any_colour_are_bars)
{
    static const int colour[][3] = {{235, 128, 128}, {76, 85, 255},  {29, 255, 107},
                                    {128, 128, 128}, {45, 140, 120}, {16, 128, 128}};
    for (int c = 0; c < 6; c++) {
        weft_even_bars all = {0};
        weft_bars bars;
        int bar[4];
        for (int frame = 0; frame < 8; frame++) {
            fill(0, 0, WIDE, HIGH, colour[c][0], colour[c][1], colour[c][2]);
            picture(0, 7, WIDE, HIGH - 5, frame);
            find(&bars);
            weft_bars_of_frame(&bars, bar);
            expect(bar, 7, 5, 0, 0);
            weft_even_bars_add(&all, &bars, WIDE, HIGH);
        }
        weft_even_bars_end(&all, bar);
        expect(bar, 7, 5, 0, 0);
        fill(0, 0, WIDE, HIGH, colour[c][0], colour[c][1], colour[c][2]);
        picture(9, 0, WIDE - 11, HIGH, 0);
        find(&bars);
        weft_bars_of_frame(&bars, bar);
        expect(bar, 0, 0, 9, 11);
    }
}

/* A bar is found although some frames begin with its colour, or have a single colour. A bar that
 * one frame lacks is not a bar. */
Test(bars, a_bar_is_what_all_frames_have)
{
    weft_even_bars all = {0};
    weft_bars bars;
    int bar[4];
    for (int frame = 0; frame < 9; frame++) {
        fill(0, 0, WIDE, HIGH, 235, 128, 128);
        picture(0, frame % 3 == 1 ? 13 : 6, WIDE, HIGH - 6, frame);
        if (frame % 3 == 2)
            fill(0, 0, WIDE, HIGH, 60, 128, 128);
        find(&bars);
        weft_even_bars_add(&all, &bars, WIDE, HIGH);
    }
    weft_even_bars_end(&all, bar);
    expect(bar, 6, 6, 0, 0);
    picture(0, 0, WIDE, HIGH, 0);
    find(&bars);
    weft_even_bars_add(&all, &bars, WIDE, HIGH);
    weft_even_bars_end(&all, bar);
    expect(bar, 0, 0, 0, 0);
}

/* A shape on a flat ground, and a sky that grows darker, have no bars. */
Test(bars, flat_grounds_are_no_bars)
{
    weft_even_bars all = {0};
    weft_bars bars;
    int bar[4];
    for (int frame = 0; frame < 8; frame++) {
        fill(0, 0, WIDE, HIGH, 200, 110, 140);
        fill(20 + frame, 15, 40 + frame, 35, 90, 128, 128);
        find(&bars);
        weft_bars_of_frame(&bars, bar);
        expect(bar, 0, 0, 0, 0);
        weft_even_bars_add(&all, &bars, WIDE, HIGH);
    }
    weft_even_bars_end(&all, bar);
    expect(bar, 0, 0, 0, 0);
    for (int y = 0; y < HIGH; y++)
        fill(0, y, WIDE, y + 1, 220 - 2 * y, 128, 128);
    find(&bars);
    weft_bars_of_frame(&bars, bar);
    expect(bar, 0, 0, 0, 0);
}

/* A sky with a gradual change of colour is not a bar, even with a sharp horizon soon after the
 * colour of its first line ends. A bar with the same amount of other colours near its edge is a
 * bar. */
Test(bars, a_sky_to_the_horizon_is_no_bar)
{
    weft_even_bars sky = {0}, bar_of_shot = {0};
    weft_bars bars;
    int bar[4];
    for (int frame = 0; frame < 8; frame++) {
        for (int y = 0; y < 11; y++)
            fill(0, y, WIDE, y + 1, 220 - y, 110, 140);
        picture(0, 11, WIDE, HIGH, frame);
        find(&bars);
        weft_bars_of_frame(&bars, bar);
        expect(bar, 0, 0, 0, 0);
        weft_even_bars_add(&sky, &bars, WIDE, HIGH);
        for (int y = 0; y < 11; y++)
            fill(0, y, WIDE, y + 1, y < 7 ? 220 : y & 1 ? 210 : 228, 110, 140);
        find(&bars);
        weft_even_bars_add(&bar_of_shot, &bars, WIDE, HIGH);
    }
    weft_even_bars_end(&sky, bar);
    expect(bar, 0, 0, 0, 0);
    weft_even_bars_end(&bar_of_shot, bar);
    expect(bar, 11, 0, 0, 0);
}

/* Blended tiles are compared with the rule on complete tiles: each tile fades in over the tile
 * above and then over the tile to its left, after the fading of those tiles. With weft_tiling.sums they
 * are compared with sums of weighted tiles. */
#include "latent/tile_blend.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { SIDE = 10, SIZE = 6, STEP = 4, BLEND = SIZE - STEP, TILES = 3, CHANNELS = 2 };

typedef float tile[SIZE][SIZE][CHANNELS];

static int length_of(int index)
{
    return SIDE - index * STEP < SIZE ? SIDE - index * STEP : SIZE;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

static float value_of(int row, int column, int y, int x, int c)
{
    return (float)sin(1 + 97 * row + 31 * column + 7 * y + 3 * x + c);
}

/* Tile (row, column), faded over those of `made` before it. */
static void fade(tile made[TILES][TILES], int row, int column)
{
    const int rows = length_of(row), columns = length_of(column);
    for (int y = 0; y < rows; y++)
        for (int x = 0; x < columns; x++)
            for (int c = 0; c < CHANNELS; c++)
                made[row][column][y][x][c] = value_of(row, column, y, x, c);
    const int up = row ? length_of(row - 1) : 0, left = column ? length_of(column - 1) : 0,
              high = least(BLEND, least(up, rows)), wide = least(BLEND, least(left, columns));
    for (int y = 0; y < high; y++)
        for (int x = 0; x < columns; x++)
            for (int c = 0; c < CHANNELS; c++) {
                const float w = (float)y / (float)high,
                            before = made[row - 1][column][up - high + y][x][c];
                made[row][column][y][x][c] = before * (1 - w) + made[row][column][y][x][c] * w;
            }
    for (int y = 0; y < rows; y++)
        for (int x = 0; x < wide; x++)
            for (int c = 0; c < CHANNELS; c++) {
                const float w = (float)x / (float)wide,
                            before = made[row][column - 1][y][left - wide + x][c];
                made[row][column][y][x][c] = before * (1 - w) + made[row][column][y][x][c] * w;
            }
}

Test(mosaic, tiles_fade_over_those_before)
{
    static tile made[TILES][TILES];
    const weft_tile_side side = {.size = SIZE, .step = STEP, .blend = BLEND, .out_step = STEP};
    const weft_tiling t = {.in_space = true,
                           .side = {{1, 1, 0, 1}, side, side},
                           .cell = 1,
                           .in = {1, SIDE, SIDE},
                           .out = {1, SIDE, SIDE},
                           .up = {1, 1, 1},
                           .down = {1, 1, 1}};
    weft_tile_blend m;
    cr_assert_eq(weft_tiling_count(&t, 1), TILES);
    cr_assert_eq(weft_tile_blend_create(&t, 1, CHANNELS, &m), WEFT_OK);
    for (int row = 0; row < TILES; row++)
        for (int column = 0; column < TILES; column++) {
            const int rows = length_of(row), columns = length_of(column);
            float plain[SIZE * SIZE * CHANNELS];
            for (int y = 0; y < rows; y++)
                for (int x = 0; x < columns; x++)
                    for (int c = 0; c < CHANNELS; c++)
                        plain[(y * columns + x) * CHANNELS + c] = value_of(row, column, y, x, c);
            weft_tile_blend_add(&m, row, column, 0, 1, plain);
            fade(made, row, column);
        }
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++)
            for (int c = 0; c < CHANNELS; c++) {
                const int row = y / STEP, column = x / STEP;
                cr_expect_float_eq(m.to[(y * SIDE + x) * CHANNELS + c],
                                   made[row][column][y - row * STEP][x - column * STEP][c], 1e-6,
                                   "row %d, column %d, channel %d", y, x, c);
            }
    weft_tile_blend_free(&m);
}

/* Weights of a position in the two tiles that may cover it, from 0 to 1 over the overlap. */
static double weight_of(int index, int last, int at, int length)
{
    const int own = at - index * STEP;
    if (own < 0 || own >= length)
        return 0;
    if (index > 0 && own < BLEND)
        return (double)own / BLEND;
    return index < last && own >= STEP ? 1 - (double)(own - STEP) / BLEND : 1;
}

/* With `sums`, the output is the sum of all tiles, each with the product of the weights of its row
 * and column. The last tile of a side reaches the border, and is used completely. */
Test(mosaic, sums_of_tiles)
{
    enum { ALL = SIDE - 1, LAST = 1 };
    const weft_tile_side side = {.size = SIZE, .step = STEP, .blend = BLEND, .out_step = STEP};
    const weft_tiling t = {.in_space = true,
                           .sums = true,
                           .side = {{1, 1, 0, 1}, side, side},
                           .cell = 1,
                           .in = {1, ALL, ALL},
                           .out = {1, ALL, ALL},
                           .up = {1, 1, 1},
                           .down = {1, 1, 1}};
    weft_tile_blend m;
    double sum[ALL][ALL][CHANNELS] = {0};
    cr_assert_eq(weft_tiling_count(&t, 1), LAST + 1);
    cr_assert_eq(weft_tile_blend_create(&t, 1, CHANNELS, &m), WEFT_OK);
    for (int row = 0; row <= LAST; row++)
        for (int column = 0; column <= LAST; column++) {
            const int rows = (int)weft_tiling_length(&t, 1, row),
                      columns = (int)weft_tiling_length(&t, 2, column);
            float plain[SIZE * SIZE * CHANNELS];
            for (int y = 0; y < rows; y++)
                for (int x = 0; x < columns; x++)
                    for (int c = 0; c < CHANNELS; c++) {
                        const int at[2] = {row * STEP + y, column * STEP + x};
                        const float value = value_of(row, column, y, x, c);
                        plain[(y * columns + x) * CHANNELS + c] = value;
                        sum[at[0]][at[1]][c] += weight_of(row, LAST, at[0], rows) *
                                                weight_of(column, LAST, at[1], columns) *
                                                (double)value;
                    }
            weft_tile_blend_add(&m, row, column, 0, 1, plain);
        }
    for (int i = 0; i < ALL * ALL * CHANNELS; i++)
        cr_expect_float_eq((double)m.to[i],
                           sum[i / CHANNELS / ALL][i / CHANNELS % ALL][i % CHANNELS], 1e-6,
                           "value %d", i);
    weft_tile_blend_free(&m);
}

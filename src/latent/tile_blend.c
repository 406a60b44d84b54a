#include "latent/tile_blend.h"

#include "base/memory.h"

#include <string.h>

/* Output length along `side` of the largest tile. */
static int64_t largest(const weft_tiling *t, int side)
{
    return weft_tiling_made(t, side, weft_tiling_length(t, side, 0));
}

/* Floats per frame of all strips above, and of the strip to the left. */
static int64_t above_floats(const weft_tiling *t, int64_t channels)
{
    return t->side[1].blend * largest(t, 2) * channels * weft_tiling_count(t, 2);
}

static int64_t left_floats(const weft_tiling *t, int64_t channels)
{
    return t->side[2].blend * largest(t, 1) * channels;
}

int64_t weft_tile_blend_bytes(const weft_tiling *t, int64_t frames, int64_t channels)
{
    int64_t each = t->out[1] * t->out[2] * channels;
    if (t->in_space)
        each += above_floats(t, channels) + left_floats(t, channels);
    return (frames * each + largest(t, 1) * largest(t, 2) * channels) * (int64_t)sizeof(float);
}

weft_status weft_tile_blend_create(const weft_tiling *t, int64_t frames, int64_t channels,
                                   weft_tile_blend *blend)
{
    weft_tile_blend c = {.tiling = t, .frames = frames, .channels = channels};
    c.to = weft_alloc(frames * t->out[1] * t->out[2] * channels * 4);
    c.above = t->in_space ? weft_alloc(frames * above_floats(t, channels) * 4 + 4) : NULL;
    c.left = t->in_space ? weft_alloc(frames * left_floats(t, channels) * 4 + 4) : NULL;
    c.tile = t->in_space ? weft_alloc(largest(t, 1) * largest(t, 2) * channels * 4) : NULL;
    if (!c.to || (t->in_space && (!c.above || !c.left || !c.tile))) {
        weft_tile_blend_free(&c);
        return weft_no_memory("%" PRId64 " frames of %" PRId64 "x%" PRId64, frames, t->out[2],
                              t->out[1]);
    }
    *blend = c;
    return WEFT_OK;
}

void weft_tile_blend_free(weft_tile_blend *c)
{
    weft_free(c->to);
    weft_free(c->above);
    weft_free(c->left);
    weft_free(c->tile);
    *c = (weft_tile_blend){0};
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void weft_tile_blend_fade(const float *a, float w, int64_t count, float *b)
{
    for (int64_t i = 0; i < count; i++)
        b[i] = a[i] * (1 - w) + b[i] * w;
}

/* Fades the first rows of a tile (rows, width floats) in over the last rows above. `strip` has the
 * last `kept` of the `before` rows of the tile above. */
static void fade_rows(const weft_tile_blend *c, const float *strip, int64_t kept, int64_t before,
                      int64_t rows, int64_t width, float *tile)
{
    const int64_t cell = c->tiling->cell,
                  extent = least(least(before, rows), c->tiling->side[1].blend) / cell;
    for (int64_t k = 0; k < extent * cell; k++)
        weft_tile_blend_fade(strip + (kept - extent * cell + k) * width,
                             (float)(k / cell) / (float)extent, width, tile + k * width);
}

/* Fades the first columns of a tile in over the last columns to the left. A row of the strip has
 * `kept` columns. */
static void fade_columns(const weft_tile_blend *c, const float *strip, int64_t kept, int64_t before,
                         int64_t rows, int64_t columns, float *tile)
{
    const int64_t cell = c->tiling->cell, ch = c->channels,
                  extent = least(least(before, columns), c->tiling->side[2].blend) / cell;
    for (int64_t y = 0; y < rows; y++)
        for (int64_t k = 0; k < extent * cell; k++)
            weft_tile_blend_fade(strip + (y * kept + kept - extent * cell + k) * ch,
                                 (float)(k / cell) / (float)extent, ch,
                                 tile + (y * columns + k) * ch);
}

/* Writes the kept part of a tile's frame to its position in the output. */
static void write_tile(const weft_tile_blend *c, int64_t row, int64_t column, int64_t rows,
                       int64_t columns, const float *tile, float *to)
{
    const weft_tiling *t = c->tiling;
    const bool tiled = t->in_space;
    const int64_t y = tiled ? row * t->side[1].out_step : 0,
                  x = tiled ? column * t->side[2].out_step : 0;
    const bool last_row = t->sums && row == weft_tiling_count(t, 1) - 1,
               last_column = t->sums && column == weft_tiling_count(t, 2) - 1;
    const int64_t kept_rows = tiled && !last_row ? least(rows, t->side[1].out_step) : rows,
                  kept_columns =
                      tiled && !last_column ? least(columns, t->side[2].out_step) : columns,
                  high = least(kept_rows, t->out[1] - y), wide = least(kept_columns, t->out[2] - x);
    for (int64_t i = 0; i < high && wide > 0; i++)
        memcpy(to + ((y + i) * t->out[2] + x) * c->channels, tile + i * columns * c->channels,
               (size_t)(wide * c->channels) * sizeof *to);
}

/* Saves the strip that the tile below fades in over. */
static void save_above(const weft_tile_blend *c, int64_t rows, int64_t columns, const float *tile,
                       float *above)
{
    const int64_t ch = c->channels, down = least(rows, c->tiling->side[1].blend);
    memcpy(above, tile + (rows - down) * columns * ch,
           (size_t)(down * columns * ch) * sizeof *above);
}

/* Saves the strip that the tile to the right fades in over. */
static void save_left(const weft_tile_blend *c, int64_t rows, int64_t columns, const float *tile,
                      float *left)
{
    const int64_t ch = c->channels, right = least(columns, c->tiling->side[2].blend);
    for (int64_t y = 0; y < rows; y++)
        memcpy(left + y * right * ch, tile + (y * columns + columns - right) * ch,
               (size_t)(right * ch) * sizeof *left);
}

void weft_tile_blend_add(weft_tile_blend *c, int64_t row, int64_t column, int64_t first,
                         int64_t count, const float *tile)
{
    const weft_tiling *t = c->tiling;
    const int64_t rows = weft_tiling_made(t, 1, weft_tiling_length(t, 1, row)),
                  columns = weft_tiling_made(t, 2, weft_tiling_length(t, 2, column)),
                  floats = rows * columns * c->channels,
                  frame = t->out[1] * t->out[2] * c->channels;
    const int64_t up = row ? weft_tiling_made(t, 1, weft_tiling_length(t, 1, row - 1)) : 0,
                  before =
                      column ? weft_tiling_made(t, 2, weft_tiling_length(t, 2, column - 1)) : 0;
    for (int64_t f = first; f < first + count; f++, tile += floats) {
        float *to = c->to + f * frame;
        if (!t->in_space) {
            write_tile(c, row, column, rows, columns, tile, to);
            continue;
        }
        float *above = c->above + f * above_floats(t, c->channels) +
                       column * t->side[1].blend * largest(t, 2) * c->channels,
              *left = c->left + f * left_floats(t, c->channels);
        memcpy(c->tile, tile, (size_t)floats * sizeof *tile);
        if (row)
            fade_rows(c, above, least(up, t->side[1].blend), up, rows, columns * c->channels,
                      c->tile);
        if (t->sums)
            save_above(c, rows, columns, c->tile, above);
        if (column)
            fade_columns(c, left, least(before, t->side[2].blend), before, rows, columns, c->tile);
        write_tile(c, row, column, rows, columns, c->tile, to);
        if (!t->sums)
            save_above(c, rows, columns, c->tile, above);
        save_left(c, rows, columns, c->tile, left);
    }
}

#include "model/tiling.h"

#include <stdio.h>
#include <string.h>

static const char *const sides[3] = {"frames", "height", "width"};

weft_status weft_tile_parse(const char *text, weft_message_class kind,
                            const weft_message_fields *at, const char *also, weft_tile *tile)
{
    int64_t width, height, overlap = 0;
    int end = 0, overlap_end = 0;
    if (!strcmp(text, "on") || !strcmp(text, "off")) {
        *tile = (weft_tile){.on = text[1] == 'n', .off = text[1] == 'f'};
        return WEFT_OK;
    }
    const bool sizes =
        sscanf(text, "%" SCNd64 "x%" SCNd64 "%n", &width, &height, &end) == 2 && end > 0;
    const bool overlaps =
        sizes && sscanf(text + end, "+%" SCNd64 "%n", &overlap, &overlap_end) == 1;
    if (!sizes || text[end + overlap_end] || width < 1 || height < 1 || width > 65536 ||
        height > 65536 || overlap < 0)
        return weft_error(kind, at,
                          "%s is not a tile size; use %son, off, or WIDTHxHEIGHT in pixels, with "
                          "+OVERLAP after it if needed (256x256+64)",
                          text, also);
    if (overlaps && (overlap >= width || overlap >= height))
        return weft_error(kind, at, "%s: tiles of %" PRId64 " pixels cannot overlap by %" PRId64,
                          text, width < height ? width : height, overlap);
    *tile = (weft_tile){.on = true, .size = {0, height, width}};
    if (overlaps) {
        tile->step[1] = height - overlap;
        tile->step[2] = width - overlap;
    }
    return WEFT_OK;
}

/* Sizes and steps in pixels. 0 in `asked`: the family's own. */
static void resolve_sizes(const weft_tile_rule *rule, const weft_tile *asked,
                          const int64_t factor[3], int64_t size[3], int64_t step[3])
{
    for (int i = 0; i < 3; i++) {
        size[i] = asked->size[i] ? asked->size[i] : rule->size[i];
        step[i] = asked->step[i] ? asked->step[i] : rule->step[i];
        if (!asked->size[i] || asked->step[i] || !rule->size[i])
            continue;
        /* another size: keeps the overlap ratio, in units of complete latents */
        step[i] = size[i] * rule->step[i] / rule->size[i] / factor[i] * factor[i];
        step[i] = step[i] ? step[i] : factor[i];
    }
}

/* Tile side from an overlap ratio, rounded down each time, as references with an overlap factor
 * do. */
static void by_parts(int64_t size, int64_t step, int64_t factor, bool decoder, weft_tile_side *side)
{
    const double part = (double)(size - step) / (double)size;
    const int64_t latents = size / factor, from = decoder ? latents : size,
                  to = decoder ? size : latents;
    side->size = from;
    side->step = (int64_t)((double)from * (1 - part));
    side->blend = (int64_t)((double)to * part);
    side->out_step = to - side->blend;
}

/* Tile side from a step. `cell` pixels of a side are packed into channels, at the output of a
 * decoder and the input of an encoder. Sizes there are counted in cells. */
static void by_steps(int64_t size, int64_t step, int64_t factor, int64_t cell, bool decoder,
                     weft_tile_side *side)
{
    const int64_t own = factor / cell; /* cells per latent */
    if (decoder)
        *side = (weft_tile_side){size / factor, step / factor, (size / cell - step / cell) * cell,
                                 step / cell * cell};
    else
        *side = (weft_tile_side){size * cell, step * cell, size / own - step / own, step / own};
}

/* Temporal tiles of causal models have one frame more, which tiles after the first drop. */
static void in_time(int64_t size, int64_t step, int64_t factor, bool decoder, weft_tile_side *side)
{
    if (decoder)
        *side = (weft_tile_side){size / factor + 1, step / factor, size - step, step};
    else
        *side = (weft_tile_side){size + 1, step, size / factor - step / factor, step / factor};
}

/* Checks that tiles consist of complete latents, which encoders require, and cover the video
 * without gaps. */
static weft_status check(const weft_tiling *t, int i, bool decoder, bool parts, int64_t factor,
                         int64_t size, int64_t step)
{
    const weft_tile_side *s = &t->side[i];
    const int64_t last = weft_tiling_count(t, i) - 1, rest = weft_tiling_length(t, i, last);
    const int64_t covered = last * s->out_step + weft_tiling_made(t, i, rest);
    if (s->size < 1 || s->step < 1 || s->out_step < 1 || s->blend < 0 || step > size)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_NUMBER(size)),
                          "tiles of %" PRId64 " in %s, one every %" PRId64
                          ", cannot be used. A tile needs at "
                          "least %" PRId64 ", and the step is from %" PRId64 " to the tile's size.",
                          size, sides[i], step, factor, factor);
    if (!decoder && (s->size - (i == 0 && !t->sums)) % factor + s->step % factor)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_NUMBER(size)),
                          "tiles of %" PRId64 " in %s, one every %" PRId64
                          ": this encoder needs multiples of %" PRId64,
                          size, sides[i], step, factor);
    /* if the steps do not match, references with an overlap ratio give a larger output */
    const bool apart = parts && i && s->out_step * t->down[i] != s->step * t->up[i];
    return i == 0 || (covered >= t->out[i] && !apart)
               ? WEFT_OK
               : weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(WEFT_NUMBER(size)),
                            "tiles of %" PRId64 " in %s, one every %" PRId64
                            ", leave gaps; use multiples of %" PRId64,
                            size, sides[i], step, factor);
}

weft_status weft_tiling_of(const weft_model *model, const weft_tile *asked, bool decoder,
                           const int64_t pixels[3], weft_tiling *tiling)
{
    const weft_grid grid = weft_model_grid(model);
    const weft_tile_rule rule = weft_model_tile_rule(model);
    weft_tiling t = {
        .causal = grid.causal, .cell = decoder && grid.cell ? grid.cell : 1, .sums = rule.sums};
    int64_t size[3], step[3];
    if (asked->size[0] && !rule.size[0])
        return weft_error(WEFT_MSG_MODEL_INPUT_UNSUPPORTED, WEFT_NOWHERE,
                          "%s cannot be tiled in time; give no tile size in frames",
                          weft_model_class(model));
    resolve_sizes(&rule, asked, grid.factor, size, step);
    for (int i = 0; i < 3; i++) {
        const int64_t latents =
            i ? pixels[i] / grid.factor[i] : weft_grid_latent_frames(&grid, pixels[i]);
        t.in[i] = decoder ? latents : pixels[i];
        t.out[i] = decoder ? pixels[i] : latents;
        t.up[i] = decoder ? grid.factor[i] : 1;
        t.down[i] = decoder ? 1 : grid.factor[i];
        if (i == 0 && !rule.sums)
            in_time(size[i], step[i], grid.factor[i], decoder, &t.side[i]);
        else if (rule.parts)
            by_parts(size[i], step[i], grid.factor[i], decoder, &t.side[i]);
        else
            by_steps(size[i], step[i], grid.factor[i], grid.cell ? grid.cell : 1, decoder,
                     &t.side[i]);
    }
    for (int i = 1; i < 3; i++) { /* limits the kept extent to the output of a tile */
        const int64_t made = weft_tiling_made(&t, i, t.side[i].size);
        t.side[i].out_step = t.side[i].out_step < made ? t.side[i].out_step : made;
    }
    t.in_time = size[0] > 0 && t.in[0] > t.side[0].size - !rule.sums;
    t.in_space = (asked->on || (rule.sums && !asked->off)) &&
                 (t.in[1] > t.side[1].size || t.in[2] > t.side[2].size);
    for (int i = 0; i < 3; i++)
        if (i ? t.in_space : t.in_time)
            WEFT_TRY(check(&t, i, decoder, rule.parts, grid.factor[i], size[i], step[i]));
    *tiling = t;
    return WEFT_OK;
}

static bool is_tiled(const weft_tiling *t, int side)
{
    return side ? t->in_space : t->in_time;
}

int64_t weft_tiling_count(const weft_tiling *t, int side)
{
    const int64_t step = t->side[side].step, size = t->side[side].size;
    if (!is_tiled(t, side) || step <= 0 || (t->sums && t->in[side] <= size))
        return 1;
    return t->sums ? 1 + (t->in[side] - size + step - 1) / step : (t->in[side] + step - 1) / step;
}

int64_t weft_tiling_first(const weft_tiling *t, int side, int64_t index)
{
    return is_tiled(t, side) ? index * t->side[side].step : 0;
}

int64_t weft_tiling_length(const weft_tiling *t, int side, int64_t index)
{
    const int64_t rest = t->in[side] - weft_tiling_first(t, side, index);
    return is_tiled(t, side) && rest > t->side[side].size ? t->side[side].size : rest;
}

int64_t weft_tiling_made(const weft_tiling *t, int side, int64_t length)
{
    if (length == t->in[side]) /* the rule of the grid, which may have clips */
        return t->out[side];
    return side || !t->causal ? length * t->up[side] / t->down[side]
                              : 1 + (length - 1) * t->up[side] / t->down[side];
}

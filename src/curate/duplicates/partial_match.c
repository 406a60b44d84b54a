/* How one shot lies over another, by its points, and whether they show the same there, by looks. */
#include "curate/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BITS_APART = 14, /* of 63 between the words of one point in two copies */
    LEAST_POINTS = 8,
    LEAST_MOVING = 6,
    TINT = 6,          /* levels of chroma between blocks of a picture without colours */
    LEAST_BLOCKS = 20, /* with something in them */
    LOOKS = 24,        /* that are compared, at most */
    BLOCK_WIDTH = WEFT_LOOK_WIDTH / WEFT_LOOK_COLUMNS,
    BLOCK_HEIGHT = WEFT_LOOK_HEIGHT / WEFT_LOOK_ROWS,
    BLOCK = BLOCK_WIDTH * BLOCK_HEIGHT,
    PIXELS = WEFT_LOOK_WIDTH * WEFT_LOOK_HEIGHT
};
#define LEAST_SCALE 0.55 /* of a crop */
#define LEAST_GAIN  0.5  /* of a grade that leaves colours */
#define APART       0.03 /* of the root of the picture's area: points that agree */

/* ---- points: the map ----------------------------------------------------------------------- */

typedef struct pair {
    double ax, ay, bx, by; /* in roots of the picture's area */
    int levels;            /* by which b's is coarser */
} pair;

static int bits_apart(const weft_point *a, const weft_point *b)
{
    return __builtin_popcount(a->word[0] ^ b->word[0]) +
           __builtin_popcount(a->word[1] ^ b->word[1]);
}

/* Points of a with their nearest in b, where that is near; mirrored or not. */
static int pair_points(const weft_points *a, const weft_points *b, double a_aspect, double b_aspect,
                       bool mirrored, pair list[WEFT_POINTS])
{
    const double aw = sqrt(a_aspect) / 256, ah = 1 / sqrt(a_aspect) / 256,
                 bw = sqrt(b_aspect) / 256, bh = 1 / sqrt(b_aspect) / 256;
    int count = 0;
    for (int i = 0; i < a->count; i++) {
        const weft_point *p = &a->point[i];
        int best = -1, least = BITS_APART + 1;
        for (int k = 0; k < b->count; k++) {
            const int apart = bits_apart(p, &b->point[k]);
            if ((p->is_mirrored != b->point[k].is_mirrored) == mirrored && apart < least)
                best = k, least = apart;
        }
        if (best < 0)
            continue;
        const weft_point *q = &b->point[best];
        list[count++] = (pair){(mirrored ? 256 - p->x : p->x) * aw, p->y * ah, q->x * bw, q->y * bh,
                               q->level - p->level};
    }
    return count;
}

static bool agrees(const pair *p, const double map[4])
{
    return fabs(map[0] * p->ax + map[2] - p->bx) < APART &&
           fabs(map[1] * p->ay + map[3] - p->by) < APART;
}

/* b = map[0] * a + map[2] in x, [1] and [3] in y: least squares over the pairs that agree. Where
 * they lie too close together for two scales, one is kept. */
static int fit(const pair *list, int count, double map[4])
{
    double n = 0, m[8] = {0};
    for (int i = 0; i < count; i++) {
        const pair *p = &list[i];
        if (!agrees(p, map))
            continue;
        n++;
        m[0] += p->ax, m[1] += p->ax * p->ax, m[2] += p->bx, m[3] += p->ax * p->bx;
        m[4] += p->ay, m[5] += p->ay * p->ay, m[6] += p->by, m[7] += p->ay * p->by;
    }
    if (n < 2)
        return (int)n;
    for (int k = 0; k < 2; k++) {
        const double *s = m + 4 * k, spread = s[1] - s[0] * s[0] / n;
        if (spread > 0.02 * n)
            map[k] = (s[3] - s[0] * s[2] / n) / spread;
        map[k + 2] = (s[2] - map[k] * s[0]) / n;
    }
    return (int)n;
}

static int count_agreeing(const pair *list, int count, const double map[4])
{
    int n = 0;
    for (int i = 0; i < count; i++)
        n += agrees(&list[i], map);
    return n;
}

/* The map that most pairs agree on: every two of them propose one. */
static int best_map(const pair *list, int count, double best[4])
{
    int most = 0;
    for (int i = 0; i < count; i++)
        for (int k = i + 1; k < count; k++) {
            const pair *p = &list[i], *q = &list[k];
            const double ax = q->ax - p->ax, ay = q->ay - p->ay, bx = q->bx - p->bx,
                         by = q->by - p->by, a = hypot(ax, ay);
            if (a < 0.15)
                continue;
            const double s = hypot(bx, by) / a;
            if (s < LEAST_SCALE || s > 1 / LEAST_SCALE ||
                hypot(bx - s * ax, by - s * ay) > 2 * APART ||
                fabs(3 * log2(s) - p->levels) > 1.1 || fabs(3 * log2(s) - q->levels) > 1.1)
                continue;
            const double map[4] = {s, s, (p->bx + q->bx - s * (p->ax + q->ax)) / 2,
                                   (p->by + q->by - s * (p->ay + q->ay)) / 2};
            const int n = count_agreeing(list, count, map);
            if (n > most) {
                most = n;
                memcpy(best, map, sizeof map);
            }
        }
    if (most < LEAST_POINTS)
        return 0;
    fit(list, count, best);
    most = fit(list, count, best);
    return fabs(log2(best[0] / best[1])) < 0.2 ? most : 0;
}

/* Keeps the best map of each offset in time. */
static int keep(weft_parts_map *maps, int count, const weft_parts_map *map)
{
    int at = 0;
    while (at < count && (maps[at].later != map->later || maps[at].mirrored != map->mirrored))
        at++;
    if (at < count && maps[at].points >= map->points)
        return count;
    if (at == WEFT_PARTS_MAPS) {
        at--;
        if (maps[at].points >= map->points)
            return count;
    }
    count = at == count ? count + 1 : count;
    for (; at > 0 && maps[at - 1].points < map->points; at--)
        maps[at] = maps[at - 1];
    maps[at] = *map;
    return count;
}

int weft_parts_maps(const weft_parts *a, const weft_parts *b, weft_parts_map maps[WEFT_PARTS_MAPS])
{
    const double aw = sqrt(a->aspect), ah = 1 / aw, bw = sqrt(b->aspect), bh = 1 / bw;
    int count = 0;
    for (int64_t i = 0; i < a->pictures; i++)
        for (int64_t k = 0; k < b->pictures; k++)
            for (int mirrored = 0; mirrored < 2; mirrored++) {
                pair list[WEFT_POINTS];
                double m[4];
                const int pairs =
                    pair_points(&a->points[i], &b->points[k], a->aspect, b->aspect, mirrored, list);
                const int points = pairs < LEAST_POINTS ? 0 : best_map(list, pairs, m);
                if (points < LEAST_POINTS)
                    continue;
                const weft_parts_map map = {
                    m[0] * aw / bw,
                    m[1] * ah / bh,
                    m[2] / bw,
                    m[3] / bh,
                    mirrored,
                    a->points_at + i * a->points_step - b->points_at - k * b->points_step,
                    points};
                count = keep(maps, count, &map);
            }
    return count;
}

/* ---- looks: the same or not ---------------------------------------------------------------- */

/* One axis: other = scale * base + shift, in widths or heights. */
typedef struct line {
    double scale, shift;
} line;

typedef struct overlay {
    const weft_parts *base, *other; /* base shows more of the scene */
    line x, y;
    int looks;
    int64_t base_at[LOOKS], other_at[LOOKS];
    float base_luma[LOOKS][PIXELS], other_luma[LOOKS][PIXELS];
    bool inside[PIXELS]; /* of the base: the other shows it */
} overlay;

typedef struct block {
    int pixels;
    double structure; /* correlation of what is in it; 2: nothing is, in both */
    double detail;    /* mean square of the structure of the one that has less */
    double base_moves, other_moves, moves; /* squares over time, and their product */
} block;

static line inverse(line l)
{
    return (line){1 / l.scale, -l.shift / l.scale};
}

/* Looks of one moment: times are steps of hashes, and looks have every second. */
static void pair_looks(overlay *o, int64_t later)
{
    int64_t from = -1, to = -1;
    for (int64_t k = 0; k < o->base->looks; k++) {
        const int64_t time = o->base->looks_at + WEFT_LOOK_STEP * k - later - o->other->looks_at;
        if (time < 0 || time / WEFT_LOOK_STEP >= o->other->looks)
            continue;
        from = from < 0 ? k : from;
        to = k;
    }
    o->looks = 0;
    if (from < 0)
        return;
    const int64_t count = to - from + 1;
    o->looks = count < LOOKS ? (int)count : LOOKS;
    for (int i = 0; i < o->looks; i++) {
        const int64_t k = from + (count - 1) * i / (o->looks > 1 ? o->looks - 1 : 1);
        o->base_at[i] = k;
        o->other_at[i] =
            (o->base->looks_at + WEFT_LOOK_STEP * k - later - o->other->looks_at) / WEFT_LOOK_STEP;
    }
}

/* The other's luma where the base's pixels are, for `count` looks from `first` in steps. */
static void lay_over(overlay *o, line lx, line ly, int step)
{
    for (int y = 0; y < WEFT_LOOK_HEIGHT; y++)
        for (int x = 0; x < WEFT_LOOK_WIDTH; x++) {
            const double ox =
                             (lx.scale * (x + 0.5) / WEFT_LOOK_WIDTH + lx.shift) * WEFT_LOOK_WIDTH -
                             0.5,
                         oy = (ly.scale * (y + 0.5) / WEFT_LOOK_HEIGHT + ly.shift) *
                                  WEFT_LOOK_HEIGHT -
                              0.5;
            const int at = y * WEFT_LOOK_WIDTH + x;
            o->inside[at] =
                ox > -0.4 && oy > -0.4 && ox < WEFT_LOOK_WIDTH - 0.6 && oy < WEFT_LOOK_HEIGHT - 0.6;
            if (!o->inside[at])
                continue;
            const double cx = fmin(fmax(ox, 0), WEFT_LOOK_WIDTH - 1.001),
                         cy = fmin(fmax(oy, 0), WEFT_LOOK_HEIGHT - 1.001);
            const int x0 = (int)cx, y0 = (int)cy;
            const float fx = (float)(cx - x0), fy = (float)(cy - y0);
            for (int t = 0; t < o->looks; t += step) {
                const weft_look *l = &o->other->look[o->other_at[t]];
                const float up = (1 - fx) * l->luma[y0][x0] + fx * l->luma[y0][x0 + 1],
                            down = (1 - fx) * l->luma[y0 + 1][x0] + fx * l->luma[y0 + 1][x0 + 1];
                o->other_luma[t][at] = (1 - fy) * up + fy * down;
            }
        }
}

static double correlation(double ab, double aa, double bb)
{
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

/* A block through the looks, each `step`-th: how alike its structure is (means of the block are
 * taken off in each look), and how alike its changes are (means over time are). */
static block measure_block(const overlay *o, int column, int row, int step)
{
    block b = {0};
    int list[BLOCK];
    double aa = 0, bb = 0, ab = 0;
    int looks = 0;
    for (int y = 0; y < BLOCK_HEIGHT; y++)
        for (int x = 0; x < BLOCK_WIDTH; x++) {
            const int at = (row * BLOCK_HEIGHT + y) * WEFT_LOOK_WIDTH + column * BLOCK_WIDTH + x;
            if (o->inside[at])
                list[b.pixels++] = at;
        }
    if (b.pixels * 3 < BLOCK * 2) {
        b.pixels = 0;
        return b;
    }
    for (int t = 0; t < o->looks; t += step, looks++) {
        double a_mean = 0, b_mean = 0;
        for (int i = 0; i < b.pixels; i++)
            a_mean += o->base_luma[t][list[i]], b_mean += o->other_luma[t][list[i]];
        a_mean /= b.pixels, b_mean /= b.pixels;
        for (int i = 0; i < b.pixels; i++) {
            const double p = o->base_luma[t][list[i]] - a_mean,
                         q = o->other_luma[t][list[i]] - b_mean;
            aa += p * p, bb += q * q, ab += p * q;
        }
    }
    const double n = (double)b.pixels * looks, flat = 12;
    b.detail = fmin(aa, bb) / n;
    b.structure = aa / n < flat && bb / n < flat ? 2 : correlation(ab, aa, bb);
    for (int i = 0; i < b.pixels; i++) {
        double a_mean = 0, b_mean = 0;
        for (int t = 0; t < o->looks; t += step)
            a_mean += o->base_luma[t][list[i]], b_mean += o->other_luma[t][list[i]];
        a_mean /= looks, b_mean /= looks;
        for (int t = 0; t < o->looks; t += step) {
            const double p = o->base_luma[t][list[i]] - a_mean,
                         q = o->other_luma[t][list[i]] - b_mean;
            b.base_moves += p * p, b.other_moves += q * q, b.moves += p * q;
        }
    }
    return b;
}

/* How well the looks lie over each other; the map is moved to where it is best. */
static double fitness(overlay *o, line lx, line ly, int step)
{
    double sum = 0, count = 0;
    lay_over(o, lx, ly, step);
    for (int row = 0; row < WEFT_LOOK_ROWS; row++)
        for (int column = 0; column < WEFT_LOOK_COLUMNS; column++) {
            const block b = measure_block(o, column, row, step);
            if (b.pixels == 0 || b.structure > 1)
                continue;
            sum += fmax(b.structure, 0);
            count++;
        }
    return count > 0 ? sum / (count + 2) : 0;
}

static void settle(overlay *o)
{
    const int step = o->looks > 3 ? (o->looks + 2) / 3 : 1;
    double best = fitness(o, o->x, o->y, step), by = 1;
    for (int round = 0; round < 6; round++) {
        bool better = false;
        for (int way = 0; way < 8; way++) {
            line x = o->x, y = o->y;
            line *l = way & 1 ? &y : &x;
            const double side = way & 1 ? WEFT_LOOK_HEIGHT : WEFT_LOOK_WIDTH,
                         sign = way & 2 ? by : -by;
            if (way & 4) { /* about the middle */
                const double scale = l->scale * (1 + 0.02 * sign);
                l->shift += (l->scale - scale) / 2;
                l->scale = scale;
            } else {
                l->shift += 0.4 * sign / side;
            }
            const double f = fitness(o, x, y, step);
            if (f > best)
                best = f, o->x = x, o->y = y, better = true;
        }
        if (!better)
            by /= 2;
    }
}

/* ---- colours ------------------------------------------------------------------------------- */

typedef struct sample {
    double y, cb, cr; /* of the base, about gray */
    double to[2];     /* of the other */
    double blur;      /* of them, by cells that do not lie over each other */
    bool left_out;
} sample;

/* The grade: to = gain * c + tint * y + shift for each of cb and cr, by least squares: one factor
 * for both, since two could turn a hue, and tints that are small. */
typedef struct grade {
    double gain, tint[2], shift[2];
} grade;

static double graded(const grade *g, const sample *s, int k)
{
    return g->gain * (k ? s->cr : s->cb) + g->tint[k] * s->y + g->shift[k];
}

static grade fit_grade(const sample *list, int count, double least_gain)
{
    grade g = {.gain = 1};
    for (int round = 0; round < 40; round++) {
        double up = 0, down = 1e-9;
        for (int k = 0; k < 2; k++) {
            double n = 0, sy = 0, syy = 0, sr = 0, syr = 0;
            for (int i = 0; i < count; i++) {
                if (list[i].left_out)
                    continue;
                const double rest = list[i].to[k] - g.gain * (k ? list[i].cr : list[i].cb);
                n++, sy += list[i].y, syy += list[i].y * list[i].y;
                sr += rest, syr += rest * list[i].y;
            }
            const double spread = syy - sy * sy / fmax(n, 1);
            g.tint[k] = spread > n ? (syr - sy * sr / n) / spread : 0;
            g.tint[k] = fmax(-0.15, fmin(0.15, g.tint[k]));
            g.shift[k] = n > 0 ? (sr - g.tint[k] * sy) / n : 0;
        }
        for (int i = 0; i < count; i++)
            for (int k = 0; k < 2 && !list[i].left_out; k++) {
                const double c = k ? list[i].cr : list[i].cb;
                up += c * (list[i].to[k] - g.tint[k] * list[i].y - g.shift[k]);
                down += c * c;
            }
        g.gain = down > count ? fmax(least_gain, fmin(2, up / down)) : 1;
    }
    return g;
}

/* *blur grows by what lies between cells that were mixed in equal parts. */
static double bilinear(const uint8_t *cells, double x, double y, double *blur)
{
    const double cx = fmin(fmax(x * WEFT_LOOK_COLUMNS - 0.5, 0), WEFT_LOOK_COLUMNS - 1.001),
                 cy = fmin(fmax(y * WEFT_LOOK_ROWS - 0.5, 0), WEFT_LOOK_ROWS - 1.001);
    const int x0 = (int)cx, y0 = (int)cy;
    const double fx = cx - x0, fy = cy - y0;
    const uint8_t *c = cells + y0 * WEFT_LOOK_COLUMNS + x0;
    *blur +=
        2 * fx * (1 - fx) * abs(c[0] - c[1]) + 2 * fy * (1 - fy) * abs(c[0] - c[WEFT_LOOK_COLUMNS]);
    return (1 - fy) * ((1 - fx) * c[0] + fx * c[1]) +
           fy * ((1 - fx) * c[WEFT_LOOK_COLUMNS] + fx * c[WEFT_LOOK_COLUMNS + 1]);
}

static void grade_of(sample *list, int count, double least_gain, double *gain, double *colour)
{
    for (int i = 0; i < count; i++)
        list[i].left_out = false;
    grade g = fit_grade(list, count, least_gain);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < 2; k++)
            list[i].left_out |= fabs(list[i].to[k] - graded(&g, &list[i], k)) > 12;
    g = fit_grade(list, count, least_gain);
    *gain = g.gain;
    *colour = 0;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < 2; k++)
            *colour = fmax(*colour, fabs(list[i].to[k] - graded(&g, &list[i], k)) - list[i].blur);
}

/* Whether there is anything but one tint in its looks. */
static bool is_coloured(const weft_parts *p)
{
    uint8_t least[2] = {255, 255}, most[2] = {0, 0};
    for (int64_t t = 0; t < p->looks; t++)
        for (int at = 0; at < WEFT_LOOK_BLOCKS; at++)
            for (int k = 0; k < 2; k++) {
                const uint8_t c = k ? p->look[t].cr[at] : p->look[t].cb[at];
                least[k] = c < least[k] ? c : least[k];
                most[k] = c > most[k] ? c : most[k];
            }
    return most[0] - least[0] > TINT || most[1] - least[1] > TINT;
}

/* By how many levels a block's colours differ where its luma does not, at most, beside a grade. */
static void compare_colours(const overlay *o, const block blocks[WEFT_LOOK_BLOCKS],
                            weft_parts_match *m)
{
    sample list[WEFT_LOOK_BLOCKS];
    const bool has_colours[2] = {is_coloured(o->base), is_coloured(o->other)};
    int count = 0;
    for (int at = 0; at < WEFT_LOOK_BLOCKS; at++) {
        const int column = at % WEFT_LOOK_COLUMNS, row = at / WEFT_LOOK_COLUMNS;
        if (blocks[at].pixels == 0 || blocks[at].structure < 0.9)
            continue;
        const double x = o->x.scale * (column + 0.5) / WEFT_LOOK_COLUMNS + o->x.shift,
                     y = o->y.scale * (row + 0.5) / WEFT_LOOK_ROWS + o->y.shift;
        sample s = {0};
        for (int t = 0; t < o->looks; t++) {
            const weft_look *a = &o->base->look[o->base_at[t]],
                            *b = &o->other->look[o->other_at[t]];
            for (int i = 0; i < BLOCK; i++)
                s.y += (double)a->luma[row * BLOCK_HEIGHT + i / BLOCK_WIDTH]
                                      [column * BLOCK_WIDTH + i % BLOCK_WIDTH] /
                       BLOCK;
            s.cb += a->cb[at] - 128.0, s.cr += a->cr[at] - 128.0;
            s.to[0] += bilinear(b->cb, x, y, &s.blur) - 128;
            s.to[1] += bilinear(b->cr, x, y, &s.blur) - 128;
        }
        s.y /= o->looks, s.cb /= o->looks, s.cr /= o->looks;
        s.to[0] /= o->looks, s.to[1] /= o->looks, s.blur /= o->looks;
        list[count++] = s;
    }
    double gain[2], colour[2];
    for (int way = 0; way < 2; way++) {
        grade_of(list, count, has_colours[!way] ? LEAST_GAIN : 0, &gain[way], &colour[way]);
        for (int i = 0; i < count; i++) { /* a grade may take colours away, in either direction */
            const double cb = list[i].cb, cr = list[i].cr;
            list[i].cb = list[i].to[0], list[i].cr = list[i].to[1];
            list[i].to[0] = cb, list[i].to[1] = cr;
        }
    }
    m->colour = fmin(colour[0], colour[1]);
    m->gain = colour[0] <= colour[1] ? gain[0] : gain[1];
}

/* ---- all of it ----------------------------------------------------------------------------- */

/* What moves counts where it is more than what coding makes of rest: one level. It is the same
 * where the structure is, too: somebody else who comes in at the same door is not. */
static weft_parts_match judge(const overlay *o, const weft_parts_map *map)
{
    block blocks[WEFT_LOOK_BLOCKS];
    double all = 0, alike = 0, base_moves = 0, other_moves = 0, moves[2] = {0};
    int moving = 0;
    for (int at = 0; at < WEFT_LOOK_BLOCKS; at++) {
        const block b = blocks[at] =
            measure_block(o, at % WEFT_LOOK_COLUMNS, at / WEFT_LOOK_COLUMNS, 1);
        if (b.pixels == 0)
            continue;
        if (b.structure <= 1) {
            all++;
            alike += b.structure >= 0.75;
        }
        if (fmax(b.base_moves, b.other_moves) < (double)b.pixels * o->looks)
            continue;
        base_moves += b.base_moves, other_moves += b.other_moves;
        if (b.structure >= 0.75 && correlation(b.moves, b.base_moves, b.other_moves) > 0.7) {
            moves[0] += b.base_moves, moves[1] += b.other_moves;
            moving++;
        }
    }
    const double most = fmax(base_moves, other_moves);
    weft_parts_match m = {.map = *map, .common = all > 0 ? alike / all : 0};
    if (all >= LEAST_BLOCKS && moving >= LEAST_MOVING && moves[0] > 0.1 * most &&
        moves[1] > 0.1 * most)
        m.moving = fmax(moves[0] / base_moves, moves[1] / other_moves);
    compare_colours(o, blocks, &m);
    return m;
}

weft_parts_match weft_parts_compare(const weft_parts *a, const weft_parts *b,
                                    const weft_parts_map *map)
{
    overlay o;
    const double sx = map->mirrored ? -map->scale_x : map->scale_x;
    const bool turned = map->scale_x * map->scale_y < 1;
    o.x = (line){sx, map->shift_x + (map->mirrored ? map->scale_x : 0)};
    o.y = (line){map->scale_y, map->shift_y};
    o.base = turned ? b : a;
    o.other = turned ? a : b;
    if (turned)
        o.x = inverse(o.x), o.y = inverse(o.y);
    pair_looks(&o, turned ? -map->later : map->later);
    const int64_t shorter = a->looks < b->looks ? a->looks : b->looks;
    if (o.looks < 2 || shorter < 1)
        return (weft_parts_match){.map = *map};
    for (int t = 0; t < o.looks; t++)
        for (int i = 0; i < PIXELS; i++)
            o.base_luma[t][i] =
                o.base->look[o.base_at[t]].luma[i / WEFT_LOOK_WIDTH][i % WEFT_LOOK_WIDTH];
    settle(&o);
    lay_over(&o, o.x, o.y, 1);
    weft_parts_match m = judge(&o, map);
    /* those at the end that were not paired for want of a time */
    int64_t both = 0;
    for (int64_t k = 0; k < o.base->looks; k++) {
        const int64_t time = o.base->looks_at + WEFT_LOOK_STEP * k -
                             (turned ? -map->later : map->later) - o.other->looks_at;
        both += time >= 0 && time / WEFT_LOOK_STEP < o.other->looks;
    }
    m.share = (double)both / (double)shorter;
    return m;
}

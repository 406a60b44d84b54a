/* Map between two shots by keypoints, and comparison of their content by thumbnails. */
#include "curate/duplicates/partial_match.h"

#include "curate/duplicates/keypoints.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BITS_APART = 14, /* maximum of 63 sign bits between two copies of a keypoint */
    MIN_INLIERS = 8,
    LEAST_MOVING = 6,
    TINT = 6,            /* chroma levels between blocks of a colourless frame */
    LEAST_BLOCKS = 20,   /* minimum blocks with structure */
    MAX_THUMBNAILS = 24, /* maximum compared thumbnails */
    BLOCK_WIDTH = WEFT_THUMBNAIL_WIDTH / WEFT_THUMBNAIL_COLUMNS,
    BLOCK_HEIGHT = WEFT_THUMBNAIL_HEIGHT / WEFT_THUMBNAIL_ROWS,
    BLOCK = BLOCK_WIDTH * BLOCK_HEIGHT,
    PIXELS = WEFT_THUMBNAIL_WIDTH * WEFT_THUMBNAIL_HEIGHT
};
#define LEAST_SCALE 0.55 /* minimum scale of a crop */
#define LEAST_GAIN  0.5  /* minimum gain of a grade that retains colour */
#define APART       0.03 /* tolerance for keypoints that fit, in roots of the frame area */

/* ---- points: the map ----------------------------------------------------------------------- */

typedef struct pair {
    double ax, ay, bx, by; /* in roots of the frame area */
    int scales;            /* number of scales by which b is coarser */
} pair;

static int bits_apart(const weft_point *a, const weft_point *b)
{
    return __builtin_popcount(a->word[0] ^ b->word[0]) +
           __builtin_popcount(a->word[1] ^ b->word[1]);
}

/* Points of a with their nearest in b, where that is near; mirrored or not. */
static int pair_keypoints(const weft_keypoints *a, const weft_keypoints *b, double a_aspect,
                          double b_aspect, bool mirrored, pair list[WEFT_KEYPOINTS])
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
                               q->scale - p->scale};
    }
    return count;
}

static bool agrees(const pair *p, const double map[4])
{
    return fabs(map[0] * p->ax + map[2] - p->bx) < APART &&
           fabs(map[1] * p->ay + map[3] - p->by) < APART;
}

/* b = map[0] * a + map[2] in x, [1] and [3] in y: least squares over the pairs that agree. Where
 * they are too close together for two scales, one scale is used. */
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

/* Map that most pairs agree on; every two pairs propose one. */
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
                fabs(3 * log2(s) - p->scales) > 1.1 || fabs(3 * log2(s) - q->scales) > 1.1)
                continue;
            const double map[4] = {s, s, (p->bx + q->bx - s * (p->ax + q->ax)) / 2,
                                   (p->by + q->by - s * (p->ay + q->ay)) / 2};
            const int n = count_agreeing(list, count, map);
            if (n > most) {
                most = n;
                memcpy(best, map, sizeof map);
            }
        }
    if (most < MIN_INLIERS)
        return 0;
    fit(list, count, best);
    most = fit(list, count, best);
    return fabs(log2(best[0] / best[1])) < 0.2 ? most : 0;
}

/* Keeps the best map of each offset in time. */
static int add_map(weft_parts_map *maps, int count, const weft_parts_map *map)
{
    int at = 0;
    while (at < count && (maps[at].later != map->later || maps[at].mirrored != map->mirrored))
        at++;
    if (at < count && maps[at].inliers >= map->inliers)
        return count;
    if (at == WEFT_PARTS_MAPS) {
        at--;
        if (maps[at].inliers >= map->inliers)
            return count;
    }
    count = at == count ? count + 1 : count;
    for (; at > 0 && maps[at - 1].inliers < map->inliers; at--)
        maps[at] = maps[at - 1];
    maps[at] = *map;
    return count;
}

int weft_parts_maps(const weft_parts *a, const weft_parts *b, weft_parts_map maps[WEFT_PARTS_MAPS])
{
    const double aw = sqrt(a->aspect), ah = 1 / aw, bw = sqrt(b->aspect), bh = 1 / bw;
    int count = 0;
    for (int64_t i = 0; i < a->keypoint_frames; i++)
        for (int64_t k = 0; k < b->keypoint_frames; k++)
            for (int mirrored = 0; mirrored < 2; mirrored++) {
                pair list[WEFT_KEYPOINTS];
                double m[4];
                const int pairs = pair_keypoints(&a->keypoints[i], &b->keypoints[k], a->aspect,
                                                 b->aspect, mirrored, list);
                const int inliers = pairs < MIN_INLIERS ? 0 : best_map(list, pairs, m);
                if (inliers < MIN_INLIERS)
                    continue;
                const int64_t shift = a->keypoints_at + i * a->keypoints_step - b->keypoints_at -
                                      k * b->keypoints_step;
                const weft_parts_map map = {m[0] * aw / bw, m[1] * ah / bh, m[2] / bw, m[3] / bh,
                                            mirrored,       shift,          inliers};
                count = add_map(maps, count, &map);
            }
    return count;
}

/* ---- comparison of thumbnails -------------------------------------------------------------- */

/* One axis: other = scale * base + shift, in widths or heights. */
typedef struct line {
    double scale, shift;
} line;

typedef struct overlay {
    const weft_parts *base, *other; /* base shows the larger area */
    line x, y;
    int thumbnails;
    int64_t base_at[MAX_THUMBNAILS], other_at[MAX_THUMBNAILS];
    float base_luma[MAX_THUMBNAILS][PIXELS], other_luma[MAX_THUMBNAILS][PIXELS];
    bool inside[PIXELS]; /* base pixels that the other shows */
} overlay;

typedef struct block {
    int pixels;
    double structure; /* correlation of the structure; 2: no structure in both */
    double detail;    /* mean square of the weaker structure */
    double base_motion, other_motion, motion_product; /* squares over time, and their product */
} block;

static line inverse(line l)
{
    return (line){1 / l.scale, -l.shift / l.scale};
}

/* Pairs thumbnails of the same time. Times are hash steps; every second one has a thumbnail. */
static void pair_thumbnails(overlay *o, int64_t later)
{
    int64_t from = -1, to = -1;
    for (int64_t k = 0; k < o->base->thumbnails; k++) {
        const int64_t time =
            o->base->thumbnails_at + WEFT_THUMBNAIL_STEP * k - later - o->other->thumbnails_at;
        if (time < 0 || time / WEFT_THUMBNAIL_STEP >= o->other->thumbnails)
            continue;
        from = from < 0 ? k : from;
        to = k;
    }
    o->thumbnails = 0;
    if (from < 0)
        return;
    const int64_t count = to - from + 1;
    o->thumbnails = count < MAX_THUMBNAILS ? (int)count : MAX_THUMBNAILS;
    for (int i = 0; i < o->thumbnails; i++) {
        const int64_t k = from + (count - 1) * i / (o->thumbnails > 1 ? o->thumbnails - 1 : 1);
        o->base_at[i] = k;
        o->other_at[i] =
            (o->base->thumbnails_at + WEFT_THUMBNAIL_STEP * k - later - o->other->thumbnails_at) /
            WEFT_THUMBNAIL_STEP;
    }
}

/* Samples the other's luma at the base's pixels, for `count` thumbnails from `first` in steps. */
static void lay_over(overlay *o, line lx, line ly, int step)
{
    for (int y = 0; y < WEFT_THUMBNAIL_HEIGHT; y++)
        for (int x = 0; x < WEFT_THUMBNAIL_WIDTH; x++) {
            const double ox = (lx.scale * (x + 0.5) / WEFT_THUMBNAIL_WIDTH + lx.shift) *
                                  WEFT_THUMBNAIL_WIDTH -
                              0.5,
                         oy = (ly.scale * (y + 0.5) / WEFT_THUMBNAIL_HEIGHT + ly.shift) *
                                  WEFT_THUMBNAIL_HEIGHT -
                              0.5;
            const int at = y * WEFT_THUMBNAIL_WIDTH + x;
            o->inside[at] = ox > -0.4 && oy > -0.4 && ox < WEFT_THUMBNAIL_WIDTH - 0.6 &&
                            oy < WEFT_THUMBNAIL_HEIGHT - 0.6;
            if (!o->inside[at])
                continue;
            const double cx = fmin(fmax(ox, 0), WEFT_THUMBNAIL_WIDTH - 1.001),
                         cy = fmin(fmax(oy, 0), WEFT_THUMBNAIL_HEIGHT - 1.001);
            const int x0 = (int)cx, y0 = (int)cy;
            const float fx = (float)(cx - x0), fy = (float)(cy - y0);
            for (int t = 0; t < o->thumbnails; t += step) {
                const weft_thumbnail *l = &o->other->thumbnail[o->other_at[t]];
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

/* Compares a block over every `step`-th thumbnail: similarity of structure (without the block's
 * mean of each thumbnail) and of changes (without the mean over time). */
static block measure_block(const overlay *o, int column, int row, int step)
{
    block b = {0};
    int list[BLOCK];
    double aa = 0, bb = 0, ab = 0;
    int thumbnails = 0;
    for (int y = 0; y < BLOCK_HEIGHT; y++)
        for (int x = 0; x < BLOCK_WIDTH; x++) {
            const int at =
                (row * BLOCK_HEIGHT + y) * WEFT_THUMBNAIL_WIDTH + column * BLOCK_WIDTH + x;
            if (o->inside[at])
                list[b.pixels++] = at;
        }
    if (b.pixels * 3 < BLOCK * 2) {
        b.pixels = 0;
        return b;
    }
    for (int t = 0; t < o->thumbnails; t += step, thumbnails++) {
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
    const double n = (double)b.pixels * thumbnails, flat = 12;
    b.detail = fmin(aa, bb) / n;
    b.structure = aa / n < flat && bb / n < flat ? 2 : correlation(ab, aa, bb);
    for (int i = 0; i < b.pixels; i++) {
        double a_mean = 0, b_mean = 0;
        for (int t = 0; t < o->thumbnails; t += step)
            a_mean += o->base_luma[t][list[i]], b_mean += o->other_luma[t][list[i]];
        a_mean /= thumbnails, b_mean /= thumbnails;
        for (int t = 0; t < o->thumbnails; t += step) {
            const double p = o->base_luma[t][list[i]] - a_mean,
                         q = o->other_luma[t][list[i]] - b_mean;
            b.base_motion += p * p, b.other_motion += q * q, b.motion_product += p * q;
        }
    }
    return b;
}

/* Fit of the thumbnails under a map; moves the map to the best fit. */
static double fitness(overlay *o, line lx, line ly, int step)
{
    double sum = 0, count = 0;
    lay_over(o, lx, ly, step);
    for (int row = 0; row < WEFT_THUMBNAIL_ROWS; row++)
        for (int column = 0; column < WEFT_THUMBNAIL_COLUMNS; column++) {
            const block b = measure_block(o, column, row, step);
            if (b.pixels == 0 || b.structure > 1)
                continue;
            sum += fmax(b.structure, 0);
            count++;
        }
    return count > 0 ? sum / (count + 2) : 0;
}

static void refine(overlay *o)
{
    const int step = o->thumbnails > 3 ? (o->thumbnails + 2) / 3 : 1;
    double best = fitness(o, o->x, o->y, step), by = 1;
    for (int round = 0; round < 6; round++) {
        bool better = false;
        for (int direction = 0; direction < 8; direction++) {
            line x = o->x, y = o->y;
            line *l = direction & 1 ? &y : &x;
            const double side = direction & 1 ? WEFT_THUMBNAIL_HEIGHT : WEFT_THUMBNAIL_WIDTH,
                         sign = direction & 2 ? by : -by;
            if (direction & 4) { /* about the middle */
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
    double y, cb, cr; /* base, relative to gray */
    double to[2];     /* other */
    double blur;      /* blur from cells that are not aligned */
    bool left_out;
} sample;

/* A grade: to = gain * c + tint * y + shift for each of cb and cr, by least squares. Both share one
 * gain, since two gains could turn a hue. Tints must be small. */
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

/* Bilinear sample. *blur increases by the difference between equally mixed cells. */
static double bilinear(const uint8_t *cells, double x, double y, double *blur)
{
    const double cx = fmin(fmax(x * WEFT_THUMBNAIL_COLUMNS - 0.5, 0),
                           WEFT_THUMBNAIL_COLUMNS - 1.001),
                 cy = fmin(fmax(y * WEFT_THUMBNAIL_ROWS - 0.5, 0), WEFT_THUMBNAIL_ROWS - 1.001);
    const int x0 = (int)cx, y0 = (int)cy;
    const double fx = cx - x0, fy = cy - y0;
    const uint8_t *c = cells + y0 * WEFT_THUMBNAIL_COLUMNS + x0;
    *blur += 2 * fx * (1 - fx) * abs(c[0] - c[1]) +
             2 * fy * (1 - fy) * abs(c[0] - c[WEFT_THUMBNAIL_COLUMNS]);
    return (1 - fy) * ((1 - fx) * c[0] + fx * c[1]) +
           fy * ((1 - fx) * c[WEFT_THUMBNAIL_COLUMNS] + fx * c[WEFT_THUMBNAIL_COLUMNS + 1]);
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

/* True if the thumbnails have more than one tint. */
static bool is_coloured(const weft_parts *p)
{
    uint8_t least[2] = {255, 255}, most[2] = {0, 0};
    for (int64_t t = 0; t < p->thumbnails; t++)
        for (int at = 0; at < WEFT_THUMBNAIL_BLOCKS; at++)
            for (int k = 0; k < 2; k++) {
                const uint8_t c = k ? p->thumbnail[t].cr[at] : p->thumbnail[t].cb[at];
                least[k] = c < least[k] ? c : least[k];
                most[k] = c > most[k] ? c : most[k];
            }
    return most[0] - least[0] > TINT || most[1] - least[1] > TINT;
}

/* Maximum difference of a block's colours, in levels, where luma agrees, after removing a grade. */
static void compare_colours(const overlay *o, const block blocks[WEFT_THUMBNAIL_BLOCKS],
                            weft_parts_match *m)
{
    sample list[WEFT_THUMBNAIL_BLOCKS];
    const bool has_colours[2] = {is_coloured(o->base), is_coloured(o->other)};
    int count = 0;
    for (int at = 0; at < WEFT_THUMBNAIL_BLOCKS; at++) {
        const int column = at % WEFT_THUMBNAIL_COLUMNS, row = at / WEFT_THUMBNAIL_COLUMNS;
        if (blocks[at].pixels == 0 || blocks[at].structure < 0.9)
            continue;
        const double x = o->x.scale * (column + 0.5) / WEFT_THUMBNAIL_COLUMNS + o->x.shift,
                     y = o->y.scale * (row + 0.5) / WEFT_THUMBNAIL_ROWS + o->y.shift;
        sample s = {0};
        for (int t = 0; t < o->thumbnails; t++) {
            const weft_thumbnail *a = &o->base->thumbnail[o->base_at[t]],
                                 *b = &o->other->thumbnail[o->other_at[t]];
            for (int i = 0; i < BLOCK; i++)
                s.y += (double)a->luma[row * BLOCK_HEIGHT + i / BLOCK_WIDTH]
                                      [column * BLOCK_WIDTH + i % BLOCK_WIDTH] /
                       BLOCK;
            s.cb += a->cb[at] - 128.0, s.cr += a->cr[at] - 128.0;
            s.to[0] += bilinear(b->cb, x, y, &s.blur) - 128;
            s.to[1] += bilinear(b->cr, x, y, &s.blur) - 128;
        }
        s.y /= o->thumbnails, s.cb /= o->thumbnails, s.cr /= o->thumbnails;
        s.to[0] /= o->thumbnails, s.to[1] /= o->thumbnails, s.blur /= o->thumbnails;
        list[count++] = s;
    }
    double gain[2], colour[2];
    for (int direction = 0; direction < 2; direction++) {
        grade_of(list, count, has_colours[!direction] ? LEAST_GAIN : 0, &gain[direction],
                 &colour[direction]);
        for (int i = 0; i < count; i++) { /* a grade may remove colours, in either direction */
            const double cb = list[i].cb, cr = list[i].cr;
            list[i].cb = list[i].to[0], list[i].cr = list[i].to[1];
            list[i].to[0] = cb, list[i].to[1] = cr;
        }
    }
    m->colour = fmin(colour[0], colour[1]);
    m->gain = colour[0] <= colour[1] ? gain[0] : gain[1];
}

/* ---- complete comparison ------------------------------------------------------------------- */

/* Scores a match. Motion counts above one level, the coding noise of still content. Motion matches
 * only where the structure matches too: another person at the same door does not match. */
static weft_parts_match score_match(const overlay *o, const weft_parts_map *map)
{
    block blocks[WEFT_THUMBNAIL_BLOCKS];
    double all = 0, alike = 0, base_motion = 0, other_motion = 0, motion[2] = {0};
    int moving = 0;
    for (int at = 0; at < WEFT_THUMBNAIL_BLOCKS; at++) {
        const block b = blocks[at] =
            measure_block(o, at % WEFT_THUMBNAIL_COLUMNS, at / WEFT_THUMBNAIL_COLUMNS, 1);
        if (b.pixels == 0)
            continue;
        if (b.structure <= 1) {
            all++;
            alike += b.structure >= 0.75;
        }
        if (fmax(b.base_motion, b.other_motion) < (double)b.pixels * o->thumbnails)
            continue;
        base_motion += b.base_motion, other_motion += b.other_motion;
        if (b.structure >= 0.75 &&
            correlation(b.motion_product, b.base_motion, b.other_motion) > 0.7) {
            motion[0] += b.base_motion, motion[1] += b.other_motion;
            moving++;
        }
    }
    const double most = fmax(base_motion, other_motion);
    weft_parts_match m = {.map = *map, .common = all > 0 ? alike / all : 0};
    if (all >= LEAST_BLOCKS && moving >= LEAST_MOVING && motion[0] > 0.1 * most &&
        motion[1] > 0.1 * most)
        m.moving = fmax(motion[0] / base_motion, motion[1] / other_motion);
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
    pair_thumbnails(&o, turned ? -map->later : map->later);
    const int64_t shorter = a->thumbnails < b->thumbnails ? a->thumbnails : b->thumbnails;
    if (o.thumbnails < 2 || shorter < 1)
        return (weft_parts_match){.map = *map};
    for (int t = 0; t < o.thumbnails; t++)
        for (int i = 0; i < PIXELS; i++)
            o.base_luma[t][i] = o.base->thumbnail[o.base_at[t]]
                                    .luma[i / WEFT_THUMBNAIL_WIDTH][i % WEFT_THUMBNAIL_WIDTH];
    refine(&o);
    lay_over(&o, o.x, o.y, 1);
    weft_parts_match m = score_match(&o, map);
    /* number of base thumbnails with a counterpart in time */
    int64_t both = 0;
    for (int64_t k = 0; k < o.base->thumbnails; k++) {
        const int64_t time = o.base->thumbnails_at + WEFT_THUMBNAIL_STEP * k -
                             (turned ? -map->later : map->later) - o.other->thumbnails_at;
        both += time >= 0 && time / WEFT_THUMBNAIL_STEP < o.other->thumbnails;
    }
    m.share = (double)both / (double)shorter;
    return m;
}

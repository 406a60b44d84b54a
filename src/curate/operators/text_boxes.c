#include "curate/operators/text_boxes.h"

#include "base/memory.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The settings of RapidOCR for PP-OCR's networks. */
static const double THRESHOLD = 0.3, BOX_THRESHOLD = 0.5, EXPANSION = 1.6, MIN_SIDE = 3;

typedef struct point {
    double x, y;
} point;

/* A rectangle: centre, direction of the first side, and the sides' halves. */
typedef struct rectangle {
    point centre, direction;
    double half[2];
} rectangle;

/* ---- rectangles ---------------------------------------------------------------------------- */

static double cross(point o, point a, point b)
{
    return (a.x - o.x) * (b.y - o.y) - (a.y - o.y) * (b.x - o.x);
}

static int by_x(const void *a, const void *b)
{
    const point *p = a, *q = b;
    return p->x != q->x ? (p->x > q->x) - (p->x < q->x) : (p->y > q->y) - (p->y < q->y);
}

/* Convex hull by the monotone chain; sorts `p`. `hull` has place for 2 n + 1 points. */
static int64_t find_hull(point *p, int64_t n, point *hull)
{
    int64_t k = 0;
    qsort(p, (size_t)n, sizeof *p, by_x);
    for (int half = 0; half < 2; half++) {
        const int64_t first = k;
        for (int64_t i = 0; i < n; i++) {
            const point at = p[half ? n - 1 - i : i];
            while (k >= first + 2 && cross(hull[k - 2], hull[k - 1], at) <= 0)
                k--;
            hull[k++] = at;
        }
        k -= n > 1; /* the last point begins the other half */
    }
    return k;
}

/* The rectangle of the smallest area around a hull: one side is along an edge. */
static rectangle smallest_rectangle(const point *hull, int64_t n)
{
    rectangle best = {.centre = hull[0], .direction = {1, 0}};
    double least = INFINITY;
    for (int64_t e = 0; e < n; e++) {
        const point from = hull[e], to = hull[(e + 1) % n];
        const double length = hypot(to.x - from.x, to.y - from.y);
        double low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY};
        if (length == 0)
            continue;
        const point u = {(to.x - from.x) / length, (to.y - from.y) / length};
        for (int64_t i = 0; i < n; i++) {
            const double at[2] = {hull[i].x * u.x + hull[i].y * u.y,
                                  hull[i].y * u.x - hull[i].x * u.y};
            for (int k = 0; k < 2; k++) {
                low[k] = fmin(low[k], at[k]);
                high[k] = fmax(high[k], at[k]);
            }
        }
        const double area = (high[0] - low[0]) * (high[1] - low[1]);
        if (area >= least)
            continue;
        least = area;
        const double a = (low[0] + high[0]) / 2, b = (low[1] + high[1]) / 2;
        best = (rectangle){.centre = {a * u.x - b * u.y, a * u.y + b * u.x},
                           .direction = u,
                           .half = {(high[0] - low[0]) / 2, (high[1] - low[1]) / 2}};
    }
    return best;
}

static weft_text_box corners_of(const rectangle *r)
{
    static const int sign[4][2] = {{-1, -1}, {1, -1}, {1, 1}, {-1, 1}};
    weft_text_box box = {.score = 0};
    for (int i = 0; i < 4; i++) {
        const double a = sign[i][0] * r->half[0], b = sign[i][1] * r->half[1];
        box.x[i] = r->centre.x + a * r->direction.x - b * r->direction.y;
        box.y[i] = r->centre.y + a * r->direction.y + b * r->direction.x;
    }
    return box;
}

static double extreme(const double v[4], bool most)
{
    double found = v[0];
    for (int i = 1; i < 4; i++)
        found = most ? fmax(found, v[i]) : fmin(found, v[i]);
    return found;
}

double weft_text_box_top(const weft_text_box *box)
{
    return extreme(box->y, false);
}

double weft_text_box_bottom(const weft_text_box *box)
{
    return extreme(box->y, true);
}

static bool is_inside(const weft_text_box *b, double x, double y)
{
    int left = 0, right = 0;
    for (int i = 0; i < 4; i++) {
        const int k = (i + 1) % 4;
        const double side =
            (b->x[k] - b->x[i]) * (y - b->y[i]) - (b->y[k] - b->y[i]) * (x - b->x[i]);
        left += side < -1e-9;
        right += side > 1e-9;
    }
    return !left || !right;
}

/* ---- connected areas ----------------------------------------------------------------------- */

typedef struct search {
    const float *map;
    int64_t width, height;
    uint8_t *mask;       /* owned, and so all; 1: of an area that was not visited */
    int64_t *stack;      /* [width * height] */
    int64_t *low, *high; /* columns of the area in each row */
    point *points, *hull;
} search;

static void make_mask(search *s)
{
    for (int64_t y = 0; y < s->height; y++)
        for (int64_t x = 0; x < s->width; x++) {
            bool on = false;
            for (int k = 0; k < 4; k++) {
                const int64_t px = x - k % 2, py = y - k / 2;
                on |= px >= 0 && py >= 0 && (double)s->map[py * s->width + px] > THRESHOLD;
            }
            s->mask[y * s->width + x] = on;
        }
}

/* Visits the area of a pixel, with 8 neighbours. Returns the extreme pixels of each row. */
static int64_t visit_area(search *s, int64_t first)
{
    int64_t n = 0, points = 0, top = s->height, bottom = -1;
    s->stack[n++] = first;
    s->mask[first] = 0;
    while (n > 0) {
        const int64_t at = s->stack[--n], x = at % s->width, y = at / s->width;
        const bool known = y >= top && y <= bottom && s->high[y] >= 0;
        s->low[y] = known && s->low[y] < x ? s->low[y] : x;
        s->high[y] = known && s->high[y] > x ? s->high[y] : x;
        top = y < top ? y : top;
        bottom = y > bottom ? y : bottom;
        for (int k = 0; k < 9; k++) {
            const int64_t px = x + k % 3 - 1, py = y + k / 3 - 1, p = py * s->width + px;
            if (px >= 0 && py >= 0 && px < s->width && py < s->height && s->mask[p]) {
                s->mask[p] = 0;
                s->stack[n++] = p;
            }
        }
    }
    for (int64_t y = top; y <= bottom; y++) {
        s->points[points++] = (point){(double)s->low[y], (double)y};
        if (s->high[y] > s->low[y])
            s->points[points++] = (point){(double)s->high[y], (double)y};
        s->high[y] = -1;
    }
    return points;
}

/* Mean probability inside a box. */
static double score_of(const search *s, const weft_text_box *box)
{
    const int64_t x0 = (int64_t)fmax(0, floor(extreme(box->x, false))),
                  x1 = (int64_t)fmin((double)s->width - 1, ceil(extreme(box->x, true))),
                  y0 = (int64_t)fmax(0, floor(extreme(box->y, false))),
                  y1 = (int64_t)fmin((double)s->height - 1, ceil(extreme(box->y, true)));
    double sum = 0;
    int64_t count = 0;
    for (int64_t y = y0; y <= y1; y++)
        for (int64_t x = x0; x <= x1; x++)
            if (is_inside(box, (double)x, (double)y)) {
                sum += s->map[y * s->width + x];
                count++;
            }
    return count ? sum / (double)count : 0;
}

/* The box of an area of `points`; false: too small, or not probable. */
static bool find_box(search *s, int64_t points, weft_text_box *box)
{
    rectangle r = smallest_rectangle(s->hull, find_hull(s->points, points, s->hull));
    const double w = 2 * r.half[0], h = 2 * r.half[1];
    *box = corners_of(&r);
    if (fmin(w, h) < MIN_SIDE)
        return false;
    const double score = score_of(s, box), by = w * h * EXPANSION / (2 * (w + h));
    r.half[0] += by;
    r.half[1] += by;
    *box = corners_of(&r);
    box->score = score;
    return score >= BOX_THRESHOLD && 2 * fmin(r.half[0], r.half[1]) >= MIN_SIDE + 2;
}

static weft_status allocate(search *s)
{
    const int64_t area = s->width * s->height;
    WEFT_TRY(WEFT_NEW(s->mask, area, "text boxes"));
    WEFT_TRY(WEFT_NEW(s->stack, area, "text boxes"));
    WEFT_TRY(WEFT_NEW(s->low, s->height, "text boxes"));
    WEFT_TRY(WEFT_NEW(s->high, s->height, "text boxes"));
    WEFT_TRY(WEFT_NEW(s->points, 2 * s->height + 1, "text boxes"));
    return WEFT_NEW(s->hull, 4 * s->height + 4, "text boxes");
}

weft_status weft_text_boxes_find(const float *map, int64_t width, int64_t height,
                                 weft_text_box **boxes, int64_t *count)
{
    search s = {.map = map, .width = width, .height = height};
    weft_text_box *found = NULL;
    int64_t n = 0;
    weft_status_code status = WEFT_OK;
    WEFT_GO(allocate(&s));
    WEFT_GO(WEFT_NEW(found, WEFT_TEXT_MOST_BOXES, "text boxes"));
    for (int64_t y = 0; y < height; y++)
        s.high[y] = -1;
    make_mask(&s);
    for (int64_t i = 0; i < width * height && n < WEFT_TEXT_MOST_BOXES; i++)
        if (s.mask[i])
            n += find_box(&s, visit_area(&s, i), &found[n]);
    *boxes = found;
    *count = n;
    found = NULL;
out:
    weft_free(found);
    weft_free(s.mask);
    weft_free(s.stack);
    weft_free(s.low);
    weft_free(s.high);
    weft_free(s.points);
    weft_free(s.hull);
    return status;
}

weft_status weft_text_boxes_area(const weft_text_box *boxes, int64_t count, int64_t width,
                                 const int64_t rows[2], double *area)
{
    const int64_t pixels = width * (rows[1] - rows[0]);
    uint8_t *covered;
    int64_t sum = 0;
    *area = 0;
    if (pixels <= 0)
        return WEFT_OK;
    WEFT_TRY(WEFT_NEW(covered, pixels, "text boxes"));
    for (int64_t i = 0; i < count; i++) {
        const weft_text_box *b = &boxes[i];
        const int64_t x0 = (int64_t)fmax(0, floor(extreme(b->x, false))),
                      x1 = (int64_t)fmin((double)width - 1, ceil(extreme(b->x, true))),
                      y0 = (int64_t)fmax((double)rows[0], floor(extreme(b->y, false))),
                      y1 = (int64_t)fmin((double)rows[1] - 1, ceil(extreme(b->y, true)));
        for (int64_t y = y0; y <= y1; y++)
            for (int64_t x = x0; x <= x1; x++)
                if (is_inside(b, (double)x, (double)y))
                    covered[(y - rows[0]) * width + x] = 1;
    }
    for (int64_t i = 0; i < pixels; i++)
        sum += covered[i];
    weft_free(covered);
    *area = (double)sum / (double)pixels;
    return WEFT_OK;
}

void weft_text_boxes_narrow(const weft_text_box *boxes, int64_t count, int64_t height, double most,
                            int64_t rows[2])
{
    const double band = most * (double)height;
    for (int64_t i = 0; i < count; i++) {
        const int64_t top = (int64_t)fmax(0, floor(weft_text_box_top(&boxes[i]))),
                      bottom = (int64_t)fmin((double)height, ceil(weft_text_box_bottom(&boxes[i])));
        if ((double)bottom <= band && bottom > rows[0])
            rows[0] = bottom;
        if ((double)(height - top) <= band && top < rows[1])
            rows[1] = top;
    }
}

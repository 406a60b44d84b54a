#include "curate/motion.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

enum { SIDE = 16, REACH = 12 };

typedef struct pair {
    const uint8_t *now, *then;
    int64_t now_stride, then_stride;
    int width, height;
} pair;

/* Up to `limit`: more does not matter. */
static int difference(const pair *p, int x, int y, int dx, int dy, int limit)
{
    int sum = 0;
    for (int v = 0; v < SIDE && sum < limit; v++) {
        const uint8_t *a = p->now + (y + v) * p->now_stride + x;
        const uint8_t *b = p->then + (y + v - dy) * p->then_stride + x - dx;
        for (int u = 0; u < SIDE; u++)
            sum += abs(a[u] - b[u]);
    }
    return sum;
}

/* Least-squares shift that remains after (dx, dy): gradients of `then` against the difference
 * (Lucas and Kanade). 0 where the block has not enough structure in some direction. Returns the
 * mean size of the gradients. */
static double refine(const pair *p, int x, int y, int dx, int dy, double *fx, double *fy)
{
    double xx = 0, xy = 0, yy = 0, xe = 0, ye = 0, structure = 0;
    *fx = *fy = 0;
    for (int v = 0; v < SIDE; v++)
        for (int u = 0; u < SIDE; u++) {
            const int px = x + u - dx, py = y + v - dy;
            if (px < 1 || py < 1 || px >= p->width - 1 || py >= p->height - 1)
                continue;
            const uint8_t *b = p->then + py * p->then_stride + px;
            const double gx = (b[1] - b[-1]) / 2.0,
                         gy = (b[p->then_stride] - b[-p->then_stride]) / 2.0;
            const double e = b[0] - (double)p->now[(y + v) * p->now_stride + x + u];
            xx += gx * gx, xy += gx * gy, yy += gy * gy;
            xe += gx * e, ye += gy * e;
            structure += fabs(gx) + fabs(gy);
        }
    const double half = (xx + yy) / 2, least = half - sqrt((xx - yy) * (xx - yy) / 4 + xy * xy);
    const double det = xx * yy - xy * xy;
    if (least > SIDE * SIDE) { /* a gradient of one level in every direction */
        *fx = fmax(-1, fmin(1, (yy * xe - xy * ye) / det));
        *fy = fmax(-1, fmin(1, (xx * ye - xy * xe) / det));
    }
    return structure / (SIDE * SIDE);
}

double weft_block_motion(const uint8_t *now, int64_t now_stride, const uint8_t *then,
                         int64_t then_stride, int width, int height)
{
    const pair p = {now, then, now_stride, then_stride, width, height};
    double sum = 0;
    int matched = 0, blocks = 0;
    for (int y = 0; y + SIDE <= height; y += SIDE)
        for (int x = 0; x + SIDE <= width; x += SIDE, blocks++) {
            int best_x = 0, best_y = 0,
                best = difference(&p, x, y, 0, 0, INT_MAX) - SIDE * SIDE; /* prefer no motion */
            for (int dy = -REACH; dy <= REACH; dy++)
                for (int dx = -REACH; dx <= REACH; dx++) {
                    if (x - dx < 0 || y - dy < 0 || x - dx + SIDE > width || y - dy + SIDE > height)
                        continue;
                    const int d = difference(&p, x, y, dx, dy, best);
                    if (d < best)
                        best = d, best_x = dx, best_y = dy;
                }
            double fx, fy;
            const double structure = refine(&p, x, y, best_x, best_y, &fx, &fy);
            /* no match: the mean difference exceeds noise plus half a pixel of structure */
            if (difference(&p, x, y, best_x, best_y, INT_MAX) > SIDE * SIDE * (6 + structure / 2))
                continue;
            matched++;
            sum += hypot(best_x + fx, best_y + fy);
        }
    return matched * 3 < blocks ? -1 : sum / matched;
}

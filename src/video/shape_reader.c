/* Shape reader: finds the colour, shape and direction of the one moving object of a video. */
#include "video/shape_reader.h"

#include "base/memory.h"
#include "video/shapes.h"

#include <math.h>
#include <string.h>

#define TEMPLATE 33 /* pixels of the aligned mask's side; the object's radius is about a third */

typedef struct analysis {
    int64_t frames, height, width;
    float *distance; /* (H, W): how far a pixel is from the background, of the current frame */
    float *mask;     /* (H, W): soft membership, 0 .. 1 */
    int32_t *label, *queue;
    double *cx, *cy, *weight; /* (T) centroid and mask area of each frame */
    double colour[3], colour_weight;
    float aligned[TEMPLATE * TEMPLATE];
    double aligned_frames;
} analysis;

static void *carve(uint8_t **at, int64_t bytes)
{
    void *here = *at;
    *at += (bytes + 15) / 16 * 16;
    return here;
}

/* Solves the symmetric 3 x 3 system m x = v by elimination; false: singular. */
static bool solve3(double m[3][4])
{
    for (int i = 0; i < 3; i++) {
        int best = i;
        for (int r = i + 1; r < 3; r++)
            if (fabs(m[r][i]) > fabs(m[best][i]))
                best = r;
        if (fabs(m[best][i]) < 1e-9)
            return false;
        for (int c = 0; c < 4; c++) {
            const double t = m[i][c];
            m[i][c] = m[best][c];
            m[best][c] = t;
        }
        for (int r = 0; r < 3; r++) {
            if (r == i)
                continue;
            const double f = m[r][i] / m[i][i];
            for (int c = i; c < 4; c++)
                m[r][c] -= f * m[i][c];
        }
    }
    for (int i = 0; i < 3; i++)
        m[i][3] /= m[i][i];
    return true;
}

/* True if pixel i is in the rim, a sixteenth of the frame, which an object seldom reaches. */
static bool in_rim(const analysis *a, int64_t i)
{
    const int64_t x = i % a->width, y = i / a->width;
    const int64_t wide = a->width / 16 + 1, high = a->height / 16 + 1;
    return x < wide || y < high || x >= a->width - wide || y >= a->height - high;
}

/* Fits a plane a + b x + c y per channel, by iterated least squares with weights 1 / (1 + (d /
 * s)^4): the object is an outlier of the background. The first iteration uses the rim only, so that
 * a large object does not bias the plane. Sets a->distance to the colour distance and returns its
 * scale on the background. */
static double fit_background(analysis *a, const uint8_t *rgb)
{
    const int64_t w = a->width, h = a->height, n = w * h;
    double plane[3][3], scale = 80;
    for (int round = 0; round < 8; round++) {
        double m[3][3][4];
        memset(m, 0, sizeof m);
        for (int64_t i = 0; i < n; i++) {
            const double x = (double)(i % w) / (double)w, y = (double)(i / w) / (double)h;
            double weight = in_rim(a, i);
            if (round) {
                const double q = a->distance[i] / scale;
                weight = 1 / (1 + q * q * q * q);
            }
            const double basis[3] = {1, x, y};
            for (int c = 0; c < 3; c++)
                for (int r = 0; r < 3; r++) {
                    for (int k = 0; k < 3; k++)
                        m[c][r][k] += weight * basis[r] * basis[k];
                    m[c][r][3] += weight * basis[r] * rgb[i * 3 + c];
                }
        }
        for (int c = 0; c < 3; c++) {
            const bool solved = solve3(m[c]);
            for (int r = 0; r < 3; r++)
                plane[c][r] = solved ? m[c][r][3] : 0;
        }
        double sum = 0, total = 0;
        for (int64_t i = 0; i < n; i++) {
            const double x = (double)(i % w) / (double)w, y = (double)(i / w) / (double)h;
            double d2 = 0;
            for (int c = 0; c < 3; c++) {
                const double d = rgb[i * 3 + c] - plane[c][0] - plane[c][1] * x - plane[c][2] * y;
                d2 += d * d;
            }
            a->distance[i] = (float)sqrt(d2);
            const double q = a->distance[i] / scale;
            const double weight = round || in_rim(a, i) ? 1 / (1 + q * q * q * q) : 0;
            sum += weight * d2;
            total += weight;
        }
        const double spread = 2.5 * sqrt(sum / total);
        scale = fmax(fmin(scale, spread), 12);
    }
    return scale;
}

/* Keeps the connected region (4 neighbours) of distance > level with the largest summed distance.
 * Its pixels get soft membership distance / top, others 0. Returns the region's sum. */
static double keep_largest(analysis *a, float level, float top)
{
    const int64_t w = a->width, h = a->height, n = w * h;
    memset(a->label, 0, (size_t)n * sizeof *a->label);
    int32_t regions = 0, best = 0;
    double best_sum = 0;
    for (int64_t seed = 0; seed < n; seed++) {
        if (a->label[seed] || a->distance[seed] <= level)
            continue;
        int64_t head = 0, tail = 0;
        double sum = 0;
        a->label[seed] = ++regions;
        a->queue[tail++] = (int32_t)seed;
        while (head < tail) {
            const int64_t i = a->queue[head++], x = i % w;
            sum += a->distance[i];
            const int64_t next[4] = {x > 0 ? i - 1 : -1, x < w - 1 ? i + 1 : -1, i - w,
                                     i + w < n ? i + w : -1};
            for (int k = 0; k < 4; k++)
                if (next[k] >= 0 && !a->label[next[k]] && a->distance[next[k]] > level) {
                    a->label[next[k]] = regions;
                    a->queue[tail++] = (int32_t)next[k];
                }
        }
        if (sum > best_sum) {
            best_sum = sum;
            best = regions;
        }
    }
    for (int64_t i = 0; i < n; i++)
        a->mask[i] = best && a->label[i] == best ? fminf(1, a->distance[i] / top) : 0;
    return best_sum;
}

/* Contrast of the object: the distance that the strongest two percent of pixels exceed. */
static float contrast(const analysis *a)
{
    int64_t histogram[512] = {0}, n = a->width * a->height, above = 0;
    for (int64_t i = 0; i < n; i++)
        histogram[(int)fminf(511, a->distance[i])]++;
    for (int b = 511; b > 0; b--) {
        above += histogram[b];
        if (above * 50 >= n)
            return (float)b;
    }
    return 0;
}

static void find_object(analysis *a, const uint8_t *rgb, int64_t t)
{
    const int64_t w = a->width, n = w * a->height;
    const double scale = fit_background(a, rgb);
    const float top = contrast(a);
    a->weight[t] = 0;
    if (top < 30 || top < 1.5 * scale)
        return;
    keep_largest(a, 0.4f * top, top);
    double sum = 0, sx = 0, sy = 0;
    for (int64_t i = 0; i < n; i++) {
        const double m = a->mask[i];
        sum += m;
        sx += m * ((double)(i % w) + 0.5);
        sy += m * ((double)(i / w) + 0.5);
        if (m > 0.8) { /* the core has the unmixed colour */
            for (int c = 0; c < 3; c++)
                a->colour[c] += rgb[i * 3 + c];
            a->colour_weight++;
        }
    }
    if (sum <= 0)
        return;
    a->weight[t] = sum;
    a->cx[t] = sx / sum;
    a->cy[t] = sy / sum;
    /* Adds the mask around its centroid, scaled to equal area, to the mean outline. Noise averages
     * out. */
    const double pixels = sqrt(sum) / 14; /* source pixels per template pixel */
    for (int v = 0; v < TEMPLATE; v++)
        for (int u = 0; u < TEMPLATE; u++) {
            const double x = a->cx[t] + (u - TEMPLATE / 2) * pixels - 0.5;
            const double y = a->cy[t] + (v - TEMPLATE / 2) * pixels - 0.5;
            const int64_t x0 = (int64_t)floor(x), y0 = (int64_t)floor(y);
            if (x0 < 0 || y0 < 0 || x0 + 1 >= w || y0 + 1 >= a->height)
                continue;
            const double fx = x - (double)x0, fy = y - (double)y0;
            const float *m = a->mask + y0 * w + x0;
            a->aligned[v * TEMPLATE + u] += (float)((1 - fy) * ((1 - fx) * m[0] + fx * m[1]) +
                                                    fy * ((1 - fx) * m[w] + fx * m[w + 1]));
        }
    a->aligned_frames++;
}

static void colour_words(const analysis *a, weft_shape_reading *out)
{
    /* Hues of red, green, blue, yellow, purple in degrees. */
    static const double hue_of[WEFT_SHAPE_PALETTE] = {0, 132, 228, 51, 285};
    double c[3];
    for (int k = 0; k < 3; k++)
        c[k] = a->colour_weight > 0 ? a->colour[k] / a->colour_weight : 0;
    /* Hue as the angle of the chroma vector: continuous where the hexagon's hue is not. */
    const double x = c[0] - 0.5 * (c[1] + c[2]), y = 0.8660254037844386 * (c[1] - c[2]);
    const double hue = atan2(y, x) * 57.29577951308232, chroma = sqrt(x * x + y * y);
    double best = 1e9, second = 1e9;
    for (int k = 0; k < WEFT_SHAPE_PALETTE; k++) {
        const double d = fabs(remainder(hue - hue_of[k], 360));
        if (d < best) {
            second = best;
            best = d;
            out->words.colour = k;
        } else if (d < second) {
            second = d;
        }
    }
    const double margin = (second - best) / (second + best + 1e-9);
    out->colour_confidence = margin * fmin(1, chroma / 40);
}

/* A straight line through the centroids, weighted by mask area; two rounds, the second without the
 * frames that are far off the first line. */
static void direction_words(analysis *a, weft_shape_reading *out)
{
    double slope[2] = {0, 0}, start[2] = {0, 0}, error = 0;
    for (int round = 0; round < 2; round++) {
        double n = 0, st = 0, stt = 0, sv[2] = {0, 0}, stv[2] = {0, 0};
        for (int64_t t = 0; t < a->frames; t++) {
            const double position[2] = {a->cx[t], a->cy[t]};
            double weight = a->weight[t];
            if (round) {
                const double ex = position[0] - start[0] - slope[0] * (double)t;
                const double ey = position[1] - start[1] - slope[1] * (double)t;
                weight /= 1 + (ex * ex + ey * ey) / (error + 1);
            }
            n += weight;
            st += weight * (double)t;
            stt += weight * (double)(t * t);
            for (int k = 0; k < 2; k++) {
                sv[k] += weight * position[k];
                stv[k] += weight * (double)t * position[k];
            }
        }
        const double det = n * stt - st * st;
        if (n <= 0 || det <= 1e-9)
            return;
        for (int k = 0; k < 2; k++) {
            slope[k] = (n * stv[k] - st * sv[k]) / det;
            start[k] = (sv[k] - slope[k] * st) / n;
        }
        double sum = 0;
        for (int64_t t = 0; t < a->frames; t++) {
            const double ex = a->cx[t] - start[0] - slope[0] * (double)t;
            const double ey = a->cy[t] - start[1] - slope[1] * (double)t;
            sum += a->weight[t] * (ex * ex + ey * ey);
        }
        error = sum / n;
    }
    const double ax = fabs(slope[0]), ay = fabs(slope[1]);
    out->words.direction = ax > ay ? (slope[0] < 0 ? 0 : 1) : (slope[1] < 0 ? 2 : 3);
    out->speed = sqrt(ax * ax + ay * ay);
    /* A total path below a twentieth of the frame width counts as no motion. */
    const double travel = fmax(ax, ay) * (double)(a->frames - 1) / (double)a->width;
    out->direction_confidence = fabs(ax - ay) / (ax + ay + 1e-9) * fmin(1, travel / 0.05);
}

static void blur_template(const float *from, double sigma, float *to)
{
    float half[TEMPLATE * TEMPLATE];
    double kernel[TEMPLATE];
    for (int k = 0; k < TEMPLATE; k++)
        kernel[k] = exp(-0.5 * k * k / (sigma * sigma));
    for (int pass = 0; pass < 2; pass++) {
        const float *in = pass ? half : from;
        float *result = pass ? to : half;
        const int step = pass ? TEMPLATE : 1;
        for (int i = 0; i < TEMPLATE * TEMPLATE; i++) {
            const int at = pass ? i / TEMPLATE : i % TEMPLATE;
            double sum = 0, total = 0;
            for (int k = -at; k < TEMPLATE - at; k++) {
                const double weight = kernel[k < 0 ? -k : k];
                sum += weight * in[i + k * step];
                total += weight;
            }
            result[i] = (float)(sum / total);
        }
    }
}

/* Pearson correlation of two images. */
static double correlation(const float *a, const float *b, int n)
{
    double ma = 0, mb = 0, ab = 0, aa = 0, bb = 0;
    for (int i = 0; i < n; i++)
        ma += a[i], mb += b[i];
    ma /= n, mb /= n;
    for (int i = 0; i < n; i++) {
        ab += (a[i] - ma) * (b[i] - mb);
        aa += (a[i] - ma) * (a[i] - ma);
        bb += (b[i] - mb) * (b[i] - mb);
    }
    return ab / sqrt(aa * bb + 1e-12);
}

/* Draws a shape of white on black with `area` template pixels around its centroid. */
static void draw_template(int shape, double area, float *to)
{
    static const double unit_area[WEFT_SHAPE_KINDS] = {3.141592653589793, 3.0976, 1.9166};
    /* The triangle's centroid is below the middle of its extent. */
    static const double centre_y[WEFT_SHAPE_KINDS] = {0, 0, 0.2333};
    enum { SUB = 4 };
    const double radius = sqrt(area / unit_area[shape]);
    for (int i = 0; i < TEMPLATE * TEMPLATE; i++) {
        int hits = 0;
        for (int k = 0; k < SUB * SUB; k++) {
            const double x = (i % TEMPLATE - TEMPLATE / 2 + (k % SUB + 0.5) / SUB - 0.5) / radius;
            const double y = (i / TEMPLATE - TEMPLATE / 2 + (k / SUB + 0.5) / SUB - 0.5) / radius +
                             centre_y[shape];
            hits += shape == 0   ? x * x + y * y <= 1
                    : shape == 1 ? fabs(x) <= 0.88 && fabs(y) <= 0.88
                                 : y >= -1 && y <= 0.85 && fabs(x) <= (y + 1) * 0.56;
        }
        to[i] = (float)hits / (SUB * SUB);
    }
}

static void shape_words(analysis *a, weft_shape_reading *out)
{
    double score[WEFT_SHAPE_KINDS];
    for (int shape = 0; shape < WEFT_SHAPE_KINDS; shape++) {
        score[shape] = -1;
        for (double area = 160; area < 300; area *= 1.12) {
            float sharp[TEMPLATE * TEMPLATE], soft[TEMPLATE * TEMPLATE];
            draw_template(shape, area, sharp);
            for (double sigma = 0.6; sigma < 5; sigma *= 1.6) {
                blur_template(sharp, sigma, soft);
                score[shape] =
                    fmax(score[shape], correlation(a->aligned, soft, TEMPLATE * TEMPLATE));
            }
        }
    }
    double best = -1, second = -1;
    for (int shape = 0; shape < WEFT_SHAPE_KINDS; shape++) {
        if (score[shape] > best) {
            second = best;
            best = score[shape];
            out->words.shape = shape;
        } else if (score[shape] > second) {
            second = score[shape];
        }
    }
    /* What neither template explains shrinks as the answer gets clear. */
    out->shape_confidence = fmax(0, (best - second) / (1 - second + 1e-9));
}

weft_status weft_shape_read(const uint8_t *rgb, int64_t frames, int64_t height, int64_t width,
                            weft_shape_reading *out)
{
    if (frames < 2 || height < 8 || width < 8 || height > 8192 || width > 8192)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_NOWHERE,
                          "shapes cannot be read from %" PRId64 " frames of %" PRId64 " x %" PRId64
                          "; at least 2 "
                          "frames of 8 x 8 are needed",
                          frames, width, height);
    const int64_t area = height * width;
    uint8_t *block;
    WEFT_TRY(WEFT_NEW(block, area * 16 + frames * 24 + 256, "the shape reader"));
    uint8_t *at = block;
    analysis a = {.frames = frames, .height = height, .width = width};
    a.distance = carve(&at, area * 4);
    a.mask = carve(&at, area * 4);
    a.label = carve(&at, area * 4);
    a.queue = carve(&at, area * 4);
    a.cx = carve(&at, frames * 8);
    a.cy = carve(&at, frames * 8);
    a.weight = carve(&at, frames * 8);
    for (int64_t t = 0; t < frames; t++)
        find_object(&a, rgb + t * area * 3, t);
    weft_shape_reading reading = {.found = a.aligned_frames >= 2};
    if (reading.found) {
        colour_words(&a, &reading);
        direction_words(&a, &reading);
        shape_words(&a, &reading);
    }
    weft_free(block);
    *out = reading;
    return WEFT_OK;
}

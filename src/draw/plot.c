/* Line plots and Gantt charts, drawn with the shapes of svg.c. */
#include "draw/plot.h"

#include "draw/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* One axis: values low .. high over pixels from .. to; logarithmic if `log`. */
typedef struct scale {
    double low, high, from, to;
    bool log;
    double step; /* step between ticks; in decades if log and > 0 */
} scale;

static bool usable(const scale *s, double v)
{
    return isfinite(v) && (!s->log || v > 0);
}

static double to_pixels(const scale *s, double v)
{
    const double t =
        s->log ? (log10(v) - s->low) / (s->high - s->low) : (v - s->low) / (s->high - s->low);
    return s->from + t * (s->to - s->from);
}

/* Returns 1, 2 or 5 times a power of ten, so that about `ticks` steps fit into `span`. */
static double nice_step(double span, int ticks)
{
    const double rough = span / ticks, power = pow(10, floor(log10(rough))), rest = rough / power;
    return power * (rest <= 1 ? 1 : rest <= 2 ? 2 : rest <= 5 ? 5 : 10);
}

static void widen(scale *s, double v)
{
    if (!usable(s, v))
        return;
    v = s->log ? log10(v) : v;
    s->low = v < s->low ? v : s->low;
    s->high = v > s->high ? v : s->high;
}

/* Rounds the range outwards to ticks. Returns false if no value is usable. */
static bool round_range(scale *s, int ticks, bool outwards)
{
    if (s->low > s->high)
        return false;
    if (s->high - s->low < 1e-12 * (1 + fabs(s->high))) {
        const double margin = s->low == 0 ? 1 : fabs(s->low) * 0.1;
        s->low -= s->log ? 0.5 : margin;
        s->high += s->log ? 0.5 : margin;
    }
    s->step = nice_step(s->high - s->low, ticks);
    if (s->log && s->step < 1)
        s->step = s->high - s->low > 1 ? 1 : s->step;
    if (outwards) {
        s->low = floor(s->low / s->step + 1e-9) * s->step;
        s->high = ceil(s->high / s->step - 1e-9) * s->step;
    }
    return true;
}

static void tick_text(const scale *s, double tick, int digits, char text[32])
{
    if (s->log)
        snprintf(text, 32, "%.*g", digits, pow(10, tick));
    else if (fabs(tick) < s->step * 1e-6)
        snprintf(text, 32, "0");
    else if (fabs(tick) >= 1e4 && fabs(tick) < 1e6)
        snprintf(text, 32, "%.*gk", digits, round(tick / s->step) * s->step / 1e3);
    else
        snprintf(text, 32, "%.*g", digits, tick);
}

enum { MOST_TICKS = 64 };

/* Fills `tick` and returns the number of ticks. */
static int find_ticks(const scale *s, double tick[MOST_TICKS])
{
    /* indexed by integer, so that rounding does not lose the last tick */
    const double first = ceil(s->low / s->step - 1e-9);
    int count = 0;
    for (; count < MOST_TICKS; count++) {
        tick[count] = (first + count) * s->step;
        if (tick[count] > s->high + s->step * 1e-6)
            break;
    }
    return count;
}

/* Returns the fewest significant digits that give neighbouring ticks different texts. */
static int find_digits(const scale *s, const double *tick, int count)
{
    enum { MOST = 17 };
    for (int digits = s->log ? 3 : 6; digits < MOST; digits++) {
        bool same = false;
        for (int i = 1; i < count && !same; i++) {
            char before[32], text[32];
            tick_text(s, tick[i - 1], digits, before);
            tick_text(s, tick[i], digits, text);
            same = !strcmp(before, text);
        }
        if (!same)
            return digits;
    }
    return MOST;
}

static void draw_axis(weft_svg *svg, const scale *s, bool horizontal, double from, double to)
{
    double tick[MOST_TICKS];
    const int count = find_ticks(s, tick), digits = find_digits(s, tick, count);
    for (int i = 0; i < count; i++) {
        const double p = s->from + (tick[i] - s->low) / (s->high - s->low) * (s->to - s->from);
        char text[32];
        tick_text(s, tick[i], digits, text);
        if (horizontal) {
            weft_svg_line(svg, p, from, p, to, "currentColor", 1, 0.12);
            weft_svg_label(svg, p, from + 16, 11, 'm', 0, text);
        } else {
            weft_svg_line(svg, from, p, to, p, "currentColor", 1, 0.12);
            weft_svg_label(svg, from - 6, p + 4, 11, 'e', 0, text);
        }
    }
}

/* One pixel column of a thinned line: first, lowest, highest and last point. */
typedef struct column {
    double x, first, low, high, last;
    bool open;
} column;

static void flush_column(weft_buf *path, column *c, bool *pen)
{
    if (!c->open)
        return;
    weft_buf_printf(path, "%s%.1f %.1f", *pen ? "L" : "M", c->x, c->first);
    *pen = true;
    if (c->low != c->first || c->high != c->first)
        weft_buf_printf(path, "V%.1fV%.1f", c->low, c->high);
    if (c->last != c->high)
        weft_buf_printf(path, "V%.1f", c->last);
    c->open = false;
}

static void draw_series(weft_svg *svg, const weft_plot_series *series, int index, const scale *x,
                        const scale *y)
{
    weft_buf path = {0};
    column c = {0};
    bool pen = false;
    const double cell = series->count > x->to - x->from ? 1 : 0; /* few points are not thinned */
    for (int64_t i = 0; i < series->count; i++) {
        if (!usable(x, series->x[i]) || !usable(y, series->y[i])) {
            flush_column(&path, &c, &pen);
            pen = false;
            continue;
        }
        double px = to_pixels(x, series->x[i]);
        const double py = to_pixels(y, series->y[i]);
        if (series->dots)
            weft_buf_printf(&svg->text, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"/>\n",
                            px, py, weft_svg_colour(index));
        if (cell > 0)
            px = floor(px);
        if (c.open && (cell == 0 || px != c.x))
            flush_column(&path, &c, &pen);
        if (!c.open)
            c = (column){px, py, py, py, py, true};
        c.low = py > c.low ? py : c.low; /* pixel rows increase downwards */
        c.high = py < c.high ? py : c.high;
        c.last = py;
    }
    flush_column(&path, &c, &pen);
    if (path.len > 0)
        weft_buf_printf(
            &svg->text,
            "<path fill=\"none\" stroke=\"%s\" stroke-width=\"%s\" stroke-opacity=\"%s\" "
            "stroke-linejoin=\"round\" d=\"",
            weft_svg_colour(index), series->faint ? "1" : "1.8", series->faint ? "0.35" : "1");
    weft_buf_append(&svg->text, path.data ? path.data : "", path.len);
    if (path.len > 0)
        weft_buf_printf(&svg->text, "\"/>\n");
    svg->text.failed = svg->text.failed || path.failed;
    weft_buf_free(&path);
}

static void draw_legend(weft_svg *svg, const char *const *name, int count, double x, double y,
                        double right)
{
    double at = x;
    for (int i = 0; i < count; i++) {
        if (!name[i] || !*name[i])
            continue;
        const double width = 24 + 6.5 * (double)strlen(name[i]);
        if (at + width > right && at > x) {
            at = x;
            y += 16;
        }
        weft_svg_rect(svg, at, y - 8, 12, 8, weft_svg_colour(i), 1, NULL);
        weft_svg_label(svg, at + 16, y, 11, 's', 0, name[i]);
        at += width + 10;
    }
}

weft_status weft_plot_write(const weft_plot *plot, weft_buf *out)
{
    enum { MAX_SERIES = 32 };
    const double width = plot->width > 0 ? plot->width : 640,
                 height = plot->height > 0 ? plot->height : 360;
    const int count = plot->series_count < MAX_SERIES ? plot->series_count : MAX_SERIES;
    weft_svg svg;
    weft_svg_begin(&svg, width, height);
    const char *name[MAX_SERIES];
    int named = 0;
    scale x = {
        .low = INFINITY, .high = -INFINITY, .from = 64, .to = width - 16, .log = plot->log_x};
    scale y = {.low = INFINITY, .high = -INFINITY, .log = plot->log_y};
    for (int s = 0; s < count; s++) {
        name[s] = plot->series[s].name;
        named += name[s] && *name[s];
        for (int64_t i = 0; i < plot->series[s].count; i++) {
            if (usable(&x, plot->series[s].x[i]) && usable(&y, plot->series[s].y[i])) {
                widen(&x, plot->series[s].x[i]);
                widen(&y, plot->series[s].y[i]);
            }
        }
    }
    const double top = (plot->title ? 30 : 12) + (named > 1 ? 18 : 0);
    y.from = height - (plot->x_label ? 44 : 28);
    y.to = top;
    if (plot->title)
        weft_svg_label(&svg, width / 2, 20, 14, 'm', 0, plot->title);
    if (round_range(&x, 8, false) && round_range(&y, 6, true)) {
        draw_axis(&svg, &x, true, y.from, y.to);
        draw_axis(&svg, &y, false, x.from, x.to);
        for (int s = 0; s < count; s++)
            draw_series(&svg, &plot->series[s], s, &x, &y);
    } else {
        weft_svg_label(&svg, width / 2, height / 2, 13, 'm', 0, "no values");
    }
    weft_svg_line(&svg, x.from, y.from, x.to, y.from, "currentColor", 1, 0.6);
    weft_svg_line(&svg, x.from, y.from, x.from, y.to, "currentColor", 1, 0.6);
    if (named > 1)
        draw_legend(&svg, name, count, x.from, plot->title ? 38 : 20, x.to);
    if (plot->x_label)
        weft_svg_label(&svg, (x.from + x.to) / 2, height - 8, 12, 'm', 0, plot->x_label);
    if (plot->y_label)
        weft_svg_label(&svg, 14, (y.from + y.to) / 2, 12, 'm', -90, plot->y_label);
    const weft_status_code status = weft_svg_end(&svg);
    weft_buf_append(out, svg.text.data, svg.text.len);
    weft_buf_free(&svg.text);
    WEFT_TRY(status);
    return weft_buf_check(out);
}

void weft_smooth(const double *y, int64_t count, double beta, double *out)
{
    double mean = 0, weight = 0;
    for (int64_t i = 0; i < count; i++) {
        if (isfinite(y[i])) {
            mean = beta * mean + (1 - beta) * y[i];
            weight = beta * weight + (1 - beta);
        }
        out[i] = weight > 0 ? mean / weight : NAN;
    }
}

/* Bar charts: seconds of the best layouts by cause, and policies of the activations. */
#include "plan/pipeline/bars_svg.h"

#include "draw/svg.h"
#include "plan/pipeline/activation_report.h"
#include "plan/pipeline/degree_report.h"

#include <math.h>
#include <stdio.h>

enum { LEFT = 330, TOP = 50, ROW = 24, WIDE = 760 };

static const char *const colours[WEFT_BARS_PARTS] = {"#4c78a8", "#9ecae9", "#bab0ac", "#f58518",
                                                     "#ffbf79", "#b279a2", "#e45756", "#72b7b2",
                                                     "#eeca3b", "#54a24b", "#88d27a", "#79706e"};

static const char *colour_of(const weft_bar_chart *b, int part)
{
    return b->colour ? b->colour[part] : colours[part];
}

void weft_bar_chart_begin(const weft_bar_chart *b, int64_t rows, const char *title)
{
    const double height = (double)(TOP + rows * ROW) + 84;
    weft_buf_printf(b->out,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
                    "viewBox=\"0 0 %d %.0f\" font-family=\"sans-serif\" font-size=\"11\">\n"
                    "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
                    "<text x=\"12\" y=\"24\" font-size=\"13\">%s</text>\n",
                    LEFT + WIDE + 120, height, LEFT + WIDE + 120, height, title);
}

void weft_bar_chart_row(weft_bar_chart *b, const char *label, const double *value, const char *end)
{
    double x = LEFT;
    const double y = (double)(TOP + b->row++ * ROW);
    weft_buf_printf(b->out, "<text x=\"12\" y=\"%.1f\">", y + 12);
    weft_xml_escape(b->out, label ? label : ""); /* text from a file */
    weft_buf_printf(b->out, "</text>\n");
    for (int k = 0; k < b->parts; k++) {
        const double width = b->longest > 0 ? WIDE * value[k] / b->longest : 0;
        char text[32];
        if (width > 0)
            weft_buf_printf(b->out,
                            "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" "
                            "fill=\"%s\"><title>%s: %s</title></rect>\n",
                            x, y, width, ROW - 7, colour_of(b, k), b->name[k],
                            b->format(value[k], text));
        x += width;
    }
    weft_buf_printf(b->out, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", x + 5, y + 12, end);
}

void weft_bar_chart_end(const weft_bar_chart *b)
{
    const double y = (double)(TOP + b->row * ROW) + 14;
    for (int k = 0; k < b->parts; k++) {
        const double x = 12 + 235 * (k % 5), line = y + 18 * (k / 5);
        weft_buf_printf(b->out,
                        "<rect x=\"%.0f\" y=\"%.0f\" width=\"11\" height=\"11\" fill=\"%s\"/>"
                        "<text x=\"%.0f\" y=\"%.0f\">%s</text>\n",
                        x, line, colour_of(b, k), x + 15, line + 10, b->name[k]);
    }
    weft_buf_printf(b->out, "</svg>\n");
}

void weft_degrees_plan_draw(const weft_degrees_plan *plan, int64_t others, weft_buf *out)
{
    const char *names[WEFT_DEGREES_CAUSES];
    weft_bar_chart bars = {
        .out = out, .parts = WEFT_DEGREES_CAUSES, .name = names, .format = weft_format_seconds};
    int64_t rows = 0;
    for (; rows < plan->count && rows <= others && plan->candidate[rows].fits; rows++)
        bars.longest = fmax(bars.longest, plan->candidate[rows].terms.seconds);
    weft_bar_chart_begin(&bars, rows, "seconds of an iteration, the best layout first");
    for (int64_t i = 0; i < rows; i++) {
        const weft_degrees_candidate *c = &plan->candidate[i];
        char layout[96], time[32], end[64];
        double seconds[WEFT_DEGREES_CAUSES];
        weft_degrees_text(&c->layout, layout);
        for (int k = 0; k < WEFT_DEGREES_CAUSES; k++)
            seconds[k] = weft_degrees_cause(&c->terms, k, &names[k]);
        snprintf(end, sizeof end, "%s, %.1f %%", weft_format_seconds(c->terms.seconds, time),
                 100 * c->terms.mfu);
        weft_bar_chart_row(&bars, layout, seconds, end);
    }
    weft_bar_chart_end(&bars);
}

static const char *format_bytes(double bytes, char text[32])
{
    return weft_format_bytes((int64_t)fmin(bytes, 9e18), text);
}

void weft_activation_choice_draw(const weft_activation_item *item, int64_t items,
                                 const weft_activation_choice *choice, weft_buf *out)
{
    static const char *const names[] = {"kept", "recomputed", "offloaded"};
    static const char *const fills[] = {"#4c78a8", "#f58518", "#54a24b"};
    weft_bar_chart bars = {
        .out = out, .parts = 3, .name = names, .colour = fills, .format = format_bytes};
    for (int64_t i = 0; i < items; i++)
        bars.longest = fmax(bars.longest, item[i].bytes * (double)item[i].count);
    weft_bar_chart_begin(&bars, items, "bytes of activations: kept, recomputed, offloaded");
    for (int64_t i = 0; i < items; i++) {
        const int64_t recomputed = choice->recomputed[i], offloaded = choice->offloaded[i];
        const double bytes[] = {item[i].bytes * (double)(item[i].count - recomputed - offloaded),
                                item[i].bytes * (double)recomputed,
                                item[i].bytes * (double)offloaded};
        char all[32];
        weft_bar_chart_row(&bars, item[i].name, bytes,
                           format_bytes(item[i].bytes * (double)item[i].count, all));
    }
    weft_bar_chart_end(&bars);
}

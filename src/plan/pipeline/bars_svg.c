/* Bars: where the time of the best layouts goes, and where the activations go. */
#include "plan/pipeline/degrees_report.h"
#include "plan/pipeline/keep_report.h"

#include <math.h>

enum { LEFT = 330, TOP = 50, ROW = 24, WIDE = 760 };

static const char *const colours[] = {"#4c78a8", "#9ecae9", "#bab0ac", "#f58518",
                                      "#ffbf79", "#b279a2", "#e45756", "#72b7b2",
                                      "#eeca3b", "#54a24b", "#88d27a", "#79706e"};

static void begin(weft_buf *out, double rows, const char *title)
{
    const double height = TOP + rows * ROW + 84;
    weft_buf_printf(out,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
                    "viewBox=\"0 0 %d %.0f\" font-family=\"sans-serif\" font-size=\"11\">\n"
                    "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
                    "<text x=\"12\" y=\"24\" font-size=\"13\">%s</text>\n",
                    LEFT + WIDE + 120, height, LEFT + WIDE + 120, height, title);
}

static void piece(weft_buf *out, double *x, double y, double width, const char *colour,
                  const char *name, const char *value)
{
    if (width > 0)
        weft_buf_printf(out,
                        "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\">"
                        "<title>%s: %s</title></rect>\n",
                        *x, y, width, ROW - 7, colour, name, value);
    *x += width;
}

static void legend(weft_buf *out, double y, const char *const *name, const char *const *colour,
                   int count)
{
    for (int k = 0; k < count; k++) {
        const double x = 12 + 235 * (k % 5), line = y + 18 * (k / 5);
        weft_buf_printf(out,
                        "<rect x=\"%.0f\" y=\"%.0f\" width=\"11\" height=\"11\" fill=\"%s\"/>"
                        "<text x=\"%.0f\" y=\"%.0f\">%s</text>\n",
                        x, line, colour[k], x + 15, line + 10, name[k]);
    }
}

void weft_degrees_plan_draw(const weft_degrees_plan *plan, int64_t others, weft_buf *out)
{
    const char *names[WEFT_DEGREES_CAUSES];
    double longest = 0;
    int64_t rows = 0;
    for (; rows < plan->count && rows <= others && plan->candidate[rows].fits; rows++)
        longest = fmax(longest, plan->candidate[rows].terms.seconds);
    begin(out, (double)rows, "seconds of an iteration, the best layout first");
    for (int64_t i = 0; i < rows; i++) {
        const weft_degrees_candidate *c = &plan->candidate[i];
        char layout[96], time[32];
        double x = LEFT;
        const double y = (double)(TOP + i * ROW);
        weft_degrees_text(&c->layout, layout);
        weft_buf_printf(out, "<text x=\"12\" y=\"%.1f\">%s</text>\n", y + 12, layout);
        for (int k = 0; k < WEFT_DEGREES_CAUSES; k++) {
            const double seconds = weft_degrees_cause(&c->terms, k, &names[k]);
            piece(out, &x, y, longest > 0 ? WIDE * seconds / longest : 0, colours[k], names[k],
                  weft_format_seconds(seconds, time));
        }
        weft_buf_printf(out, "<text x=\"%.1f\" y=\"%.1f\">%s, %.1f %%</text>\n", x + 5, y + 12,
                        weft_format_seconds(c->terms.seconds, time), 100 * c->terms.mfu);
    }
    legend(out, (double)(TOP + rows * ROW) + 14, names, colours, WEFT_DEGREES_CAUSES);
    weft_buf_printf(out, "</svg>\n");
}

void weft_keep_choice_draw(const weft_keep_item *item, int64_t items,
                           const weft_keep_choice *choice, weft_buf *out)
{
    static const char *const names[] = {"kept", "recomputed", "offloaded"};
    static const char *const fills[] = {"#4c78a8", "#f58518", "#54a24b"};
    double most = 0;
    for (int64_t i = 0; i < items; i++)
        most = fmax(most, item[i].bytes * (double)item[i].count);
    begin(out, (double)items, "bytes of activations, and what becomes of them");
    for (int64_t i = 0; i < items; i++) {
        const int64_t share[] = {item[i].count - choice->recomputed[i] - choice->offloaded[i],
                                 choice->recomputed[i], choice->offloaded[i]};
        double x = LEFT;
        const double y = (double)(TOP + i * ROW), all = item[i].bytes * (double)item[i].count;
        char bytes[32];
        weft_buf_printf(out, "<text x=\"12\" y=\"%.1f\">", y + 12);
        for (const char *c = item[i].name ? item[i].name : ""; *c; c++) /* names come from files */
            weft_buf_printf(out, *c == '<' ? "&lt;" : *c == '&' ? "&amp;" : "%c", *c);
        weft_buf_printf(out, "</text>\n");
        for (int k = 0; k < 3; k++)
            piece(out, &x, y, most > 0 ? WIDE * item[i].bytes * (double)share[k] / most : 0,
                  fills[k], names[k],
                  weft_format_bytes((int64_t)fmin(item[i].bytes * (double)share[k], 9e18), bytes));
        weft_buf_printf(out, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", x + 5, y + 12,
                        weft_format_bytes((int64_t)fmin(all, 9e18), bytes));
    }
    legend(out, (double)(TOP + items * ROW) + 14, names, fills, 3);
    weft_buf_printf(out, "</svg>\n");
}

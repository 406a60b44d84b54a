#include "plan/pipeline/pipeline_svg.h"

#include "plan/pipeline/pipeline_report.h"

#include <math.h>

enum { LEFT = 70, TOP = 40, ROW = 34, HELD = 14, WIDE = 1100, GAP = 8 };

static const char *const fills[] = {"#4c78a8", "#f58518", "#54a24b"};
static const char *const kinds[] = {"forward", "backward", "weight gradient"};

static void bar(const weft_task *t, double scale, double y, double waves, weft_buf *out)
{
    const double x = LEFT + t->start * scale, w = (t->end - t->start) * scale;
    /* later stages of a device are lighter */
    weft_buf_printf(out,
                    "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\" "
                    "fill-opacity=\"%.2f\" "
                    "stroke=\"#fff\" stroke-width=\"0.5\"><title>%s, stage %d, microbatch %d: %.6g "
                    "to %.6g s</title></rect>\n",
                    x, y, w, ROW - HELD, fills[t->kind], 1 - 0.45 * waves, kinds[t->kind],
                    t->pp_stage, t->microbatch, t->start, t->end);
    if (w > 11)
        weft_buf_printf(
            out, "<text x=\"%.2f\" y=\"%.1f\" text-anchor=\"middle\" fill=\"#fff\">%d</text>\n",
            x + w / 2, y + (ROW - HELD) / 2.0 + 4, t->microbatch);
}

/* Draws the bytes that device d holds as a step line scaled to `most` bytes. */
static void held_line(const weft_pipeline_plan *p, int64_t d, const weft_task *task, int64_t count,
                      double scale, double y, double most, weft_buf *out)
{
    const weft_pp_schedule *s = &p->schedule;
    const double *bytes = p->activation_steps + d * s->steps, base = y + ROW - 2;
    weft_buf_printf(out, "<path d=\"M%d %.1f", LEFT, base);
    for (int64_t i = 0; i < count; i++) {
        const double share = most > 0 ? bytes[task[i].step] / most : 0;
        weft_buf_printf(out, "H%.2fV%.1f", LEFT + task[i].start * scale, base - share * (HELD - 3));
    }
    weft_buf_printf(out, "H%.2f\" fill=\"none\" stroke=\"#888\"/>\n",
                    LEFT + p->timing.seconds * scale);
}

/* Draws at most ten round steps of seconds below the rows. */
static void time_axis(double seconds, double scale, double y, double top, weft_buf *out)
{
    if (!(seconds > 0))
        return;
    double step = pow(10, floor(log10(seconds / 10)));
    while (seconds / step > 10)
        step *= seconds / step > 20 ? 5 : 2;
    weft_buf_printf(out,
                    "<g class=\"axis\" fill=\"#555\"><line x1=\"%d\" y1=\"%.1f\" x2=\"%.1f\" "
                    "y2=\"%.1f\" stroke=\"#555\"/>\n",
                    LEFT, y, LEFT + seconds * scale, y);
    for (int k = 0; k * step <= seconds * (1 + 1e-9); k++) {
        char text[32];
        const double x = LEFT + k * step * scale;
        weft_buf_printf(out,
                        "<line x1=\"%.2f\" y1=\"%.1f\" x2=\"%.2f\" y2=\"%.1f\" stroke=\"#bbb\" "
                        "stroke-dasharray=\"2 4\"/><text x=\"%.2f\" y=\"%.1f\" "
                        "text-anchor=\"middle\">%s</text>\n",
                        x, top, x, y + 3, x, y + 14, k ? weft_format_seconds(k * step, text) : "0");
    }
    weft_buf_printf(out, "</g>\n");
}

void weft_pipeline_plan_draw(const weft_pipeline_plan *plan, weft_buf *out)
{
    const weft_pp_schedule *s = &plan->schedule;
    const double scale = plan->timing.seconds > 0 ? WIDE / plan->timing.seconds : 0;
    const double height = (double)(TOP + s->devices * (ROW + GAP) + 60);
    char time[32], bytes[32];
    double most = 0;
    for (int64_t d = 0; d < s->devices && plan->activation_peak; d++)
        most = fmax(most, plan->activation_peak[d]);
    weft_buf_printf(out,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
                    "viewBox=\"0 0 %d %.0f\" "
                    "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%%\" "
                    "height=\"100%%\" fill=\"#fff\"/>\n",
                    LEFT + WIDE + 20, height, LEFT + WIDE + 20, height);
    weft_buf_printf(out,
                    "<text x=\"%d\" y=\"20\" font-size=\"13\">%s: %" PRId64 " stages on %" PRId64
                    " devices, "
                    "%" PRId64 " microbatches, %s, "
                    "idle %.1f %%</text>\n",
                    LEFT, s->name, s->pp_stages, s->devices, s->microbatches,
                    weft_format_seconds(plan->timing.seconds, time), 100 * plan->timing.idle);
    for (int64_t d = 0, i = 0; d < s->devices; d++) {
        const double y = (double)(TOP + d * (ROW + GAP));
        const int64_t first = i;
        weft_buf_printf(out, "<text x=\"8\" y=\"%.1f\">device %" PRId64 "</text>\n", y + 14, d);
        for (; i < s->task_count && s->task[i].device == d; i++)
            bar(&s->task[i], scale, y,
                s->pp_stages > 1 ? (double)s->task[i].pp_stage / (double)(s->pp_stages - 1) : 0,
                out);
        if (plan->activation_steps)
            held_line(plan, d, s->task + first, i - first, scale, y, most, out);
    }
    time_axis(plan->timing.seconds, scale, (double)(TOP + s->devices * (ROW + GAP)) + 2, TOP - 4,
              out);
    for (int k = 0; k < (s->split ? 3 : 2); k++)
        weft_buf_printf(out,
                        "<rect x=\"%d\" y=\"%.0f\" width=\"12\" height=\"12\" fill=\"%s\"/><text "
                        "x=\"%d\" y=\"%.0f\">%s</text>\n",
                        LEFT + 130 * k, height - 26, fills[k], LEFT + 130 * k + 17, height - 16,
                        kinds[k]);
    weft_buf_printf(
        out, "<text x=\"%d\" y=\"%.0f\">line: activations held, at most %s</text>\n</svg>\n",
        LEFT + 400, height - 16, weft_format_bytes(most < 9e18 ? (int64_t)most : INT64_MAX, bytes));
}

#include "plan/simulate/gantt.h"

#include <stdio.h>

#include "draw/svg.h"

#include <math.h>
#include <string.h>

int weft_gantt_colour(const char *id, int index)
{
    int sample = index;
    return sscanf(id, "s%d.", &sample) == 1 ? sample + 1 : index + 1;
}

/* Returns 1, 2 or 5 times a power of ten, about a tenth of `span`. */
static double tick_of(double span)
{
    const double raw = span / 10, base = pow(10, floor(log10(raw > 0 ? raw : 1)));
    return base * (raw / base < 1.5 ? 1 : raw / base < 3.5 ? 2 : raw / base < 7.5 ? 5 : 10);
}

static void draw_bar(const weft_gantt_bar *b, double x, double y, double w, double row,
                     weft_buf *out)
{
    if (w < 0.05)
        return;
    const unsigned hue = (unsigned)(b->colour * 137) % 360;
    if (b->part != WEFT_GANTT_LABEL) {
        weft_buf_printf(out,
                        "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" "
                        "fill=\"hsl(%u,60%%,%.0f%%)\"",
                        x, y + 0.5, w, row - 1, hue, 52 + 40 * b->shade);
        weft_buf_printf(out, "%s<title>",
                        b->part == WEFT_GANTT_INNER ? ">"
                                                    : " stroke=\"white\" stroke-width=\"0.4\">");
        weft_xml_escape(out, b->label);
        weft_buf_printf(out, " %.4g-%.4g s</title></rect>\n", b->start, b->end);
    }
    if (b->part != WEFT_GANTT_INNER && row >= 10 && w > 7.0 * (double)strlen(b->label)) {
        weft_buf_printf(out, "<text x=\"%.2f\" y=\"%.2f\" font-size=\"9\" pointer-events=\"none\">",
                        x + 3, y + row * 0.75);
        weft_xml_escape(out, b->label);
        weft_buf_printf(out, "</text>\n");
    }
}

weft_status weft_gantt_svg(const char *title, const weft_gantt_bar *bar, int64_t count,
                           int64_t rows, double seconds, int64_t rows_per_node, weft_buf *out)
{
    const double left = 60, top = 40, width = 1000, row = rows > 128 ? 4 : rows > 40 ? 10 : 18;
    const double height = row * (double)rows, scale = seconds > 0 ? width / seconds : 0;
    weft_buf_printf(out,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" "
                    "font-family=\"sans-serif\" "
                    "font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" "
                    "fill=\"white\"/>\n<text x=\"%g\" y=\"22\" "
                    "font-size=\"14\">",
                    left + width + 30, top + height + 40, left);
    weft_xml_escape(out, title);
    weft_buf_printf(out, "</text>\n");
    for (int64_t r = 0; r < rows; r++) {
        const double y = top + row * (double)r;
        weft_buf_printf(out,
                        "<rect x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\" fill=\"#f4f4f4\"/>\n",
                        left, y + 0.5, width, row - 1);
        if (row >= 10 || r % 16 == 0)
            weft_buf_printf(out,
                            "<text x=\"%g\" y=\"%g\" text-anchor=\"end\" font-size=\"9\">%" PRId64
                            "</text>\n",
                            left - 6, y + row * 0.75, r);
        if (rows_per_node > 0 && r && r % rows_per_node == 0)
            weft_buf_printf(out,
                            "<line x1=\"%g\" x2=\"%g\" y1=\"%g\" y2=\"%g\" stroke=\"#888\"/>\n",
                            left - 40, left + width, y, y);
    }
    for (int64_t i = 0; i < count; i++)
        draw_bar(&bar[i], left + bar[i].start * scale, top + row * (double)bar[i].row,
                 (bar[i].end - bar[i].start) * scale, row, out);
    const double tick = tick_of(seconds);
    for (double t = 0; t <= seconds * 1.0001 && scale > 0; t += tick)
        weft_buf_printf(out,
                        "<line x1=\"%.2f\" x2=\"%.2f\" y1=\"%g\" y2=\"%g\" stroke=\"#333\"/><text "
                        "x=\"%.2f\" y=\"%g\" "
                        "text-anchor=\"middle\">%g s</text>\n",
                        left + t * scale, left + t * scale, top + height, top + height + 5,
                        left + t * scale, top + height + 18, t);
    weft_buf_printf(out, "</svg>\n");
    return weft_buf_check(out);
}

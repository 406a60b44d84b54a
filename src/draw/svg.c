#include "draw/svg.h"

#include "base/utf8.h"

#include <string.h>

const char *weft_svg_colour(int i)
{
    static const char *const colour[8] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                          "#e69f00", "#56b4e9", "#a08c00", "#555555"};
    return i < 0 ? "#999999" : colour[i % 8];
}

/* Returns the bytes of the character at p if XML allows the character, else 0. */
static int xml_length(const char *p)
{
    const bool control = (unsigned char)*p < 0x20 && *p != '\t' && *p != '\n' && *p != '\r';
    return control ? 0 : weft_utf8_length(p);
}

void weft_xml_escape(weft_buf *out, const char *text)
{
    for (const char *p = text; *p;) {
        const char *word = *p == '&'   ? "&amp;"
                           : *p == '<' ? "&lt;"
                           : *p == '>' ? "&gt;"
                           : *p == '"' ? "&quot;"
                                       : NULL;
        const int n = xml_length(p);
        if (word)
            weft_buf_append(out, word, (int64_t)strlen(word));
        else if (n)
            weft_buf_append(out, p, n);
        else
            weft_buf_append(out, "?", 1);
        p += n ? n : 1;
    }
}

void weft_svg_begin(weft_svg *svg, double width, double height)
{
    *svg = (weft_svg){.width = width, .height = height};
    weft_buf_printf(&svg->text,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.6g %.6g\" "
                    "width=\"%.6g\" height=\"%.6g\" "
                    "font-family=\"system-ui,sans-serif\" fill=\"currentColor\">\n",
                    width, height, width, height);
}

void weft_svg_rect(weft_svg *svg, double x, double y, double w, double h, const char *colour,
                   double opacity, const char *tip)
{
    weft_buf_printf(&svg->text,
                    "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"", x, y,
                    w, h, colour);
    if (opacity < 1)
        weft_buf_printf(&svg->text, " fill-opacity=\"%.3g\"", opacity);
    if (tip) {
        weft_buf_printf(&svg->text, "><title>");
        weft_xml_escape(&svg->text, tip);
        weft_buf_printf(&svg->text, "</title></rect>\n");
    } else {
        weft_buf_printf(&svg->text, "/>\n");
    }
}

void weft_svg_line(weft_svg *svg, double x1, double y1, double x2, double y2, const char *colour,
                   double width, double opacity)
{
    weft_buf_printf(
        &svg->text,
        "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" stroke=\"%s\" stroke-width=\"%.3g\" "
        "stroke-opacity=\"%.3g\"/>\n",
        x1, y1, x2, y2, colour, width, opacity);
}

void weft_svg_label(weft_svg *svg, double x, double y, double size, char anchor, double angle,
                    const char *text)
{
    weft_buf_printf(&svg->text, "<text x=\"%.2f\" y=\"%.2f\" font-size=\"%.3g\"", x, y, size);
    if (anchor != 's')
        weft_buf_printf(&svg->text, " text-anchor=\"%s\"", anchor == 'm' ? "middle" : "end");
    if (angle != 0)
        weft_buf_printf(&svg->text, " transform=\"rotate(%.4g %.2f %.2f)\"", angle, x, y);
    weft_buf_printf(&svg->text, ">");
    weft_xml_escape(&svg->text, text);
    weft_buf_printf(&svg->text, "</text>\n");
}

weft_status weft_svg_end(weft_svg *svg)
{
    weft_buf_printf(&svg->text, "</svg>\n");
    return weft_buf_check(&svg->text);
}

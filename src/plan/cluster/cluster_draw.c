/* A drawing of a cluster: switches by depth, with the NICs and devices of the first nodes below. */
#include "plan/cluster/cluster_draw.h"

#include "base/fs.h"
#include "draw/svg.h"
#include "plan/cluster/cluster_path.h"
#include "plan/cluster/cluster_print.h"

#include <math.h>
#include <stdio.h>

enum { MOST_NODES = 8, COLUMN = 34 };

static void box(weft_buf *out, double x, double y, double w, double h, const char *fill,
                const char *text)
{
    weft_buf_printf(
        out,
        "<rect x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\" rx=\"3\" fill=\"%s\" stroke=\"#555\"/>",
        x, y, w, h, fill);
    weft_buf_printf(out, "<text x=\"%g\" y=\"%g\" text-anchor=\"middle\">", x + w / 2,
                    y + h / 2 + 3);
    weft_xml_escape(out, text);
    weft_buf_printf(out, "</text>\n");
}

/* Draws switches by depth, with NICs and devices of the first nodes below. */
static void draw_network(const weft_cluster *c, int64_t nodes, double node_width, double width,
                         int64_t depth, weft_buf *out)
{
    const weft_nic *nic = c->nics.item;
    const weft_switch *s = c->switches.item;
    double at[256] = {0}, switch_y[256] = {0};
    const int64_t count = c->switches.count < 256 ? c->switches.count : 256;
    for (int64_t d = 0; d <= depth; d++) {
        int64_t here = 0, k = 0;
        for (int64_t i = 0; i < count; i++)
            here += s[i].depth == d;
        for (int64_t i = 0; i < count; i++)
            if (s[i].depth == d) {
                at[i] = 20 + (width - 40) * ((double)k++ + 0.5) / (double)here;
                switch_y[i] = 50 + 60 * (double)d;
            }
    }
    for (int64_t i = 0; i < count; i++)
        if (s[i].parent >= 0)
            weft_buf_printf(out,
                            "<line x1=\"%g\" y1=\"%g\" x2=\"%g\" y2=\"%g\" stroke=\"#999\"/>\n",
                            at[i], switch_y[i], at[s[i].parent], switch_y[s[i].parent]);
    const double nic_y = 50 + 60 * (double)(depth + 1) + 20;
    for (int64_t n = 0; n < nodes; n++)
        for (int64_t i = 0; i < c->nics.count; i++) {
            const double x = 20 + node_width * (double)n + 15 + COLUMN * ((double)i + 0.5);
            if (nic[i].leaf < count)
                weft_buf_printf(out,
                                "<line x1=\"%g\" y1=\"%g\" x2=\"%g\" y2=\"%g\" "
                                "stroke=\"hsl(%d,60%%,60%%)\"/>\n",
                                x, nic_y, at[nic[i].leaf], switch_y[nic[i].leaf],
                                (int)(nic[i].leaf * 47 % 360));
        }
    for (int64_t i = 0; i < count; i++)
        box(out, at[i] - 32, switch_y[i] - 11, 64, 22, "#ffe9b8", s[i].name);
}

/* Draws the name of the cluster above the drawing, and rates below it. */
static void draw_captions(const weft_cluster *c, int64_t nodes, int64_t depth, double height,
                          weft_buf *out)
{
    const weft_switch *s = c->switches.item;
    char inside[32], between[32];
    weft_xml_escape(out, c->name);
    weft_buf_printf(out, ": %" PRId64 " node%s x %" PRId64 " ", c->nodes, c->nodes > 1 ? "s" : "",
                    c->devices);
    weft_xml_escape(out, c->device.type);
    weft_buf_printf(out, "</text>\n<text x=\"20\" y=\"%g\" fill=\"#555\">inside a node %s",
                    height - 6, weft_cluster_rate_text(c->link.bandwidth, inside));
    if (c->nics.count)
        weft_buf_printf(
            out, ", NIC %s",
            weft_cluster_rate_text(((const weft_nic *)c->nics.item)->bandwidth, between));
    if (depth > 0) /* lowest switches */
        for (int64_t i = 0; i < c->switches.count; i++)
            if (s[i].depth == depth) {
                weft_buf_printf(out, ", up from a leaf %s",
                                weft_cluster_rate_text(s[i].bandwidth, between));
                break;
            }
    if (nodes < c->nodes)
        weft_buf_printf(out, "; %" PRId64 " more nodes", c->nodes - nodes);
    weft_buf_printf(out, "</text>\n");
}

/* Draws node n: each device is connected to its NIC and to the node's switch. */
static void draw_node(const weft_cluster *c, int64_t n, double node_width, double nic_y,
                      weft_buf *out)
{
    const double left = 20 + node_width * (double)n;
    char text[64];
    snprintf(text, sizeof text, "node %" PRId64, n);
    weft_buf_printf(out,
                    "<rect x=\"%g\" y=\"%g\" width=\"%g\" height=\"130\" rx=\"6\" "
                    "fill=\"none\" stroke=\"#aaa\"/>\n",
                    left, nic_y - 20, node_width - 10);
    for (int64_t d = 0; d < c->devices; d++) {
        const double x = left + 15 + COLUMN * ((double)d + 0.5);
        const int64_t near = weft_cluster_device_nic(c, d);
        if (near >= 0)
            weft_buf_printf(out,
                            "<line x1=\"%g\" y1=\"%g\" x2=\"%g\" y2=\"%g\" stroke=\"#bbb\"/>\n", x,
                            nic_y + 50, left + 15 + COLUMN * ((double)near + 0.5), nic_y);
        weft_buf_printf(out, "<line x1=\"%g\" y1=\"%g\" x2=\"%g\" y2=\"%g\" stroke=\"#7a7\"/>\n", x,
                        nic_y + 50, left + node_width / 2 - 5, nic_y + 90);
    }
    for (int64_t i = 0; i < c->nics.count; i++) {
        char name[24];
        snprintf(name, sizeof name, "nic%" PRId64, i);
        box(out, left + 16 + COLUMN * (double)i, nic_y - 9, COLUMN - 4, 18, "#d8e6ff", name);
    }
    for (int64_t d = 0; d < c->devices; d++) {
        char name[24];
        snprintf(name, sizeof name, "%" PRId64, n * c->devices + d);
        box(out, left + 16 + COLUMN * (double)d, nic_y + 40, COLUMN - 4, 20, "#d9f0d9", name);
    }
    box(out, left + node_width / 2 - 45, nic_y + 82, 80, 20, "#eee", text);
}

weft_status weft_cluster_draw(const weft_cluster *c, const char *path)
{
    const int64_t nodes = c->nodes < MOST_NODES ? c->nodes : MOST_NODES;
    const int64_t columns = c->devices > c->nics.count ? c->devices : c->nics.count;
    const weft_switch *s = c->switches.item;
    int64_t depth = 0;
    for (int64_t i = 0; i < c->switches.count; i++)
        depth = s[i].depth > depth ? s[i].depth : depth;
    const double node_width = fmax(COLUMN * (double)columns + 40, 130),
                 width = fmax(node_width * (double)nodes + 40, 420);
    const double nic_y = 50 + 60 * (double)(depth + 1) + 20, height = nic_y + 145;
    weft_buf out = {0};
    weft_buf_printf(&out,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" "
                    "font-family=\"sans-serif\" "
                    "font-size=\"10\">\n<rect width=\"100%%\" height=\"100%%\" "
                    "fill=\"white\"/>\n<text x=\"20\" y=\"22\" "
                    "font-size=\"14\">",
                    width, height);
    draw_captions(c, nodes, depth, height, &out);
    draw_network(c, nodes, node_width, width, depth, &out);
    for (int64_t n = 0; n < nodes; n++)
        draw_node(c, n, node_width, nic_y, &out);
    weft_buf_printf(&out, "</svg>\n");
    return weft_file_write_buf(path, &out);
}

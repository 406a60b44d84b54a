/* weft topology: a cluster as text and drawing. */
#include "base/fs.h"
#include "cli/verb.h"
#include "format/svg.h"
#include "plan/cluster/cluster.h"

#include <math.h>
#include <stdio.h>

static const weft_option options[] = {
    {"--svg", "FILE.svg", NULL, "draw it"},
    {"--yaml", NULL, NULL, "print it as a cluster file, to start one's own from"},
    {"--presets", NULL, NULL, "list the presets"},
};

static const char *rate(double bytes_per_second, char text[32])
{
    if (!isfinite(bytes_per_second))
        snprintf(text, 32, "-");
    else
        snprintf(text, 32, "%.4g GB/s", bytes_per_second / 1e9);
    return text;
}

/* What a message from device 0 meets: the narrowest link and the latency. */
static void print_way(const weft_cluster *c, const char *name, int64_t to)
{
    weft_path path;
    weft_cluster_path(c, 0, to, &path);
    double narrow = INFINITY;
    for (int32_t i = 0; i < path.count; i++)
        narrow = fmin(narrow, weft_cluster_link_bandwidth(c, path.link[i]));
    char text[32];
    printf("  device 0 -> %-6lld %-22s %12s  %6.2f us  over", (long long)to, name,
           rate(narrow, text), 1e6 * path.latency);
    for (int32_t i = 0; i < path.count; i++) {
        char link[64];
        weft_cluster_link_name(c, path.link[i], link);
        printf("%s %s", i ? "," : "", link);
    }
    printf("\n");
}

static void print_cluster(const weft_cluster *c)
{
    const weft_device_type *d = &c->device;
    const weft_nic *nic = c->nics.item;
    const weft_switch *s = c->switches.item;
    char a[32], b[32], id[20];
    weft_cluster_id(c, id);
    printf("%s: %lld node%s x %lld %s = %lld devices  (id %s)\n", c->name, (long long)c->nodes,
           c->nodes > 1 ? "s" : "", (long long)c->devices, d->type,
           (long long)weft_cluster_devices(c), id);
    printf("device: %s, %.4g TFLOP/s, memory %s\n", weft_format_bytes(d->memory, a),
           d->flops / 1e12, rate(d->memory_bandwidth, b));
    printf("  achieved: products %.2f, attention %.2f, convolutions %.2f of the FLOP/s, %.2f of "
           "the memory\n",
           d->gemm, d->attention, d->conv, d->memory_fraction);
    printf("inside a node: %s, %.3g us; host: %s\n", rate(c->link.bandwidth, a),
           1e6 * c->link.latency, rate(c->host.bandwidth, b));
    for (int64_t i = 0; i < c->nics.count; i++) {
        printf("nic %lld: %s, %.3g us, on %s", (long long)i, rate(nic[i].bandwidth, a),
               1e6 * nic[i].latency, nic[i].switch_name);
        for (int64_t k = 0; k < nic[i].distance.count; k++)
            printf("%s%lld", k ? " " : "; hops from devices ", (long long)nic[i].distance.item[k]);
        printf("\n");
    }
    for (int64_t i = 0; i < c->switches.count; i++) {
        printf("%*sswitch %s", (int)(2 * s[i].depth), "", s[i].name);
        if (s[i].parent >= 0)
            printf(" -> %s, %s, %.3g us", s[i].up, rate(s[i].bandwidth, a), 1e6 * s[i].latency);
        printf("\n");
    }
    printf("ways:\n");
    if (c->devices > 1)
        print_way(c, "same node", 1);
    if (c->nodes > 1) {
        print_way(c, "next node, same place", c->devices);
        if (c->devices > 1)
            print_way(c, "next node, next place", c->devices + 1);
    }
}

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

/* Switches above by depth, NICs and devices of the first nodes below. */
static void draw_network(const weft_cluster *c, int64_t nodes, double node_width, double width,
                         int64_t depth, weft_buf *out)
{
    const weft_nic *nic = c->nics.item;
    const weft_switch *s = c->switches.item;
    double at[256] = {0}, level[256] = {0};
    const int64_t count = c->switches.count < 256 ? c->switches.count : 256;
    for (int64_t d = 0; d <= depth; d++) {
        int64_t here = 0, k = 0;
        for (int64_t i = 0; i < count; i++)
            here += s[i].depth == d;
        for (int64_t i = 0; i < count; i++)
            if (s[i].depth == d) {
                at[i] = 20 + (width - 40) * ((double)k++ + 0.5) / (double)here;
                level[i] = 50 + 60 * (double)d;
            }
    }
    for (int64_t i = 0; i < count; i++)
        if (s[i].parent >= 0)
            weft_buf_printf(out,
                            "<line x1=\"%g\" y1=\"%g\" x2=\"%g\" y2=\"%g\" stroke=\"#999\"/>\n",
                            at[i], level[i], at[s[i].parent], level[s[i].parent]);
    const double nic_y = 50 + 60 * (double)(depth + 1) + 20;
    for (int64_t n = 0; n < nodes; n++)
        for (int64_t i = 0; i < c->nics.count; i++) {
            const double x = 20 + node_width * (double)n + 15 + COLUMN * ((double)i + 0.5);
            if (nic[i].leaf < count)
                weft_buf_printf(out,
                                "<line x1=\"%g\" y1=\"%g\" x2=\"%g\" y2=\"%g\" "
                                "stroke=\"hsl(%d,60%%,60%%)\"/>\n",
                                x, nic_y, at[nic[i].leaf], level[nic[i].leaf],
                                (int)(nic[i].leaf * 47 % 360));
        }
    for (int64_t i = 0; i < count; i++)
        box(out, at[i] - 32, level[i] - 11, 64, 22, "#ffe9b8", s[i].name);
}

static weft_status draw(const weft_cluster *c, const char *path)
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
    weft_xml_escape(&out, c->name);
    weft_buf_printf(&out, ": %lld node%s x %lld ", (long long)c->nodes, c->nodes > 1 ? "s" : "",
                    (long long)c->devices);
    weft_xml_escape(&out, c->device.type);
    char inside[32], between[32];
    weft_buf_printf(&out, "</text>\n<text x=\"20\" y=\"%g\" fill=\"#555\">inside a node %s",
                    height - 6, rate(c->link.bandwidth, inside));
    if (c->nics.count)
        weft_buf_printf(&out, ", NIC %s",
                        rate(((const weft_nic *)c->nics.item)->bandwidth, between));
    if (depth > 0) /* of the lowest switches */
        for (int64_t i = 0; i < c->switches.count; i++)
            if (s[i].depth == depth) {
                weft_buf_printf(&out, ", up from a leaf %s", rate(s[i].bandwidth, between));
                break;
            }
    if (nodes < c->nodes)
        weft_buf_printf(&out, "; %lld more nodes", (long long)(c->nodes - nodes));
    weft_buf_printf(&out, "</text>\n");
    draw_network(c, nodes, node_width, width, depth, &out);
    for (int64_t n = 0; n < nodes; n++) {
        const double left = 20 + node_width * (double)n;
        char text[64];
        snprintf(text, sizeof text, "node %lld", (long long)n);
        weft_buf_printf(&out,
                        "<rect x=\"%g\" y=\"%g\" width=\"%g\" height=\"130\" rx=\"6\" "
                        "fill=\"none\" stroke=\"#aaa\"/>\n",
                        left, nic_y - 20, node_width - 10);
        for (int64_t d = 0; d < c->devices;
             d++) { /* device to its NIC, then to the node's switch */
            const double x = left + 15 + COLUMN * ((double)d + 0.5);
            const int64_t near = weft_cluster_device_nic(c, d);
            if (near >= 0)
                weft_buf_printf(&out,
                                "<line x1=\"%g\" y1=\"%g\" x2=\"%g\" y2=\"%g\" stroke=\"#bbb\"/>\n",
                                x, nic_y + 50, left + 15 + COLUMN * ((double)near + 0.5), nic_y);
            weft_buf_printf(&out,
                            "<line x1=\"%g\" y1=\"%g\" x2=\"%g\" y2=\"%g\" stroke=\"#7a7\"/>\n", x,
                            nic_y + 50, left + node_width / 2 - 5, nic_y + 90);
        }
        for (int64_t i = 0; i < c->nics.count; i++) {
            char name[24];
            snprintf(name, sizeof name, "nic%lld", (long long)i);
            box(&out, left + 16 + COLUMN * (double)i, nic_y - 9, COLUMN - 4, 18, "#d8e6ff", name);
        }
        for (int64_t d = 0; d < c->devices; d++) {
            char name[24];
            snprintf(name, sizeof name, "%lld", (long long)(n * c->devices + d));
            box(&out, left + 16 + COLUMN * (double)d, nic_y + 40, COLUMN - 4, 20, "#d9f0d9", name);
        }
        box(&out, left + node_width / 2 - 45, nic_y + 82, 80, 20, "#eee", text);
    }
    weft_buf_printf(&out, "</svg>\n");
    weft_status_code status = weft_buf_check(&out);
    if (status == WEFT_OK)
        status = weft_file_write_atomic(path, out.data, out.len);
    weft_buf_free(&out);
    return status;
}

static weft_status run_topology(const weft_args *args)
{
    int count;
    const char *const *words = weft_args_positional(args, &count);
    if (weft_args_flag(args, "--presets")) {
        const weft_cluster_preset *presets = weft_cluster_presets(&count);
        for (int i = 0; i < count; i++)
            printf("%-12s %s\n", presets[i].name, presets[i].help);
        return WEFT_OK;
    }
    weft_arena *arena = weft_arena_create();
    weft_cluster cluster;
    weft_status_code status = arena ? weft_cluster_load(arena, count ? words[0] : "local", &cluster)
                                    : weft_fail(WEFT_E_MEMORY, "out of memory");
    if (status == WEFT_OK && weft_args_flag(args, "--yaml")) {
        weft_buf text = {0};
        weft_config_dump(&weft_cluster_section, &cluster, &text);
        status = weft_buf_check(&text);
        if (status == WEFT_OK)
            fputs(text.data, stdout);
        weft_buf_free(&text);
    } else if (status == WEFT_OK) {
        print_cluster(&cluster);
    }
    const char *svg = weft_args_string(args, "--svg");
    if (status == WEFT_OK && svg)
        status = draw(&cluster, svg);
    weft_arena_free(arena);
    return status;
}

const weft_verb weft_verb_topology = {
    .name = "topology",
    .summary = "print and draw a cluster: devices, NICs, rails, switches, ways between them",
    .usage = "[SPEC] [options]",
    .details = "SPEC is a preset (h100, h200, a100, v100, ascend910a, local), a preset with a "
               "number of nodes "
               "(h100:4), or a YAML file; without it, this machine as hwloc sees it. A file has "
               "`nodes`, `devices`, a "
               "`device` with its rates, `link` and `host`, `nics` that hang on `switches`, and "
               "switches with their "
               "uplinks; --yaml prints a preset in this form.\n\n"
               "What is missing is said: a switch that is not there, uplinks in a cycle, nodes "
               "that no way joins.",
    .examples = "weft topology h100:2 --svg h100.svg\nweft topology h100 --yaml > mine.yaml\n",
    .options = options,
    .option_count = WEFT_COUNT(options),
    .max_positional = 1,
    .run = run_topology,
};

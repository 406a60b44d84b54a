#include "plan/ops/rates.h"

#include "base/id_hash.h"
#include "graph/dump.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Number of timed nodes that estimate an untimed one. */
enum { NEIGHBOURS = 4 };

static int put_value(const weft_graph *g, weft_value v, bool wide, char *text, int size)
{
    if (!weft_value_ok(v))
        return snprintf(text, (size_t)size, " -");
    const weft_value_info *info = weft_value_get(g, v);
    const weft_dtype dtype = wide && info->dtype == WEFT_BF16 ? WEFT_F32 : info->dtype;
    int at = snprintf(text, (size_t)size, " %s[", weft_dtype_name(dtype));
    for (int d = 0; d < info->shape.rank && at < size; d++)
        at += snprintf(text + at, (size_t)(size - at), d ? ",%" PRId64 : "%" PRId64,
                       info->shape.dim[d]);
    return at < size ? at + snprintf(text + at, (size_t)(size - at), "]") : at;
}

static void put_key(const weft_graph *g, int32_t index, bool wide, char text[WEFT_RATE_KEY])
{
    const weft_node *node = weft_graph_node(g, index);
    int at = snprintf(text, WEFT_RATE_KEY, "%s", weft_op_get(node->op)->name);
    if (node->op == WEFT_OP_MATMUL) {
        const weft_attr_matmul *a = node->attr;
        at += snprintf(text + at, (size_t)(WEFT_RATE_KEY - at), "%s%s", a->trans_a ? ".ta" : "",
                       a->trans_b ? ".tb" : "");
    }
    for (int i = 0; i < node->in_count && at < WEFT_RATE_KEY; i++)
        at += put_value(g, node->in[i], wide, text + at, WEFT_RATE_KEY - at);
    if (at < WEFT_RATE_KEY)
        at += snprintf(text + at, (size_t)(WEFT_RATE_KEY - at), " ->");
    for (int i = 0; i < node->out_count && at < WEFT_RATE_KEY; i++)
        at += put_value(g, node->out[i], wide, text + at, WEFT_RATE_KEY - at);
}

void weft_rate_key(const weft_graph *g, int32_t node, char text[WEFT_RATE_KEY])
{
    put_key(g, node, false, text);
}

/* Bytes of a value that bf16 saves. */
static int64_t saved_bytes(const weft_graph *g, weft_value v)
{
    const weft_value_info *info = weft_value_ok(v) ? weft_value_get(g, v) : NULL;
    return info && info->dtype == WEFT_BF16 ? 2 * weft_shape_count(&info->shape) : 0;
}

int64_t weft_rate_key_f32(const weft_graph *g, int32_t index, char text[WEFT_RATE_KEY])
{
    const weft_node *node = weft_graph_node(g, index);
    int64_t bytes = weft_node_cost(g, index).bytes;
    put_key(g, index, true, text);
    for (int i = 0; i < node->in_count; i++)
        bytes += saved_bytes(g, node->in[i]);
    for (int i = 0; i < node->out_count; i++)
        bytes += saved_bytes(g, node->out[i]);
    return bytes;
}

weft_work weft_node_work(const weft_node *node)
{
    return weft_op_get(node->op)->work;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const weft_rate *)a)->key, ((const weft_rate *)b)->key);
}

static weft_status range_error(const weft_rates *r, const char *where)
{
    const bool slowdown = !isfinite(r->slowdown) || r->slowdown < 0,
               ranks = !slowdown && r->ranks < 0;
    const double value = slowdown ? r->slowdown : ranks ? (double)r->ranks : r->touch;
    return weft_error(WEFT_MSG_FORMAT_DAMAGED,
                      WEFT_AT(.file = where,
                              .key = slowdown ? "drag"
                                     : ranks  ? "ranks"
                                              : "touch",
                              WEFT_NUMBER(value)),
                      "%g is not %s", value,
                      slowdown || ranks ? "a finite number of at least 0" : "from 0 to 1 s");
}

weft_status weft_rates_check(weft_rates *r, const char *where)
{
    char key[64];
    qsort(r->item, (size_t)r->count, sizeof *r->item, by_key);
    for (int64_t i = 0; i < r->count; i++) {
        const weft_rate *x = &r->item[i];
        if (!isfinite(x->seconds) || !(x->seconds > 0) || !isfinite(x->flops) || x->flops < 0 ||
            !isfinite(x->bytes) || x->bytes < 0)
            return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = where, .key = x->key),
                              "the rate is %g s, %g FLOPs, %g bytes; seconds must be above 0, the "
                              "others at least 0",
                              x->seconds, x->flops, x->bytes);
        if (i && !strcmp(x->key, x[-1].key))
            return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = where, .key = x->key),
                              "the profile has two rates of this name");
    }
    for (int64_t i = 0; i < r->wires; i++) {
        const weft_wire_rate *x = &r->wire[i];
        snprintf(key, sizeof key, "exchanges[%" PRId64 "]", i);
        if (!isfinite(x->seconds) || !(x->seconds > 0) || x->bytes < 1 || x->ranks < 2)
            return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = where, .key = key),
                              "%s of %" PRId64 " bytes on %" PRId64
                              " ranks in %g s: seconds must be above 0, "
                              "bytes at least 1, ranks at least 2",
                              x->op, x->bytes, x->ranks, x->seconds);
    }
    for (int64_t i = 0; i < r->programs; i++) {
        const weft_program_rate *x = &r->program[i];
        snprintf(key, sizeof key, "programs[%" PRId64 "]", i);
        if (!isfinite(x->seconds) || !(x->seconds > 0))
            return weft_error(WEFT_MSG_FORMAT_DAMAGED,
                              WEFT_AT(.file = where, .key = key, WEFT_NUMBER(x->seconds)),
                              "the program \"%s\" has %g s; seconds must be above 0", x->what,
                              x->seconds);
    }
    if (!isfinite(r->slowdown) || r->slowdown < 0 || r->ranks < 0 ||
        !(r->touch >= 0 && r->touch <= 1))
        return range_error(r, where);
    return WEFT_OK;
}

uint64_t weft_rates_program_id(const weft_graph *g)
{
    const weft_mesh *mesh = weft_graph_mesh(g);
    const uint64_t hash = weft_graph_hash(g);
    uint64_t id = weft_id_mix(WEFT_ID_BEGIN, &hash, sizeof hash);
    for (int a = 0; a < mesh->axis_count; a++)
        if (mesh->axis[a].size > 1)
            id = weft_id_mix(id, &mesh->axis[a].size, sizeof mesh->axis[a].size);
    return id;
}

const weft_program_rate *weft_rates_program(const weft_rates *r, const weft_graph *g)
{
    if (!r || !r->programs)
        return NULL;
    const uint64_t id = weft_rates_program_id(g);
    for (int64_t i = 0; i < r->programs; i++)
        if (r->program[i].id == id)
            return &r->program[i];
    return NULL;
}

/* Parsed key: the text without numbers, and all dims in order. */
typedef struct shape_key {
    char form[WEFT_RATE_KEY]; /* key with "#" for every number: op, types, ranks */
    double log_dim[WEFT_RATE_DIMS];
    int count;
} shape_key;

static void parse(const char *key, shape_key *out)
{
    char *to = out->form;
    bool inside = false;
    out->count = 0;
    for (const char *p = key; *p && to < out->form + WEFT_RATE_KEY - 1;) {
        inside = *p == '[' ? true : *p == ']' ? false : inside;
        if (inside && *p >= '0' && *p <= '9') {
            char *end;
            const double n = (double)strtoll(p, &end, 10);
            if (out->count < WEFT_RATE_DIMS)
                out->log_dim[out->count++] = log2(n > 1 ? n : 1);
            p = end;
            *to++ = '#';
        } else {
            *to++ = *p++;
        }
    }
    *to = 0;
}

typedef struct neighbour {
    double distance, ratio; /* ratio: estimated seconds of the untimed node */
} neighbour;

/* Work of a node divided by the work of the timed node `x`. */
static double work_ratio(const weft_rate *x, double flops, double bytes, bool by_flops)
{
    const double here = by_flops ? flops : bytes, there = by_flops ? x->flops : x->bytes;
    return there > 0 ? here / there : 1;
}

static bool same_op(const char *a, const char *b)
{
    const size_t n = strcspn(a, " ");
    return strcspn(b, " ") == n && !strncmp(a, b, n);
}

double weft_rates_seconds(const weft_rates *r, const char *key, double flops, double bytes,
                          bool *exact)
{
    const weft_rate *same =
        bsearch(&(weft_rate){.key = key}, r->item, (size_t)r->count, sizeof *r->item, by_key);
    *exact = same != NULL;
    if (same)
        return same->seconds;
    shape_key own, other;
    parse(key, &own);
    const bool by_flops = flops > 4 * bytes;
    neighbour near[NEIGHBOURS];
    int count = 0;
    double least = INFINITY; /* fewest seconds of the op: lower bound of a call */
    for (int64_t i = 0; i < r->count; i++) {
        const weft_rate *x = &r->item[i];
        if (!same_op(x->key, key))
            continue;
        least = fmin(least, x->seconds);
        parse(x->key, &other);
        double distance = strcmp(own.form, other.form) ? 8 : 0;
        if (distance > 0) /* other ranks or types: only the work is comparable */
            distance += fabs(log2((bytes + 1) / (x->bytes + 1)));
        for (int d = 0; distance < 8 && d < own.count && d < other.count; d++)
            distance += fabs(own.log_dim[d] - other.log_dim[d]);
        const neighbour made = {distance, x->seconds * work_ratio(x, flops, bytes, by_flops)};
        int at = count < NEIGHBOURS ? count++ : NEIGHBOURS;
        for (; at > 0 && near[at - 1].distance > made.distance; at--)
            if (at < NEIGHBOURS)
                near[at] = near[at - 1];
        if (at < NEIGHBOURS)
            near[at] = made;
    }
    if (!count)
        return NAN;
    double sum = 0, weights = 0;
    for (int k = 0; k < count; k++) {
        const double w = 1 / ((near[k].distance + 0.05) * (near[k].distance + 0.05));
        sum += w * log(near[k].ratio > 0 ? near[k].ratio : least);
        weights += w;
    }
    return fmax(exp(sum / weights), 0.5 * least);
}

bool weft_rates_has_bf16(const weft_rates *r, const char *key)
{
    for (int64_t i = 0; i < r->count; i++) {
        const char *timed = r->item[i].key;
        if (same_op(timed, key) && !strncmp(timed + strcspn(timed, " "), " bf16[", 6))
            return true;
    }
    return false;
}

double weft_rates_wire_seconds(const weft_rates *r, const char *op, int64_t ranks, double bytes)
{
    const weft_wire_rate *below = NULL, *above = NULL;
    for (int64_t i = 0; i < r->wires && !above; i++) {
        const weft_wire_rate *x = &r->wire[i];
        if (x->ranks != ranks || strcmp(x->op, op) != 0)
            continue;
        if ((double)x->bytes <= bytes)
            below = x;
        else
            above = x;
    }
    if (!below && !above)
        return NAN;
    if (!below)
        return above->seconds;
    if (!above) /* scaled by bytes: latency is negligible */
        return below->seconds * bytes / (double)below->bytes;
    const double at = (bytes - (double)below->bytes) / (double)(above->bytes - below->bytes);
    return below->seconds + at * (above->seconds - below->seconds);
}

void weft_rates_format_basis(const weft_rates *rates, double exact, const char *measure,
                             weft_buf *out)
{
    if (!rates)
        weft_buf_printf(out, "; by this cluster's figures: no profile of weft's own kernels");
    else if (exact < 0.5)
        weft_buf_printf(out,
                        "; the profile has %.0f %% of the best one's kernel time at its shapes, "
                        "and estimates the rest by other shapes: %s is nearer",
                        100 * exact, measure);
}

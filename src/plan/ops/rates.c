#include "plan/cost/rates.h"

#include "plan/id_hash.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How many timed nodes share in the estimate of one that was not. */
enum { NEIGHBOURS = 4 };

static int put_value(const weft_graph *g, weft_value v, char *text, int room)
{
    if (!weft_value_ok(v))
        return snprintf(text, (size_t)room, " -");
    const weft_value_info *info = weft_value_get(g, v);
    int at = snprintf(text, (size_t)room, " %s[", weft_dtype_name(info->dtype));
    for (int d = 0; d < info->shape.rank && at < room; d++)
        at += snprintf(text + at, (size_t)(room - at), d ? ",%lld" : "%lld",
                       (long long)info->shape.dim[d]);
    return at < room ? at + snprintf(text + at, (size_t)(room - at), "]") : at;
}

void weft_rate_key(const weft_graph *g, int32_t index, char text[WEFT_RATE_KEY])
{
    const weft_node *node = weft_graph_node(g, index);
    int at = snprintf(text, WEFT_RATE_KEY, "%s", weft_op_get(node->op)->name);
    if (node->op == WEFT_OP_MATMUL) {
        const weft_attr_matmul *a = node->attr;
        at += snprintf(text + at, (size_t)(WEFT_RATE_KEY - at), "%s%s", a->trans_a ? ".ta" : "",
                       a->trans_b ? ".tb" : "");
    }
    for (int i = 0; i < node->in_count && at < WEFT_RATE_KEY; i++)
        at += put_value(g, node->in[i], text + at, WEFT_RATE_KEY - at);
    if (at < WEFT_RATE_KEY)
        at += snprintf(text + at, (size_t)(WEFT_RATE_KEY - at), " ->");
    for (int i = 0; i < node->out_count && at < WEFT_RATE_KEY; i++)
        at += put_value(g, node->out[i], text + at, WEFT_RATE_KEY - at);
}

weft_work weft_node_work(const weft_node *node)
{
    switch (node->op) {
    case WEFT_OP_MATMUL:
    case WEFT_OP_LINEAR: return WEFT_WORK_GEMM;
    case WEFT_OP_ATTENTION:
    case WEFT_OP_ATTENTION_GRAD: return WEFT_WORK_ATTENTION;
    case WEFT_OP_CONV3D:
    case WEFT_OP_CONV3D_DX:
    case WEFT_OP_CONV3D_DW: return WEFT_WORK_CONV;
    default: return WEFT_WORK_MEMORY;
    }
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const weft_rate *)a)->key, ((const weft_rate *)b)->key);
}

weft_status weft_rates_check(weft_rates *r, const char *where)
{
    qsort(r->item, (size_t)r->count, sizeof *r->item, by_key);
    for (int64_t i = 0; i < r->count; i++) {
        const weft_rate *x = &r->item[i];
        if (!isfinite(x->seconds) || !(x->seconds > 0) || !isfinite(x->flops) || x->flops < 0 ||
            !isfinite(x->bytes) || x->bytes < 0)
            return weft_fail(WEFT_E_FORMAT,
                             "%s: the rate of \"%s\" is %g s, %g FLOPs, %g bytes; seconds must be "
                             "over 0, the others not negative",
                             where, x->key, x->seconds, x->flops, x->bytes);
        if (i && !strcmp(x->key, x[-1].key))
            return weft_fail(WEFT_E_FORMAT, "%s: \"%s\" was measured twice", where, x->key);
    }
    for (int64_t i = 0; i < r->wires; i++) {
        const weft_wire_rate *x = &r->wire[i];
        if (!isfinite(x->seconds) || !(x->seconds > 0) || x->bytes < 1 || x->ranks < 2)
            return weft_fail(WEFT_E_FORMAT,
                             "%s: %s of %lld bytes among %lld ranks in %g s; seconds must be over "
                             "0, ranks two or more",
                             where, x->op, (long long)x->bytes, (long long)x->ranks, x->seconds);
    }
    for (int64_t i = 0; i < r->programs; i++) {
        const weft_program_rate *x = &r->program[i];
        if (!isfinite(x->seconds) || !(x->seconds > 0))
            return weft_fail(WEFT_E_FORMAT,
                             "%s: the program \"%s\" in %g s; seconds must be over 0", where,
                             x->what, x->seconds);
    }
    if (!isfinite(r->drag) || r->drag < 0 || r->ranks < 0 || !(r->touch >= 0 && r->touch <= 1))
        return weft_fail(WEFT_E_FORMAT,
                         "%s: a drag of %g, %lld ranks, %g s for a byte's first use, which cannot "
                         "be",
                         where, r->drag, (long long)r->ranks, r->touch);
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

/* The letters of a key up to its shapes, and all its dims in order. */
typedef struct shape_key {
    char form[WEFT_RATE_KEY]; /* the key with "#" for every number: op, types, ranks */
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
    double distance, ratio; /* seconds per unit of work, here over there */
} neighbour;

/* Seconds grow with the work, but never below what starting a kernel takes. */
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
    double least = INFINITY; /* of the op: what a call takes at least */
    for (int64_t i = 0; i < r->count; i++) {
        const weft_rate *x = &r->item[i];
        if (!same_op(x->key, key))
            continue;
        least = fmin(least, x->seconds);
        parse(x->key, &other);
        double distance = strcmp(own.form, other.form) ? 8 : 0;
        if (distance > 0) /* other ranks or types: only the work can be compared */
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
    if (!above) /* by its bytes: what a message takes is long lost in it */
        return below->seconds * bytes / (double)below->bytes;
    const double at = (bytes - (double)below->bytes) / (double)(above->bytes - below->bytes);
    return below->seconds + at * (above->seconds - below->seconds);
}

void weft_rates_tell_basis(const weft_rates *rates, double exact, const char *measure,
                           weft_buf *out)
{
    if (!rates)
        weft_buf_printf(out, "; by this cluster's figures: no profile of weft's own kernels");
    else if (exact < 0.5)
        weft_buf_printf(out,
                        "; the profile has %.0f %% of the best one's kernel time at its shapes, "
                        "and tells the rest by other shapes: %s is nearer",
                        100 * exact, measure);
}

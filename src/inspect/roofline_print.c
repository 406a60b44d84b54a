#include "inspect/roofline_print.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>

static const char *const parts[] = {"source", "forward", "backward", "update"};

static double share(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static double necessary(const weft_roofline *r)
{
    return r->sum.bytes - r->sum.redundant;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void print_row(const weft_roofline_row *r, double total)
{
    char least[32], stated[32], occupancy[16] = "-";
    if (r->occupancy >= 0)
        snprintf(occupancy, sizeof occupancy, "%d", r->occupancy);
    if (r->exchange)
        printf("%-8s %6.0f %10s %10.3e %9s %9s %5s %-6s %4s  %s %s\n", parts[r->part], r->launches,
               "", r->sent, "", "", "", "links", "", r->kernels, r->key);
    else
        printf("%-8s %6.0f %10.3e %10.3e %9s %9s %5.1f %-6s %4s  %s %s\n", parts[r->part],
               r->launches, r->flops, r->bytes, weft_format_seconds(r->least, least),
               weft_format_seconds(r->stated, stated), 100 * share(r->stated, total), r->limit,
               occupancy, r->kernels, r->key);
}

static void print_time(const char *what, const weft_roofline *r, const weft_roofline_time *t,
                       double peak)
{
    char all[32], busy[32], exposed[32];
    printf("  %-10s %9s a step, %.1f %% of peak by all FLOPs", what,
           weft_format_seconds(t->seconds, all), 100 * share(r->sum.flops, t->seconds * peak));
    if (r->model_flops > 0)
        printf(", %.1f %% by the model's", 100 * share(r->model_flops, t->seconds * peak));
    if (r->exchanges)
        printf("; exchanges %s, exposed %s", weft_format_seconds(t->busy, busy),
               weft_format_seconds(t->exposed, exposed));
    printf("\n");
}

static void print_program(const weft_roofline_list *list, const weft_roofline *r)
{
    const double peak = list->cluster.device.flops;
    printf("%s\n", r->title);
    printf("%-8s %6s %10s %10s %9s %9s %5s %-6s %4s  %s\n", "part", "launch", "FLOPs", "bytes",
           "least", "stated", "%", "limit", "occ.", "kernels, op and shapes");
    for (int64_t i = 0; i < r->count; i++)
        print_row(&r->row[i], r->sum.stated);
    printf(
        "  launches   %.0f kernels and copies: forward %.0f, backward %.0f, update %.0f; %" PRId64
        " exchanges\n",
        r->sum.launches, r->part[WEFT_GRAPH_SOURCE] + r->part[WEFT_GRAPH_FORWARD],
        r->part[WEFT_GRAPH_BACKWARD], r->part[WEFT_GRAPH_UPDATE], r->exchanges);
    printf("  FLOPs      %.4g\n", r->sum.flops);
    printf("  bytes      %.4g, of which redundant %.4g: %.1f %% beyond the necessary bytes\n",
           r->sum.bytes, r->sum.redundant, 100 * share(r->sum.redundant, necessary(r)));
    if (r->exchanges)
        printf("  sent       %.4g bytes\n", r->sent);
    print_time("least", r, &r->least, peak);
    print_time("stated", r, &r->stated, peak);
    if (list->measured.source)
        print_time("measured", r, &r->measured, peak);
}

static void print_gpu(const weft_roofline_list *list)
{
    const weft_device_type *d = &list->cluster.device;
    printf("%s: %.4g FLOP/s of bf16, %.4g of f32, %.4g B/s, %.3g s a launch; stated fractions: "
           "products %.2f, attention %.2f, convolutions %.2f, memory %.2f\n",
           d->type, d->flops, list->f32_flops, d->memory_bandwidth, d->launch, d->gemm,
           d->attention, d->conv, d->memory_fraction);
    if (list->measured.source)
        printf(
            "measured fractions of bf16: products %.2f, attention %.2f, its gradient %.2f (%s)\n",
            list->measured.products, list->measured.attention, list->measured.attention_grad,
            list->measured.source);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *row_json(const weft_roofline_row *r)
{
    json_t *row =
        json_pack("{s:s, s:s, s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "key", r->key, "kernels",
                  r->kernels, "part", parts[r->part], "nodes", (json_int_t)r->nodes, "launches",
                  r->launches, "flops", r->flops, "bytes", r->bytes, "redundant_bytes",
                  r->redundant, "least_seconds", r->least, "stated_seconds", r->stated);
    if (r->exchange)
        json_object_set_new(row, "sent_bytes", json_real(r->sent));
    else
        json_object_set_new(row, "limit", json_string(r->limit));
    if (r->occupancy >= 0)
        json_object_set_new(row, "occupancy", json_integer(r->occupancy));
    return row;
}

static json_t *time_json(const weft_roofline *r, const weft_roofline_time *t, double peak)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "seconds", t->seconds, "kernel_seconds",
                     t->kernels, "exchange_seconds", t->busy, "exposed_seconds", t->exposed,
                     "share_of_peak", share(r->sum.flops, t->seconds * peak), "model_share_of_peak",
                     share(r->model_flops, t->seconds * peak));
}

static json_t *program_json(const weft_roofline_list *list, const weft_roofline *r)
{
    const double peak = list->cluster.device.flops;
    json_t *rows = json_array();
    for (int64_t i = 0; i < r->count && rows; i++)
        json_array_append_new(rows, row_json(&r->row[i]));
    json_t *measured = list->measured.source ? time_json(r, &r->measured, peak) : NULL;
    return json_pack("{s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:o*, s:o}",
                     "title", r->title, "launches", (json_int_t)llround(r->sum.launches),
                     "update_launches", (json_int_t)llround(r->part[WEFT_GRAPH_UPDATE]),
                     "exchanges", (json_int_t)r->exchanges, "flops", r->sum.flops, "model_flops",
                     r->model_flops, "bytes", r->sum.bytes, "redundant_bytes", r->sum.redundant,
                     "redundant_share", share(r->sum.redundant, necessary(r)), "sent_bytes",
                     r->sent, "least", time_json(r, &r->least, peak), "stated",
                     time_json(r, &r->stated, peak), "measured", measured, "rows", rows);
}

static weft_status print_json(const weft_roofline_list *list)
{
    const weft_device_type *d = &list->cluster.device;
    json_t *programs = json_array();
    for (int64_t i = 0; i < list->count && programs; i++)
        json_array_append_new(programs, program_json(list, list->item[i]));
    json_t *json =
        json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:s*, s:o}", "gpu", d->type,
                  "flops", d->flops, "f32_flops", list->f32_flops, "memory_bandwidth",
                  d->memory_bandwidth, "launch_seconds", d->launch, "gemm", d->gemm, "attention",
                  d->attention, "conv", d->conv, "memory_fraction", d->memory_fraction,
                  "measured_source", list->measured.source, "programs", programs);
    char *line = json ? weft_json_line(json) : NULL;
    json_decref(json);
    WEFT_TRY(WEFT_ALLOCATED(line, "the launches"));
    printf("%s\n", line);
    weft_free(line);
    return WEFT_OK;
}

weft_status weft_roofline_print(const weft_roofline_list *list, bool json)
{
    if (json)
        return print_json(list);
    print_gpu(list);
    for (int64_t i = 0; i < list->count; i++)
        print_program(list, list->item[i]);
    return WEFT_OK;
}

#include "plan/cluster/profile_file.h"

#include "base/hex.h"
#include "base/id_hash.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static json_t *json_of_programs(const weft_rates *rates)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < rates->programs; i++) {
        const weft_program_rate *r = &rates->program[i];
        char id[20];
        weft_hex_print(r->id, id);
        if (json_array_append_new(list, json_pack("{s:s,s:s,s:f}", "program", id, "what", r->what,
                                                  "seconds", r->seconds))) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

weft_status weft_profile_to_json(const weft_device_type *d, const weft_rates *rates, json_t *json)
{
    json_t *list = json_array(), *wires = json_array();
    bool ok = list && wires;
    for (int64_t i = 0; ok && i < rates->count; i++) {
        const weft_rate *r = &rates->item[i];
        ok = !json_array_append_new(list,
                                    json_pack("{s:s,s:f,s:f,s:f}", "node", r->key, "flops",
                                              r->flops, "bytes", r->bytes, "seconds", r->seconds));
    }
    for (int64_t i = 0; ok && i < rates->wires; i++) {
        const weft_wire_rate *w = &rates->wire[i];
        ok = !json_array_append_new(wires, json_pack("{s:s,s:I,s:I,s:f}", "op", w->op, "ranks",
                                                     (json_int_t)w->ranks, "bytes",
                                                     (json_int_t)w->bytes, "seconds", w->seconds));
    }
    json_t *head = json_pack(
        "{s:s,s:s,s:s,s:I,s:I,s:f,s:f,s:I,s:f,s:f,s:f,s:f,s:f}", "format", WEFT_PROFILE_FORMAT,
        "weft", WEFT_VERSION, "machine", d->type, "threads", (json_int_t)rates->threads, "ranks",
        (json_int_t)rates->ranks, "drag", rates->slowdown, "touch", rates->touch, "memory",
        (json_int_t)d->memory, "flops", d->flops, "gemm", d->gemm, "attention", d->attention,
        "conv", d->conv, "memory_bandwidth", d->memory_bandwidth);
    ok = ok && head && !json_object_update(json, head) && !json_object_set(json, "rates", list) &&
         !json_object_set(json, "exchanges", wires) &&
         !json_object_set_new(json, "programs", json_of_programs(rates));
    if (ok && d->bf16_flops > 0)
        ok = !json_object_set_new(json, "bf16",
                                  json_pack("{s:f,s:f,s:f,s:f}", "flops", d->bf16_flops, "gemm",
                                            d->bf16_gemm, "attention", d->bf16_attention, "conv",
                                            d->bf16_conv));
    json_decref(head);
    json_decref(wires);
    json_decref(list);
    return WEFT_ALLOCATED(ok, "the profile");
}

static weft_status read_rates(const json_t *list, const char *path, weft_arena *arena,
                              weft_rates *out)
{
    weft_rates r = {.count = (int64_t)json_array_size(list)};
    if (r.count < 1)
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = path, .key = "rates"),
                          "the list of measured rates is missing or empty");
    WEFT_TRY(WEFT_ARENA_NEW(arena, r.item, r.count, "%s", path));
    for (int64_t i = 0; i < r.count; i++) {
        char where[256];
        const char *key;
        snprintf(where, sizeof where, "%.200s: rates[%" PRId64 "]", path, i);
        const json_t *one = json_array_get(list, (size_t)i);
        WEFT_TRY(weft_json_get_string(one, "node", where, &key));
        WEFT_TRY(weft_json_get_f64(one, "flops", where, &r.item[i].flops));
        WEFT_TRY(weft_json_get_f64(one, "bytes", where, &r.item[i].bytes));
        WEFT_TRY(weft_json_get_f64(one, "seconds", where, &r.item[i].seconds));
        if (strlen(key) >= WEFT_RATE_KEY)
            return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = where, .key = "node"),
                              "the text has %zu bytes; at most %d are allowed", strlen(key),
                              WEFT_RATE_KEY - 1);
        r.item[i].key = weft_arena_strdup(arena, key);
        WEFT_TRY(WEFT_ALLOCATED(r.item[i].key, "%s", path));
    }
    *out = r;
    return WEFT_OK;
}

/* Reads an optional list. */
static weft_status get_list(const json_t *json, const char *key, const char *path,
                            const json_t **list)
{
    *list = json_object_get(json, key);
    return *list && !json_is_array(*list)
               ? weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.file = path, .key = key),
                            "this is not a list; write the profile again with `weft profile --out`")
               : WEFT_OK;
}

/* Reads "exchanges". Profiles of one process have none. */
static weft_status read_wires(const json_t *list, const char *path, weft_arena *arena,
                              weft_rates *r)
{
    const int64_t count = (int64_t)json_array_size(list);
    WEFT_TRY(WEFT_ARENA_NEW(arena, r->wire, count + 1, "%s", path));
    for (; r->wires < count; r->wires++) {
        char where[256];
        const char *op;
        weft_wire_rate *w = &r->wire[r->wires];
        snprintf(where, sizeof where, "%.200s: exchanges[%" PRId64 "]", path, r->wires);
        const json_t *one = json_array_get(list, (size_t)r->wires);
        WEFT_TRY(weft_json_get_string(one, "op", where, &op));
        WEFT_TRY(weft_json_get_i64(one, "ranks", where, &w->ranks));
        WEFT_TRY(weft_json_get_i64(one, "bytes", where, &w->bytes));
        WEFT_TRY(weft_json_get_f64(one, "seconds", where, &w->seconds));
        WEFT_TRY(WEFT_ALLOCATED((w->op = weft_arena_strdup(arena, op)), "%s", path));
    }
    return WEFT_OK;
}

/* Reads "programs". Only profiles of video models have programs. */
static weft_status read_programs(const json_t *list, const char *path, weft_arena *arena,
                                 weft_rates *r)
{
    const int64_t count = (int64_t)json_array_size(list);
    WEFT_TRY(WEFT_ARENA_NEW(arena, r->program, count + 1, "%s", path));
    for (; r->programs < count; r->programs++) {
        char where[256];
        const char *id, *what;
        weft_program_rate *x = &r->program[r->programs];
        snprintf(where, sizeof where, "%.200s: programs[%" PRId64 "]", path, r->programs);
        const json_t *one = json_array_get(list, (size_t)r->programs);
        WEFT_TRY(weft_json_get_string(one, "program", where, &id));
        WEFT_TRY(weft_json_get_string(one, "what", where, &what));
        WEFT_TRY(weft_json_get_f64(one, "seconds", where, &x->seconds));
        if (!weft_hex_parse(id, &x->id))
            return weft_error(WEFT_MSG_FORMAT_DAMAGED,
                              WEFT_AT(.file = where, .key = "program", .value = id),
                              "\"%.40s\" is not a hexadecimal number of 16 digits", id);
        WEFT_TRY(WEFT_ALLOCATED((x->what = weft_arena_strdup(arena, what)), "%s", path));
    }
    return WEFT_OK;
}

/* Reads "bf16". Profiles of older versions have no such rates. */
static weft_status read_bf16(const json_t *json, const char *path, weft_device_type *d)
{
    const json_t *rates = json_object_get(json, "bf16");
    const struct {
        const char *key;
        double *value;
    } figure[] = {{"flops", &d->bf16_flops},
                  {"gemm", &d->bf16_gemm},
                  {"attention", &d->bf16_attention},
                  {"conv", &d->bf16_conv}};
    char where[256];
    snprintf(where, sizeof where, "%.200s: bf16", path);
    for (int i = 0; rates && i < WEFT_COUNT(figure); i++) {
        WEFT_TRY(weft_json_get_f64(rates, figure[i].key, where, figure[i].value));
        if (!isfinite(*figure[i].value) || !(*figure[i].value > 0))
            return weft_error(
                WEFT_MSG_FORMAT_DAMAGED,
                WEFT_AT(.file = where, .key = figure[i].key, WEFT_NUMBER(*figure[i].value)),
                "%g is not a finite number above 0", *figure[i].value);
    }
    return WEFT_OK;
}

enum { MOST = 1 << 20 }; /* largest number of threads or ranks */

static weft_status read_profile(const json_t *json, const char *path, weft_arena *arena,
                                weft_cluster *out)
{
    const char *text;
    const json_t *list;
    double host;
    weft_cluster c = {.name = "profile", .nodes = 1, .devices = 1};
    weft_device_type *d = &c.device;
    weft_rates *rates;
    WEFT_TRY(WEFT_ARENA_NEW(arena, rates, 1, "%s", path));
    WEFT_TRY(weft_json_get_string_or(json, "format", path, "", &text));
    if (strcmp(text, WEFT_PROFILE_FORMAT))
        return weft_error(WEFT_MSG_FORMAT_DAMAGED,
                          WEFT_AT(.file = path, .key = "format", .value = text),
                          "the format is \"%.40s\", not \"" WEFT_PROFILE_FORMAT
                          "\"; write a profile with `weft profile --out`",
                          text);
    WEFT_TRY(weft_json_get_string(json, "machine", path, &text));
    d->type = weft_arena_strdup(arena, text);
    WEFT_TRY(weft_json_get_i64(json, "memory", path, &d->memory));
    WEFT_TRY(weft_json_get_f64(json, "flops", path, &d->flops));
    WEFT_TRY(weft_json_get_f64(json, "gemm", path, &d->gemm));
    WEFT_TRY(weft_json_get_f64(json, "attention", path, &d->attention));
    WEFT_TRY(weft_json_get_f64(json, "conv", path, &d->conv));
    WEFT_TRY(weft_json_get_f64(json, "memory_bandwidth", path, &d->memory_bandwidth));
    WEFT_TRY(read_bf16(json, path, d));
    d->launch = WEFT_DEVICE_LAUNCH; /* measured kernels include their launch */
    WEFT_TRY(read_rates(json_object_get(json, "rates"), path, arena, rates));
    WEFT_TRY(weft_json_get_i64(json, "threads", path, &rates->threads));
    WEFT_TRY(weft_json_get_i64_or(json, "ranks", path, 1, &rates->ranks));
    WEFT_TRY(weft_json_get_f64_or(json, "drag", path, 0, &rates->slowdown));
    WEFT_TRY(weft_json_get_f64_or(json, "touch", path, 0, &rates->touch));
    const bool threads_ok = rates->threads >= 1 && rates->threads <= MOST;
    if (!threads_ok || rates->ranks < 1 || rates->ranks > MOST)
        return weft_error(WEFT_MSG_FORMAT_DAMAGED,
                          WEFT_AT(.file = path, .key = threads_ok ? "ranks" : "threads",
                                  WEFT_NUMBER(threads_ok ? rates->ranks : rates->threads)),
                          "%" PRId64 " is not from 1 to %d",
                          threads_ok ? rates->ranks : rates->threads, MOST);
    WEFT_TRY(get_list(json, "exchanges", path, &list));
    WEFT_TRY(read_wires(list, path, arena, rates));
    WEFT_TRY(get_list(json, "programs", path, &list));
    WEFT_TRY(read_programs(list, path, arena, rates));
    WEFT_TRY(weft_rates_check(rates, path));
    d->memory_fraction = 1;
    d->rates = rates;
    /* one device sends nothing; processes of one machine copy memory */
    WEFT_TRY(weft_json_get_f64_or(json, "host_bandwidth", path, d->memory_bandwidth / 2, &host));
    c.link = c.host = (weft_link){.bandwidth = host, .latency = 1e-6};
    *out = c;
    return WEFT_OK;
}

weft_status weft_profile_load(weft_arena *arena, const char *path, weft_cluster *out)
{
    json_t *json;
    WEFT_TRY(weft_json_load(path, &json));
    const weft_status_code status = read_profile(json, path, arena, out);
    json_decref(json);
    return status;
}

#include "plan/cascade/cascade_json.h"

#include "base/config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static weft_status no_memory(const char *name)
{
    return weft_no_memory("%s", name);
}

static int by_degree(const void *a, const void *b)
{
    const weft_cascade_option *x = a, *y = b;
    return (x->degree > y->degree) - (x->degree < y->degree);
}

static weft_status read_degrees(const json_t *degrees, const char *where, weft_arena *arena,
                                weft_cascade *out)
{
    if (!json_is_object(degrees) || json_object_size(degrees) == 0)
        return weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = where, .key = "degrees"),
                          "expected an object with at least one degree, such as {\"1\": "
                          "{\"seconds\": 4.0, \"bytes\": 2e9}}");
    WEFT_TRY(WEFT_ARENA_NEW(arena, out->option, (int64_t)json_object_size(degrees), "%s", where));
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)degrees, key, value)
    {
        char *end;
        errno = 0;
        const int64_t degree = strtoll(key, &end, 10);
        if (*end || end == key || errno || degree < 1 || degree > 1 << 20)
            return weft_error(WEFT_MSG_JSON_VALUE,
                              WEFT_AT(.file = where, .key = "degrees", .value = key),
                              "the degree \"%.40s\" is not an integer from 1 to %d", key, 1 << 20);
        char here[256];
        snprintf(here, sizeof here, "%.180s, degree %" PRId64, where, degree);
        if (!json_is_object(value))
            return weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = here),
                              "expected an object, such as {\"seconds\": 4.0}");
        weft_cascade_option *o = &out->option[out->option_count++];
        o->degree = degree;
        WEFT_TRY(weft_json_get_f64(value, "seconds", here, &o->seconds));
        WEFT_TRY(weft_json_get_f64_or(value, "bytes", here, 0, &o->bytes));
        static const char *const known[] = {"seconds", "bytes"};
        WEFT_TRY(weft_json_only(value, here, known, WEFT_COUNT(known)));
        if (!(o->seconds >= 0))
            return weft_error(WEFT_MSG_COSTS_INVALID,
                              WEFT_AT(.file = here, .key = "seconds", WEFT_NUMBER(o->seconds)),
                              "%g is below 0", o->seconds);
        if (!(o->bytes >= 0))
            return weft_error(WEFT_MSG_COSTS_INVALID,
                              WEFT_AT(.file = here, .key = "bytes", WEFT_NUMBER(o->bytes)),
                              "%g is below 0", o->bytes);
    }
    qsort(out->option, (size_t)out->option_count, sizeof *out->option, by_degree);
    return WEFT_OK;
}

/* `index` maps id to index; a jansson object, for its hash table. */
static weft_status read_after(const json_t *entry, const json_t *index, const char *where,
                              weft_arena *arena, weft_cascade *out)
{
    const json_t *after = json_object_get(entry, "after");
    if (!after || json_is_null(after))
        return WEFT_OK;
    if (!json_is_array(after))
        return weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = where, .key = "after"),
                          "expected a list of ids");
    const int64_t count = (int64_t)json_array_size(after);
    WEFT_TRY(WEFT_ARENA_NEW(arena, out->after, count, "%s", where));
    for (int64_t i = 0; i < count; i++) {
        const char *id = json_string_value(json_array_get(after, (size_t)i));
        const json_t *at = id ? json_object_get(index, id) : NULL;
        if (!at)
            return weft_error(
                WEFT_MSG_JSON_VALUE, WEFT_AT(.file = where, .key = "after", .value = id),
                "%.80s is not the id of a cascade", id ? id : "an entry that is not a string");
        const int32_t number = (int32_t)json_integer_value(at);
        bool twice = false;
        for (int32_t k = 0; k < out->after_count; k++)
            twice |= out->after[k] == number;
        if (!twice)
            out->after[out->after_count++] = number;
    }
    return WEFT_OK;
}

static weft_status read_cascades(const json_t *list, const char *name, json_t *index,
                                 weft_arena *arena, weft_cascade_list *out)
{
    static const char *const known[] = {"id", "after", "degrees"};
    for (int64_t i = 0; i < out->count; i++) {
        char where[256];
        snprintf(where, sizeof where, "%.160s: cascade %" PRId64, name, i);
        const json_t *entry = json_array_get(list, (size_t)i);
        const char *id;
        if (!json_is_object(entry))
            return weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = where),
                              "expected an object with \"id\" and \"degrees\"");
        WEFT_TRY(weft_json_get_string(entry, "id", where, &id));
        if (json_object_get(index, id))
            return weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = where, .key = "id", .value = id),
                              "\"%.80s\" is the id of two cascades; give each its own", id);
        if (json_object_set_new(index, id, json_integer(i)))
            return no_memory(where);
        snprintf(where, sizeof where, "%.120s: cascade \"%.80s\"", name, id);
        weft_cascade *c = &out->item[i];
        c->id = weft_arena_strdup(arena, id);
        WEFT_TRY(WEFT_ALLOCATED(c->id, "%s", where));
        WEFT_TRY(read_degrees(json_object_get(entry, "degrees"), where, arena, c));
        WEFT_TRY(weft_json_only(entry, where, known, WEFT_COUNT(known)));
    }
    for (int64_t i = 0; i < out->count; i++) {
        char where[256];
        snprintf(where, sizeof where, "%.120s: cascade \"%.80s\"", name, out->item[i].id);
        WEFT_TRY(read_after(json_array_get(list, (size_t)i), index, where, arena, &out->item[i]));
    }
    return WEFT_OK;
}

weft_status weft_cascade_list_from_json(const json_t *root, const char *name, weft_arena *arena,
                                        weft_cascade_list *out)
{
    const json_t *list = json_object_get(root, "cascades");
    if (!json_is_array(list))
        return weft_error(WEFT_MSG_JSON_VALUE, WEFT_AT(.file = name, .key = "cascades"),
                          "a list of cascades is needed");
    static const char *const top[] = {"cascades"};
    WEFT_TRY(weft_json_only(root, name, top, WEFT_COUNT(top)));
    weft_cascade_list result = {.count = (int64_t)json_array_size(list)};
    if (result.count == 0)
        return weft_error(WEFT_MSG_COSTS_INVALID, WEFT_AT(.file = name, .key = "cascades"),
                          "the workload is empty: the list has no entry");
    result.item = weft_arena_calloc(arena, result.count, sizeof *result.item);
    json_t *index = json_object();
    const weft_status_code status =
        result.item && index ? read_cascades(list, name, index, arena, &result) : no_memory(name);
    json_decref(index);
    WEFT_TRY(status);
    *out = result;
    return WEFT_OK;
}

weft_status weft_cascade_list_load(const char *path, weft_arena *arena, weft_cascade_list *out)
{
    json_t *root;
    WEFT_TRY(weft_json_load(path, &root));
    const weft_status_code status = weft_cascade_list_from_json(root, path, arena, out);
    json_decref(root);
    return status;
}

weft_status weft_cascade_plan_to_json(const weft_cascade_solution *plan, json_t **out)
{
    const weft_cascade_list *list = &plan->list;
    const weft_cascade_problem *p = &plan->problem;
    const weft_cascade_result *r = &plan->result;
    const weft_cascade_schedule *s = &r->schedule;
    json_t *array = json_array();
    bool ok = array != NULL;
    for (int64_t c = 0; ok && c < p->count; c++) {
        json_t *used = json_array(), *after = json_array();
        for (int32_t j = plan->first[c]; j < plan->first[c + 1]; j++)
            ok &= !json_array_append_new(used, json_integer(plan->devices[j]));
        for (int32_t k = 0; k < list->item[c].after_count; k++)
            ok &= !json_array_append_new(after, json_string(list->item[list->item[c].after[k]].id));
        ok &= !json_array_append_new(
            array, json_pack("{s:s,s:i,s:f,s:f,s:o,s:o}", "id", list->item[c].id, "degree",
                             p->degree[s->option[c]], "start", s->start[c], "end", s->end[c],
                             "devices", used, "after", after));
    }
    json_t *root =
        json_pack("{s:f,s:f,s:f,s:b,s:b,s:I,s:o}", "makespan", s->makespan, "lower_bound",
                  r->bound.value, "gap", weft_cascade_gap(s->makespan, r->bound.value), "proved",
                  r->proved, "cut", r->cut, "devices", (json_int_t)p->devices, "cascades", array);
    if (!ok || !root) {
        json_decref(root);
        return weft_no_memory("writing the plan");
    }
    *out = root;
    return WEFT_OK;
}

static weft_status read_plan_item(const json_t *entry, const char *where, int64_t devices,
                                  weft_arena *arena, weft_cascade_plan_item *out)
{
    const char *id;
    WEFT_TRY(weft_json_get_string(entry, "id", where, &id));
    out->id = weft_arena_strdup(arena, id);
    WEFT_TRY(weft_json_get_i64(entry, "degree", where, &out->degree));
    WEFT_TRY(weft_json_get_f64(entry, "start", where, &out->start));
    WEFT_TRY(weft_json_get_f64(entry, "end", where, &out->end));
    if (!(out->start >= 0) || !(out->end >= out->start))
        return weft_error(WEFT_MSG_PLAN_INVALID, WEFT_AT(.file = where),
                          "the cascade starts at %g s and ends at %g s", out->start, out->end);
    const json_t *used = json_object_get(entry, "devices");
    if (out->degree < 1 || !json_is_array(used) || (int64_t)json_array_size(used) != out->degree)
        return weft_error(WEFT_MSG_PLAN_INVALID,
                          WEFT_AT(.file = where, .key = "devices", WEFT_NUMBER(out->degree)),
                          "the list must have one device for each of the degree, %" PRId64,
                          out->degree);
    out->device = weft_arena_calloc(arena, out->degree, sizeof *out->device);
    WEFT_TRY(WEFT_ALLOCATED(out->device && out->id, "%s", where));
    for (int64_t i = 0; i < out->degree; i++) {
        const json_t *d = json_array_get(used, (size_t)i);
        if (!json_is_integer(d) || json_integer_value(d) < 0 || json_integer_value(d) >= devices)
            return weft_error(WEFT_MSG_PLAN_INVALID, WEFT_AT(.file = where, .key = "devices"),
                              "device %" PRId64 " is not from 0 to %" PRId64,
                              json_is_integer(d) ? (int64_t)json_integer_value(d) : -1,
                              devices - 1);
        out->device[i] = (int32_t)json_integer_value(d);
    }
    return WEFT_OK;
}

typedef struct span {
    int32_t device, item;
    double start, end;
} span;

static int by_device(const void *a, const void *b)
{
    const span *x = a, *y = b;
    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return (x->item > y->item) - (x->item < y->item);
}

/* Checks that no device runs two cascades at once, or one cascade twice. */
static weft_status check_overlap(const weft_cascade_plan *plan, const char *name)
{
    int64_t total = 0, n = 0;
    for (int64_t i = 0; i < plan->count; i++)
        total += plan->item[i].degree;
    span *list;
    WEFT_TRY(WEFT_NEW(list, total, "%s", name));
    for (int64_t i = 0; i < plan->count; i++)
        for (int64_t j = 0; j < plan->item[i].degree; j++)
            list[n++] =
                (span){plan->item[i].device[j], (int32_t)i, plan->item[i].start, plan->item[i].end};
    qsort(list, (size_t)n, sizeof *list, by_device);
    weft_status_code status = WEFT_OK;
    for (int64_t i = 1; i < n; i++)
        if (list[i].device == list[i - 1].device &&
            (list[i].item == list[i - 1].item ||
             list[i].start < list[i - 1].end - 1e-9 * (1 + list[i - 1].end)))
            WEFT_GO(weft_error(
                WEFT_MSG_PLAN_INVALID, WEFT_AT(.file = name, WEFT_NUMBER(list[i].device)),
                "device %d executes \"%s\" and \"%s\" at %g s", list[i].device,
                plan->item[list[i - 1].item].id, plan->item[list[i].item].id, list[i].start));
out:
    weft_free(list);
    return status;
}

static weft_status check_after(const json_t *list, const json_t *index,
                               const weft_cascade_plan *plan, const char *name)
{
    for (int64_t i = 0; i < plan->count; i++) {
        size_t k;
        json_t *id;
        json_array_foreach(json_object_get(json_array_get(list, (size_t)i), "after"), k, id)
        {
            const json_t *at =
                json_is_string(id) ? json_object_get(index, json_string_value(id)) : NULL;
            if (!at)
                return weft_error(WEFT_MSG_PLAN_INVALID,
                                  WEFT_AT(.file = name, .key = plan->item[i].id),
                                  "a predecessor of the cascade is not in the plan");
            const weft_cascade_plan_item *before = &plan->item[json_integer_value(at)];
            if (plan->item[i].start < before->end - 1e-9 * (1 + before->end))
                return weft_error(
                    WEFT_MSG_PLAN_INVALID,
                    WEFT_AT(.file = name, .key = plan->item[i].id,
                            WEFT_NUMBER(plan->item[i].start)),
                    "the cascade starts at %g s, before its predecessor \"%s\" ends at %g s",
                    plan->item[i].start, before->id, before->end);
        }
    }
    return WEFT_OK;
}

static weft_status read_plan(const json_t *root, json_t *index, const char *name, weft_arena *arena,
                             weft_cascade_plan *p)
{
    const char *text;
    WEFT_TRY(weft_json_get_string_or(root, "format", name, "", &text));
    if (strcmp(text, WEFT_CASCADE_FORMAT))
        return weft_error(WEFT_MSG_PLAN_INVALID,
                          WEFT_AT(.file = name, .key = "format", .value = text),
                          "the format is \"%.40s\", not \"" WEFT_CASCADE_FORMAT
                          "\"; plan again with this version (%s)",
                          text, WEFT_VERSION);
    WEFT_TRY(weft_json_get_f64(root, "makespan", name, &p->makespan));
    WEFT_TRY(weft_json_get_f64(root, "lower_bound", name, &p->lower_bound));
    WEFT_TRY(weft_json_get_bool(root, "proved", name, &p->proved));
    WEFT_TRY(weft_json_get_i64(root, "devices", name, &p->devices));
    if (p->devices < 1 || p->devices > 1 << 20)
        return weft_error(WEFT_MSG_PLAN_INVALID,
                          WEFT_AT(.file = name, .key = "devices", WEFT_NUMBER(p->devices)),
                          "%" PRId64 " is not from 1 to %d", p->devices, 1 << 20);
    const json_t *cluster = json_object_get(root, "cluster");
    if (cluster) {
        WEFT_TRY(weft_json_get_string(cluster, "spec", name, &text));
        p->cluster = weft_arena_strdup(arena, text);
        WEFT_TRY(weft_json_get_string(cluster, "id", name, &text));
        p->cluster_id = weft_arena_strdup(arena, text);
    }
    const json_t *list = json_object_get(root, "cascades");
    p->count = (int64_t)json_array_size(list);
    if (p->count < 1)
        return weft_error(WEFT_MSG_PLAN_INVALID, WEFT_AT(.file = name, .key = "cascades"),
                          "the plan has no cascades");
    WEFT_TRY(WEFT_ARENA_NEW(arena, p->item, p->count, "%s", name));
    double makespan = 0;
    for (int64_t i = 0; i < p->count; i++) {
        char where[256];
        snprintf(where, sizeof where, "%.200s: cascade %" PRId64, name, i);
        WEFT_TRY(
            read_plan_item(json_array_get(list, (size_t)i), where, p->devices, arena, &p->item[i]));
        if (json_object_get(index, p->item[i].id))
            return weft_error(WEFT_MSG_PLAN_INVALID, WEFT_AT(.file = name, .key = p->item[i].id),
                              "the plan has two cascades of this id");
        if (json_object_set_new(index, p->item[i].id, json_integer(i)))
            return no_memory(name);
        makespan = fmax(makespan, p->item[i].end);
    }
    if (fabs(makespan - p->makespan) > 1e-6 * makespan || p->lower_bound > p->makespan * (1 + 1e-9))
        return weft_error(
            WEFT_MSG_PLAN_INVALID,
            WEFT_AT(.file = name, .key = "makespan", WEFT_NUMBER(p->makespan)),
            "the last cascade ends at %g s, but the makespan is %g s and its lower bound %g s",
            makespan, p->makespan, p->lower_bound);
    WEFT_TRY(check_after(list, index, p, name));
    return check_overlap(p, name);
}

weft_status weft_cascade_plan_from_json(const json_t *root, const char *name, weft_arena *arena,
                                        weft_cascade_plan *out)
{
    json_t *index = json_object();
    weft_cascade_plan plan = {0};
    const weft_status_code status =
        index ? read_plan(root, index, name, arena, &plan) : no_memory(name);
    json_decref(index);
    WEFT_TRY(status);
    *out = plan;
    return WEFT_OK;
}

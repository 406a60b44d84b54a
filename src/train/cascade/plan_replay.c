#include "train/cascade/plan_replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLACED_FORMAT "weft.placed/1"

static const char *const methods[] = {"", "ulysses", "ring"}; /* indexed by weft_sp_method */

static weft_status no_memory(void)
{
    return weft_no_memory("a plan");
}

void weft_plans_size(const weft_bucket *b, char text[64])
{
    snprintf(text, 64, "%" PRId64 "x%" PRId64 "x%" PRId64 "x%" PRId64, b->batch, b->frames,
             b->height, b->width);
}

/* ---- writing -------------------------------------------------------------------------------- */

json_t *weft_plans_head(const weft_plans_stamp *s)
{
    json_t *sizes = json_array();
    for (int i = 0; i < s->sizes; i++)
        json_array_append_new(sizes, json_string(s->size[i]));
    return json_pack("{s:s, s:i, s:s, s:s, s:o}", "format", PLACED_FORMAT, "ranks", s->ranks,
                     "model", s->model, "name", s->name, "sizes", sizes);
}

static json_t *sample_json(const weft_placed_sample *s)
{
    json_t *items = json_array();
    for (int64_t i = 0; i < s->clips && s->item; i++)
        json_array_append_new(items, json_pack("[I, I, I]", (json_int_t)s->item[i].sample,
                                               (json_int_t)s->item[i].epoch,
                                               (json_int_t)s->item[i].sequence_index));
    json_t *json =
        json_pack("{s:I, s:i, s:I, s:f, s:o}", "batch", (json_int_t)s->batch, "bucket", s->bucket,
                  "clips", (json_int_t)s->clips, "weight", s->weight, "items", items);
    if (json && s->ahead)
        json_object_set_new(json, "ahead", json_true());
    return json;
}

static json_t *cascade_json(const weft_placed_cascade *c)
{
    json_t *ranks = json_array(), *after = json_array();
    for (int64_t i = 0; i < c->at.degree; i++)
        json_array_append_new(ranks, json_integer(c->at.device[i]));
    for (int32_t i = 0; i < c->at.after_count; i++)
        json_array_append_new(after, json_integer(c->at.after[i]));
    json_t *json = json_pack("{s:s, s:i, s:s, s:o, s:f, s:f, s:o, s:s}", "id", c->at.id, "sample",
                             (int)c->sample, "module", weft_cascade_module_name(c->module), "ranks",
                             ranks, "start", c->at.start, "seconds", c->at.seconds, "after", after,
                             "method", methods[c->method]);
    if (json && c->kept)
        json_object_set_new(json, "kept", json_true());
    return json;
}

json_t *weft_plans_line(const weft_placed_iteration *p, const char *policy, double idle)
{
    json_t *samples = json_array(), *cascades = json_array();
    for (int64_t i = 0; i < p->samples; i++)
        json_array_append_new(samples, sample_json(&p->sample[i]));
    for (int64_t i = 0; i < p->cascades; i++)
        json_array_append_new(cascades, cascade_json(&p->cascade[i]));
    json_t *line =
        json_pack("{s:I, s:s, s:f, s:f, s:f, s:o, s:o}", "step", (json_int_t)p->step, "policy",
                  policy, "makespan", p->makespan, "lower_bound", p->lower_bound, "idle", idle,
                  "samples", samples, "cascades", cascades);
    if (line && p->late)
        json_object_set_new(line, "late", json_true());
    if (line && p->search)
        json_object_set_new(line, "search", json_true());
    return line;
}

/* ---- reading -------------------------------------------------------------------------------- */

static weft_status read_sample(const json_t *json, const char *where, weft_arena *arena,
                               weft_placed_sample *s)
{
    int64_t bucket;
    const json_t *items = json_object_get(json, "items");
    WEFT_TRY(weft_json_get_i64(json, "batch", where, &s->batch));
    WEFT_TRY(weft_json_get_i64(json, "bucket", where, &bucket));
    WEFT_TRY(weft_json_get_i64(json, "clips", where, &s->clips));
    WEFT_TRY(weft_json_get_f64(json, "weight", where, &s->weight));
    const int64_t count = (int64_t)json_array_size(items);
    if (bucket < 0 || bucket > INT16_MAX || s->clips < 1 || (count && count != s->clips))
        return weft_error(WEFT_MSG_PLAN_INVALID, WEFT_AT(.file = where),
                          "a sample of bucket %" PRId64 " has %" PRId64 " clips and %" PRId64
                          " items",
                          bucket, s->clips, count);
    weft_item *item;
    WEFT_TRY(WEFT_ARENA_NEW(arena, item, count + 1, "a plan"));
    s->bucket = (int)bucket;
    s->ahead = json_is_true(json_object_get(json, "ahead"));
    for (int64_t i = 0; i < count; i++) {
        const json_t *one = json_array_get(items, (size_t)i);
        item[i] = (weft_item){.sample = json_integer_value(json_array_get(one, 0)),
                              .epoch = json_integer_value(json_array_get(one, 1)),
                              .sequence_index = json_integer_value(json_array_get(one, 2)),
                              .bucket = s->bucket};
        if (item[i].sample < 0 || item[i].epoch < 0 || item[i].sequence_index < 0)
            return weft_error(WEFT_MSG_PLAN_INVALID, WEFT_AT(.file = where), "an item is below 0");
    }
    s->item = count ? item : NULL;
    return WEFT_OK;
}

static weft_status read_numbers(const json_t *list, const char *where, weft_arena *arena,
                                int32_t **out, int64_t *count)
{
    *count = (int64_t)json_array_size(list);
    WEFT_TRY(WEFT_ARENA_NEW(arena, *out, *count + 1, "a plan"));
    for (int64_t i = 0; i < *count; i++) {
        const json_t *one = json_array_get(list, (size_t)i);
        if (!json_is_integer(one) || json_integer_value(one) < 0 ||
            json_integer_value(one) > INT32_MAX)
            return weft_error(WEFT_MSG_PLAN_INVALID, WEFT_AT(.file = where),
                              "a list of ranks or cascades has a value that is not a number");
        (*out)[i] = (int32_t)json_integer_value(one);
    }
    return WEFT_OK;
}

static weft_status read_cascade(const json_t *json, const char *where, weft_arena *arena,
                                weft_placed_cascade *c)
{
    const char *id, *module, *method;
    int64_t sample, after;
    int32_t *ranks, *before;
    WEFT_TRY(weft_json_get_string(json, "id", where, &id));
    WEFT_TRY(weft_json_get_string(json, "module", where, &module));
    WEFT_TRY(weft_json_get_string_or(json, "method", where, "", &method));
    WEFT_TRY(weft_json_get_i64(json, "sample", where, &sample));
    WEFT_TRY(weft_json_get_f64(json, "start", where, &c->at.start));
    WEFT_TRY(weft_json_get_f64(json, "seconds", where, &c->at.seconds));
    WEFT_TRY(read_numbers(json_object_get(json, "ranks"), where, arena, &ranks, &c->at.degree));
    WEFT_TRY(read_numbers(json_object_get(json, "after"), where, arena, &before, &after));
    int m = 0, k = 0;
    while (m < WEFT_CASCADE_MODULES && strcmp(weft_cascade_module_name(m), module))
        m++;
    while (k < WEFT_COUNT(methods) && strcmp(methods[k], method))
        k++;
    if (m == WEFT_CASCADE_MODULES || k == WEFT_COUNT(methods))
        return weft_error(WEFT_MSG_PLAN_INVALID, WEFT_AT(.file = where, .key = id),
                          "the module \"%s\" or the method \"%s\" is not known", module, method);
    c->at.id = weft_arena_strdup(arena, id);
    c->at.device = ranks;
    c->at.after = before;
    c->at.after_count = (int32_t)after;
    c->sample = sample < 0 || sample > INT32_MAX ? -1 : (int32_t)sample;
    c->module = (weft_cascade_module)m;
    c->kept = json_is_true(json_object_get(json, "kept"));
    c->method = (weft_sp_method)k;
    return WEFT_ALLOCATED(c->at.id, "a plan");
}

weft_status weft_plans_parse(const json_t *line, const char *where, weft_arena *arena,
                             weft_placed_iteration *out)
{
    weft_placed_iteration p = {0};
    const json_t *samples = json_object_get(line, "samples"),
                 *cascades = json_object_get(line, "cascades");
    WEFT_TRY(weft_json_get_i64(line, "step", where, &p.step));
    WEFT_TRY(weft_json_get_f64(line, "makespan", where, &p.makespan));
    WEFT_TRY(weft_json_get_f64_or(line, "lower_bound", where, 0, &p.lower_bound));
    p.late = json_is_true(json_object_get(line, "late"));
    p.search = json_is_true(json_object_get(line, "search"));
    p.samples = (int64_t)json_array_size(samples);
    p.cascades = (int64_t)json_array_size(cascades);
    if (p.samples < 1 || p.cascades < 1)
        return weft_error(WEFT_MSG_PLAN_INVALID, WEFT_AT(.file = where),
                          "a plan has %" PRId64 " samples and %" PRId64 " cascades", p.samples,
                          p.cascades);
    p.sample = weft_arena_calloc(arena, p.samples, sizeof *p.sample);
    p.cascade = weft_arena_calloc(arena, p.cascades, sizeof *p.cascade);
    WEFT_TRY(WEFT_ALLOCATED(p.sample && p.cascade, "a plan"));
    for (int64_t i = 0; i < p.samples; i++)
        WEFT_TRY(read_sample(json_array_get(samples, (size_t)i), where, arena, &p.sample[i]));
    for (int64_t i = 0; i < p.cascades; i++)
        WEFT_TRY(read_cascade(json_array_get(cascades, (size_t)i), where, arena, &p.cascade[i]));
    *out = p;
    return WEFT_OK;
}

/* ---- files ---------------------------------------------------------------------------------- */

struct weft_plans {
    weft_arena *arena;
    weft_placed_iteration *item;
    int64_t count, capacity;
    /* used while a file is read: */
    const char *path;
    const weft_plans_stamp *stamp;
    int64_t line;
    bool for_this_run;    /* plans after the last head are for this run */
    weft_error_copy *why; /* error of the first rejected head */
};

weft_status weft_plans_create(weft_plans **out)
{
    weft_plans *p = weft_alloc(sizeof *p);
    if (p)
        p->arena = weft_arena_create();
    if (!p || !p->arena) {
        weft_free(p);
        return no_memory();
    }
    *out = p;
    return WEFT_OK;
}

void weft_plans_close(weft_plans *p)
{
    if (!p)
        return;
    weft_arena_free(p->arena);
    weft_free(p->why);
    weft_free(p->item);
    weft_free(p);
}

static weft_status append(weft_plans *p, const weft_placed_iteration *plan)
{
    WEFT_TRY(weft_grow((void **)&p->item, p->count, &p->capacity, sizeof *p->item));
    p->item[p->count++] = *plan;
    return WEFT_OK;
}

/* Copies the plan through its JSON line, so that only the parser depends on the members of a
 * plan. */
weft_status weft_plans_add(weft_plans *p, const weft_placed_iteration *plan)
{
    weft_placed_iteration copy;
    json_t *line = weft_plans_line(plan, "", 0);
    WEFT_TRY(WEFT_ALLOCATED(line, "a plan"));
    const weft_status_code status = weft_plans_parse(line, "plan", p->arena, &copy);
    json_decref(line);
    WEFT_TRY(status);
    return append(p, &copy);
}

static void put_sizes(weft_buf *out, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        weft_buf_printf(out, "%s%s", i ? ", " : "", text ? text : "?");
    }
}

static weft_status check_sizes(const weft_plans *p, const json_t *head)
{
    const json_t *sizes = json_object_get(head, "sizes");
    bool same = (int)json_array_size(sizes) == p->stamp->sizes;
    for (int i = 0; same && i < p->stamp->sizes; i++) {
        const char *text = json_string_value(json_array_get(sizes, (size_t)i));
        same = text && !strcmp(text, p->stamp->size[i]);
    }
    if (same)
        return WEFT_OK;
    weft_buf file_sizes = {0}, run_sizes = {0};
    put_sizes(&file_sizes, sizes);
    for (int i = 0; i < p->stamp->sizes; i++)
        weft_buf_printf(&run_sizes, "%s%s", i ? ", " : "", p->stamp->size[i]);
    const weft_status_code status =
        weft_error(WEFT_MSG_LAYOUT_INVALID, WEFT_AT(.file = p->path),
                   "the plans are for samples of %s (clips x frames x height x width), and the "
                   "stage has %s; plan again (plan: every-iteration)",
                   file_sizes.data ? file_sizes.data : "?", run_sizes.data ? run_sizes.data : "?");
    weft_buf_free(&file_sizes);
    weft_buf_free(&run_sizes);
    return status;
}

static bool is_head(const json_t *line)
{
    const char *format = json_string_value(json_object_get(line, "format"));
    return format && !strcmp(format, PLACED_FORMAT);
}

static weft_status check_head(const weft_plans *p, const json_t *head)
{
    int64_t ranks;
    const char *format, *model, *name;
    WEFT_TRY(weft_json_get_string_or(head, "format", p->path, "", &format));
    if (!is_head(head))
        return weft_error(WEFT_MSG_LAYOUT_INVALID,
                          WEFT_AT(.file = p->path, .key = "format", .value = format),
                          "the format is \"%s\", not \"" PLACED_FORMAT "\"; use the file "
                          "<out>/cascades/plans.jsonl of a run",
                          format);
    WEFT_TRY(weft_json_get_i64(head, "ranks", p->path, &ranks));
    WEFT_TRY(weft_json_get_string(head, "model", p->path, &model));
    WEFT_TRY(weft_json_get_string_or(head, "name", p->path, "?", &name));
    if (ranks != p->stamp->ranks)
        return weft_error(
            WEFT_MSG_LAYOUT_INVALID, WEFT_AT(.file = p->path, .key = "ranks", WEFT_NUMBER(ranks)),
            "the plans are for %" PRId64 " ranks, and the run has %d. Start the run with mpirun "
            "-n %" PRId64 ", or plan again (plan: every-iteration).",
            ranks, p->stamp->ranks, ranks);
    if (strcmp(model, p->stamp->model))
        return weft_error(WEFT_MSG_LAYOUT_INVALID,
                          WEFT_AT(.file = p->path, .key = "model", .value = name),
                          "the plans are for another model: %s (%s), and the run has %s (%s); plan "
                          "again (plan: every-iteration)",
                          name, model, p->stamp->name, p->stamp->model);
    return check_sizes(p, head);
}

static weft_status read_line(void *user, json_t *value)
{
    weft_plans *p = user;
    weft_placed_iteration plan;
    char where[600];
    if (p->line++ == 0 || json_object_get(value, "format")) {
        const weft_status_code status = check_head(p, value);
        p->for_this_run = status == WEFT_OK;
        if (status != WEFT_E_CONFIG || !is_head(value))
            return status;
        if (!p->why)
            p->why = weft_error_save();
        return WEFT_OK;
    }
    if (!p->for_this_run)
        return WEFT_OK;
    snprintf(where, sizeof where, "%s:%" PRId64, p->path, p->line);
    WEFT_TRY(weft_plans_parse(value, where, p->arena, &plan));
    WEFT_TRY(weft_placed_check(&plan, p->stamp->ranks, where));
    return append(p, &plan);
}

weft_status weft_plans_open(const char *path, const weft_plans_stamp *stamp, weft_plans **out)
{
    weft_plans *p;
    WEFT_TRY(weft_plans_create(&p));
    p->path = path;
    p->stamp = stamp;
    weft_status_code status = weft_json_lines(path, read_line, p);
    if (status == WEFT_E_FORMAT && p->line == 0)
        status =
            weft_error_add(weft_error_at(status, WEFT_AT(.file = path)),
                           "The file has no plans that a run wrote to <out>/cascades/plans.jsonl");
    WEFT_GO(status);
    if (p->count == 0)
        WEFT_GO(p->why ? weft_error_restore(p->why)
                       : weft_error(WEFT_MSG_LAYOUT_INVALID, WEFT_AT(.file = path),
                                    "the file has no plan"));
    *out = p;
    return WEFT_OK;
out:
    weft_plans_close(p);
    return status;
}

/* ---- lookup --------------------------------------------------------------------------------- */

/* Matches samples to the samples of a plan, by bucket, clips and step: slot[s] is the plan's sample
 * for s. */
static bool match(const weft_placed_iteration *plan, const weft_placed_sample *sample,
                  int64_t samples, int32_t *slot, bool *taken)
{
    if (plan->samples != samples)
        return false;
    memset(taken, 0, (size_t)samples);
    for (int64_t s = 0; s < samples; s++) {
        int64_t at = 0;
        while (at < samples && (taken[at] || plan->sample[at].bucket != sample[s].bucket ||
                                plan->sample[at].clips != sample[s].clips ||
                                plan->sample[at].ahead != sample[s].ahead))
            at++;
        if (at == samples)
            return false;
        taken[at] = true;
        slot[s] = (int32_t)at;
    }
    return true;
}

/* Copies the plan with `sample` in the matched slots. */
static weft_status put_in(const weft_placed_iteration *plan, int64_t step,
                          const weft_placed_sample *sample, const int32_t *slot, weft_arena *arena,
                          weft_placed_iteration *out)
{
    *out = *plan;
    out->step = step;
    WEFT_TRY(WEFT_ARENA_NEW(arena, out->sample, plan->samples, "a plan"));
    for (int64_t s = 0; s < plan->samples; s++)
        out->sample[slot[s]] = sample[s];
    return WEFT_OK;
}

weft_status weft_plans_find(const weft_plans *p, int64_t step, const weft_placed_sample *sample,
                            int64_t samples, weft_arena *arena, weft_placed_iteration *out,
                            bool *found)
{
    int32_t *slot = weft_calloc(samples + 1, sizeof *slot);
    bool *taken = weft_alloc(samples + 1);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(slot && taken, "a plan"));
    *found = false;
    /* plans of the same step first, so that a resumed run repeats the original */
    for (int own = 1; own >= 0 && !*found; own--)
        for (int64_t i = p->count - 1; i >= 0 && !*found; i--) {
            const weft_placed_iteration *plan = &p->item[i];
            if ((own && plan->step != step) || !match(plan, sample, samples, slot, taken))
                continue;
            *found = true;
            WEFT_GO(put_in(plan, step, sample, slot, arena, out));
        }
out:
    weft_free(slot);
    weft_free(taken);
    return status;
}

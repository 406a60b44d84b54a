#include "serve/learned_seconds.h"

#include "base/config.h"
#include "base/json.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

/* ---- members -------------------------------------------------------------------------------- */

typedef struct member {
    const char *name;
    size_t offset;
    bool counts;  /* int64_t, else double */
    double least; /* smallest legal value */
} member;

#define SECONDS(type, field)                                                                       \
    {                                                                                              \
        .name = #field, .offset = offsetof(type, field)                                            \
    }
#define DIFFERENCE(type, field)                                                                    \
    {                                                                                              \
        .name = #field, .offset = offsetof(type, field), .least = -INFINITY                        \
    }
#define COUNT(type, field)                                                                         \
    {                                                                                              \
        .name = #field, .offset = offsetof(type, field), .counts = true                            \
    }

static const member all[] = {
    SECONDS(weft_learned_seconds, retire), COUNT(weft_learned_seconds, retires),
    SECONDS(weft_learned_seconds, start),  SECONDS(weft_learned_seconds, stop),
    SECONDS(weft_learned_seconds, cold),   COUNT(weft_learned_seconds, starts),
    SECONDS(weft_learned_seconds, pace),   DIFFERENCE(weft_learned_seconds, finish),
    COUNT(weft_learned_seconds, paced)};

/* The fit of a number of ranks follows from its runs. */
static const member of_ranks[] = {
    SECONDS(weft_rank_seconds, warm),   SECONDS(weft_rank_seconds, cold),
    SECONDS(weft_rank_seconds, ending), COUNT(weft_rank_seconds, warms),
    COUNT(weft_rank_seconds, colds),    COUNT(weft_rank_seconds, endings)};

static json_t *write_members(const void *from, const member *members, int count)
{
    json_t *json = json_object();
    for (int i = 0; i < count; i++) {
        const char *at = (const char *)from + members[i].offset;
        json_object_set_new(json, members[i].name,
                            members[i].counts ? json_integer(*(const int64_t *)at)
                                              : json_real(*(const double *)at));
    }
    return json;
}

static bool read_members(const json_t *json, const member *members, int count, void *to)
{
    bool ok = json_is_object(json);
    for (int i = 0; i < count && ok; i++) {
        const json_t *value = json_object_get(json, members[i].name);
        char *at = (char *)to + members[i].offset;
        if (members[i].counts)
            *(int64_t *)at = json_integer_value(value);
        else
            *(double *)at = json_number_value(value);
        ok = (members[i].counts ? json_is_integer(value) : json_is_number(value)) &&
             isfinite(json_number_value(value)) && json_number_value(value) >= members[i].least;
    }
    return ok;
}

/* ---- runs ----------------------------------------------------------------------------------- */

/* The kept runs, the oldest first. */
static json_t *write_runs(const weft_rank_seconds *s)
{
    json_t *list = json_array();
    for (int64_t n = s->count > WEFT_RANK_RUNS ? s->count - WEFT_RANK_RUNS : 0; n < s->count; n++) {
        const weft_rank_run *r = &s->runs[n % WEFT_RANK_RUNS];
        json_array_append_new(list, json_pack("[f, f, f, f, b]", r->predicted, r->steps, r->crowd,
                                              r->actual, r->cold));
    }
    return list;
}

static bool read_run(const json_t *json, weft_rank_run *r)
{
    int cold;
    const bool ok = json_unpack((json_t *)(uintptr_t)json, "[F, F, F, F, b!]", &r->predicted,
                                &r->steps, &r->crowd, &r->actual, &cold) == 0;
    r->cold = ok && cold;
    return ok && r->predicted > 0 && r->steps > 0 && r->crowd >= 0 && r->crowd <= 1 &&
           r->actual > 0;
}

static bool read_runs(const json_t *list, weft_rank_seconds *s)
{
    const size_t count = json_array_size(list);
    bool ok = json_is_array(list) && count <= WEFT_RANK_RUNS;
    for (size_t i = 0; i < count && ok; i++) {
        weft_rank_run run;
        ok = read_run(json_array_get(list, i), &run);
        if (ok)
            weft_rank_seconds_add(s, &run);
    }
    return ok;
}

/* ---- text ----------------------------------------------------------------------------------- */

weft_status weft_learned_seconds_write(const weft_learned_seconds *l, weft_buf *text)
{
    json_t *json = write_members(l, all, WEFT_COUNT(all)), *ranks = json_array();
    for (int k = 0; k < WEFT_ELASTIC_DEGREES; k++) {
        json_t *one = write_members(&l->ranks.at[k], of_ranks, WEFT_COUNT(of_ranks));
        json_object_set_new(one, "runs", write_runs(&l->ranks.at[k]));
        json_array_append_new(ranks, one);
    }
    json_object_set_new(json, "ranks", ranks);
    char *written = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(json);
    WEFT_TRY(WEFT_ALLOCATED(written, "the learned seconds"));
    weft_buf_printf(text, "%s", written);
    free(written);
    return weft_buf_check(text);
}

bool weft_learned_seconds_read(const char *text, weft_learned_seconds *l)
{
    json_t *json = json_loads(text, 0, NULL);
    const json_t *ranks = json_object_get(json, "ranks");
    *l = (weft_learned_seconds){0};
    bool ok = read_members(json, all, WEFT_COUNT(all), l) &&
              json_array_size(ranks) == WEFT_ELASTIC_DEGREES;
    for (int k = 0; k < WEFT_ELASTIC_DEGREES && ok; k++) {
        const json_t *one = json_array_get(ranks, (size_t)k);
        ok = read_members(one, of_ranks, WEFT_COUNT(of_ranks), &l->ranks.at[k]) &&
             read_runs(json_object_get(one, "runs"), &l->ranks.at[k]);
    }
    json_decref(json);
    if (!ok)
        *l = (weft_learned_seconds){0};
    return ok;
}

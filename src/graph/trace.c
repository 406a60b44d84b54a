#include "graph/trace.h"

#include <math.h>
#include <string.h>

void weft_trace_free(weft_trace *t)
{
    for (int64_t i = 0; i < t->name_count; i++)
        weft_free(t->name[i]);
    weft_free(t->name);
    weft_free(t->member);
    weft_free(t->group);
    weft_free(t->after);
    weft_free(t->step);
    *t = (weft_trace){0};
}

weft_status weft_trace_add_name(weft_trace *t, const char *name, int32_t *out)
{
    for (int64_t i = t->name_count - 1; i >= 0 && i >= t->name_count - 32; i--)
        if (!strcmp(t->name[i], name)) {
            if (out)
                *out = (int32_t)i;
            return WEFT_OK;
        }
    WEFT_TRY(weft_grow((void **)&t->name, t->name_count, &t->name_capacity, sizeof *t->name));
    char *copy = weft_strdup(name);
    WEFT_TRY(WEFT_ALLOCATED(copy, "the trace's names"));
    if (out)
        *out = (int32_t)t->name_count;
    t->name[t->name_count++] = copy;
    return WEFT_OK;
}

weft_status weft_trace_add_group(weft_trace *t, const int32_t *member, int64_t count, int32_t *out)
{
    for (int64_t i = t->group_count - 1; i >= 0 && i >= t->group_count - 8; i--)
        if (t->group[i].count == count &&
            !memcmp(t->member + t->group[i].first, member, (size_t)count * sizeof *member)) {
            if (out)
                *out = (int32_t)i;
            return WEFT_OK;
        }
    WEFT_TRY(weft_grow((void **)&t->group, t->group_count, &t->group_capacity, sizeof *t->group));
    const int64_t first = t->member_count;
    for (int64_t i = 0; i < count; i++) {
        WEFT_TRY(weft_grow((void **)&t->member, t->member_count, &t->member_capacity,
                           sizeof *t->member));
        t->member[t->member_count++] = member[i];
    }
    t->group[t->group_count] = (weft_trace_group){(int32_t)first, (int32_t)count};
    if (out)
        *out = (int32_t)t->group_count;
    t->group_count++;
    return WEFT_OK;
}

weft_status weft_trace_add_step(weft_trace *t, weft_trace_step step, const int32_t *after,
                                int64_t after_count, int32_t *out)
{
    WEFT_TRY(weft_grow((void **)&t->step, t->step_count, &t->step_capacity, sizeof *t->step));
    step.first_after = (int32_t)t->after_count;
    step.after_count = (int32_t)after_count;
    if (!(step.repeat >= 1))
        step.repeat = 1;
    for (int64_t i = 0; i < after_count; i++) {
        WEFT_TRY(
            weft_grow((void **)&t->after, t->after_count, &t->after_capacity, sizeof *t->after));
        t->after[t->after_count++] = after[i];
    }
    if (out)
        *out = (int32_t)t->step_count;
    t->step[t->step_count++] = step;
    return WEFT_OK;
}

weft_status weft_trace_check(const weft_trace *t)
{
    int32_t *seen;
    WEFT_TRY(WEFT_NEW(seen, t->devices + 1, "checking a trace"));
    weft_status_code status = WEFT_OK;
    for (int64_t g = 0; g < t->group_count; g++)
        for (int32_t i = 0; i < t->group[g].count; i++) {
            const int32_t d = t->member[t->group[g].first + i];
            if (d < 0 || d >= t->devices || seen[d] == g + 1)
                WEFT_GO(weft_error(
                    WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(WEFT_NUMBER(d)),
                    "group %" PRId64 " of the trace has device %d %s of %" PRId64 " devices", g, d,
                    d < 0 || d >= t->devices ? "outside" : "twice", t->devices));
            else
                seen[d] = (int32_t)g + 1;
        }
    for (int64_t i = 0; i < t->step_count; i++) {
        const weft_trace_step *s = &t->step[i];
        if (s->kind >= WEFT_TRACE_KIND_COUNT || s->stream >= WEFT_STREAM_COUNT || s->group < 0 ||
            s->group >= t->group_count || s->name < 0 || s->name >= t->name_count ||
            t->group[s->group].count < (s->kind == WEFT_TRACE_SEND ? 2 : 1))
            WEFT_GO(weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(WEFT_NUMBER(i)),
                               "step %" PRId64
                               " of the trace has a kind, stream, group or name outside its range",
                               i));
        else if (!isfinite(s->seconds) || s->seconds < 0 || !isfinite(s->bytes) || s->bytes < 0 ||
                 !isfinite(s->repeat))
            WEFT_GO(weft_error(WEFT_MSG_FORMAT_DAMAGED,
                               WEFT_AT(.key = t->name[s->name], WEFT_NUMBER(s->seconds)),
                               "step %" PRId64 " of the trace has %g seconds and %g bytes", i,
                               s->seconds, s->bytes));
        for (int32_t k = 0; k < s->after_count; k++)
            if (t->after[s->first_after + k] < 0 || t->after[s->first_after + k] >= i)
                WEFT_GO(weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.key = t->name[s->name]),
                                   "step %" PRId64
                                   " of the trace waits for step %d, which is not before it",
                                   i, t->after[s->first_after + k]));
    }
out:
    weft_free(seen);
    return status;
}

const char *weft_trace_kind_name(weft_trace_kind kind)
{
    static const char *const names[] = {"compute",    "all-reduce", "all-gather", "reduce-scatter",
                                        "all-to-all", "broadcast",  "ring shift", "send",
                                        "offload",    "fetch"};
    return kind < WEFT_TRACE_KIND_COUNT ? names[kind] : "?";
}

void weft_trace_put_string(weft_buf *out, const char *text)
{
    weft_buf_append(out, "\"", 1);
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            weft_buf_printf(out, "\\%c", *text);
        else if ((unsigned char)*text < ' ')
            weft_buf_printf(out, "\\u%04x", *text);
        else
            weft_buf_append(out, text, 1);
    weft_buf_append(out, "\"", 1);
}

weft_status weft_trace_chrome(const weft_trace *t, int64_t devices_per_node, const double *start,
                              const double *end, weft_buf *out)
{
    static const char *const streams[] = {"compute", "communication", "host", "tasks"};
    weft_buf_printf(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    for (int64_t d = 0; d < t->devices; d++) {
        weft_buf_printf(
            out,
            "{\"ph\":\"M\",\"pid\":%" PRId64 ",\"name\":\"process_name\",\"args\":{\"name\":\"", d);
        if (devices_per_node > 0)
            weft_buf_printf(out, "node %" PRId64 " device %" PRId64 "\"}},\n", d / devices_per_node,
                            d % devices_per_node);
        else
            weft_buf_printf(out, "rank %" PRId64 "\"}},\n", d);
        for (int k = 0; k < WEFT_STREAM_COUNT; k++)
            weft_buf_printf(out,
                            "{\"ph\":\"M\",\"pid\":%" PRId64 ",\"tid\":%d,\"name\":\"thread_name\","
                            "\"args\":{\"name\":\"%s\"}},\n",
                            d, k, streams[k]);
    }
    for (int64_t i = 0; i < t->step_count; i++) {
        const weft_trace_step *s = &t->step[i];
        const weft_trace_group *g = &t->group[s->group];
        for (int32_t k = 0; k < g->count && !isnan(start[i]); k++) {
            weft_buf_printf(
                out, "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":",
                t->member[g->first + k], s->stream, 1e6 * start[i], 1e6 * (end[i] - start[i]));
            weft_trace_put_string(out, t->name[s->name]);
            weft_buf_printf(out, ",\"cat\":\"%s\"},\n", weft_trace_kind_name(s->kind));
        }
    }
    weft_buf_printf(out, "{\"ph\":\"M\",\"pid\":0,\"name\":\"process_sort_index\",\"args\":{\"sort_"
                         "index\":0}}\n]}\n");
    return weft_buf_check(out);
}

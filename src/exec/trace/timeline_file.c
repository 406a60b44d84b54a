/* Timelines as files: Chrome's events, and under "weft" the data of a replay.
 *
 *     {"traceEvents": [...],
 *      "weft": {"format": "weft.timeline/1", "rank": 0, "ranks": 2, "names": [...],
 *               "groups": [[0], [0, 1]],
 *               "steps": [[name, kind, stream, group, start, end, bytes, together,
 *                          request's group, channel, waits, handling, after...], ...]}} */
#include "exec/trace/timeline_file.h"

#include "base/fs.h"
#include "base/json.h"

#include <math.h>
#include <string.h>

#define FORMAT "weft.timeline/1"
enum { COLUMNS = 12, AFTER = 8 };

static void put_lists(const weft_timeline *t, weft_buf *out)
{
    const weft_trace *trace = &t->trace;
    weft_buf_printf(out, ",\n\"names\":[");
    for (int64_t i = 0; i < trace->name_count; i++) {
        weft_buf_printf(out, i ? "," : "");
        weft_trace_put_string(out, trace->name[i]);
    }
    weft_buf_printf(out, "],\n\"groups\":[");
    for (int64_t g = 0; g < trace->group_count; g++) {
        weft_buf_printf(out, g ? ",[" : "[");
        for (int32_t i = 0; i < trace->group[g].count; i++)
            weft_buf_printf(out, i ? ",%d" : "%d", trace->member[trace->group[g].first + i]);
        weft_buf_printf(out, "]");
    }
    weft_buf_printf(out, "],\n\"steps\":[");
}

weft_status weft_timeline_write(const weft_timeline *t, const char *path)
{
    const weft_trace *trace = &t->trace;
    weft_buf out = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_trace_chrome(trace, 0, t->start, t->end, &out));
    while (out.len && out.data[out.len - 1] != '}')
        out.len--;
    out.len--; /* the last closing brace */
    weft_buf_printf(&out, ",\"weft\":{\"format\":\"" FORMAT "\",\"rank\":%d,\"ranks\":%" PRId64,
                    t->rank, trace->devices);
    put_lists(t, &out);
    for (int64_t i = 0; i < trace->step_count; i++) {
        const weft_trace_step *s = &trace->step[i];
        const weft_timeline_note *n = &t->note[i];
        weft_buf_printf(&out, "%s[%d,%d,%d,%d,%.9f,%.9f,%.0f,%d,%d,%d,%d,%.9f", i ? ",\n" : "\n",
                        s->name, s->kind, s->stream, s->group, t->start[i], t->end[i], s->bytes,
                        s->together, n->group, n->channel, n->waits, n->handling);
        for (int32_t k = 0; k < s->after_count; k++)
            weft_buf_printf(&out, ",%d", trace->after[s->first_after + k]);
        weft_buf_printf(&out, "]");
    }
    weft_buf_printf(&out, "]}}\n");
    WEFT_GO(weft_buf_check(&out));
    WEFT_GO(weft_file_write_atomic(path, out.data, out.len));
out:
    weft_buf_free(&out);
    return status;
}

static weft_status read_groups(const json_t *list, weft_trace *trace)
{
    for (size_t g = 0; g < json_array_size(list); g++) {
        const json_t *group = json_array_get(list, g);
        const int64_t count = (int64_t)json_array_size(group);
        int32_t *member = weft_calloc(count + 1, sizeof *member);
        int32_t index = -1;
        WEFT_TRY(WEFT_ALLOCATED(member, "reading a timeline"));
        for (int64_t i = 0; i < count; i++)
            member[i] = (int32_t)json_integer_value(json_array_get(group, (size_t)i));
        const weft_status_code status = weft_trace_add_group(trace, member, count, &index);
        weft_free(member);
        WEFT_TRY(status);
        if (index != (int32_t)g)
            return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.key = "groups", WEFT_NUMBER(g)),
                              "group %d occurs twice", (int)g);
    }
    return WEFT_OK;
}

static weft_status read_step(const json_t *row, weft_timeline *t)
{
    double v[COLUMNS];
    int32_t after[AFTER];
    const int64_t i = t->trace.step_count;
    const size_t size = json_array_size(row);
    if (size < COLUMNS || size > COLUMNS + AFTER)
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.key = "steps", WEFT_NUMBER(size)),
                          "step %" PRId64 " has %d columns; %d to %d are read", i, (int)size,
                          COLUMNS, COLUMNS + AFTER);
    for (size_t k = 0; k < COLUMNS; k++) {
        const json_t *cell = json_array_get(row, k);
        v[k] = json_is_number(cell) ? json_number_value(cell) : NAN;
        if (!isfinite(v[k]) || fabs(v[k]) > 1e15)
            return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.key = "steps", WEFT_NUMBER(v[k])),
                              "step %" PRId64 ": column %d is %g, which is not a number up to 1e15",
                              i, (int)k, v[k]);
    }
    for (size_t k = COLUMNS; k < size; k++)
        after[k - COLUMNS] = (int32_t)json_integer_value(json_array_get(row, k));
    if (v[1] < 0 || v[1] >= WEFT_TRACE_KIND_COUNT || v[2] < 0 || v[2] >= WEFT_STREAM_COUNT ||
        v[4] > v[5] || v[8] < -1 || v[8] >= (double)t->trace.group_count || fabs(v[0]) > 1e9 ||
        fabs(v[3]) > 1e9 || fabs(v[9]) > 1e9)
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.key = "steps"),
                          "step %" PRId64 ": kind, stream, times or group are outside their range",
                          i);
    WEFT_TRY(weft_grow((void **)&t->start, i, &t->start_capacity, sizeof *t->start));
    WEFT_TRY(weft_grow((void **)&t->end, i, &t->end_capacity, sizeof *t->end));
    WEFT_TRY(weft_grow((void **)&t->note, i, &t->note_capacity, sizeof *t->note));
    t->start[i] = v[4];
    t->end[i] = v[5];
    t->note[i] = (weft_timeline_note){(int32_t)v[8], (int32_t)v[9], v[10] != 0, fmax(v[11], 0)};
    const weft_trace_step step = {.name = (int32_t)v[0],
                                  .kind = (uint8_t)v[1],
                                  .stream = (uint8_t)v[2],
                                  .group = (int32_t)v[3],
                                  .owner = -1,
                                  .seconds = v[5] - v[4],
                                  .bytes = v[6],
                                  .together = v[7] != 0};
    return weft_trace_add_step(&t->trace, step, after, (int64_t)(size - COLUMNS), NULL);
}

static weft_status read_all(const json_t *json, weft_timeline *t)
{
    int64_t rank, ranks;
    const char *format;
    WEFT_TRY(weft_json_get_string(json, "format", "weft", &format));
    if (strcmp(format, FORMAT) != 0)
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.key = "format", .value = format),
                          "the format is \"%.40s\"; weft reads " FORMAT, format);
    WEFT_TRY(weft_json_get_i64(json, "rank", "weft", &rank));
    WEFT_TRY(weft_json_get_i64(json, "ranks", "weft", &ranks));
    if (ranks < 1 || ranks > 1 << 20 || rank < 0 || rank >= ranks)
        return weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_AT(.key = "rank", WEFT_RANK(rank)),
                          "rank %" PRId64 " of %" PRId64 " ranks is not possible", rank, ranks);
    t->rank = (int)rank;
    t->trace.devices = ranks;
    const json_t *names = json_object_get(json, "names"), *steps = json_object_get(json, "steps");
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        WEFT_TRY(weft_grow((void **)&t->trace.name, t->trace.name_count, &t->trace.name_capacity,
                           sizeof *t->trace.name));
        char *copy = weft_strdup(name ? name : "");
        WEFT_TRY(WEFT_ALLOCATED(copy, "reading a timeline"));
        t->trace.name[t->trace.name_count++] = copy;
    }
    WEFT_TRY(read_groups(json_object_get(json, "groups"), &t->trace));
    for (size_t i = 0; i < json_array_size(steps); i++)
        WEFT_TRY(read_step(json_array_get(steps, i), t));
    return weft_trace_check(&t->trace);
}

weft_status weft_timeline_read(const char *path, weft_timeline *timeline)
{
    json_t *json;
    weft_timeline t = {.last = -1};
    WEFT_TRY(weft_json_load(path, &json));
    const json_t *own = json_object_get(json, "weft");
    weft_status_code status =
        own ? read_all(own, &t)
            : weft_error(WEFT_MSG_FORMAT_DAMAGED, WEFT_NOWHERE,
                         "the file is not a timeline of a rank, as weft generate --trace or "
                         "`trace: true` of weft train writes it");
    json_decref(json);
    WEFT_GO(status);
    *timeline = t;
    return WEFT_OK;
out:
    weft_timeline_free(&t);
    return weft_error_at(status, WEFT_AT(.file = path));
}

#include "format/metrics.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"

#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { MAX_BYTES = 1 << 30 };

struct weft_metrics {
    int fd;
    char *path;
    double began;
    weft_tfevents *events;
    weft_buf line;
};

/* The step of a line, -1: it is no whole line. */
static int64_t step_of(const char *line, int64_t bytes)
{
    json_t *json = json_loadb(line, (size_t)bytes, 0, NULL);
    const json_t *step = json_object_get(json, "step");
    const int64_t value = json_is_integer(step) ? (int64_t)json_integer_value(step) : -1;
    json_decref(json);
    return value;
}

/* Keeps the lines before `step`. */
static weft_status keep_lines(const char *path, int64_t step)
{
    if (!weft_path_exists(path))
        return WEFT_OK;
    char *text;
    int64_t bytes, kept = 0;
    WEFT_TRY(weft_file_read(path, MAX_BYTES, &text, &bytes));
    for (int64_t at = 0; at < bytes;) {
        const char *end = memchr(text + at, '\n', (size_t)(bytes - at));
        if (!end)
            break;
        const int64_t length = end + 1 - (text + at), own = step_of(text + at, length - 1);
        if (own >= 0 && own < step) {
            memmove(text + kept, text + at, (size_t)length);
            kept += length;
        }
        at += length;
    }
    const weft_status_code status =
        kept < bytes ? weft_file_write_atomic(path, text, kept) : WEFT_OK;
    weft_free(text);
    return status;
}

weft_status weft_metrics_open(const char *folder, int64_t step, weft_metrics **out)
{
    WEFT_TRY(weft_make_dirs(folder));
    weft_metrics *m = weft_alloc(sizeof *m);
    if (!m)
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory for the metrics", folder);
    m->fd = -1;
    m->began = weft_now();
    weft_status_code status = WEFT_OK;
    if (!(m->path = weft_path_join(folder, "metrics.jsonl")))
        WEFT_GO(weft_fail(WEFT_E_MEMORY, "%s: out of memory for the metrics", folder));
    WEFT_GO(keep_lines(m->path, step));
    m->fd = open(m->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (m->fd < 0)
        WEFT_GO(weft_fail_errno("%s", m->path));
    WEFT_GO(weft_tfevents_open(folder, &m->events));
    *out = m;
out:
    if (status != WEFT_OK)
        (void)!weft_metrics_close(m);
    return status;
}

/* As a JSON string: names are ours, but a tag may come from a config. */
static void put_name(weft_buf *line, const char *name)
{
    weft_buf_append(line, "\"", 1);
    for (const char *p = name; *p; p++) {
        if (*p == '"' || *p == '\\')
            weft_buf_append(line, "\\", 1);
        weft_buf_append(line, (unsigned char)*p < 0x20 ? "?" : p, 1);
    }
    weft_buf_append(line, "\"", 1);
}

weft_status weft_metrics_write(weft_metrics *m, int64_t step, const weft_metric *metric, int count)
{
    m->line.len = 0;
    weft_buf_printf(&m->line, "{\"step\": %lld, \"seconds\": %.3f", (long long)step,
                    weft_now() - m->began);
    for (int i = 0; i < count; i++) {
        weft_buf_append(&m->line, ", ", 2);
        put_name(&m->line, metric[i].name);
        if (isfinite(metric[i].value))
            weft_buf_printf(&m->line, ": %.9g", metric[i].value);
        else
            weft_buf_append(&m->line, ": null", 6);
        WEFT_TRY(weft_tfevents_scalar(m->events, metric[i].name, step, metric[i].value));
    }
    weft_buf_append(&m->line, "}\n", 2);
    WEFT_TRY(weft_buf_check(&m->line));
    const ssize_t written = write(m->fd, m->line.data, (size_t)m->line.len);
    if (written < 0)
        return weft_fail_errno("%s", m->path);
    if (written < m->line.len)
        return weft_fail(WEFT_E_SPACE, "%s: a line could not be written whole: the disk is full",
                         m->path);
    return WEFT_OK;
}

weft_tfevents *weft_metrics_events(weft_metrics *m)
{
    return m->events;
}

weft_status weft_metrics_close(weft_metrics *m)
{
    if (!m)
        return WEFT_OK;
    weft_status_code status = weft_tfevents_close(m->events);
    if (m->fd >= 0 && close(m->fd) != 0 && status == WEFT_OK)
        status = weft_fail_errno("%s", m->path);
    weft_buf_free(&m->line);
    weft_free(m->path);
    weft_free(m);
    return status;
}

weft_status weft_metrics_read(const char *path, const char *name, double **step, double **value,
                              int64_t *count)
{
    char *text;
    int64_t bytes, n = 0, step_capacity = 0, value_capacity = 0;
    double *steps = NULL, *values = NULL;
    WEFT_TRY(weft_file_read(path, MAX_BYTES, &text, &bytes));
    weft_status_code status = WEFT_OK;
    for (int64_t at = 0; at < bytes;) {
        const char *end = memchr(text + at, '\n', (size_t)(bytes - at));
        if (!end)
            break;
        json_t *json = json_loadb(text + at, (size_t)(end - (text + at)), 0, NULL);
        const json_t *s = json_object_get(json, "step"), *v = json_object_get(json, name);
        if (json_is_number(s) && v) {
            status = weft_grow((void **)&steps, n, &step_capacity, sizeof *steps);
            if (status == WEFT_OK)
                status = weft_grow((void **)&values, n, &value_capacity, sizeof *values);
            if (status == WEFT_OK) {
                steps[n] = json_number_value(s);
                values[n++] = json_is_number(v) ? json_number_value(v) : NAN;
            }
        }
        json_decref(json);
        WEFT_GO(status);
        at = end + 1 - text;
    }
    *step = steps;
    *value = values;
    *count = n;
out:
    weft_free(text);
    if (status != WEFT_OK) {
        weft_free(steps);
        weft_free(values);
    }
    return status;
}

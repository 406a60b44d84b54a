#include "format/log/metrics.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct weft_metrics {
    int fd;
    char *path;
    double began;
    weft_tfevents *events;
    weft_buf line;
};

/* The step of a line; -1: the line is incomplete. */
static int64_t step_of(const char *line, int64_t bytes)
{
    json_t *json = json_loadb(line, (size_t)bytes, 0, NULL);
    const json_t *step = json_object_get(json, "step");
    const int64_t value = json_is_integer(step) ? (int64_t)json_integer_value(step) : -1;
    json_decref(json);
    return value;
}

/* Reads the next line of a file of any size, without its end. False: no further complete line. */
static bool next_line(FILE *file, char **line, size_t *capacity, ssize_t *bytes)
{
    *bytes = getline(line, capacity, file);
    if (*bytes <= 0 || (*line)[*bytes - 1] != '\n')
        return false;
    (*line)[--*bytes] = '\0';
    return true;
}

/* The lines of a file that are before a step. */
typedef struct line_prefix {
    int64_t bytes; /* bytes before the first line to remove */
    bool all, ends_there;
} line_prefix;

/* `to` NULL: only looks. */
static weft_status copy_lines(FILE *from, const char *path, int64_t step, weft_file_writer *to,
                              line_prefix *k)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t bytes;
    weft_status_code status = WEFT_OK;
    *k = (line_prefix){.all = true, .ends_there = true};
    rewind(from);
    while (next_line(from, &line, &capacity, &bytes)) {
        const int64_t own = step_of(line, bytes);
        if (own < 0 || own >= step) {
            k->all = false;
            continue;
        }
        line[bytes] = '\n';
        if (k->all)
            k->bytes += bytes + 1;
        else
            k->ends_there = false;
        if (to)
            WEFT_GO(weft_file_write(to, line, bytes + 1));
    }
    k->all = k->all && bytes <= 0;
    if (ferror(from))
        WEFT_GO(weft_error_errno(WEFT_AT(.file = path), "cannot read the file"));
out:
    free(line);
    return status;
}

static weft_status rewrite_lines(FILE *from, const char *path, int64_t step, line_prefix *k)
{
    weft_file_writer to;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_file_begin(&to, path));
    WEFT_GO(copy_lines(from, path, step, &to, k));
    WEFT_GO(weft_file_commit(&to));
out:
    weft_file_abort(&to);
    return status;
}

/* Keeps the lines before `step`: truncates the file, or copies them if other lines are in
 * between. */
static weft_status truncate_lines(const char *path, int64_t step)
{
    if (!weft_path_exists(path))
        return WEFT_OK;
    FILE *from = fopen(path, "re");
    if (!from)
        return weft_error_errno(WEFT_AT(.file = path), "cannot open the file");
    line_prefix k;
    weft_status_code status = WEFT_OK;
    WEFT_GO(copy_lines(from, path, step, NULL, &k));
    if (!k.all && !k.ends_there)
        WEFT_GO(rewrite_lines(from, path, step, &k));
    else if (!k.all && truncate(path, k.bytes) != 0)
        WEFT_GO(weft_error_errno(WEFT_AT(.file = path),
                                 "cannot shorten the file to %" PRId64 " bytes", k.bytes));
out:
    fclose(from);
    return status;
}

weft_status weft_metrics_open(const char *folder, int64_t step, weft_metrics **out)
{
    WEFT_TRY(weft_make_dirs(folder));
    weft_metrics *m;
    WEFT_TRY(WEFT_NEW(m, 1, "%s: the metrics", folder));
    m->fd = -1;
    m->began = weft_now();
    weft_status_code status = WEFT_OK;
    if (!(m->path = weft_path_join(folder, "metrics.jsonl")))
        WEFT_GO(weft_no_memory("%s: the metrics", folder));
    WEFT_GO(truncate_lines(m->path, step));
    m->fd = open(m->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (m->fd < 0)
        WEFT_GO(weft_error_errno(WEFT_AT(.file = m->path), "cannot open the file for writing"));
    WEFT_GO(weft_tfevents_open(folder, &m->events));
    *out = m;
out:
    if (status != WEFT_OK)
        (void)!weft_metrics_close(m);
    return status;
}

/* Writes a JSON string. Names need no escapes, but a tag may come from a config. */
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
    weft_buf_printf(&m->line, "{\"step\": %" PRId64 ", \"seconds\": %.3f", step,
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
        return weft_error_errno(WEFT_AT(.file = m->path), "cannot write to the file");
    if (written < m->line.len)
        return weft_error(WEFT_MSG_DISK_FULL, WEFT_AT(.file = m->path),
                          "the disk is full: %zd of %" PRId64
                          " bytes of a line were written. Free some space there.",
                          written, m->line.len);
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
    const bool closed = m->fd < 0 || close(m->fd) == 0;
    WEFT_GO(status);
    if (!closed)
        WEFT_GO(weft_error_errno(WEFT_AT(.file = m->path), "cannot close the file"));
out:
    weft_buf_free(&m->line);
    weft_free(m->path);
    weft_free(m);
    return status;
}

typedef struct points {
    double *step, *value;
    int64_t count, step_capacity, value_capacity;
} points;

static weft_status add_point(points *p, double step, const json_t *value)
{
    WEFT_TRY(weft_grow((void **)&p->step, p->count, &p->step_capacity, sizeof *p->step));
    WEFT_TRY(weft_grow((void **)&p->value, p->count, &p->value_capacity, sizeof *p->value));
    p->step[p->count] = step;
    p->value[p->count++] = json_is_number(value) ? json_number_value(value) : NAN;
    return WEFT_OK;
}

static weft_status read_line(const char *path, int64_t number, const char *line, ssize_t bytes,
                             const char *name, points *p)
{
    json_t *json = json_loadb(line, (size_t)bytes, 0, NULL);
    const json_t *step = json_object_get(json, "step"), *value = json_object_get(json, name);
    weft_status_code status = WEFT_OK;
    if (!json_is_number(step))
        status = weft_error(WEFT_MSG_TEXT_DAMAGED, WEFT_AT(.file = path, .line = number),
                            "the line is damaged: expected a JSON object with \"step\". Restore "
                            "the file, or remove the line.");
    else if (value)
        status = add_point(p, json_number_value(step), value);
    json_decref(json);
    return status;
}

weft_status weft_metrics_read(const char *path, const char *name, double **step, double **value,
                              int64_t *count)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t bytes;
    int64_t lines = 0;
    points p = {0};
    FILE *file = fopen(path, "re");
    if (!file)
        return weft_error_errno(WEFT_AT(.file = path), "cannot open the file");
    weft_status_code status = WEFT_OK;
    while (next_line(file, &line, &capacity, &bytes))
        WEFT_GO(read_line(path, ++lines, line, bytes, name, &p));
    if (ferror(file))
        WEFT_GO(weft_error_errno(WEFT_AT(.file = path), "cannot read the file"));
    if (lines == 0)
        WEFT_GO(weft_error(
            WEFT_MSG_TEXT_DAMAGED, WEFT_AT(.file = path),
            "the file has no complete line. A run writes its first line after its first step."));
out:
    free(line);
    fclose(file);
    if (status != WEFT_OK) {
        weft_free(p.step);
        weft_free(p.value);
        return status;
    }
    *step = p.step;
    *value = p.value;
    *count = p.count;
    return WEFT_OK;
}

#include "train/pipe_table.h"

#include "base/fs.h"
#include "plan/pipeline/pipeline_plan.h"
#include "plan/pipeline/pipeline_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct csv {
    const char *path;
    weft_task *task;
    int64_t count, room;
    int64_t stages, microbatches, devices;
    bool split, whole; /* I and W are there; B is there */
} csv;

static weft_status add(csv *c, weft_task task)
{
    WEFT_TRY(weft_grow((void **)&c->task, c->count, &c->room, sizeof *c->task));
    c->task[c->count++] = task;
    c->stages = task.stage >= c->stages ? task.stage + 1 : c->stages;
    c->microbatches = task.microbatch >= c->microbatches ? task.microbatch + 1 : c->microbatches;
    return WEFT_OK;
}

static weft_status read_cell(csv *c, const char *cell, int device)
{
    static const char kinds[] = "FIWB";
    enum { MOST = 1 << 20 };
    char what[24], rest;
    int stage, microbatch;
    if (sscanf(cell, "%d%23[A-Z_]%d%c", &stage, what, &microbatch, &rest) != 3 || what[1] ||
        !strchr(kinds, what[0]) || stage < 0 || microbatch < 0 || stage >= MOST ||
        microbatch >= MOST)
        return weft_fail(WEFT_E_FORMAT,
                         "%s: line %d: \"%.40s\" is none of 0F0, 0B0, 0I0, 0W0 (stage, what, "
                         "microbatch)",
                         c->path, device + 1, cell);
    weft_task task = {.device = device, .stage = stage, .microbatch = microbatch};
    task.kind = what[0] == 'F' ? WEFT_TASK_F : what[0] == 'W' ? WEFT_TASK_W : WEFT_TASK_B;
    c->split = c->split || what[0] == 'I' || what[0] == 'W';
    c->whole = c->whole || what[0] == 'B';
    return add(c, task);
}

static weft_status read_line(csv *c, char *line)
{
    const int device = (int)c->devices++;
    for (char *cell = line; cell;) {
        char *end = strchr(cell, ',');
        if (end)
            *end++ = 0;
        cell += strspn(cell, " \t\"");
        cell[strcspn(cell, " \t\"\r")] = 0;
        if (*cell)
            WEFT_TRY(read_cell(c, cell, device));
        cell = end;
    }
    return WEFT_OK;
}

/* In a table with W, a B does both. */
static weft_status split_whole(csv *c)
{
    const int64_t count = c->count;
    const weft_task *from = c->task;
    csv made = {.path = c->path, .devices = c->devices};
    bool *has_w = weft_alloc(c->stages * c->microbatches + 1);
    weft_status_code status = has_w ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "no memory for a table");
    for (int64_t i = 0; i < count && has_w; i++)
        if (from[i].kind == WEFT_TASK_W)
            has_w[from[i].stage * c->microbatches + from[i].microbatch] = true;
    for (int64_t i = 0; i < count && status == WEFT_OK; i++) {
        weft_task task = from[i];
        status = add(&made, task);
        if (status != WEFT_OK || task.kind != WEFT_TASK_B ||
            has_w[task.stage * c->microbatches + task.microbatch])
            continue;
        task.kind = WEFT_TASK_W;
        status = add(&made, task);
    }
    weft_free(has_w);
    weft_free(c->task);
    c->task = made.task;
    c->count = made.count;
    return status;
}

/* A stage's device is that of its first forward; the check of the table finds the others. */
static weft_status finish(csv *c, weft_schedule *table)
{
    int32_t *device_of = weft_alloc((c->stages + 1) * (int64_t)sizeof *device_of);
    weft_status_code status = WEFT_OK;
    if (!device_of)
        return weft_fail(WEFT_E_MEMORY, "no memory for a table");
    for (int64_t q = 0; q < c->stages; q++)
        device_of[q] = -1;
    for (int64_t i = 0; i < c->count; i++)
        if (device_of[c->task[i].stage] < 0)
            device_of[c->task[i].stage] = c->task[i].device;
    for (int64_t i = 0; i < c->count; i++)
        if (device_of[c->task[i].stage] != c->task[i].device)
            WEFT_GO(weft_fail(WEFT_E_FORMAT, "%s: stage %d is on lines %d and %d", c->path,
                              (int)c->task[i].stage, (int)device_of[c->task[i].stage] + 1,
                              (int)c->task[i].device + 1));
    for (int64_t q = 0; q < c->stages; q++)
        if (device_of[q] < 0)
            WEFT_GO(weft_fail(WEFT_E_FORMAT, "%s: stage %lld of %lld does nothing", c->path,
                              (long long)q, (long long)c->stages));
    if (c->count != (c->split ? 3 : 2) * c->stages * c->microbatches)
        WEFT_GO(weft_fail(WEFT_E_FORMAT,
                          "%s: %lld entries; %lld stages and %lld microbatches have %lld", c->path,
                          (long long)c->count, (long long)c->stages, (long long)c->microbatches,
                          (long long)((c->split ? 3 : 2) * c->stages * c->microbatches)));
    status = weft_schedule_from_order("loaded", device_of, c->stages, c->devices, c->microbatches,
                                      c->split, c->task, c->count, table);
    if (status == WEFT_E_INTERNAL) { /* the order is the file's */
        status = weft_fail_context(WEFT_E_FORMAT, "%s", c->path);
        status =
            weft_fail_remedy(status, "Write each task of a line after the tasks that it needs");
    }
out:
    weft_free(device_of);
    return status;
}

static weft_status load_csv(const char *path, weft_schedule *table)
{
    char *text;
    int64_t bytes;
    csv c = {.path = path};
    WEFT_TRY(weft_file_read(path, 1 << 28, &text, &bytes));
    weft_status_code status = WEFT_OK;
    for (char *line = text; line && *line && status == WEFT_OK;) {
        char *end = strchr(line, '\n');
        if (end)
            *end++ = 0;
        status = read_line(&c, line);
        line = end;
    }
    if (status == WEFT_OK && c.split && c.whole)
        status = split_whole(&c);
    if (status == WEFT_OK && c.count == 0)
        status = weft_fail(WEFT_E_FORMAT, "%s: nothing to do in it", path);
    if (status == WEFT_OK)
        status = finish(&c, table);
    weft_free(c.task);
    weft_free(text);
    return status;
}

static weft_status load_plan(const char *path, weft_schedule *table)
{
    weft_pipeline_plan plan;
    WEFT_TRY(weft_pipeline_plan_load(path, &plan));
    *table = plan.schedule;
    plan.schedule = (weft_schedule){0};
    weft_pipeline_plan_free(&plan);
    return WEFT_OK;
}

weft_status weft_pipe_table_load(const char *path, weft_schedule *table)
{
    if (!weft_path_exists(path))
        return weft_fail(WEFT_E_NOT_FOUND, "%s: no such file", path);
    WEFT_TRY(strcmp(weft_path_extension(path), "csv") ? load_plan(path, table)
                                                      : load_csv(path, table));
    const weft_status_code status = weft_schedule_check(table);
    if (status == WEFT_OK)
        return WEFT_OK;
    weft_schedule_free(table);
    return weft_fail_context(status, "%s", path);
}

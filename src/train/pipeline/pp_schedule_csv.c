#include "train/pipeline/pp_schedule_csv.h"

#include "base/fs.h"
#include "plan/pipeline/pipeline_json.h"
#include "plan/pipeline/pipeline_plan.h"
#include "plan/pipeline/pipeline_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct csv {
    const char *path;
    weft_task *task;
    int64_t count, capacity;
    int64_t pp_stages, microbatches, devices;
    bool split, whole; /* file has I or W; file has B */
} csv;

static weft_status add(csv *c, weft_task task)
{
    WEFT_TRY(weft_grow((void **)&c->task, c->count, &c->capacity, sizeof *c->task));
    c->task[c->count++] = task;
    c->pp_stages = task.pp_stage >= c->pp_stages ? task.pp_stage + 1 : c->pp_stages;
    c->microbatches = task.microbatch >= c->microbatches ? task.microbatch + 1 : c->microbatches;
    return WEFT_OK;
}

static weft_status read_cell(csv *c, const char *cell, int device)
{
    static const char kinds[] = "FIWB";
    enum { MOST = 1 << 20 };
    char what[24], rest;
    int pp_stage, microbatch;
    if (sscanf(cell, "%d%23[A-Z_]%d%c", &pp_stage, what, &microbatch, &rest) != 3 || what[1] ||
        !strchr(kinds, what[0]) || pp_stage < 0 || microbatch < 0 || pp_stage >= MOST ||
        microbatch >= MOST)
        return weft_error(
            WEFT_MSG_TEXT_DAMAGED, WEFT_AT(.file = c->path, .line = device + 1, .value = cell),
            "\"%.40s\" is not a task such as 0F0, 0B0, 0I0 or 0W0 (stage, kind, microbatch)", cell);
    weft_task task = {.device = device, .pp_stage = pp_stage, .microbatch = microbatch};
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

/* Adds a W after each B without a W, in a schedule that also has W tasks. */
static weft_status split_whole(csv *c)
{
    const int64_t count = c->count;
    const weft_task *from = c->task;
    csv made = {.path = c->path, .devices = c->devices};
    bool *has_w = weft_alloc(c->pp_stages * c->microbatches + 1);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(has_w, "a table"));
    for (int64_t i = 0; i < count; i++)
        if (from[i].kind == WEFT_TASK_W)
            has_w[from[i].pp_stage * c->microbatches + from[i].microbatch] = true;
    for (int64_t i = 0; i < count; i++) {
        weft_task task = from[i];
        WEFT_GO(add(&made, task));
        if (task.kind != WEFT_TASK_B || has_w[task.pp_stage * c->microbatches + task.microbatch])
            continue;
        task.kind = WEFT_TASK_W;
        WEFT_GO(add(&made, task));
    }
out:
    weft_free(has_w);
    weft_free(c->task);
    c->task = made.task;
    c->count = made.count;
    return status;
}

/* Builds the schedule. The first task of a stage determines its device. */
static weft_status finish(csv *c, weft_pp_schedule *table)
{
    int32_t *device_of = weft_calloc(c->pp_stages + 1, sizeof *device_of);
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_ALLOCATED(device_of, "a table"));
    for (int64_t q = 0; q < c->pp_stages; q++)
        device_of[q] = -1;
    for (int64_t i = 0; i < c->count; i++)
        if (device_of[c->task[i].pp_stage] < 0)
            device_of[c->task[i].pp_stage] = c->task[i].device;
    for (int64_t i = 0; i < c->count; i++)
        if (device_of[c->task[i].pp_stage] != c->task[i].device)
            WEFT_GO(weft_error(WEFT_MSG_PLAN_INVALID,
                               WEFT_AT(.file = c->path, .line = (int)c->task[i].device + 1,
                                       WEFT_NUMBER(c->task[i].pp_stage)),
                               "stage %d is on lines %d and %d", (int)c->task[i].pp_stage,
                               (int)device_of[c->task[i].pp_stage] + 1,
                               (int)c->task[i].device + 1));
    for (int64_t q = 0; q < c->pp_stages; q++)
        if (device_of[q] < 0)
            WEFT_GO(weft_error(WEFT_MSG_PLAN_INVALID, WEFT_AT(.file = c->path, WEFT_NUMBER(q)),
                               "stage %" PRId64 " of %" PRId64 " has no task", q, c->pp_stages));
    if (c->count != (c->split ? 3 : 2) * c->pp_stages * c->microbatches)
        WEFT_GO(weft_error(WEFT_MSG_PLAN_INVALID, WEFT_AT(.file = c->path, WEFT_NUMBER(c->count)),
                           "the file has %" PRId64 " tasks, and %" PRId64 " stages with %" PRId64
                           " microbatches need %" PRId64,
                           c->count, c->pp_stages, c->microbatches,
                           (c->split ? 3 : 2) * c->pp_stages * c->microbatches));
    status = weft_pp_schedule_from_order(&(weft_pp_schedule){.name = weft_path_base(c->path),
                                                             .devices = c->devices,
                                                             .pp_stages = c->pp_stages,
                                                             .microbatches = c->microbatches,
                                                             .split = c->split,
                                                             .device_of = device_of,
                                                             .task = c->task,
                                                             .task_count = c->count},
                                         table);
    if (status == WEFT_OK)
        table->name = "loaded";
    if (status == WEFT_E_INTERNAL) { /* the order of the file is wrong */
        char why[600];
        snprintf(why, sizeof why, "%s", weft_error_text());
        status = weft_error(WEFT_MSG_PLAN_INVALID, WEFT_AT(.file = c->path),
                            "%s. Write each task of a line after the tasks that it needs", why);
    }
out:
    weft_free(device_of);
    return status;
}

static weft_status load_csv(const char *path, weft_pp_schedule *table)
{
    char *text;
    int64_t bytes;
    csv c = {.path = path};
    WEFT_TRY(weft_file_read(path, 1 << 28, &text, &bytes));
    weft_status_code status = WEFT_OK;
    for (char *line = text; line && *line;) {
        char *end = strchr(line, '\n');
        if (end)
            *end++ = 0;
        WEFT_GO(read_line(&c, line));
        line = end;
    }
    if (c.split && c.whole)
        WEFT_GO(split_whole(&c));
    if (c.count == 0)
        WEFT_GO(weft_error(WEFT_MSG_PLAN_INVALID, WEFT_AT(.file = path), "the file has no task"));
    WEFT_GO(finish(&c, table));
out:
    weft_free(c.task);
    weft_free(text);
    return status;
}

static weft_status load_plan(const char *path, weft_pp_schedule *table)
{
    weft_pipeline_plan plan;
    WEFT_TRY(weft_pipeline_plan_load(path, &plan));
    *table = plan.schedule;
    plan.schedule = (weft_pp_schedule){0};
    weft_pipeline_plan_free(&plan);
    return WEFT_OK;
}

weft_status weft_pp_schedule_csv_load(const char *path, weft_pp_schedule *table)
{
    if (!weft_path_exists(path))
        return weft_error(WEFT_MSG_FILE_NOT_FOUND, WEFT_AT(.file = path), "no such file");
    WEFT_TRY(strcmp(weft_path_extension(path), "csv") ? load_plan(path, table)
                                                      : load_csv(path, table));
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_pp_schedule_check(table));
    return WEFT_OK;
out:
    weft_pp_schedule_free(table);
    return weft_error_at(status, WEFT_AT(.file = path));
}

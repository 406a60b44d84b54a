#include "serve/worker_messages.h"

#include <stdio.h>
#include <string.h>

static void read_progress(const json_t *json, weft_worker_report *r)
{
    const json_t *left = json_object_get(json, "seconds_left");
    r->kind = WEFT_WORKER_PROGRESS;
    r->done = json_integer_value(json_object_get(json, "done"));
    r->total = json_integer_value(json_object_get(json, "total"));
    r->seconds_left = json_is_number(left) ? json_number_value(left) : -1;
}

static void read_end(const json_t *json, weft_worker_report *r)
{
    const char *status = json_string_value(json_object_get(json, "status"));
    r->number = json_integer_value(json_object_get(json, "number"));
    r->kind = status && r->number > 0 ? WEFT_WORKER_END : WEFT_WORKER_MESSAGE;
    r->event = status && !strcmp(status, "finished")  ? WEFT_QUEUE_FINISHED
               : status && !strcmp(status, "stopped") ? WEFT_QUEUE_STOPPED
                                                      : WEFT_QUEUE_REFUSED;
}

weft_worker_report weft_worker_report_read(const char *line, int64_t length)
{
    weft_worker_report r = {.kind = WEFT_WORKER_MESSAGE};
    json_t *json = json_loadb(line, (size_t)length, 0, NULL);
    const char *level = json_string_value(json_object_get(json, "level"));
    if (level && !strcmp(level, "progress"))
        read_progress(json, &r);
    else if (level && !strcmp(level, "job"))
        read_end(json, &r);
    else if (level && !strcmp(level, "weights")) {
        r.kind = WEFT_WORKER_WEIGHTS;
        r.weights = json_incref(json);
    }
    json_decref(json);
    return r;
}

int weft_worker_stop_line(int64_t number, bool saves, char line[64])
{
    return snprintf(line, 64, "{\"stop\": %" PRId64 ", \"save\": %s}\n", number,
                    saves ? "true" : "false");
}

/* Lines between the server and its worker (`weft worker`): commands on the worker's standard input,
 * reports and messages on its standard error. Functions of text.
 *
 *     {"run": 12, "folder": DIR, "model": NAME, "lora": TEXT, "arguments": [of `weft generate`]}
 *     {"stop": 12, "save": true}
 *
 *     {"level": "progress", "done": 3, "total": 40, "seconds_left": 9.5}
 *     {"level": "weights", "weights": [...], "loads": 3, "unloads": 1}
 *     {"level": "job", "number": 12, "status": "finished"}    or "stopped", "refused" */
#ifndef WEFT_SERVE_WORKER_MESSAGES_H
#define WEFT_SERVE_WORKER_MESSAGES_H

#include "base/json.h"
#include "serve/queue_rules.h"

typedef struct weft_worker_report {
    enum { WEFT_WORKER_MESSAGE, WEFT_WORKER_PROGRESS, WEFT_WORKER_WEIGHTS, WEFT_WORKER_END } kind;
    int64_t done, total;    /* PROGRESS */
    double seconds_left;    /* PROGRESS; negative: unknown */
    json_t *weights;        /* WEIGHTS; owned */
    int64_t number;         /* END: of the job */
    weft_queue_event event; /* END */
} weft_worker_report;

/* Reads a line of `length` bytes. Lines of another form are a WEFT_WORKER_MESSAGE. */
weft_worker_report weft_worker_report_read(const char *line, int64_t length);
/* The command that stops the job `number` after its step. `saves`: its state is saved. Returns the
 * length of the line. */
int weft_worker_stop_line(int64_t number, bool saves, char line[64]);

#endif

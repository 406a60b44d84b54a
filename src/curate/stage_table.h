/* Stages of a running curation: a table on a terminal, lines elsewhere, and figures for Prometheus.
 * Private to curate/. */
#ifndef WEFT_CURATE_STAGE_TABLE_H
#define WEFT_CURATE_STAGE_TABLE_H

#include "base/log.h"
#include "base/memory.h"
#include "format/log/metrics_server.h"

typedef enum weft_curate_stage {
    WEFT_STAGE_ANALYSE,
    WEFT_STAGE_EMBED,
    WEFT_STAGE_SCORE,
    WEFT_STAGE_SELECT,
    WEFT_STAGE_WRITE,
    WEFT_STAGE_CAPTION,
    WEFT_CURATE_STAGES
} weft_curate_stage;

/* Sums over finished items, at item k: k items and `work` had ended `seconds` after the begin. */
typedef struct weft_stage_fit {
    double items_items, items_work, work_work; /* of products */
    double items_seconds, work_seconds;
} weft_stage_fit;

/* Totals of a stage. A stage may run several times. */
typedef struct weft_stage_count {
    bool used;                     /* the config needs the stage */
    int64_t input, output, failed; /* items */
    double seconds;                /* of the runs that ended */
} weft_stage_count;

typedef struct weft_stage_table {
    weft_stage_count stage[WEFT_CURATE_STAGES];
    weft_metrics_server *server; /* borrowed; NULL: none */
    /* the running stage */
    int now;                   /* weft_curate_stage; -1: none runs */
    int64_t workers;           /* items that run at the same time, at most */
    int64_t items, left;       /* of this run of the stage; `left`: not finished */
    double work, done;         /* of all items and of the finished ones */
    weft_stage_fit fit;        /* the price of an item and of a unit of work */
    double began, shown;       /* weft_now */
    bool on_terminal, is_late; /* is_late: no run of a stage began yet */
    weft_progress progress;    /* where no table is shown */
} weft_stage_table;

/* Members of a row; NaN: unknown. */
typedef struct weft_stage_row {
    int64_t input, output, failed, queued, running;
    double seconds, rate, remaining; /* rate: items per second */
} weft_stage_row;
void weft_stage_table_row(const weft_stage_table *table, weft_curate_stage stage,
                          weft_stage_row *row);

/* No stage is used. */
void weft_stage_table_init(weft_stage_table *table, weft_metrics_server *server);
/* Begins a run of a stage over `items` items, `workers` at a time. `work`: the sum of
 * their sizes. The remaining time has a price per item and per size, fitted to the items that
 * ended. */
void weft_stage_table_begin(weft_stage_table *table, weft_curate_stage stage, int64_t items,
                            int64_t workers, double work);
/* An item of size `work` ended. */
void weft_stage_table_item(weft_stage_table *table, bool failed, double work);
/* Shows the seconds that passed; cheap, for loops that wait. */
void weft_stage_table_tick(weft_stage_table *table);
/* Ends the run of the stage. `output` not negative: the number of items that came out, if they
 * are of another kind than the input. */
void weft_stage_table_end(weft_stage_table *table, int64_t output);
/* Leaves the table as it is shown; also after an error. */
void weft_stage_table_close(weft_stage_table *table);

/* Appends the lines of the table. */
void weft_stage_table_print(const weft_stage_table *table, weft_buf *text);
/* Appends the figures in Prometheus' text format. */
void weft_stage_table_metrics(const weft_stage_table *table, weft_buf *text);

#endif

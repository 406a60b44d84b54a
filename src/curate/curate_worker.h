/* `weft curate --worker`: tasks as JSON lines, from an engine that distributes them. */
#ifndef WEFT_CURATE_CURATE_WORKER_H
#define WEFT_CURATE_CURATE_WORKER_H

#include "curate/curate.h"

#include <stdio.h>

/* Answers each line of the descriptor `tasks` with one line of `results`, until the end of `tasks`:
 *
 *     {"task": "list"}                         {"task": "list", "done": true, "videos": [...],
 *                                               "stages": ["analyse", "score"]}
 *     {"task": "analyse", "video": "a.mp4"}    {..., "seconds": 1.2, "unscored": true}
 *     {"task": "score", "videos": ["a.mp4"]}   {..., "done": true, "seconds": 0.8, "loaded": 1}
 *     {"task": "list-clips"}                   as of list, if all are analysed: write, caption
 *     {"task": "write", "video": "a.mp4"}      {..., "clips": 3, "uncaptioned": ["a-17-000000"]}
 *     {"task": "caption", "clips": [...]}      {..., "captions": 1, "failed": 0}
 *
 * "loaded" counts the models and processes that the task opened. They stay open for later tasks.
 * A result repeats the members of its task. A task that failed has "done": false, "error" (a class
 * of messages) and "message". WEFT_E_CANCELLED: Ctrl-C or SIGTERM. */
weft_status weft_curate_worker_run(weft_curate_session *session, int tasks, FILE *results);

#endif

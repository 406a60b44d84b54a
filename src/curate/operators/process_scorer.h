/* Scores from an external process: frames go to its standard input, a line of JSON per shot comes
 * from its standard output.
 *
 *     weft ──> {"request": 1, "source": .., "frames": n, "width": w, "height": h, ...}\n
 *              n * w * h * 3 bytes, RGB ───────────────────────────────────────> process
 *     weft <── {"request": 1, "score": 0.7}\n or {.., "failed": "reason"}\n <─── process
 *
 * A reply repeats the number of its request, so that no score reaches another shot.
 *
 * The process lives for many shots. One that crashes, is late or prints anything else is killed,
 * and the next shot starts another one. After MOST_FAILURES such failures in sequence no more are
 * started. */
#ifndef WEFT_CURATE_OPERATORS_PROCESS_SCORER_H
#define WEFT_CURATE_OPERATORS_PROCESS_SCORER_H

#include "curate/operators/operators_config.h"
#include "curate/operators/shot_frames.h"

enum { WEFT_PROCESS_MOST_FAILURES = 3, WEFT_PROCESS_MOST_LINE = 64 << 10 };

typedef struct weft_process_scorer weft_process_scorer;
weft_status weft_process_scorer_open(const weft_operator_config *config, void (*beat)(void *),
                                     void *user, weft_process_scorer **scorer);
void weft_process_scorer_close(weft_process_scorer *scorer); /* kills the process; accepts NULL */
/* Adds "request", "frames", "width", "height" and "times" to the object `request`. WEFT_E_IO: no
 * score; the text is the reason. WEFT_E_MEMORY, WEFT_E_CANCELLED. */
weft_status weft_process_scorer_score(weft_process_scorer *scorer, json_t *request,
                                      const weft_shot_frames *frames, double *score);

#endif

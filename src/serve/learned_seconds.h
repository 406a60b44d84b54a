/* Seconds that a server has measured of its jobs, for the forecasts of later ones. The queue keeps
 * them as a text in JSON for the next start. Functions of numbers and text. */
#ifndef WEFT_SERVE_LEARNED_SECONDS_H
#define WEFT_SERVE_LEARNED_SECONDS_H

#include "base/memory.h"
#include "serve/rank_seconds.h"

/* Means of the last jobs; 0: unknown. */
typedef struct weft_learned_seconds {
    weft_rank_table ranks; /* of shared ranks */
    double retire;         /* until an idle worker has ended */
    int64_t retires;       /* measured */
    double start, stop;    /* of a job on a worker that had run others; of the stop of a job */
    double cold;           /* of the start of a job and its worker */
    int64_t starts;        /* measured, but first ones of workers */
    double pace;           /* measured seconds per predicted second of jobs */
    double finish;         /* of a video's end beyond its decoding */
    int64_t paced;         /* measured jobs of `pace`, but first ones of workers */
} weft_learned_seconds;

/* Appends the text. */
weft_status weft_learned_seconds_write(const weft_learned_seconds *learned, weft_buf *text);
/* Reads a text. False: it has another form, or numbers that no job can have; *learned is empty. */
bool weft_learned_seconds_read(const char *text, weft_learned_seconds *learned);

#endif

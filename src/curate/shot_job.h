#ifndef WEFT_CURATE_SHOT_JOB_H
#define WEFT_CURATE_SHOT_JOB_H

#include "base/fs.h"
#include "curate/footage.h"
#include "curate/shots/shots.h"

/* Source videos, and the file names of their shot lists in the folder of lists. */
typedef struct weft_shot_job {
    weft_names path, name;
    weft_footage **footage; /* [path.count]; of remote videos, others NULL; see `opened` */
    int64_t footage_capacity;
    weft_footage **opened; /* owned, [opened_count] */
    int64_t opened_count, opened_capacity;
    weft_shot_options options;
    const char *out; /* folder of lists, borrowed; NULL: standard output */
    bool csv;        /* scene lists of PySceneDetect; false: JSON lines */
    int threads;
} weft_shot_job;

/* Adds a file, or all possible source videos of a folder or a bucket. A remote video is copied to
 * this machine when its turn comes; a failed copy ends the run. */
weft_status weft_shot_job_add(weft_shot_job *job, const char *path);
/* Finds the transitions of all videos and prints or writes the lists. A damaged video does not stop
 * the others; the status reports the failure. */
weft_status weft_shot_job_run(const weft_shot_job *job);
void weft_shot_job_free(weft_shot_job *job);

#endif

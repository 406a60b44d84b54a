/* The two jobs of curation that run in child processes. Private to curate/. */
#ifndef WEFT_CURATE_WORK_H
#define WEFT_CURATE_WORK_H

#include "base/json.h"
#include "curate/curate.h"
#include "curate/parts.h"

#include <stdint.h>

/* Called every few dozen frames; the parent takes silence for a hang. */
typedef struct weft_heartbeat {
    int fd;           /* -1: none */
    int64_t memory;   /* bytes that the process can reserve; 0: no limit */
    int64_t resident; /* bytes in memory when the process began */
} weft_heartbeat;
void weft_heartbeat_beat(const weft_heartbeat *heart);

/* What tells copies by parts of their pictures, in the order of time (parts.h). */
typedef struct weft_curate_parts {
    weft_look *look;
    weft_points *points;
    int64_t looks, pictures;
} weft_curate_parts;
void weft_curate_parts_free(weft_curate_parts *parts);

/* Decodes the video once and writes its record: what it is, its shots with what their bars leave of
 * the picture, their scores and hashes; where an operator rejects the video, or a transition is
 * between shots, "reject": {operator, value, threshold, reason}; "again" where the fault may be
 * gone in the next run. The caller owns *record and *parts. A video that cannot be read is a record
 * with a reject, not an error. Errors are those of memory: WEFT_E_TOO_LARGE, WEFT_E_MEMORY. */
weft_status weft_curate_analyse(const char *path, const weft_curate_config *config, int threads,
                                const weft_heartbeat *heart, json_t **record,
                                weft_curate_parts *parts);

/* Why a shot of a record is not taken, by its scores; new reference, NULL: it is. */
json_t *weft_curate_judge(const weft_curate_config *config, const json_t *shot);

/* One clip to be written: frames start .. end (inclusive) of a source. */
typedef struct weft_curate_clip {
    const char *path; /* of the clip */
    const char *meta_path;
    json_t *meta; /* borrowed; width, height, ... are added after the clip is written */
    int64_t start, end;
    double fps, seconds; /* mean rate; from its first frame to the one after its last */
    int64_t crop[4];     /* x, y, w, h in display pixels; w 0: none */
    const char *id;
} weft_curate_clip;

/* Whether the clip is there, and written with the settings and the crop that its meta asks for: the
 * meta is written last, so a clip that has one is complete. */
bool weft_curate_clip_is_written(const weft_curate_clip *clip);
/* Writes the clips of one source that are not, ascending by start, not overlapping, in one pass
 * over it. */
weft_status weft_curate_write_clips(const char *source, const weft_curate_clip *clips,
                                    int64_t count, const weft_curate_config *config, int threads,
                                    const weft_heartbeat *heart);

/* {"operator","value","threshold","reason"} */
json_t *weft_curate_reject(const char *operator_name, double value, double threshold,
                           const char *reason);

#endif

/* What is known about every file of a curation, what is kept, and the lists that say so. Private to
 * curate/. */
#ifndef WEFT_CURATE_PLAN_H
#define WEFT_CURATE_PLAN_H

#include "curate/curate_work.h"
#include "curate/footage.h"
#include "curate/phash.h"

typedef struct weft_curate_source {
    /* Owned. name is relative to the input folder, made UTF-8; parts_path has the looks and then
     * the points of the whole video, as many as its record says (weft_curate_parts). */
    char *name, *path, *state_path, *parts_path;
    char id[64];
    weft_footage kind;
    int64_t bytes, mtime_ns;
    const char *why_other;  /* why a file is no video; static; NULL: by its name */
    const char *same_as;    /* name of the file with the same bytes that is kept; borrowed */
    json_t *record;         /* owned; NULL: not analysed yet */
    weft_phash *hash;       /* owned; of all its shots */
    weft_curate_clip *clip; /* owned, with its strings and metas; what is kept of it */
    int64_t clips;
} weft_curate_source;

typedef struct weft_curate_plan {
    const char *in, *out;
    const weft_curate_config *config;
    weft_curate_source *source; /* by name */
    int64_t sources, capacity;
} weft_curate_plan;

weft_status weft_curate_plan_scan(weft_curate_plan *plan);
/* Reads the records that are there and fit their files; at the begin of a run without those of what
 * could not be read then. */
weft_status weft_curate_plan_load(weft_curate_plan *plan, bool begin);
/* Near-duplicates, captions: fills the clips of every source and marks rejected shots. */
weft_status weft_curate_plan_choose(weft_curate_plan *plan);
/* manifest.jsonl, rejects.jsonl, summary.json; removes clips that are no longer in the plan. */
weft_status weft_curate_plan_publish(weft_curate_plan *plan, weft_curate_report *report);
weft_status weft_curate_state_save(const weft_curate_plan *plan, const weft_curate_source *source,
                                   json_t *record);
weft_status weft_curate_parts_save(const weft_curate_source *source,
                                   const weft_curate_parts *parts);
void weft_curate_plan_free(weft_curate_plan *plan);

#endif

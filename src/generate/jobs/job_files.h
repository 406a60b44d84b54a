/* The files of jobs on disk: names, search, removal. job_rules.def has the actions. */
#ifndef WEFT_GENERATE_JOBS_JOB_FILES_H
#define WEFT_GENERATE_JOBS_JOB_FILES_H

#include "generate/jobs/job_rules.h"
#include "generate/jobs/video_outputs.h"

/* Lives for the run. */
typedef struct weft_job_files {
    const char *out;                      /* file of one video, else a folder; borrowed */
    const weft_video_outputs_item *items; /* [jobs], borrowed */
    bool saves;                           /* --save-latents */
    bool warns;                           /* this rank warns about damaged files */
} weft_job_files;

/* The row of a job in `state`. */
weft_job_row weft_job_files_row(const weft_job_files *files, weft_job_state state,
                                weft_job_form form);
/* Path of a file next to the video: dog.preview.png for "preview.png" (weft_video_outputs_sibling).
 * _new_path creates its folder. */
weft_status weft_job_files_path(const weft_job_files *files, int64_t job, const char *ending,
                                weft_buf *path);
weft_status weft_job_files_new_path(const weft_job_files *files, int64_t job, const char *ending,
                                    weft_buf *path);
/* Path under which saved latents are written. `window`: index of the window, for WEFT_JOB_WINDOWS;
 * the folder exists except for WEFT_JOB_LATENTS, which creates it. */
weft_status weft_job_files_saved_path(const weft_job_files *files, int64_t job, weft_job_file file,
                                      int64_t window, weft_buf *path);

/* A search for saved latents of a job. */
typedef struct weft_job_lookup {
    const weft_job_files *files;
    int64_t job, window; /* window: index of the window, for WEFT_JOB_WINDOWS */
    weft_buf path;       /* path of the last file that was looked for; owned */
} weft_job_lookup;
/* A weft_job_find_fn; `lookup` is a weft_job_lookup. Damaged files count as whole: the file is not
 * read. */
weft_status_code weft_job_files_exist(void *lookup, weft_job_file file, weft_job_found *found);
/* Reads an existing file as well, compares its checksum and warns about a damaged file. The result
 * is the same on all ranks. */
weft_status_code weft_job_files_verify(void *lookup, weft_job_file file, weft_job_found *found);

/* *step: the step of a job's saved sampler state; 0: no state, or a damaged one. The result is the
 * same on all ranks. */
weft_status weft_job_files_saved_step(const weft_job_files *files, int64_t job, int64_t *step);

/* Removes the saved latents that the row removes. A file that cannot be removed stays. */
void weft_job_files_remove(const weft_job_files *files, int64_t job, weft_job_row row);
/* Removes a sampler state with the name of earlier versions, after one with the name of today is
 * written. */
void weft_job_files_remove_earlier(const weft_job_files *files, int64_t job);

#endif

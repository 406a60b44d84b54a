/* The actions of a run on the files of a job, by the state of the job. The table is job_rules.def.
 *
 * A job is one video. Its files are the columns, in the order in which a run writes them:
 *
 *     sampler state   NAME.sampling.safetensors             of the job's batch, after a step.
 *     latents         NAME.latents.safetensors              finished, of a video of one window.
 *     windows         NAME.window0000.latents.safetensors   finished, of a window of a long video.
 *     video           NAME.mp4                              complete; in a folder: and in the list.
 *     list            prompts.jsonl                         of a folder: a line per finished video.
 *
 * Temporary files (*.tmp.PID, also of a partial video) have no column: if their run was killed,
 * they are removed when the outputs open, in any state (weft_video_outputs_open). */
#ifndef WEFT_GENERATE_JOBS_JOB_RULES_H
#define WEFT_GENERATE_JOBS_JOB_RULES_H

#include "base/status.h"

typedef enum weft_job_file {
    WEFT_JOB_SAMPLER_STATE,
    WEFT_JOB_LATENTS,
    WEFT_JOB_WINDOWS,
    WEFT_JOB_VIDEO,
    WEFT_JOB_LIST,
    WEFT_JOB_FILES /* number of files */
} weft_job_file;

typedef enum weft_job_state {
#define WEFT_JOB_ROW(state, ...) WEFT_JOB_##state,
#include "generate/jobs/job_rules.def"
#undef WEFT_JOB_ROW
    WEFT_JOB_STATES /* number of states */
} weft_job_state;

typedef enum weft_job_action {
    WEFT_RULE_KEEP,        /* neither reads nor changes the file */
    WEFT_RULE_REMOVE,      /* removes the file, if it exists */
    WEFT_RULE_EMPTY,       /* replaces the file with an empty one */
    WEFT_RULE_MEND,        /* removes an incomplete last line */
    WEFT_RULE_UNFINISHED,  /* if the file exists, the job is unfinished */
    WEFT_RULE_FINISHED,    /* if the file exists, the job is finished */
    WEFT_RULE_DECODE,      /* decodes the video from the file */
    WEFT_RULE_RESUME,      /* continues the denoising from the file */
    WEFT_RULE_WRITE,       /* writes the file */
    WEFT_RULE_WRITE_DUE,   /* writes the file unless the last write was a short time ago */
    WEFT_RULE_WRITE_TRIED, /* writes the file with the decoder's bytes: decoding begins */
    WEFT_RULE_ACTIONS,     /* number of actions; the others are cells of the table alone */
    WEFT_RULE_REMOVE_OR_KEEP = WEFT_RULE_ACTIONS,
    WEFT_RULE_REMOVE_OR_WRITE,
    WEFT_RULE_UNFINISHED_OR_KEEP
} weft_job_action;

/* The latents that a job saves. Before the generator opens, files of both forms may exist. */
typedef enum weft_job_form {
    WEFT_JOB_ANY_FORM,
    WEFT_JOB_ONE_WINDOW, /* `latents` */
    WEFT_JOB_CONTINUED   /* `windows` */
} weft_job_form;

/* A row of the table, and the conditions that choose its actions. */
typedef struct weft_job_row {
    weft_job_state state;
    weft_job_form form;
    bool saves; /* --save-latents */
} weft_job_row;

typedef enum weft_job_found {
    WEFT_JOB_MISSING,
    WEFT_JOB_DAMAGED, /* its checksum differs */
    WEFT_JOB_WHOLE
} weft_job_found;

/* The action for `file`. WEFT_RULE_KEEP for a file that jobs of this form do not save. */
weft_job_action weft_job_rule(weft_job_row row, weft_job_file file);

/* Looks for a file of a job. */
typedef weft_status_code weft_job_find_fn(void *user, weft_job_file file, weft_job_found *found);
/* Sets *finished by the first file that exists, in the order of the columns: saved latents are
 * newer than the video, because they are removed when their video is written. No file: false. */
weft_status weft_job_check(weft_job_row row, weft_job_find_fn *find, void *user, bool *finished);
/* Sets *source to the file from which the job continues: the first one that exists, from the last
 * column to the first. WEFT_JOB_FILES: none exists, or this file is damaged and its content is
 * generated again. */
weft_status weft_job_search(weft_job_row row, weft_job_find_fn *find, void *user,
                            weft_job_file *source);

#endif

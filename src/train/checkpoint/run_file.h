/* JSON files in the folder of a run that store a choice made at its start, so that a resumed run
 * makes the same one. Each has a format and a checksum (plan/plan_checksum.h). */
#ifndef WEFT_TRAIN_CHECKPOINT_RUN_FILE_H
#define WEFT_TRAIN_CHECKPOINT_RUN_FILE_H

#include "base/json.h"

typedef struct weft_run_file {
    const char *name;   /* "layout-choice.json" */
    const char *format; /* "weft.layout-choice/1" */
    const char *remedy; /* sentence for errors, without its period */
} weft_run_file;

typedef weft_status_code weft_run_file_reader(const json_t *json, const char *path, void *to);

/* Verifies the file in the run folder `out` and passes its content to `read`. Without a file,
 * returns WEFT_OK and does not call `read`. Errors name the file and have the remedy. */
weft_status weft_run_file_load(const char *out, const weft_run_file *file,
                               weft_run_file_reader *read, void *to);
/* Adds format and checksum to `json` and writes it atomically. `json` stays the caller's. */
weft_status weft_run_file_save(const char *out, const weft_run_file *file, json_t *json);

/* 16 hexadecimal digits as JSON text; NULL: out of memory. */
json_t *weft_hash_text(uint64_t hash);
/* Parses the text of weft_hash_text. False: `text` is NULL or another value. */
bool weft_hash_parse(const json_t *text, uint64_t *hash);

#endif

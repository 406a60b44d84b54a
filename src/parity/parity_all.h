/* Compares all golden files of several folders, one at a time. */
#ifndef WEFT_PARITY_PARITY_ALL_H
#define WEFT_PARITY_PARITY_ALL_H

#include "base/memory.h"
#include "parity/parity_compare.h"

typedef enum weft_parity_result {
    WEFT_PARITY_PASSED,
    WEFT_PARITY_FAILED, /* an error is above its limit, or the file is damaged or not supported */
    WEFT_PARITY_SKIPPED /* the file needs an option that was not given: record.needs */
} weft_parity_result;

typedef struct weft_parity_row {
    char *file; /* owned: path */
    weft_parity_record record;
    weft_parity_result result;
    char *reason; /* owned; NULL: passed */
} weft_parity_row;

/* Results of the files with the same family, or without a model of the same kind. */
typedef struct weft_parity_group {
    const char *name; /* borrowed from the rows */
    int64_t count[3]; /* by weft_parity_result */
    double worst;     /* largest error as a share of its limit */
    double seconds;
} weft_parity_group;

typedef struct weft_parity_table {
    weft_parity_row *row;
    weft_parity_group *group; /* in the order of the names */
    int64_t rows, groups, count[3];
} weft_parity_table; /* zero-initialise; free after an error, too */

/* Compares FOLDER/NAME.json of each folder, sorted by name, and pipelines: asked*.json in folders
 * of FOLDER/pipelines, or of a FOLDER without NAME.json. `request` has everything except the file.
 * A file that fails does not stop the others. Shows progress with the time left. Errors: a folder
 * cannot be read or has no such file; memory. */
weft_status weft_parity_run_all(const char *const *folder, int folders,
                                const weft_parity_request *request, weft_parity_table *table);
/* Name of a row in tables: "t5.json", "flux2/asked_edit.json". */
const char *weft_parity_row_name(const weft_parity_row *row);
void weft_parity_table_free(weft_parity_table *table);
/* Returns the largest error of the record's measures from `first` on as a share of its limit, and
 * that measure; NULL: none. */
const weft_parity_measure *weft_parity_largest(const weft_parity_record *record, int first);

#endif

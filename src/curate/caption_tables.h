/* The tables of captions among the sources of a curation: files captions.csv, whose rows name
 * videos relative to the folder of the table. */
#ifndef WEFT_CURATE_CAPTION_TABLES_H
#define WEFT_CURATE_CAPTION_TABLES_H

#include "base/fs.h"
#include "curate/curate_plan.h"
#include "data/caption_csv.h"

typedef struct weft_caption_table {
    const weft_curate_source *source; /* borrowed */
    size_t folder;                    /* bytes of the source's name before "captions.csv" */
    weft_caption_csv csv;
} weft_caption_table;

/* Zero-initialise. */
typedef struct weft_caption_tables {
    weft_caption_table *table; /* owned */
    int64_t tables, capacity;
} weft_caption_tables;

weft_status weft_caption_tables_read(const weft_curate_plan *plan, weft_caption_tables *tables);
void weft_caption_tables_free(weft_caption_tables *tables);
/* Caption of a source by its name, from the table in the nearest folder. NULL: none. Valid as long
 * as the tables. */
const char *weft_caption_tables_find(const weft_caption_tables *tables, const char *name);
/* Appends why rows of a table reach no video. `names`: sorted names of all videos. */
void weft_caption_table_why(const weft_caption_table *table, const weft_names *names,
                            weft_buf *why);

#endif

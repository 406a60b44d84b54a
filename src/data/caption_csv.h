/* Captions from a table: a CSV file (RFC 4180, UTF-8) whose first line names the columns "file" and
 * "caption". Other columns are not read. */
#ifndef WEFT_DATA_CAPTION_CSV_H
#define WEFT_DATA_CAPTION_CSV_H

#include "base/memory.h"

typedef struct weft_caption_row {
    char *file, *caption; /* owned */
    int64_t line;
} weft_caption_row;

/* Zero-initialise. */
typedef struct weft_caption_csv {
    weft_caption_row *row; /* sorted by file; owned */
    int64_t rows, capacity;
    weft_buf why; /* why all or some rows are unusable; empty: no problem */
} weft_caption_csv;

/* Reads a table. Problems of the file are reported in `why`; only a lack of memory is an error. */
weft_status weft_caption_csv_read(const char *path, weft_caption_csv *csv);
/* Reads a table in memory, which ends with NUL and is changed. */
weft_status weft_caption_csv_parse(char *data, int64_t bytes, weft_caption_csv *csv);
void weft_caption_csv_free(weft_caption_csv *csv);
/* Caption of a file, as the table names it; NULL: none. Valid as long as the table. */
const char *weft_caption_csv_find(const weft_caption_csv *csv, const char *file);

#endif

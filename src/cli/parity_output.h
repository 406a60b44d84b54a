/* Results of weft parity as text and as JSON. */
#ifndef WEFT_CLI_PARITY_OUTPUT_H
#define WEFT_CLI_PARITY_OUTPUT_H

#include "base/json.h"
#include "parity/parity_all.h"

/* Appends one line with the largest errors of a file. */
void weft_parity_print_record(const char *file, const weft_parity_record *record, weft_buf *out);
/* Appends the tables of files and of families, and the counts. */
void weft_parity_print_table(const weft_parity_table *table, weft_buf *out);
/* A new object; NULL: out of memory. `reason` NULL: passed. */
json_t *weft_parity_record_json(const char *file, const weft_parity_record *record,
                                weft_parity_result result, const char *reason);
json_t *weft_parity_table_json(const weft_parity_table *table);

#endif

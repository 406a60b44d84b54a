/* The text that a curation prints at its end. */
#ifndef WEFT_CURATE_CURATE_SUMMARY_H
#define WEFT_CURATE_CURATE_SUMMARY_H

#include "curate/curate.h"

/* Prints counts, and a table of the operators if there are any, to standard output. */
void weft_curate_summary_print(const char *out, const weft_curate_report *report);

#endif

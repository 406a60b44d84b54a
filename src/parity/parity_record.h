/* The result of one golden file. All strings that are pointers are static. */
#ifndef WEFT_PARITY_PARITY_RECORD_H
#define WEFT_PARITY_PARITY_RECORD_H

#include "weft/types.h"

enum { WEFT_PARITY_MEASURES = 4 };

/* The largest error of one sort of values. */
typedef struct weft_parity_measure {
    const char *of; /* "outputs" */
    double worst, limit;
} weft_parity_measure;

typedef struct weft_parity_record {
    const char *kind;    /* name of the comparison; NULL: no kind recognizes the file */
    const char *family;  /* class of the model's family; NULL: the comparison has no model */
    char class_name[96]; /* "_class_name" of the file; "": none */
    weft_parity_measure measure[WEFT_PARITY_MEASURES]; /* none: values are equal or differ */
    int measures, compared, failures;
    char first[128];       /* name of the first comparison that failed */
    const char *needs;     /* option without which this file cannot be compared; NULL: none */
    weft_status_code code; /* status of the comparison */
    double seconds;
} weft_parity_record;

#endif

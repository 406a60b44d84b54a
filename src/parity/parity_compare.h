/* Compares the results of weft with one golden file. */
#ifndef WEFT_PARITY_PARITY_COMPARE_H
#define WEFT_PARITY_PARITY_COMPARE_H

#include "base/status.h"
#include "kernel/kernel.h"
#include "parity/parity_record.h"

#include <stdbool.h>

typedef struct weft_parity_request {
    const char *json;    /* path of the JSON file */
    const char *tensors; /* path of the safetensors file; NULL: of the same name as `json` */
    const char *weights; /* weights that the file lacks; NULL: none */
    const weft_backend *backend;
    bool verbose;                   /* say all comparisons, not only failures */
    void (*line)(const char *text); /* receives lines without their end; NULL: dropped */
    /* Runs `weft generate` silently, for pipelines; NULL: not possible. */
    weft_status (*generate)(int argc, const char *const *argv);
} weft_parity_request;

/* Fills *record, after an error as far as the comparison came. parity-failed: a comparison failed;
 * any other error: the file is damaged or not supported. */
weft_status weft_parity_compare(const weft_parity_request *request, weft_parity_record *record);

#endif

/* Measurements of ranks as a table, and the ranks that differ from the others. */
#ifndef WEFT_DOCTOR_RANK_REPORT_H
#define WEFT_DOCTOR_RANK_REPORT_H

#include "base/status.h"
#include "comm/rank_map.h"
#include "graph/mesh.h"

#include <stdio.h>

typedef enum weft_rank_measure {
    WEFT_RANK_GEMM,            /* GFLOP/s */
    WEFT_RANK_MEMORY,          /* bytes/s */
    WEFT_RANK_INSIDE,          /* bytes/s of the links inside the machine */
    WEFT_RANK_BETWEEN,         /* and of the links to other machines */
    WEFT_RANK_INSIDE_LATENCY,  /* seconds */
    WEFT_RANK_BETWEEN_LATENCY, /* seconds */
    WEFT_RANK_MEASURES
} weft_rank_measure;

typedef struct weft_rank_report {
    char host[64];
    weft_rank_location location;      /* machine: by host name */
    int32_t started, threads;         /* started: rank number from the launcher, -1: unknown */
    double value[WEFT_RANK_MEASURES]; /* 0: not measured */
} weft_rank_report;

/* A rank whose measure is much worse than the median of the ranks. */
typedef struct weft_rank_outlier {
    int rank;
    weft_rank_measure measure;
    double median;
} weft_rank_outlier;

/* Returns the number of outliers, at most one per rank and measure. `scratch`: a value per rank. */
int weft_rank_outliers(const weft_rank_report *r, int ranks, double *scratch,
                       weft_rank_outlier *outlier);
/* Prints a line per rank, a line per outlier, and the neighbours on each axis of the mesh. */
weft_status weft_rank_reports_print(const weft_rank_report *r, int ranks, const weft_mesh *mesh,
                                    FILE *out);

#endif

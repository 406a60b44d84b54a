#include "doctor/doctor_ranks.h"

#include "base/compare.h"
#include "base/launcher.h"
#include "base/log.h"
#include "comm/comm.h"
#include "comm/comm_measure.h"
#include "comm/comm_mpi.h"
#include "comm/comm_world.h"
#include "comm/measure.h"
#include "comm/rank_map.h"
#include "exec/measure_products.h"
#include "kernel/cpu/table.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GEMM, MEMORY, INSIDE, BETWEEN, INSIDE_LATENCY, BETWEEN_LATENCY, MEASURES };

/* A measure that is compared with the median of all ranks. */
typedef struct measure {
    const char *name, *unit;
    double scale; /* factor for the printed value */
    bool low;     /* lower is better */
    double share; /* reported if worse than the median by more than this share */
} measure;

/* clang-format off */
static const measure measures[MEASURES] = {
    [GEMM]            = {"GEMM",                    "GFLOP/s", 1,    false, 0.2},
    [MEMORY]          = {"memory",                  "GB/s",    1e-9, false, 0.2},
    [INSIDE]          = {"link inside a machine",   "GB/s",    1e-9, false, 0.5},
    [BETWEEN]         = {"link between machines",   "GB/s",    1e-9, false, 0.5},
    [INSIDE_LATENCY]  = {"latency inside a machine",  "us",    1e6,  true,  2},
    [BETWEEN_LATENCY] = {"latency between machines",  "us",    1e6,  true,  2},
};
/* clang-format on */

typedef struct rank_report {
    char host[64];
    weft_rank_location location; /* machine: by host name */
    int32_t started, threads;    /* started: rank number from the launcher, -1: unknown */
    double value[MEASURES];      /* 0: not measured */
} rank_report;

/* Measures all ranks at the same time, as in a run, so that contention between ranks is visible. */
static weft_status measure_here(weft_comm *comm, rank_report *own)
{
    weft_link_speed inside, between;
    *own = (rank_report){.location = weft_rank_location_here(),
                         .started = weft_launcher_rank(),
                         .threads = omp_get_max_threads()};
    gethostname(own->host, sizeof own->host - 1);
    WEFT_TRY(weft_comm_barrier(comm));
    WEFT_TRY(weft_measure_gemm(&weft_backend_cpu, 0.7, &own->value[GEMM]));
    WEFT_TRY(weft_comm_barrier(comm));
    WEFT_TRY(weft_measure_memory(128 << 20, 0.5, &own->value[MEMORY]));
    WEFT_TRY(weft_comm_measure_links(comm, &inside, &between));
    own->value[INSIDE] = inside.bytes_per_second;
    own->value[BETWEEN] = between.bytes_per_second;
    own->value[INSIDE_LATENCY] = inside.latency;
    own->value[BETWEEN_LATENCY] = between.latency;
    return WEFT_OK;
}

/* ---- the table ----------------------------------------------------------------------------- */

static const char *link_text(double speed, double latency, char text[40])
{
    snprintf(text, 40, "-");
    if (speed > 0)
        snprintf(text, 40, "%.2f GB/s, %.1f us", 1e-9 * speed, 1e6 * latency);
    return text;
}

static const char *cores_text(const weft_rank_location *location, char text[40])
{
    if (location->core < 0)
        snprintf(text, 40, "any of %d", location->cores);
    else if (location->cores == 1)
        snprintf(text, 40, "%d", location->core);
    else
        snprintf(text, 40, "%d from %d on", location->cores, location->core);
    return text;
}

static void print_table(const rank_report *r, int ranks)
{
    char text[3][40], numa[16];
    bool reordered = false;
    int width = 4;
    for (int i = 0; i < ranks; i++) {
        const int length = (int)strlen(r[i].host);
        width = length > width ? length : width;
        reordered = reordered || (r[i].started >= 0 && r[i].started != i);
    }
    printf("rank  %-*s  NUMA  %-12s  threads  %13s  %10s  %-22s  %s\n", width, "host", "cores",
           "GEMM", "memory", "link inside", "link between");
    for (int i = 0; i < ranks; i++) {
        snprintf(numa, sizeof numa, r[i].location.numa < 0 ? "any" : "%d", r[i].location.numa);
        printf("%4d  %-*s  %4s  %-12s  %7d  %5.1f GFLOP/s  %5.1f GB/s  %-22s  %s\n", i, width,
               r[i].host, numa, cores_text(&r[i].location, text[0]), r[i].threads, r[i].value[GEMM],
               1e-9 * r[i].value[MEMORY],
               link_text(r[i].value[INSIDE], r[i].value[INSIDE_LATENCY], text[1]),
               link_text(r[i].value[BETWEEN], r[i].value[BETWEEN_LATENCY], text[2]));
    }
    if (!reordered)
        return;
    printf("numbered by machine, NUMA node and core; the launcher started them as");
    for (int i = 0; i < ranks; i++)
        printf(" %d", r[i].started);
    printf("\n");
}

/* ---- outliers ------------------------------------------------------------------------------ */

/* Returns the median of the ranks that have the measure. With an even count, the better of the two
 * middle values. */
static double median(const rank_report *r, int ranks, int m, double *scratch)
{
    int count = 0;
    for (int i = 0; i < ranks; i++)
        if (r[i].value[m] > 0)
            scratch[count++] = r[i].value[m];
    qsort(scratch, (size_t)count, sizeof *scratch, weft_compare_f64);
    return count ? scratch[measures[m].low ? (count - 1) / 2 : count / 2] : 0;
}

static weft_status print_outliers(const rank_report *r, int ranks)
{
    int named = 0;
    double *scratch;
    WEFT_TRY(WEFT_NEW(scratch, ranks, "the medians of %d ranks", ranks));
    for (int m = 0; m < MEASURES; m++) {
        const measure *of = &measures[m];
        const double middle = median(r, ranks, m, scratch);
        for (int i = 0; i < ranks && middle > 0; i++) {
            const double off = r[i].value[m] / middle - 1;
            if (r[i].value[m] == 0 || !(of->low ? off > of->share : off < -of->share))
                continue;
            printf("rank %d on %s: %s %.3g %s, %.0f %% %s than the median of %.3g\n", i, r[i].host,
                   of->name, of->scale * r[i].value[m], of->unit, 100 * fabs(off),
                   of->low ? "more" : "less", of->scale * middle);
            named++;
        }
    }
    if (!named)
        printf("no rank differs much from the others\n");
    weft_free(scratch);
    return WEFT_OK;
}

/* ---- axes ---------------------------------------------------------------------------------- */

/* Distance between the ranks of a group; NEAR is the number of kinds. */
enum { SAME_NUMA, SAME_MACHINE, APART, NEAR };

static int nearness(const rank_report *r, int first, int stride, int size)
{
    int near = r[first].location.numa >= 0 ? SAME_NUMA : SAME_MACHINE;
    for (int k = 1; k < size; k++) {
        const rank_report *a = &r[first], *b = &r[first + k * stride];
        if (strcmp(a->host, b->host) != 0)
            return APART;
        if (a->location.numa != b->location.numa)
            near = SAME_MACHINE;
    }
    return near;
}

static void print_axes(const rank_report *r, const weft_mesh *mesh, int ranks)
{
    static const char *const words[NEAR] = {"inside a NUMA node", "inside a machine",
                                            "between machines"};
    int stride = ranks;
    if (mesh->axis_count)
        printf("axis  ranks  neighbours  groups\n");
    for (int a = 0; a < mesh->axis_count; a++) {
        const int size = mesh->axis[a].size;
        int groups[NEAR] = {0};
        const char *comma = "";
        stride /= size;
        for (int i = 0; i < ranks; i++)
            if (i / stride % size == 0)
                groups[nearness(r, i, stride, size)]++;
        printf("%-4s  %5d  %10d  ", mesh->axis[a].name, size, stride);
        for (int k = 0; k < NEAR; k++)
            if (groups[k]) {
                printf("%s%d %s", comma, groups[k], words[k]);
                comma = ", ";
            }
        printf(": rank 0 with");
        for (int k = 1; k < size && k < 8; k++)
            printf(" %d", k * stride);
        printf("%s\n", size > 8 ? " ..." : "");
    }
}

weft_status weft_doctor_ranks(const weft_parallel *parallel)
{
    weft_status_code status = WEFT_OK;
    weft_mesh mesh;
    weft_comm *comm = NULL;
    rank_report own, *all = NULL;
    WEFT_GO(weft_comm_open_mpi(&comm));
    const int ranks = weft_comm_ranks(comm);
    WEFT_GO(weft_parallel_mesh(parallel, ranks, "--parallel", &mesh));
    WEFT_GO(WEFT_NEW(all, ranks, "reports of %d ranks", ranks));
    WEFT_GO(measure_here(comm, &own));
    WEFT_GO(weft_comm_all_gather(comm, &own, sizeof own, all));
    if (weft_comm_rank(comm) == 0) {
        print_table(all, ranks);
        WEFT_GO(print_outliers(all, ranks));
        print_axes(all, &mesh, ranks);
    }
out:
    if (status != WEFT_OK)
        weft_comm_abort(comm);
    weft_comm_free(comm);
    weft_free(all);
    return status;
}

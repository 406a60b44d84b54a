#include "doctor/rank_report.h"

#include "base/compare.h"
#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A measure that is compared with the median of all ranks. */
typedef struct measure {
    const char *name, *unit;
    double scale; /* factor for the printed value */
    bool low;     /* lower is better */
    double share; /* reported if worse than the median by more than this share */
} measure;

/* clang-format off */
static const measure measures[WEFT_RANK_MEASURES] = {
    [WEFT_RANK_GEMM]            = {"GEMM",                    "GFLOP/s", 1,    false, 0.2},
    [WEFT_RANK_MEMORY]          = {"memory",                  "GB/s",    1e-9, false, 0.2},
    [WEFT_RANK_INSIDE]          = {"link inside a machine",   "GB/s",    1e-9, false, 0.5},
    [WEFT_RANK_BETWEEN]         = {"link between machines",   "GB/s",    1e-9, false, 0.5},
    [WEFT_RANK_INSIDE_LATENCY]  = {"latency inside a machine",  "us",    1e6,  true,  2},
    [WEFT_RANK_BETWEEN_LATENCY] = {"latency between machines",  "us",    1e6,  true,  2},
};
/* clang-format on */

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

static void print_table(const weft_rank_report *r, int ranks, FILE *out)
{
    char text[3][40], numa[16];
    bool reordered = false;
    int width = 4;
    for (int i = 0; i < ranks; i++) {
        const int length = (int)strlen(r[i].host);
        width = length > width ? length : width;
        reordered = reordered || (r[i].started >= 0 && r[i].started != i);
    }
    fprintf(out, "rank  %-*s  NUMA  %-12s  threads  %13s  %10s  %-22s  %s\n", width, "host",
            "cores", "GEMM", "memory", "link inside", "link between");
    for (int i = 0; i < ranks; i++) {
        snprintf(numa, sizeof numa, r[i].location.numa < 0 ? "any" : "%d", r[i].location.numa);
        fprintf(
            out, "%4d  %-*s  %4s  %-12s  %7d  %5.1f GFLOP/s  %5.1f GB/s  %-22s  %s\n", i, width,
            r[i].host, numa, cores_text(&r[i].location, text[0]), r[i].threads,
            r[i].value[WEFT_RANK_GEMM], 1e-9 * r[i].value[WEFT_RANK_MEMORY],
            link_text(r[i].value[WEFT_RANK_INSIDE], r[i].value[WEFT_RANK_INSIDE_LATENCY], text[1]),
            link_text(r[i].value[WEFT_RANK_BETWEEN], r[i].value[WEFT_RANK_BETWEEN_LATENCY],
                      text[2]));
    }
    if (!reordered)
        return;
    fprintf(out, "numbered by machine, NUMA node and core; the launcher started them as");
    for (int i = 0; i < ranks; i++)
        fprintf(out, " %d", r[i].started);
    fprintf(out, "\n");
}

/* ---- outliers ------------------------------------------------------------------------------ */

/* Returns the median of the ranks that have the measure. With an even count, the better of the two
 * middle values. */
static double median(const weft_rank_report *r, int ranks, int m, double *scratch)
{
    int count = 0;
    for (int i = 0; i < ranks; i++)
        if (r[i].value[m] > 0)
            scratch[count++] = r[i].value[m];
    qsort(scratch, (size_t)count, sizeof *scratch, weft_compare_f64);
    return count ? scratch[measures[m].low ? (count - 1) / 2 : count / 2] : 0;
}

int weft_rank_outliers(const weft_rank_report *r, int ranks, double *scratch,
                       weft_rank_outlier *outlier)
{
    int count = 0;
    for (int m = 0; m < WEFT_RANK_MEASURES; m++) {
        const double middle = median(r, ranks, m, scratch);
        for (int i = 0; i < ranks && middle > 0; i++) {
            const double off = r[i].value[m] / middle - 1;
            if (r[i].value[m] > 0 &&
                (measures[m].low ? off > measures[m].share : off < -measures[m].share))
                outlier[count++] = (weft_rank_outlier){i, (weft_rank_measure)m, middle};
        }
    }
    return count;
}

static weft_status print_outliers(const weft_rank_report *r, int ranks, FILE *out)
{
    double *scratch = weft_alloc(ranks * (int64_t)sizeof *scratch);
    weft_rank_outlier *list = weft_alloc(ranks * WEFT_RANK_MEASURES * (int64_t)sizeof *list);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(scratch && list, "the medians of the ranks"));
    const int count = weft_rank_outliers(r, ranks, scratch, list);
    for (int k = 0; k < count; k++) {
        const measure *of = &measures[list[k].measure];
        const int i = list[k].rank;
        const double value = r[i].value[list[k].measure], middle = list[k].median;
        fprintf(out, "rank %d on %s: %s %.3g %s, %.0f %% %s than the median of %.3g\n", i,
                r[i].host, of->name, of->scale * value, of->unit, 100 * fabs(value / middle - 1),
                of->low ? "more" : "less", of->scale * middle);
    }
    if (count == 0)
        fprintf(out, "no rank differs much from the others\n");
out:
    weft_free(scratch);
    weft_free(list);
    return status;
}

/* ---- axes ---------------------------------------------------------------------------------- */

/* Distance between the ranks of a group; NEAR is the number of kinds. */
enum { SAME_NUMA, SAME_MACHINE, APART, NEAR };

static int nearness(const weft_rank_report *r, int first, int stride, int size)
{
    int near = r[first].location.numa >= 0 ? SAME_NUMA : SAME_MACHINE;
    for (int k = 1; k < size; k++) {
        const weft_rank_report *a = &r[first], *b = &r[first + k * stride];
        if (strcmp(a->host, b->host) != 0)
            return APART;
        if (a->location.numa != b->location.numa)
            near = SAME_MACHINE;
    }
    return near;
}

static void print_axes(const weft_rank_report *r, const weft_mesh *mesh, int ranks, FILE *out)
{
    static const char *const words[NEAR] = {"inside a NUMA node", "inside a machine",
                                            "between machines"};
    int stride = ranks;
    if (mesh->axis_count)
        fprintf(out, "axis  ranks  neighbours  groups\n");
    for (int a = 0; a < mesh->axis_count; a++) {
        const int size = mesh->axis[a].size;
        int groups[NEAR] = {0};
        const char *comma = "";
        stride /= size;
        for (int i = 0; i < ranks; i++)
            if (i / stride % size == 0)
                groups[nearness(r, i, stride, size)]++;
        fprintf(out, "%-4s  %5d  %10d  ", mesh->axis[a].name, size, stride);
        for (int k = 0; k < NEAR; k++)
            if (groups[k]) {
                fprintf(out, "%s%d %s", comma, groups[k], words[k]);
                comma = ", ";
            }
        fprintf(out, ": rank 0 with");
        for (int k = 1; k < size && k < 8; k++)
            fprintf(out, " %d", k * stride);
        fprintf(out, "%s\n", size > 8 ? " ..." : "");
    }
}

weft_status weft_rank_reports_print(const weft_rank_report *r, int ranks, const weft_mesh *mesh,
                                    FILE *out)
{
    print_table(r, ranks, out);
    WEFT_TRY(print_outliers(r, ranks, out));
    print_axes(r, mesh, ranks, out);
    return WEFT_OK;
}

#include "train/monitor/stragglers.h"

#include "base/compare.h"
#include "base/memory.h"

#include <stdlib.h>

typedef struct seconds {
    double kernels, waits, data;
} seconds;

typedef struct rank_record {
    double part;        /* share of the FLOPs; 1: the mean over the ranks */
    seconds sum;        /* seconds of this window */
    int64_t slow, next; /* consecutive slow windows; the count that triggers the next report */
} rank_record;

struct weft_stragglers {
    weft_straggler_config config;
    int ranks;
    int64_t steps; /* steps of this window so far */
    rank_record *rank;
    double *sorted; /* [ranks], scratch */
};

weft_status weft_stragglers_create(const weft_straggler_config *config, int ranks,
                                   const double *flops, weft_stragglers **out)
{
    weft_stragglers *s = weft_alloc(sizeof *s);
    double all = 0;
    if (s) {
        *s = (weft_stragglers){.config = *config, .ranks = ranks};
        s->rank = weft_calloc(ranks, sizeof *s->rank);
        s->sorted = weft_calloc(ranks, sizeof *s->sorted);
    }
    if (!s || !s->rank || !s->sorted) {
        weft_stragglers_free(s);
        return weft_no_memory("the pace of %d ranks", ranks);
    }
    for (int r = 0; r < ranks && flops; r++)
        all += flops[r];
    for (int r = 0; r < ranks; r++)
        s->rank[r] =
            (rank_record){.part = all > 0 && flops[r] > 0 ? flops[r] * ranks / all : 1, .next = 1};
    *out = s;
    return WEFT_OK;
}

void weft_stragglers_free(weft_stragglers *s)
{
    if (!s)
        return;
    weft_free(s->rank);
    weft_free(s->sorted);
    weft_free(s);
}

static double own_work(const rank_record *r)
{
    return r->sum.kernels + r->sum.data;
}

static double even_work(const rank_record *r)
{
    return r->sum.kernels / r->part + r->sum.data;
}

static double waited(const rank_record *r)
{
    return r->sum.waits;
}

/* The lower median: with two ranks the faster one. */
static double median(weft_stragglers *s, double (*of)(const rank_record *))
{
    for (int r = 0; r < s->ranks; r++)
        s->sorted[r] = of(&s->rank[r]);
    qsort(s->sorted, (size_t)s->ranks, sizeof *s->sorted, weft_compare_f64);
    return s->sorted[(s->ranks - 1) / 2];
}

static void format_slow(const weft_stragglers *s, int rank, double work, double waits,
                        weft_buf *out)
{
    const rank_record *r = &s->rank[rank];
    const double n = (double)s->steps;
    char text[6][32];
    weft_buf_printf(
        out,
        "%srank %d is slower than the others: in the last %" PRId64
        " steps its own work took %s a step "
        "(kernels %s, data %s) and it waited %s; the median of %d ranks is %s of work and %s of "
        "waits",
        out->len ? "\n" : "", rank, s->steps, weft_format_seconds(own_work(r) / n, text[0]),
        weft_format_seconds(r->sum.kernels / n, text[1]),
        weft_format_seconds(r->sum.data / n, text[2]),
        weft_format_seconds(r->sum.waits / n, text[3]), s->ranks,
        weft_format_seconds(work / n, text[4]), weft_format_seconds(waits / n, text[5]));
}

static void end_window(weft_stragglers *s, weft_buf *out)
{
    const double work = median(s, own_work), even = median(s, even_work), waits = median(s, waited),
                 more = 1 + s->config.share;
    for (int i = 0; i < s->ranks; i++) {
        rank_record *r = &s->rank[i];
        const bool slow = own_work(r) > more * work && even_work(r) > more * even;
        if (slow && ++r->slow == r->next) {
            format_slow(s, i, work, waits, out);
            r->next *= 2;
        } else if (!slow && r->slow) {
            weft_buf_printf(out, "%srank %d is no longer slower than the others",
                            out->len ? "\n" : "", i);
            r->slow = 0;
            r->next = 1;
        }
        r->sum = (seconds){0};
    }
    s->steps = 0;
}

void weft_stragglers_record(weft_stragglers *s, const weft_step_timing *pace, weft_buf *out)
{
    for (int i = 0; i < s->ranks; i++) {
        seconds *sum = &s->rank[i].sum;
        sum->kernels += (double)pace[i].kernels;
        sum->waits += (double)pace[i].waits;
        sum->data += (double)pace[i].data;
    }
    if (++s->steps == s->config.steps)
        end_window(s, out);
}

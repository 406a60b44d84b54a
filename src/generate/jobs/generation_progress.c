#include "generate/jobs/generation_progress.h"

double weft_generation_step_seconds(double elapsed, double first, int64_t steps)
{
    return steps > 1 ? (elapsed - first) / (double)(steps - 1) : elapsed;
}

void weft_generation_progress_begin(weft_generation_progress *p, int64_t steps, bool quiet)
{
    weft_progress_begin(&p->bar, "generate", steps + p->videos, 0);
    if (quiet)
        p->bar.quiet = true;
}

void weft_generation_progress_update(weft_generation_progress *p, int64_t steps, const char *detail,
                                     double decoding)
{
    const int64_t to_step = p->bar.total - p->videos - steps, to_decode = p->videos - p->made;
    double left = p->step_seconds * (double)to_step + decoding;
    if (to_decode > 1)
        left += p->longest * (double)(to_decode - 1);
    weft_progress_update_left(&p->bar, steps + p->made, detail, left > 0 ? left : -1);
}

void weft_generation_progress_end(weft_generation_progress *p)
{
    if (p->bar.total)
        weft_progress_end(&p->bar, p->bar.total, "");
}

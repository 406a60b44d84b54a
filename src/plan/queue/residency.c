#include "plan/queue/residency.h"

/* The weights without users whose last use is longest ago; -1: all have users. */
static int64_t find_oldest(const weft_residency *all, int64_t count)
{
    int64_t oldest = -1;
    for (int64_t i = 0; i < count; i++)
        if (!all[i].users && (oldest < 0 || all[i].order < all[oldest].order))
            oldest = i;
    return oldest;
}

int64_t weft_residency_victim(const weft_residency *all, int64_t count, int64_t room)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < count; i++)
        bytes += all[i].users ? 0 : all[i].bytes;
    return bytes > room ? find_oldest(all, count) : -1;
}

int64_t weft_residency_idle(const weft_residency *all, int64_t count, double idle, double now)
{
    const int64_t oldest = find_oldest(all, count);
    return oldest >= 0 && now - all[oldest].used >= idle ? oldest : -1;
}

double weft_residency_wait(const weft_residency *all, int64_t count, double idle, double now)
{
    const int64_t oldest = find_oldest(all, count);
    if (oldest < 0)
        return -1;
    const double left = idle - (now - all[oldest].used);
    return left > 0 ? left : 0;
}

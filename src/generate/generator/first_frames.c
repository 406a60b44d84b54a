#include "generate/generator/first_frames.h"

#include <math.h>

typedef struct moments {
    double mean, deviation; /* of a sample: the sum of squares over count - 1 */
} moments;

static moments moments_of(const float *x, int64_t count)
{
    moments m = {0};
    for (int64_t i = 0; i < count; i++)
        m.mean += (double)x[i] / (double)count;
    for (int64_t i = 0; i < count; i++)
        m.deviation += ((double)x[i] - m.mean) * ((double)x[i] - m.mean);
    m.deviation = sqrt(m.deviation / (double)(count > 1 ? count - 1 : 1));
    return m;
}

static double limit(double value, double least, double most)
{
    return value < least ? least : value > most ? most : value;
}

void weft_first_frames_settle(int64_t first, int64_t frames, int64_t each, float *x)
{
    enum { REFERENCE = 5 }; /* frames that have the statistics */
    const int64_t rest = frames - first, count = first * each;
    if (rest < 1)
        return;
    const moments own = moments_of(x, count),
                  next = moments_of(x + count, (rest < REFERENCE ? rest : REFERENCE) * each);
    const double mean = limit(next.mean, own.mean - 0.05, own.mean + 0.1),
                 deviation = limit(next.deviation, own.deviation - 0.1, own.deviation + 0.25);
    for (int64_t i = 0; i < count && own.deviation > 0; i++)
        x[i] = (float)(((double)x[i] - own.mean) / own.deviation * deviation + mean);
}

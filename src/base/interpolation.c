#include "base/interpolation.h"

#include <math.h>

static int64_t inside(int64_t at, int64_t count)
{
    return at < 0 ? 0 : at < count ? at : count - 1;
}

weft_neighbours weft_neighbours_linear(float step, int64_t i, int64_t count)
{
    const float position = fmaxf(0, step * ((float)i + 0.5F) - 0.5F);
    const int64_t first = inside((int64_t)position, count);
    const float part = fminf(position - (float)first, 1);
    return (weft_neighbours){2, {first, inside(first + 1, count)}, {1 - part, part}};
}

/* Weights of elements at a distance of at most 1, and of 1 to 2. */
static float near_weight(float x)
{
    const float a = -0.75F;
    return ((a + 2) * x - (a + 3)) * x * x + 1;
}

static float far_weight(float x)
{
    const float a = -0.75F;
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

weft_neighbours weft_neighbours_cubic(float step, int64_t i, int64_t count)
{
    const float position = step * ((float)i + 0.5F) - 0.5F, part = position - floorf(position);
    const int64_t first = (int64_t)floorf(position);
    weft_neighbours n = {
        4,
        {0},
        {far_weight(part + 1), near_weight(part), near_weight(1 - part), far_weight(2 - part)}};
    for (int k = 0; k < 4; k++)
        n.at[k] = inside(first - 1 + k, count);
    return n;
}

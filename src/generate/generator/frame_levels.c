#include "generate/generator/frame_levels.h"

void weft_frame_levels_begin(weft_frame_levels *l)
{
    for (int64_t i = 0; i < l->blocks; i++) {
        l->row[i] = i < l->ready ? l->steps + 1 : 0;
        l->runs[i] = false;
    }
}

bool weft_frame_levels_next(weft_frame_levels *l)
{
    bool done = true, before_done = true;
    int64_t before = 0;
    for (int64_t i = 0; i < l->blocks; i++)
        done &= l->row[i] >= l->steps;
    for (int64_t i = 0; i < l->blocks && !done; i++) {
        const int64_t was = l->row[i];
        int64_t now = before_done ? was + 1 : before - l->lag;
        now = now < 0 ? 0 : now > l->steps + 1 ? l->steps + 1 : now;
        l->runs[i] = now != was && now <= l->steps;
        l->row[i] = now;
        before = now;
        before_done = was >= l->steps;
    }
    return !done;
}

int64_t weft_frame_levels_rounds(int64_t blocks, int64_t steps, int64_t lag, int64_t ready)
{
    const int64_t run = blocks - ready;
    if (run < 1)
        return 0;
    return steps + (run - 1) * (lag < steps ? lag : steps);
}

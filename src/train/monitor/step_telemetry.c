#include "train/monitor/step_telemetry.h"

#include <math.h>
#include <string.h>

weft_status weft_step_telemetry_create(int64_t floats, weft_step_telemetry *t)
{
    *t = (weft_step_telemetry){.floats = floats,
                               .own = weft_calloc(floats, sizeof *t->own),
                               .all = weft_calloc(floats, sizeof *t->all)};
    return WEFT_ALLOCATED(t->own && t->all, "rank telemetry of %" PRId64 " floats", floats);
}

void weft_step_telemetry_free(weft_step_telemetry *t)
{
    weft_free(t->own);
    weft_free(t->all);
    *t = (weft_step_telemetry){0};
}

void weft_step_telemetry_write(weft_step_telemetry *t, int rank, bool interrupted)
{
    const int64_t at = 1 + rank * (int64_t)(sizeof t->timing / sizeof(float));
    t->own[0] = interrupted;
    if (at < t->floats)
        memcpy(t->own + at, &t->timing, sizeof t->timing);
}

void weft_step_telemetry_record(weft_step_telemetry *t, weft_stragglers *stragglers, double seconds,
                                double waits, double data)
{
    t->timing = (weft_step_timing){.kernels = (float)fmax(seconds - waits - data, 0),
                                   .waits = (float)waits,
                                   .data = (float)data};
    if (!stragglers)
        return;
    weft_buf out = {0};
    const weft_step_timing *all = (const weft_step_timing *)(const void *)(t->all + 1);
    if (all[0].kernels > 0) /* a training stage's first step has no previous timing */
        weft_stragglers_record(stragglers, all, &out);
    for (char *line = out.data, *end; line; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = 0;
        weft_warning(WEFT_MSG_STRAGGLER, WEFT_NOWHERE, "%s", line);
    }
    weft_buf_free(&out);
}

/* Shot filter: accepts or rejects a shot from its record and the settings. New limits need no
 * second analysis of the video. */
#include "curate/shot_filter.h"

#include "curate/analyse.h"
#include "curate/curate_work.h"

static double number(const json_t *object, const char *name)
{
    return json_number_value(json_object_get(object, name));
}

static double or_default(double value, double fallback)
{
    return value < 0 ? fallback : value;
}

/* The limits for the size of a shot. */
static weft_curate_quality limits_of(const weft_curate_quality *quality, const json_t *shot)
{
    weft_curate_quality q = *quality;
    const weft_curate_quality_tier *tier = q.tiers.item, *best = NULL;
    const json_t *area = json_object_get(shot, "picture");
    const double width = json_number_value(json_array_get(area, 2)),
                 height = json_number_value(json_array_get(area, 3)),
                 side = width < height ? width : height;
    for (int64_t i = 0; i < q.tiers.count; i++)
        if ((double)tier[i].min_side <= side && (!best || tier[i].min_side > best->min_side))
            best = &tier[i];
    if (best) {
        q.min_motion = or_default(best->min_motion, q.min_motion);
        q.max_motion = or_default(best->max_motion, q.max_motion);
        q.min_sharpness = or_default(best->min_sharpness, q.min_sharpness);
        q.min_brightness = or_default(best->min_brightness, q.min_brightness);
        q.max_brightness = or_default(best->max_brightness, q.max_brightness);
    }
    return q;
}

json_t *weft_curate_filter(const weft_curate_config *c, const json_t *shot)
{
    const json_t *scores = json_object_get(shot, "scores");
    const double frames = number(shot, "end") - number(shot, "start") + 1;
    const double seconds = number(shot, "end_seconds") - number(shot, "start_seconds");
    const double fps = number(shot, "fps"), luma = number(scores, "brightness"),
                 detail = number(scores, "sharpness"), motion = number(scores, "motion");
    const weft_curate_quality limit = limits_of(&c->quality, shot), *q = &limit;
    const double least_frames = (double)c->clips.min_frames, least_seconds = c->clips.min_seconds;
    /* clang-format off */
    const struct {
        bool fails;
        const char *operator_name;
        double value, limit;
        const char *reason;
    } limits[] = {
        {frames < least_frames,   "length",    frames,  least_frames,   "too few frames"},
        {seconds < least_seconds, "length",    seconds, least_seconds,  "too short"},
        {fps < c->video.min_fps,  "fps",       fps,     c->video.min_fps,
         "the frame rate of the shot is too low"},
        {luma < q->min_brightness,   "exposure",  luma,   q->min_brightness, "too dark"},
        {luma > q->max_brightness,   "exposure",  luma,   q->max_brightness, "too bright"},
        {detail < q->min_sharpness,  "sharpness", detail, q->min_sharpness,  "no detail"},
        {motion < q->min_motion,     "motion",    motion, q->min_motion,     "too little motion"},
        {motion > q->max_motion,     "motion",    motion, q->max_motion,     "too fast"},
    };
    /* clang-format on */
    for (int i = 0; i < WEFT_COUNT(limits); i++)
        if (limits[i].fails)
            return weft_curate_reject(limits[i].operator_name, limits[i].value, limits[i].limit,
                                      limits[i].reason);
    return NULL;
}

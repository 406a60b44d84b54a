#include "curate/curate_work.h"
#include "curate/shot_filter.h"

#include <criterion/criterion.h>
#include <string.h>

/* A shot that every limit takes, with one score replaced. */
static json_t *shot_with(const char *score, double value)
{
    json_t *shot = json_pack("{s:i,s:i,s:f,s:f,s:f,s:{s:f,s:f,s:f}}", "start", 10, "end", 57,
                             "start_seconds", 1.0, "end_seconds", 3.0, "fps", 24.0, "scores",
                             "motion", 0.1, "sharpness", 20.0, "brightness", 100.0);
    json_t *scores = json_object_get(shot, "scores");
    json_object_set_new(json_object_get(scores, score) ? scores : shot, score, json_real(value));
    return shot;
}

static void expect(const weft_curate_config *c, const char *score, double value,
                   const char *operator_name, double limit)
{
    json_t *shot = shot_with(score, value), *reject = weft_curate_filter(c, shot);
    if (!operator_name) {
        cr_assert_null(reject, "%s %g is rejected by %s", score, value,
                       json_string_value(json_object_get(reject, "operator")));
    } else {
        cr_assert_not_null(reject, "%s %g is accepted", score, value);
        cr_assert_str_eq(json_string_value(json_object_get(reject, "operator")), operator_name);
        cr_assert_float_eq(json_real_value(json_object_get(reject, "threshold")), limit, 1e-12);
    }
    json_decref(reject);
    json_decref(shot);
}

/* Each limit rejects values just outside and accepts the limit itself. */
Test(judge, each_limit_counts)
{
    weft_curate_config c = {0};
    c.clips.min_frames = 17;
    c.clips.min_seconds = 0.5;
    c.video.min_fps = 5;
    c.quality = (weft_curate_quality){.min_motion = 0.01,
                                      .max_motion = 1.5,
                                      .min_sharpness = 2,
                                      .min_brightness = 12,
                                      .max_brightness = 240};
    expect(&c, "motion", 0.1, NULL, 0);
    expect(&c, "motion", 0.01, NULL, 0);
    expect(&c, "motion", 0.0099, "motion", 0.01);
    expect(&c, "motion", 1.5, NULL, 0);
    expect(&c, "motion", 1.51, "motion", 1.5);
    expect(&c, "sharpness", 2, NULL, 0);
    expect(&c, "sharpness", 1.9, "sharpness", 2);
    expect(&c, "brightness", 12, NULL, 0);
    expect(&c, "brightness", 11.9, "exposure", 12);
    expect(&c, "brightness", 240, NULL, 0);
    expect(&c, "brightness", 240.1, "exposure", 240);
    expect(&c, "fps", 5, NULL, 0);
    expect(&c, "fps", 4.9, "fps", 5);
    expect(&c, "end_seconds", 1.5, NULL, 0);
    expect(&c, "end_seconds", 1.49, "length", 0.5);
    c.clips.min_frames = 48;
    expect(&c, "motion", 0.1, NULL, 0);
    c.clips.min_frames = 49;
    expect(&c, "motion", 0.1, "length", 49);
}

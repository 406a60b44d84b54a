#include "evaluate/video_set.h"

#include "base/log.h"
#include "evaluate/image_metrics.h"
#include "generate/generator/generator_denoise.h"
#include "video/image.h"

#include <string.h>

typedef struct video_run {
    weft_video_set *set;
    double began, seconds;
} video_run;

/* Measures from the run's begin, or from the last decoded frame of the previous video, to the
 * finished latents. */
static weft_status_code on_latents(void *user, int64_t prompt, const int64_t dim[4], const float *x)
{
    video_run *run = user;
    (void)prompt, (void)dim, (void)x;
    run->seconds += weft_now() - run->began;
    return WEFT_OK;
}

static weft_status_code on_frames(void *user, int64_t prompt, int64_t first_frame, int64_t count,
                                  const float *frames)
{
    video_run *run = user;
    const weft_video_set *s = run->set;
    weft_clip_to_u8(frames, count, s->height, s->width, false,
                    s->video + prompt * s->bytes + first_frame * s->height * s->width * 3);
    run->began = weft_now();
    return WEFT_OK;
}

static weft_status reserve(const weft_generator *p, int64_t count, weft_video_set *set)
{
    const weft_generator_options *s = weft_generator_settings(p);
    if (set->video)
        return WEFT_OK;
    *set = (weft_video_set){.count = count,
                            .frames = s->frames,
                            .height = s->height,
                            .width = s->width,
                            .bytes = s->frames * s->height * s->width * 3};
    return WEFT_NEW(set->video, count * set->bytes, "videos to compare");
}

weft_status weft_video_set_generate(const weft_video_request *request,
                                    const weft_generator_options *options,
                                    weft_video_set_fn *opened, void *user, weft_video_set *set)
{
    weft_generator *p = NULL;
    video_run run = {.set = set};
    const weft_generator_sink sink = {.latents = on_latents, .frames = on_frames, .user = &run};
    weft_status_code status = WEFT_OK;
    uint64_t *seed = weft_alloc(request->count * (int64_t)sizeof *seed);
    WEFT_GO(WEFT_ALLOCATED(seed, "videos to compare"));
    for (int64_t i = 0; i < request->count; i++)
        seed[i] = (uint64_t)(request->seed + i);
    WEFT_GO(weft_generator_open(request->model, options, NULL, &p));
    if (opened)
        WEFT_GO(opened(user, p));
    WEFT_GO(weft_generator_bind(p));
    WEFT_GO(reserve(p, request->count, set));
    run.began = weft_now();
    WEFT_GO(weft_generator_run(p, request->prompt, seed, request->count, &sink));
    set->seconds = run.seconds / (double)request->count;
    set->cache = weft_generator_get_cache_stats(p);
out:
    weft_generator_free(p);
    weft_free(seed);
    return status;
}

double weft_video_set_psnr(const weft_video_set *a, const weft_video_set *b, int64_t i)
{
    return weft_psnr(a->video + i * a->bytes, b->video + i * b->bytes, a->frames, a->height,
                     a->width);
}

void weft_video_set_free(weft_video_set *set)
{
    weft_free(set->video);
    *set = (weft_video_set){0};
}

#include "generate/conditioning/refinement.h"

#include "base/memory.h"
#include "video/reader.h"

#include <math.h>

/* ---- frames --------------------------------------------------------------------------------- */

static int64_t round_up(int64_t count, int64_t step)
{
    return (count + step - 1) / step * step;
}

/* Latent frames of a video of at least `frames`. */
static int64_t latents_of(const weft_grid *grid, int64_t frames)
{
    const int64_t factor = grid->factor[0];
    return grid->causal ? 1 + (frames - 1 + factor - 1) / factor : (frames + factor - 1) / factor;
}

static int64_t coarse_frames(const weft_coarse_video *v, int64_t frames)
{
    return v->same_frames ? frames : frames / 2;
}

weft_status weft_refinement_check_frames(const weft_coarse_video *v, int64_t frames)
{
    const bool odd = !v->same_frames && frames % 2;
    if (!odd && coarse_frames(v, frames) >= 2)
        return WEFT_OK;
    return weft_error(WEFT_MSG_VIDEO_SIZE, WEFT_AT(.key = "--frames", WEFT_NUMBER(frames)),
                      odd ? "refinement doubles the frames of --refine, and %" PRId64
                            " is odd; use an even number, or --refine-frames same"
                          : "%" PRId64 " frames are less than two frames of --refine; use at least "
                            "4 frames, or 2 with --refine-frames same",
                      frames);
}

weft_status weft_refinement_lay(const weft_coarse_video *v, int64_t frames, int64_t given,
                                int64_t whole, const weft_grid *grid, weft_refinement *r)
{
    WEFT_TRY(weft_refinement_check_frames(v, frames));
    if (given >= frames)
        return weft_error(WEFT_MSG_VIDEO_SIZE, WEFT_AT(.key = "--given-frames", WEFT_NUMBER(given)),
                          "all %" PRId64 " frames of the refined video would be given; use fewer",
                          frames);
    *r = (weft_refinement){.coarse = coarse_frames(v, frames), .frames = frames};
    if (given)
        r->given = round_up(latents_of(grid, given), whole);
    r->front = given ? weft_grid_frames(grid, r->given) - given : 0;
    const int64_t rest = frames - given, factor = grid->factor[0];
    r->latent =
        r->given + round_up(given ? (rest + factor - 1) / factor : latents_of(grid, rest), whole);
    return WEFT_OK;
}

/* ---- the file ------------------------------------------------------------------------------- */

/* Frames of the file: as its container has them, or counted. */
static weft_status count_frames(const char *file, const weft_video_info *info, int64_t *frames)
{
    const weft_video_options tiny = {.format = WEFT_VIDEO_SMALL, .width = 16, .height = 16};
    weft_video_reader *reader;
    weft_video_frame frame;
    bool got = true;
    *frames = info->frames;
    if (*frames)
        return WEFT_OK;
    WEFT_TRY(weft_video_reader_open(file, &tiny, &reader));
    weft_status_code status = WEFT_OK;
    while (status == WEFT_OK && got) {
        status = weft_video_reader_next(reader, &frame, &got);
        *frames += status == WEFT_OK && got;
    }
    weft_video_reader_close(reader);
    return status;
}

static weft_status check_length(const weft_coarse_video *v, int64_t frames)
{
    return frames > 1 ? WEFT_OK
                      : weft_error(WEFT_MSG_VIDEO_INPUT,
                                   WEFT_AT(.file = v->file, .key = "--refine", WEFT_NUMBER(frames)),
                                   "the file has %" PRId64 " frame%s, and a coarse video has at "
                                   "least 2. Give the video of the first stage.",
                                   frames, frames == 1 ? "" : "s");
}

weft_status weft_refinement_size(const weft_coarse_video *v, int64_t *frames)
{
    weft_video_info info;
    WEFT_TRY(weft_video_probe(v->file, &info));
    WEFT_TRY(count_frames(v->file, &info, frames));
    WEFT_TRY(check_length(v, *frames));
    *frames *= v->same_frames ? 1 : 2;
    return WEFT_OK;
}

weft_status weft_refinement_rate(const weft_coarse_video *v, double *fps)
{
    weft_video_info info;
    WEFT_TRY(weft_video_probe(v->file, &info));
    if (info.fps > 0)
        *fps = info.fps * (v->same_frames ? 1 : 2);
    return WEFT_OK;
}

static weft_status too_short(const weft_coarse_video *v, int64_t has, int64_t frames)
{
    return weft_error(WEFT_MSG_VIDEO_INPUT,
                      WEFT_AT(.file = v->file, .key = "--refine", WEFT_NUMBER(has)),
                      "the video has %" PRId64 " frames, and a refined video of %" PRId64
                      " frames needs %" PRId64 ". Set --frames, or give a longer video.",
                      has, frames, coarse_frames(v, frames));
}

weft_status weft_refinement_check_file(const weft_coarse_video *v, int64_t frames, int64_t height,
                                       int64_t width, weft_fit fit)
{
    /* The sizes of both stages of the authors of LongCat-Video differ in aspect by up to this. */
    static const double most = 0.125;
    weft_video_info info;
    int64_t has;
    WEFT_TRY(weft_refinement_check_frames(v, frames));
    WEFT_TRY(weft_video_probe(v->file, &info));
    WEFT_TRY(count_frames(v->file, &info, &has));
    WEFT_TRY(check_length(v, has));
    if (has < coarse_frames(v, frames))
        return too_short(v, has, frames);
    const double change =
        (double)(info.width * height) / (double)(info.height * width); /* of the aspect ratio */
    if (fit == WEFT_FIT_CROP || (change <= 1 + most + 1e-9 && change >= 1 / (1 + most) - 1e-9))
        return WEFT_OK;
    return weft_error(WEFT_MSG_VIDEO_INPUT, WEFT_AT(.file = v->file, .key = "--refine"),
                      "the video has %" PRId64 "x%" PRId64 " pixels, and the aspect ratio of "
                      "%" PRId64 "x%" PRId64 " differs by more than an eighth. Set --width and "
                      "--height of a similar aspect ratio, or crop the video with --fit crop.",
                      info.width, info.height, width, height);
}

/* ---- enlarged frames ------------------------------------------------------------------------ */

struct weft_refinement_source {
    weft_coarse_video video;
    weft_refinement size;
    weft_canvas canvas;
    weft_video_reader *reader;
    int64_t cut[4];     /* x, y, width and height of the file's frames that are used */
    int64_t next;       /* frame that the reader returns next */
    int64_t current[2]; /* frames in `frame`; -1: none */
    float *frame[2];    /* (rows, columns, 3) of the canvas; frame i is in frame[i % 2] */
};

int64_t weft_refinement_source_bytes(const weft_canvas *canvas)
{
    return 2 * canvas->height * canvas->width * 3 * (int64_t)sizeof(float);
}

void weft_refinement_source_close(weft_refinement_source *s)
{
    if (!s)
        return;
    weft_video_reader_close(s->reader);
    for (int i = 0; i < 2; i++)
        weft_free(s->frame[i]);
    weft_free(s);
}

weft_status weft_refinement_source_open(const weft_coarse_video *video, const weft_refinement *r,
                                        const weft_canvas *canvas, weft_refinement_source **source)
{
    weft_refinement_source *s;
    WEFT_TRY(WEFT_NEW(s, 1, "%s", video->file));
    *s = (weft_refinement_source){
        .video = *video, .size = *r, .canvas = *canvas, .current = {-1, -1}};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_video_reader_open(video->file, &(weft_video_options){.format = WEFT_VIDEO_RGB24},
                                   &s->reader));
    const weft_video_info *info = weft_video_reader_info(s->reader);
    weft_canvas_cut(canvas, info->width, info->height, s->cut);
    for (int i = 0; i < 2; i++)
        WEFT_GO(WEFT_NEW(s->frame[i], canvas->height * canvas->width * 3, "%s: its frames",
                         video->file));
    *source = s;
out:
    if (status != WEFT_OK)
        weft_refinement_source_close(s);
    return status;
}

/* A position between two of `count` samples. */
typedef struct place {
    int64_t low, high;
    float share; /* of `high` */
} place;

/* Position of item `at` of `made` that spread from the first to the last one of `count`. */
static place place_of(int64_t at, int64_t made, int64_t count)
{
    const double to = made > 1 ? (double)at * (double)(count - 1) / (double)(made - 1) : 0;
    const int64_t low = (int64_t)floor(to);
    return (place){low, low + 1 < count ? low + 1 : count - 1, (float)(to - (double)low)};
}

static float between(float low, float high, float share)
{
    return low + (high - low) * share;
}

/* Enlarges a frame of the file to the canvas, in [-1,1]. */
static void enlarge(const weft_refinement_source *s, const weft_video_frame *f, float *to)
{
    const weft_canvas *c = &s->canvas;
    for (int64_t y = 0; y < c->height; y++) {
        const place v = place_of(y, c->height, s->cut[3]);
        const uint8_t *row[2] = {f->plane[0] + (s->cut[1] + v.low) * f->stride[0],
                                 f->plane[0] + (s->cut[1] + v.high) * f->stride[0]};
        for (int64_t x = 0; x < c->width; x++) {
            const place u = place_of(x, c->width, s->cut[2]);
            const int64_t left = (s->cut[0] + u.low) * 3, right = (s->cut[0] + u.high) * 3;
            for (int i = 0; i < 3; i++) {
                float side[2];
                for (int k = 0; k < 2; k++)
                    side[k] = between(row[k][left + i], row[k][right + i], u.share);
                *to++ = 2 * (between(side[0], side[1], v.share) / 255) - 1;
            }
        }
    }
}

/* Reads frame `wanted` of the file into its place of `frame`. */
static weft_status load(weft_refinement_source *s, int64_t wanted)
{
    weft_video_frame f;
    bool got;
    if (s->current[wanted % 2] == wanted)
        return WEFT_OK;
    if (s->next != wanted)
        WEFT_TRY(weft_video_reader_seek(s->reader, wanted));
    WEFT_TRY(weft_video_reader_next(s->reader, &f, &got));
    if (!got)
        return too_short(&s->video, wanted, s->size.frames);
    enlarge(s, &f, s->frame[wanted % 2]);
    s->current[wanted % 2] = wanted;
    s->next = wanted + 1;
    return WEFT_OK;
}

weft_status_code weft_refinement_source_box(void *source, const int64_t first[3],
                                            const int64_t size[3], float *to)
{
    weft_refinement_source *s = source;
    const int64_t last = s->size.frames - 1, width = s->canvas.width;
    for (int64_t t = 0; t < size[0]; t++) {
        const int64_t from = first[0] + t - s->size.front;
        const int64_t at = from < 0 ? 0 : from > last ? last : from;
        const place p = place_of(at, s->size.frames, s->size.coarse);
        WEFT_TRY(load(s, p.low));
        WEFT_TRY(load(s, p.high));
        const float *low = s->frame[p.low % 2], *high = s->frame[p.high % 2];
        for (int64_t y = 0; y < size[1]; y++) {
            const int64_t begin = ((first[1] + y) * width + first[2]) * 3;
            for (int64_t i = begin; i < begin + size[2] * 3; i++)
                *to++ = between(low[i], high[i], p.share);
        }
    }
    return WEFT_OK;
}

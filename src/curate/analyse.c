/* Curation, first job: one pass over a video at 256 x 144. */
#include "curate/analyse.h"

#include "curate/curate_work.h"

#include "base/memory.h"
#include "base/utf8.h"
#include "curate/bars.h"
#include "curate/duplicates/phash.h"
#include "curate/motion.h"
#include "curate/proof/corruption_check.h"
#include "curate/proof/suspect_frames.h"
#include "curate/shots/shots.h"
#include "video/packet_cuts.h"
#include "video/scan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WIDE = 4 * WEFT_SHOT_WIDTH, HIGH = 4 * WEFT_SHOT_HEIGHT, BLOCK = 8, REACH = 4 };
/* Mean luma. A frame below BLACK does not show the bars; a shot below DARK may not. */
enum { BLACK = 16, DARK = 32, SOURCE_FRAMES = 24 };
enum { REORDER = 4 };         /* maximum frames shown before one that was decoded earlier */
enum { MIN_RECHECKED = 100 }; /* limit of pictures decoded again for a short video */
enum { FLAT = 4 };            /* sharpness below which luma has too little contrast */
/* Between hashes, whatever the frame rate is: copies are compared in time. */
#define KEY_SECONDS 0.125
/* A frame shown for longer ends its shot: the recording was paused. */
#define PAUSE_SECONDS 1.0
#define REST_SECONDS  0.25 /* interval for measuring slow motion */
#define TIME_SLACK    1e-4 /* tolerance for equal times */

/* Measures of one frame, 40 bytes. Besides these, only hashes and parts grow with the video's
 * length. */
typedef struct frame_stat {
    double seconds;
    float motion, luma, detail;
    bool damaged : 1, jump : 1, lost : 1; /* flags of weft_video_frame */
    bool proven : 1;                      /* damaged, unseen by the decoder (corruption_check.h) */
    weft_bars bars;                       /* lines of HIGH and WIDE */
    int64_t hashes;                       /* number of hashes before this frame */
} frame_stat;

typedef struct analysis {
    const weft_curate_config *config;
    weft_shot_options shot_options;
    const weft_heartbeat *heart;
    weft_video_info info;
    weft_scan_result seen;
    json_t *reject; /* decided from the header alone */
    weft_shot_detector *detector;
    weft_suspect_detector suspects;
    frame_stat *frame;
    int64_t frames, frame_capacity;
    weft_phash *hash;
    int64_t hashes, hash_capacity;
    weft_curate_parts parts;
    int64_t thumbnail_capacity, keypoint_capacity;
    double next_key;
    /* The mean rate, by the header until all is read, then by the frames' times; and how long the
     * last frame lasts. */
    double fps, tick;
    uint8_t small[WEFT_SHOT_WIDTH * WEFT_SHOT_HEIGHT]; /* luma of this frame */
    uint8_t last[WEFT_SHOT_WIDTH * WEFT_SHOT_HEIGHT];  /* previous frame */
    double analysed_seconds;
    int64_t concealed;     /* frames in which the decoder hid errors */
    bool vectors;          /* the decoder exports motion vectors */
    weft_packet_cuts cuts; /* with clips.cut: key_frames */
    /* Luma of frame `rest_at`, the reference of later frames without motion vectors, and its mixed
     * colours where luma is flat. */
    uint8_t rest[WIDE * HIGH], rest_mix[WIDE * HIGH];
    bool rest_flat;
    int64_t rest_at;
    bool has_source_bars;
    int source_bar[WEFT_BAR_SIDES]; /* lines of black */
} analysis;

static void send_byte(const weft_heartbeat *heart, char byte)
{
    if (heart && heart->fd >= 0) {
        const ssize_t n = write(heart->fd, &byte, 1);
        (void)n; /* the parent has exited or is slow; both are ignored */
    }
}

void weft_heartbeat_beat(const weft_heartbeat *heart)
{
    send_byte(heart, '.');
}

void weft_heartbeat_part(const weft_heartbeat *heart)
{
    send_byte(heart, '+');
}

void weft_heartbeat_loaded(const weft_heartbeat *heart)
{
    send_byte(heart, '^');
}

json_t *weft_curate_reject(const char *operator_name, double value, double threshold,
                           const char *reason)
{
    char *text = weft_utf8_escape(reason); /* the text may contain file names */
    json_t *reject = json_pack("{s:s,s:f,s:f,s:s}", "operator", operator_name, "value", value,
                               "threshold", threshold, "reason", text ? text : "");
    weft_free(text);
    return reject;
}

/* Mean displacement, in frame widths, from the decoder's vectors, weighted by area. */
static float codec_motion(const weft_video_frame *f, const weft_video_info *info)
{
    double sum = 0, area = 0;
    for (int64_t i = 0; i < f->motion_count; i++) {
        const weft_motion *m = &f->motion[i];
        const double part = (double)m->w * m->h;
        sum += part * sqrt((double)m->dx * m->dx + (double)m->dy * m->dy);
        area += part;
    }
    /* Blocks without a vector are intra coded and are not counted. */
    return (float)(area > 0 ? sum / area / (double)info->width : 0);
}

/* Mean displacement from block matching of small frames. A block that matches in place counts as
 * still, whatever its noise. */
static float pixel_motion(const uint8_t *now, const uint8_t *last)
{
    double sum = 0;
    int blocks = 0;
    for (int by = 0; by + BLOCK <= WEFT_SHOT_HEIGHT; by += BLOCK)
        for (int bx = 0; bx + BLOCK <= WEFT_SHOT_WIDTH; bx += BLOCK, blocks++) {
            int best = 0, best_d2 = 0;
            for (int dy = -REACH; dy <= REACH; dy++)
                for (int dx = -REACH; dx <= REACH; dx++) {
                    const int x0 = bx + dx, y0 = by + dy, d2 = dx * dx + dy * dy;
                    if (x0 < 0 || y0 < 0 || x0 + BLOCK > WEFT_SHOT_WIDTH ||
                        y0 + BLOCK > WEFT_SHOT_HEIGHT)
                        continue;
                    int sad = d2 ? 64 + 8 * d2 : 0; /* prefer no motion */
                    for (int y = 0; y < BLOCK; y++)
                        for (int x = 0; x < BLOCK; x++)
                            sad += abs(now[(by + y) * WEFT_SHOT_WIDTH + bx + x] -
                                       last[(y0 + y) * WEFT_SHOT_WIDTH + x0 + x]);
                    if ((dy == -REACH && dx == -REACH) || sad < best ||
                        (sad == best && d2 < best_d2))
                        best = sad, best_d2 = d2;
                }
            sum += sqrt(best_d2);
        }
    return (float)(sum / blocks / WEFT_SHOT_WIDTH);
}

/* Sharpness of the sharpest edges: a quarter of the absolute Laplacian that one pixel in 200
 * exceeds. Flat frames with a crisp outline count as sharp, blurred ones do not. */
static int edges(const uint8_t *plane, int64_t stride)
{
    int64_t above = 0;
    int32_t histogram[256] = {0};
    for (int y = 1; y < HIGH - 1; y++) {
        const uint8_t *row = plane + y * stride, *up = row - stride, *down = row + stride;
        for (int x = 1; x < WIDE - 1; x++)
            histogram[abs(4 * row[x] - row[x - 1] - row[x + 1] - up[x] - down[x]) / 4]++;
    }
    int luma_level = 255;
    while (luma_level > 0 && (above += histogram[luma_level]) * 200 < WIDE * HIGH)
        luma_level--;
    return luma_level;
}

/* Measures luma edges. If luma has almost none, measures chroma edges: a blue shape on gray may
 * have only these. */
static void measure_frame(const weft_video_frame *f, frame_stat *s)
{
    int64_t luma = 0;
    for (int y = 0; y < HIGH; y++)
        for (int x = 0; x < WIDE; x++)
            luma += f->plane[0][y * f->stride[0] + x];
    int luma_level = edges(f->plane[0], f->stride[0]);
    for (int p = 1; p < 3 && luma_level < FLAT; p++) {
        const int chroma = edges(f->plane[p], f->stride[p]);
        luma_level = chroma > luma_level ? chroma : luma_level;
    }
    s->luma = (float)luma / (WIDE * HIGH);
    s->detail = (float)luma_level;
}

/* Adds the keypoints of every second and the thumbnails, from the complete frame, because a copy
 * may have other bars. */
static weft_status add_parts_of(analysis *a, const weft_video_frame *f)
{
    weft_curate_parts *p = &a->parts;
    if (a->hashes % WEFT_THUMBNAIL_STEP == 0) {
        WEFT_TRY(weft_grow((void **)&p->thumbnail, p->thumbnails, &a->thumbnail_capacity,
                           sizeof *p->thumbnail));
        weft_thumbnail_make(f->plane, f->stride, WIDE, HIGH, &p->thumbnail[p->thumbnails++]);
    }
    if (a->hashes % WEFT_KEYPOINTS_STEP == 0) {
        WEFT_TRY(weft_grow((void **)&p->keypoints, p->keypoint_frames, &a->keypoint_capacity,
                           sizeof *p->keypoints));
        weft_keypoints_make(f->plane[0], f->stride[0], WIDE, HIGH,
                            (double)a->info.width / (double)a->info.height,
                            &p->keypoints[p->keypoint_frames++]);
    }
    return WEFT_OK;
}

/* One hash for every KEY_SECONDS that have passed: frames that are shown for long have several. */
static weft_status add_hashes_of(analysis *a, const weft_video_frame *f, const frame_stat *s)
{
    weft_phash hash;
    /* Hashes exclude the bars; nearly black frames have no bars to crop. */
    int bar[WEFT_BAR_SIDES];
    weft_bars_of_frame(&s->bars, bar);
    int top = bar[0], bottom = bar[1], left = bar[2], right = bar[3];
    if (top + bottom > HIGH / 2)
        top = bottom = 0;
    if (left + right > WIDE * 3 / 4)
        left = right = 0;
    const uint8_t *inside[3];
    for (int p = 0; p < 3; p++)
        inside[p] = f->plane[p] + top * f->stride[p] + left;
    weft_phash_make(inside, f->stride, WIDE - left - right, HIGH - top - bottom, &hash);
    if (a->frames > 0 && f->seconds - s[-1].seconds > PAUSE_SECONDS)
        a->next_key = f->seconds;
    while (f->seconds >= a->next_key) {
        WEFT_TRY(weft_grow((void **)&a->hash, a->hashes, &a->hash_capacity, sizeof *a->hash));
        WEFT_TRY(add_parts_of(a, f));
        a->hash[a->hashes++] = hash;
        a->next_key += KEY_SECONDS;
    }
    return WEFT_OK;
}

/* Mixes luma and chroma into one plane, for frames with flat luma: in the mix, every hue differs
 * from gray. */
static void mix_colours(const weft_video_frame *f, uint8_t *to)
{
    for (int y = 0; y < HIGH; y++)
        for (int x = 0; x < WIDE; x++) {
            const int v = f->plane[0][y * f->stride[0] + x] + f->plane[1][y * f->stride[1] + x] -
                          128 - (f->plane[2][y * f->stride[2] + x] - 128) / 2;
            to[y * WIDE + x] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
        }
}

/* Measures slow motion, which is less than a pixel per frame, over a quarter of a second. Frames in
 * between get at least their share. Applies to videos without motion vectors, and to colours
 * without luma contrast, for which vectors are unreliable. */
static void slow_motion(analysis *a, const weft_video_frame *f)
{
    const int64_t now = a->frames, since = now - a->rest_at;
    if (now > 0 && f->seconds < a->frame[a->rest_at].seconds + REST_SECONDS)
        return;
    uint8_t mix[WIDE * HIGH];
    double motion = -1;
    const bool flat = edges(f->plane[0], f->stride[0]) < FLAT;
    if (flat)
        mix_colours(f, mix);
    if (now > 0 && !a->vectors)
        motion = weft_block_motion(f->plane[0], f->stride[0], a->rest, WIDE, WIDE, HIGH);
    if (now > 0 && flat && a->rest_flat)
        motion = fmax(motion, weft_block_motion(mix, WIDE, a->rest_mix, WIDE, WIDE, HIGH));
    for (int64_t t = a->rest_at + 1; motion >= 0 && t <= now; t++)
        a->frame[t].motion = fmaxf(a->frame[t].motion, (float)(motion / (double)(since * WIDE)));
    for (int y = 0; y < HIGH; y++)
        memcpy(a->rest + y * WIDE, f->plane[0] + y * f->stride[0], WIDE);
    if (flat)
        memcpy(a->rest_mix, mix, sizeof a->rest_mix);
    a->rest_flat = flat;
    a->rest_at = now;
}

static weft_status_code take_frame(void *user, const weft_video_frame *tiny,
                                   const weft_video_frame *f)
{
    analysis *a = user;
    WEFT_TRY(weft_grow((void **)&a->frame, a->frames, &a->frame_capacity, sizeof *a->frame));
    frame_stat *s = &a->frame[a->frames];
    *s = (frame_stat){.seconds = f->seconds,
                      .hashes = a->hashes,
                      .damaged = tiny->damaged,
                      .jump = tiny->jump,
                      .lost = tiny->lost};
    WEFT_TRY(weft_shot_detector_push(a->detector, tiny));
    if (a->config->video.prove)
        WEFT_TRY(weft_suspect_detector_push(&a->suspects, tiny));
    for (int y = 0; y < WEFT_SHOT_HEIGHT; y++)
        memcpy(a->small + y * WEFT_SHOT_WIDTH, tiny->plane[0] + y * tiny->stride[0],
               WEFT_SHOT_WIDTH);
    if (tiny->motion_count > 0)
        s->motion = codec_motion(tiny, &a->info);
    else if (a->frames > 0)
        s->motion = pixel_motion(a->small, a->last);
    /* A frame shown before a damaged one may be predicted from the damaged one. */
    for (int64_t t = a->frames; tiny->damaged && t >= 0 && t > a->frames - REORDER; t--) {
        a->concealed += t == a->frames || !a->frame[t].damaged;
        a->frame[t].damaged = true;
    }
    a->vectors |= tiny->motion_count > 0;
    slow_motion(a, f);
    memcpy(a->last, a->small, sizeof a->last);
    measure_frame(f, s);
    if (f->mixed) /* a mixture is softer than its sources */
        s->detail = s[-1].detail;
    weft_bars_find(f->plane, f->stride, WIDE, HIGH, &s->bars);
    if (f->seconds >= a->next_key)
        WEFT_TRY(add_hashes_of(a, f, s));
    if (++a->frames % 16 == 0)
        weft_heartbeat_beat(a->heart);
    return WEFT_OK;
}

/* True if the worker reached half of its memory limit. Some decoders report a failed allocation as
 * damaged data; a buffer of several frames fails long before the limit. */
static bool near_limit(const weft_heartbeat *heart)
{
    return heart && heart->memory > 0 && weft_memory_peak() - heart->resident > heart->memory / 2;
}

static void beat(void *heart)
{
    weft_heartbeat_beat(heart);
}

/* Checks the data of frames with jumps and marks damaged frames. */
static weft_status check_suspects(analysis *a, const char *path)
{
    weft_suspect_frame *suspect;
    int64_t suspect_count;
    weft_corruption_report found = {0};
    WEFT_TRY(weft_suspect_detector_list(&a->suspects, &suspect, &suspect_count));
    weft_heartbeat heart = a->heart ? *a->heart : (weft_heartbeat){.fd = -1};
    const weft_corruption_options o = {.stall_seconds = a->config->stall_seconds,
                                       .most = MIN_RECHECKED + a->frames / 2,
                                       .beat = beat,
                                       .user = &heart};
    const weft_status_code status =
        weft_video_check_corruption(path, suspect, suspect_count, &o, &found);
    for (int64_t k = 0, t = 0; k < found.spans; k++)
        for (; t < a->frames && a->frame[t].seconds < found.span[k].until - TIME_SLACK; t++) {
            frame_stat *f = &a->frame[t];
            if (f->damaged || f->seconds < found.span[k].from - TIME_SLACK)
                continue;
            f->damaged = f->proven = true;
            a->concealed++;
        }
    weft_free(found.span);
    weft_free(suspect);
    return status;
}

static json_t *info_json(const weft_video_info *i, double fps, int64_t frames, int64_t errors,
                         double seconds)
{
    return json_pack("{s:I,s:I,s:f,s:f,s:I,s:I,s:s,s:s,s:s,s:i,s:b,s:s,s:b,s:b,s:I,s:i,s:i}",
                     "width", (json_int_t)i->width, "height", (json_int_t)i->height, "fps", fps,
                     "seconds", seconds, "frames", (json_int_t)frames, "damaged_packets",
                     (json_int_t)errors, "codec", i->codec, "pixel_format", i->pixel_format,
                     "container", i->container, "rotation", i->rotation, "hdr", i->hdr, "transfer",
                     i->transfer, "interlaced", i->interlaced, "audio", i->has_audio, "bit_rate",
                     (json_int_t)i->bit_rate, "bit_depth", i->bit_depth, "other_streams",
                     i->other_streams);
}

/* Reject decided from the header alone. */
static json_t *reject_header(const weft_curate_config *c, const weft_video_info *i)
{
    const double side = (double)(i->width < i->height ? i->width : i->height);
    const double aspect = (double)i->width / (double)i->height;
    if (side < (double)c->video.min_side)
        return weft_curate_reject("size", side, (double)c->video.min_side,
                                  "the shorter side is too short");
    if (i->fps > c->video.max_fps)
        return weft_curate_reject("fps", i->fps, c->video.max_fps, "the frame rate is too high");
    if (aspect < c->video.min_aspect)
        return weft_curate_reject("aspect", aspect, c->video.min_aspect, "the frame is too narrow");
    if (aspect > c->video.max_aspect)
        return weft_curate_reject("aspect", aspect, c->video.max_aspect, "the frame is too wide");
    return NULL;
}

static bool pause_after(const analysis *a, int64_t t)
{
    return t + 1 < a->frames &&
           (a->frame[t + 1].jump || a->frame[t + 1].seconds - a->frame[t].seconds > PAUSE_SECONDS);
}

/* Time of the frame after t. The last frame, and a frame before a pause, last the mean interval. */
static double end_of(const analysis *a, int64_t t)
{
    return t + 1 < a->frames && !pause_after(a, t) ? a->frame[t + 1].seconds
                                                   : a->frame[t].seconds + a->tick;
}

/* Frame intervals. The rate is even if no interval differs from the mean by more than a quarter,
 * plus the rounding to milliseconds. */
typedef struct pace {
    double shortest, longest, fps; /* seconds from frame to frame; the mean rate */
    bool variable;
} pace;

static pace pace_of(const analysis *a, int64_t start, int64_t end, double fps)
{
    pace p = {.shortest = a->tick, .longest = a->tick};
    double sum = 0;
    int64_t count = 0;
    for (int64_t t = start; t < end; t++) {
        if (pause_after(a, t))
            continue;
        const double step = a->frame[t + 1].seconds - a->frame[t].seconds;
        p.shortest = count ? fmin(p.shortest, step) : step;
        p.longest = count ? fmax(p.longest, step) : step;
        sum += step;
        count++;
    }
    if (count == 0 && start < end) /* pauses only */
        p.shortest = p.longest =
            (a->frame[end].seconds - a->frame[start].seconds) / (double)(end - start);
    const double mean = count ? sum / (double)count : p.longest, slack = fmax(0.25 * mean, 0.0011);
    p.variable = p.longest > mean + slack || p.shortest < mean - slack;
    /* The header's fraction is exact if it agrees with the measured rate. */
    p.fps = fps > 0 && fabs(mean * fps - 1) < 0.01 && !p.variable ? fps : mean > 0 ? 1 / mean : fps;
    return p;
}

/* Bars of the source video: the median of each side over the bright frames. False: not enough
 * bright frames. */
static bool find_source_bars(const analysis *a, int bar[4])
{
    int64_t histogram[4][256] = {{0}}, count = 0;
    for (int64_t t = 0; t < a->frames; t++) {
        if (a->frame[t].luma < DARK)
            continue;
        count++;
        for (int k = 0; k < 4; k++)
            histogram[k][a->frame[t].bars.black[k]]++;
    }
    for (int k = 0; k < 4; k++) {
        int64_t below = 0;
        bar[k] = -1;
        while (count > 0 && 2 * below < count)
            below += histogram[k][++bar[k]];
    }
    return count >= SOURCE_FRAMES;
}

/* Black bars of frames start .. end: the minimum over the lit frames. Dark content in a dark shot
 * resembles a bar; the other shots of the video then limit the bars. */
static void black_bars_of(const analysis *a, int64_t start, int64_t end, double luma, int bar[4])
{
    int64_t lit = 0;
    for (int k = 0; k < 4; k++)
        bar[k] = 255;
    for (int64_t t = start; t <= end; t++) {
        if (a->frame[t].luma < BLACK)
            continue;
        lit++;
        for (int k = 0; k < 4; k++)
            bar[k] = a->frame[t].bars.black[k] < bar[k] ? a->frame[t].bars.black[k] : bar[k];
    }
    for (int k = 0; k < 4; k++) {
        if ((luma < DARK || lit == 0) && a->has_source_bars)
            bar[k] = a->source_bar[k] < bar[k] ? a->source_bar[k] : bar[k];
        else if (lit == 0)
            bar[k] = 0;
    }
}

/* Bars of frames start .. end: black bars, otherwise bars of another colour. */
static void bars_of(const analysis *a, int64_t start, int64_t end, double luma, int bar[4])
{
    weft_even_bars all = {0};
    black_bars_of(a, start, end, luma, bar);
    if (bar[0] + bar[1] + bar[2] + bar[3] > 0)
        return;
    for (int64_t t = start; t <= end; t++)
        weft_even_bars_add(&all, &a->frame[t].bars, WIDE, HIGH);
    weft_even_bars_end(&all, bar);
}

/* Area inside the bars: x, y, width, height in display pixels. */
static void active_area(const weft_video_info *info, const int bar[4], int64_t area[4])
{
    area[0] = area[1] = 0;
    area[2] = info->width;
    area[3] = info->height;
    if (bar[0] + bar[1] >= HIGH * 2 / 3 || bar[2] + bar[3] >= WIDE * 2 / 3 ||
        bar[0] + bar[1] + bar[2] + bar[3] == 0)
        return;
    /* A bar that ends inside a cell removes that cell too. Sizes are even for 4:2:0. */
    double cut[4];
    for (int k = 0; k < 4; k++)
        cut[k] = bar[k] ? (bar[k] + 1.0) / (k < 2 ? HIGH : WIDE) : 0;
    area[0] = (int64_t)ceil(cut[2] * (double)info->width / 2) * 2;
    area[1] = (int64_t)ceil(cut[0] * (double)info->height / 2) * 2;
    area[2] = (int64_t)((1 - cut[3]) * (double)info->width - (double)area[0]) / 2 * 2;
    area[3] = (int64_t)((1 - cut[1]) * (double)info->height - (double)area[1]) / 2 * 2;
}

/* Measures the shot of frames start .. end: its record with scores. */
static json_t *measure_shot(const analysis *a, int64_t start, int64_t end)
{
    double motion = 0, luma = 0, detail = 0;
    int bar[4];
    int64_t area[4];
    for (int64_t t = start; t <= end; t++) {
        const frame_stat *s = &a->frame[t];
        motion += t > start ? s->motion : 0;
        luma += s->luma;
        detail += s->detail;
    }
    const double n = (double)(end - start + 1);
    const double from = a->frame[start].seconds, to = end_of(a, end), seconds = to - from;
    pace p = pace_of(a, start, end, a->fps);
    if (p.variable)
        p.fps = n / seconds;
    bars_of(a, start, end, luma / n, bar);
    active_area(&a->info, bar, area);
    return json_pack("{s:I,s:I,s:f,s:f,s:[I,I,I,I],s:f,s:b,s:[f,f],s:{s:f,s:f,s:f}}", "start",
                     (json_int_t)start, "end", (json_int_t)end, "start_seconds", from,
                     "end_seconds", to, "picture", (json_int_t)area[0], (json_int_t)area[1],
                     (json_int_t)area[2], (json_int_t)area[3], "fps", p.fps, "variable_rate",
                     p.variable, "frame_seconds", p.shortest, p.longest, "scores", "motion",
                     motion / seconds, "sharpness", detail / n, "brightness", luma / n);
}

static void add_hashes(const analysis *a, int64_t start, int64_t end, json_t *shot)
{
    json_t *list = json_array();
    const int64_t last = end + 1 < a->frames ? a->frame[end + 1].hashes : a->hashes;
    for (int64_t i = a->frame[start].hashes; i < last; i++) {
        char text[WEFT_PHASH_TEXT];
        weft_phash_print(&a->hash[i], text);
        json_array_append_new(list, json_string(text));
    }
    json_object_set_new(shot, "hashes", list);
    json_object_set_new(shot, "hash_from", json_integer(a->frame[start].hashes));
}

/* Adds a span of frames without a clip, in the form of a rejected shot. */
static void add_hole(const analysis *a, int64_t start, int64_t end, const char *operator_name,
                     const char *reason, json_t *shots)
{
    if (start > end)
        return;
    json_t *gap = json_pack(
        "{s:I,s:I,s:f,s:f,s:b,s:o}", "start", (json_int_t)start, "end", (json_int_t)end,
        "start_seconds", a->frame[start].seconds, "end_seconds", end_of(a, end), "gap", 1, "reject",
        weft_curate_reject(operator_name, (double)(end - start + 1), 0, reason));
    json_array_append_new(shots, gap);
}

/* The first of the sharpest frames of the first seconds of a clip, not after its middle. */
static int64_t sharpest_start(const analysis *a, int64_t start, int64_t end)
{
    const double until = a->frame[start].seconds + a->config->clips.sharpest_within;
    int64_t best = start;
    for (int64_t t = start + 1; t <= (start + end) / 2 && a->frame[t].seconds <= until; t++)
        if (a->frame[t].detail > a->frame[best].detail)
            best = t;
    return best;
}

/* Moves the borders of a clip to cuts of its packets. False: fewer than half of its frames would
 * remain. */
static bool trim_to_cuts(const analysis *a, int64_t *start, int64_t *end)
{
    int64_t from = *start, to = *end;
    if (a->cuts.frames == 0 || !weft_packet_cuts_trim(&a->cuts, &from, &to) ||
        2 * (to - from + 1) < *end - *start + 1)
        return false;
    *start = from;
    *end = to;
    return true;
}

/* The last frame of a part that ends at `end`. The next part begins at the last key frame of this
 * part, unless that is before `earliest` seconds: the next part would be longer than the limit. */
static int64_t end_at_cut(const analysis *a, int64_t start, int64_t end, double earliest)
{
    for (int64_t t = end + 1; a->cuts.frames > 0 && t > start && t < a->frames; t--)
        if (a->cuts.starts[t] && a->cuts.ends[t - 1])
            return a->frame[t].seconds < earliest ? end : t - 1;
    return end;
}

/* Adds the clip of frames start .. end. */
static void add_clip(const analysis *a, int64_t start, int64_t end, json_t *shots)
{
    static const char reason[] = "frames between the border of the shot and a key frame";
    const int64_t sharp = sharpest_start(a, start, end);
    int64_t from = sharp, to = end;
    const bool trimmed = trim_to_cuts(a, &from, &to);
    add_hole(a, start, sharp - 1, "start", "frames before the sharpest one of the start", shots);
    add_hole(a, sharp, from - 1, "key_frame", reason, shots);
    json_t *shot = measure_shot(a, from, to);
    add_hashes(a, from, to, shot);
    if (trimmed)
        json_object_set_new(shot, "trimmed",
                            json_pack("[I,I]", (json_int_t)(from - sharp), (json_int_t)(end - to)));
    json_array_append_new(shots, shot);
    add_hole(a, to + 1, end, "key_frame", reason, shots);
}

/* Adds frames start .. end, cut into clips of equal time when they are too long. */
static void add_clips(const analysis *a, int64_t start, int64_t end, json_t *shots)
{
    const double first = a->frame[start].seconds, seconds = end_of(a, end) - first;
    const double most = ceil(seconds / a->config->clips.max_seconds - 1e-6);
    const int64_t frames = end - start + 1;
    const int64_t parts = most < 1 ? 1 : most > (double)frames ? frames : (int64_t)most;
    int64_t to = start - 1;
    for (int64_t k = 0; k < parts; k++) {
        const double until = first + (double)(k + 1) * seconds / (double)parts;
        int64_t from = to + 1;
        while (to < end && (k + 1 == parts || end_of(a, to + 1) < until + 1e-4))
            to++;
        if (from > to)
            continue; /* the previous frame lasts for the complete part */
        const double next = until + seconds / (double)parts; /* end of the next part */
        if (k + 1 < parts)
            to = end_at_cut(a, from, to, next - a->config->clips.max_seconds - 1e-6);
        add_clip(a, from, to, shots);
    }
}

static void add_gap(const analysis *a, int64_t start, int64_t end, json_t *shots)
{
    add_hole(a, start, end, "transition",
             "frames between two shots: a transition, or trimmed next to a cut", shots);
}

/* Adds the shot of frames start .. end. Pauses of the recording and damaged frames split the shot;
 * damaged frames belong to no clip. */
static void add_shot(const analysis *a, int64_t start, int64_t end, json_t *shots)
{
    for (int64_t t = start; t <= end; t++) {
        const bool damaged = a->frame[t].damaged, proven = a->frame[t].proven;
        if (t < end && !pause_after(a, t) && a->frame[t + 1].damaged == damaged &&
            a->frame[t + 1].proven == proven)
            continue;
        if (proven)
            add_hole(a, start, t, "damaged",
                     "frames that do not end with their data, or are predicted from such frames",
                     shots);
        else if (damaged)
            add_hole(a, start, t, "damaged",
                     "frames that are damaged or predicted from damaged frames", shots);
        else
            add_clips(a, start, t, shots);
        start = t + 1;
    }
}

static json_t *cut_into_shots(const analysis *a)
{
    json_t *shots = json_array();
    int64_t count, start = 0, covered = 0;
    const weft_boundary *b = weft_shot_detector_boundaries(a->detector, &count);
    const int64_t trim = a->config->shots.trim;
    for (int64_t i = 0; i <= count; i++) {
        int64_t end = i < count ? b[i].start - 1 : a->frames - 1;
        int64_t from = start + (i > 0 ? trim : 0), to = end - (i < count ? trim : 0);
        if (from > to)
            from = start, to = end; /* too short to trim: judged by its length */
        if (from <= to) {
            add_gap(a, covered, from - 1, shots);
            add_shot(a, from, to, shots);
            covered = to + 1;
        }
        if (i < count)
            start = b[i].gradual ? b[i].end + 1 : b[i].start;
    }
    add_gap(a, covered, a->frames - 1, shots);
    return shots;
}

/* Spans with missing frames: [start, end] in seconds each. Frames after a span may be intact, so no
 * frame marks it. */
static json_t *lost_spans(const analysis *a)
{
    json_t *spans = json_array();
    for (int64_t t = 0; t < a->frames; t++)
        if (a->frame[t].lost) {
            const double end = a->frame[t].seconds, start = t > 0 ? end_of(a, t - 1) : 0;
            json_array_append_new(spans, json_pack("[f,f]", fmin(start, end), end));
        }
    return spans;
}

/* Parts of the record that need the complete pass; or the reject of the video. */
static json_t *conclude(analysis *a, json_t *record)
{
    const weft_video_info *info = &a->info;
    const int64_t errors = a->seen.errors;
    const double share = (double)errors / (double)(a->frames + errors + (a->frames + errors == 0));
    if (a->frames > 1) {
        const pace whole = pace_of(a, 0, a->frames - 1, info->fps);
        a->fps = whole.fps;
        a->tick = 1 / whole.fps; /* the duration of the last frame is unknown */
    }
    const double seconds = a->frames ? end_of(a, a->frames - 1) : 0;
    json_object_set_new(record, "video", info_json(info, a->fps, a->frames, errors, seconds));
    json_object_set_new(json_object_get(record, "video"), "damaged", json_integer(a->concealed));
    if (a->seen.truncated)
        json_object_set_new(record, "promised_seconds", json_real(info->seconds));
    if (a->frames == 0)
        return weft_curate_reject("decode", 0, 1, "no frame can be decoded");
    if (share > a->config->video.max_damaged)
        return weft_curate_reject("decode", share, a->config->video.max_damaged,
                                  "too many damaged packets");
    const double concealed = (double)a->concealed / (double)a->frames;
    if (concealed > a->config->video.max_concealed)
        return weft_curate_reject("decode", concealed, a->config->video.max_concealed,
                                  "too many frames with damage that the decoder hid");
    if (a->frames < 2)
        return weft_curate_reject("duration", (double)a->frames, 2, "one frame only");
    if (seconds < a->config->video.min_seconds)
        return weft_curate_reject("duration", seconds, a->config->video.min_seconds,
                                  "the video is too short");
    if (a->fps <
        a->config->video.min_fps) /* pauses do not count, of which the header does not know */
        return weft_curate_reject("fps", a->fps, a->config->video.min_fps,
                                  "the frame rate is too low");
    if (a->fps > a->config->video.max_fps)
        return weft_curate_reject("fps", a->fps, a->config->video.max_fps,
                                  "the frame rate is too high");
    a->has_source_bars = find_source_bars(a, a->source_bar);
    json_object_set_new(record, "lost", lost_spans(a));
    json_object_set_new(record, "shots", cut_into_shots(a));
    return NULL;
}

/* Begins the pass, or restarts it. */
static weft_status_code begin(void *user, const weft_video_info *info)
{
    analysis *a = user;
    a->info = *info;
    a->fps = info->fps;
    a->tick = info->fps > 0 ? 1 / info->fps : 0.04;
    a->frames = a->hashes = a->concealed = a->rest_at = 0;
    a->parts.thumbnails = a->parts.keypoint_frames = 0;
    a->next_key = 0;
    a->vectors = false;
    weft_suspect_detector_clear(&a->suspects);
    weft_shot_detector_free(a->detector);
    a->detector = NULL;
    json_decref(a->reject);
    a->reject = reject_header(a->config, info);
    if (a->reject)
        return weft_error(WEFT_MSG_INTERRUPTED, WEFT_NOWHERE, "rejected by its header");
    weft_shot_options o = a->shot_options;
    o.fps = info->fps;
    return weft_shot_detector_create(&o, &a->detector);
}

void weft_curate_parts_free(weft_curate_parts *p)
{
    weft_free(p->thumbnail);
    weft_free(p->keypoints);
    *p = (weft_curate_parts){0};
}

/* Reads the cuts of the packets, if frame numbers are numbers of packets. */
static weft_status read_cuts(analysis *a, const char *path)
{
    if (a->config->clips.cut != WEFT_CUT_KEY_FRAMES || a->concealed > 0 || a->seen.errors > 0)
        return WEFT_OK;
    WEFT_TRY(weft_packet_cuts_read(path, (weft_packet_watch){beat, (void *)a->heart}, &a->cuts));
    if (a->cuts.frames != a->frames)
        weft_packet_cuts_free(&a->cuts);
    return WEFT_OK;
}

/* Decodes the video into the record. Sets *reject to the reason against the whole video, if any; a
 * reason that a visitor found is in a->reject, whatever the status. */
static weft_status scan(analysis *a, const char *path, json_t *record, json_t **reject)
{
    const weft_scan_options o = {.width = WEFT_SHOT_WIDTH,
                                 .height = WEFT_SHOT_HEIGHT,
                                 .large_width = WIDE,
                                 .large_height = HIGH,
                                 .threads = a->shot_options.threads,
                                 .leave_out = WEFT_SHOT_LEAVE_OUT,
                                 .motion_vectors = true,
                                 .stall_seconds = a->config->stall_seconds};
    const weft_scan_visitor visitor = {a, begin, take_frame, weft_shot_alike, &a->shot_options};
    WEFT_TRY(weft_video_scan(path, &o, &visitor, &a->seen));
    if (a->reject)
        return WEFT_OK;
    if (a->seen.errors > 0 && near_limit(a->heart))
        return weft_error(
            WEFT_MSG_FILE_TOO_LARGE, WEFT_AT(.file = path, WEFT_NUMBER(a->seen.errors)),
            "%" PRId64 " packets cannot be decoded, and the decoder reached its limit",
            a->seen.errors);
    WEFT_TRY(weft_shot_detector_finish(a->detector));
    WEFT_TRY(check_suspects(a, path));
    WEFT_TRY(read_cuts(a, path));
    *reject = conclude(a, record);
    return WEFT_OK;
}

weft_status weft_curate_analyse(const char *path, const weft_curate_config *config, int threads,
                                const weft_heartbeat *heart, json_t **out, weft_curate_parts *parts)
{
    analysis *a = weft_alloc(sizeof *a);
    json_t *record = json_object(), *reject = NULL;
    if (!a || !record) {
        weft_free(a);
        json_decref(record);
        return weft_no_memory("%s", path);
    }
    a->config = config;
    a->heart = heart;
    a->shot_options = (weft_shot_options){.method = (weft_shot_method)config->shots.method,
                                          .weights = config->shots.weights,
                                          .threads = threads,
                                          .threshold = config->shots.threshold,
                                          .min_frames = config->shots.min_frames,
                                          .mix = config->shots.mix};
    weft_status_code status = scan(a, path, record, &reject);
    if (a->reject) {
        reject = json_incref(a->reject);
        json_object_set_new(record, "video",
                            info_json(&a->info, a->info.fps, 0, 0, a->info.seconds));
        status = WEFT_OK;
    }
    if (status != WEFT_OK && status != WEFT_E_MEMORY && status != WEFT_E_TOO_LARGE) {
        /* the file's fault */
        const char *why = weft_error_message(); /* the line names the file already */
        const size_t n = strlen(path);
        reject = weft_curate_reject(
            "decode", 0, 1,
            strncmp(why, path, n) == 0 && strncmp(why + n, ": ", 2) == 0 ? why + n + 2 : why);
        if (status == WEFT_E_PERMISSION || status == WEFT_E_IO || status == WEFT_E_NOT_FOUND)
            json_object_set_new(record, "again",
                                json_true()); /* the next run may find it readable */
        status = WEFT_OK;
    }
    if (reject)
        json_object_set_new(record, "reject", reject);
    weft_shot_detector_free(a->detector);
    weft_suspect_detector_clear(&a->suspects);
    weft_packet_cuts_free(&a->cuts);
    json_decref(a->reject);
    *parts = a->parts;
    weft_free(a->frame);
    weft_free(a->hash);
    weft_free(a);
    if (status != WEFT_OK) {
        json_decref(record);
        weft_curate_parts_free(parts);
        return status;
    }
    json_object_set_new(record, "looks", json_integer(parts->thumbnails));
    json_object_set_new(record, "pictures", json_integer(parts->keypoint_frames));
    *out = record;
    return WEFT_OK;
}

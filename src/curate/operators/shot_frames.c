#include "curate/operators/shot_frames.h"

#include "base/config.h"
#include "base/log.h"
#include "base/memory.h"
#include "video/reader.h"

#include <math.h>
#include <string.h>

/* Sizes that are open at a time; operators rarely use more than two. */
enum { SIZES = 4, NEAR = 48 };

/* A decoder whose frames have `side` pixels on the shorter side. */
typedef struct sized_reader {
    weft_video_reader *reader; /* NULL: unused */
    int64_t side, next;        /* next: index of the frame that it decodes next */
    int64_t width, height;     /* of its frames */
} sized_reader;

struct weft_shot_decoder {
    const char *path;
    double stall_seconds, seconds;
    void (*beat)(void *);
    void *user;
    weft_video_info info;
    sized_reader reader[SIZES];
    int turn; /* slot that is replaced next */
    weft_shot_frames set[SIZES];
    int sets;
    int64_t start;    /* first frame of the shot of `set` */
    json_t *pictures; /* owned; area of the shot of each set */
};

weft_status weft_shot_decoder_open(const char *path, double stall_seconds, void (*beat)(void *),
                                   void *user, weft_shot_decoder **source)
{
    weft_shot_decoder *s;
    WEFT_TRY(WEFT_NEW(s, 1, "frames"));
    *s = (weft_shot_decoder){
        .path = path, .stall_seconds = stall_seconds, .beat = beat, .user = user, .start = -1};
    s->pictures = json_array();
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(s->pictures, "frames"));
    WEFT_GO(weft_video_probe(path, &s->info));
out:
    if (status != WEFT_OK) {
        json_decref(s->pictures);
        weft_free(s);
        return status;
    }
    *source = s;
    return WEFT_OK;
}

static void drop_frames(weft_shot_decoder *s)
{
    for (int i = 0; i < s->sets; i++)
        weft_free(s->set[i].rgb);
    s->sets = 0;
    json_array_clear(s->pictures);
}

void weft_shot_decoder_close(weft_shot_decoder *s)
{
    if (!s)
        return;
    drop_frames(s);
    for (int i = 0; i < SIZES; i++)
        weft_video_reader_close(s->reader[i].reader);
    json_decref(s->pictures);
    weft_free(s);
}

double weft_shot_decoder_seconds(const weft_shot_decoder *s)
{
    return s->seconds;
}

/* The decoder of this size, opened if necessary. */
static weft_status reader_of(weft_shot_decoder *s, int64_t side, sized_reader **out)
{
    for (int i = 0; i < SIZES; i++)
        if (s->reader[i].reader && s->reader[i].side == side) {
            *out = &s->reader[i];
            return WEFT_OK;
        }
    sized_reader *r = &s->reader[s->turn];
    s->turn = (s->turn + 1) % SIZES;
    weft_video_reader_close(r->reader);
    const int64_t w = s->info.width, h = s->info.height, shorter = w < h ? w : h;
    const double scale = side > 0 && side < shorter ? (double)side / (double)shorter : 1;
    *r = (sized_reader){.side = side,
                        .width = (int64_t)fmax(2, round((double)w * scale)),
                        .height = (int64_t)fmax(2, round((double)h * scale))};
    const weft_video_options o = {.format = WEFT_VIDEO_RGB24,
                                  .width = r->width,
                                  .height = r->height,
                                  .threads = 1,
                                  .stall_seconds = s->stall_seconds};
    WEFT_TRY(weft_video_reader_open(s->path, &o, &r->reader));
    *out = r;
    return WEFT_OK;
}

/* Decodes up to frame `index`. */
static weft_status decode(weft_shot_decoder *s, sized_reader *r, int64_t index,
                          weft_video_frame *frame)
{
    bool got = true;
    if (index < r->next || index > r->next + NEAR)
        WEFT_TRY(weft_video_reader_seek(r->reader, index));
    do {
        WEFT_TRY(weft_video_reader_next(r->reader, frame, &got));
        if (s->beat)
            s->beat(s->user);
    } while (got && frame->index < index);
    r->next = got ? frame->index + 1 : 0;
    return got && frame->index == index
               ? WEFT_OK
               : weft_error(WEFT_MSG_VIDEO_UNREADABLE, WEFT_AT(.file = s->path, WEFT_NUMBER(index)),
                            "frame %" PRId64 " cannot be decoded again", index);
}

/* The area of a shot in frames of a reader. */
static void area_of(const weft_shot_decoder *s, const sized_reader *r, const json_t *shot,
                    int64_t area[4])
{
    const json_t *picture = json_object_get(shot, "picture");
    const double x = (double)r->width / (double)s->info.width,
                 y = (double)r->height / (double)s->info.height;
    for (size_t k = 0; k < 4; k++)
        area[k] = (int64_t)round(json_number_value(json_array_get(picture, k)) * (k % 2 ? y : x));
    const bool valid = json_array_size(picture) == 4 && area[2] > 0 && area[3] > 0;
    if (!valid) {
        area[0] = area[1] = 0;
        area[2] = r->width;
        area[3] = r->height;
    }
    area[2] = area[0] + area[2] > r->width ? r->width - area[0] : area[2];
    area[3] = area[1] + area[3] > r->height ? r->height - area[1] : area[3];
}

static weft_status read_frames(weft_shot_decoder *s, const json_t *shot, weft_shot_frames *f)
{
    const int64_t start = json_integer_value(json_object_get(shot, "start")),
                  end = json_integer_value(json_object_get(shot, "end")), n = end - start + 1;
    sized_reader *r;
    int64_t area[4];
    WEFT_TRY(reader_of(s, f->side, &r));
    area_of(s, r, shot, area);
    f->count = f->wanted < n ? f->wanted : n;
    f->width = area[2];
    f->height = area[3];
    WEFT_TRY(WEFT_NEW(f->rgb, f->count * f->width * f->height * 3, "%" PRId64 " frames", f->count));
    for (int64_t i = 0; i < f->count; i++) {
        weft_video_frame frame;
        WEFT_TRY(decode(s, r, start + (2 * i + 1) * n / (2 * f->count), &frame));
        f->index[i] = frame.index;
        f->seconds[i] = frame.seconds;
        for (int64_t y = 0; y < f->height; y++)
            memcpy(f->rgb + (i * f->height + y) * f->width * 3,
                   frame.plane[0] + (area[1] + y) * frame.stride[0] + area[0] * 3,
                   (size_t)(f->width * 3));
    }
    return WEFT_OK;
}

weft_status weft_shot_decoder_get(weft_shot_decoder *s, const json_t *shot, int64_t count,
                                  int64_t side, const weft_shot_frames **frames)
{
    const int64_t start = json_integer_value(json_object_get(shot, "start"));
    json_t *picture = json_object_get(shot, "picture");
    picture = picture ? picture : json_null();
    if (start != s->start || s->sets == SIZES)
        drop_frames(s);
    s->start = start;
    for (int i = 0; i < s->sets; i++)
        if (s->set[i].wanted == count && s->set[i].side == side &&
            json_equal(json_array_get(s->pictures, (size_t)i), picture)) {
            *frames = &s->set[i];
            return WEFT_OK;
        }
    const double began = weft_now();
    weft_shot_frames *f = &s->set[s->sets];
    *f = (weft_shot_frames){.wanted = count, .side = side};
    const weft_status_code status = read_frames(s, shot, f);
    s->seconds += weft_now() - began;
    if (status != WEFT_OK) {
        weft_free(f->rgb);
        return status;
    }
    json_array_append(s->pictures, picture);
    s->sets++;
    *frames = f;
    return WEFT_OK;
}

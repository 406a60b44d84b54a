#include "video/scan.h"

#include "base/memory.h"
#include "video/pixels.h"
#include "video/reader_internal.h"
#include "video/vectors.h"

#include <libavcodec/avcodec.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { CHUNK_PACKETS = 600, HISTORY = 64, THREADS = 64 };
static const int64_t chunk_bytes = 8 << 20; /* bytes that a worker reads ahead */
/* Frames wait when the visitor is slower than the decoders. These bytes are reserved for the part
 * being delivered; parts decoded ahead share the rest of WEFT_SCAN_WAITING. */
static const int64_t head_bytes = WEFT_SCAN_WAITING / 4;

typedef struct scan_frame {
    struct scan_frame *next; /* ascending by time */
    int64_t pts;
    int64_t from_pts; /* time of the nearest earlier decoded picture when this one was decoded */
    bool left_out, complete, key;
    const uint8_t *data; /* decoder's buffer, identifies the picture */
    int width, height;
    weft_motion *motion;
    int64_t motion_capacity, motion_count;
    uint8_t pixels[]; /* three small planes, three large planes; none if skipped */
} scan_frame;

/* Frames between two IDR pictures, passed from a worker to the caller. */
typedef struct part {
    scan_frame *first, *last;
    int64_t bytes;
    bool done;
} part;

/* Parts on their way from the workers to the caller, under the lock. Part p is ring[p % size]. */
typedef struct part_queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    part ring[2 * THREADS + 2];
    int64_t size, begun, head;   /* parts begun; part being delivered */
    int64_t queued, most_queued; /* bytes of waiting frames of all parts, now and peak */
    bool reading, all_read, unusual;
    atomic_bool stop; /* set under the lock, read without it */
    weft_status_code status;
    weft_error_copy *error; /* details of `status` */
} part_queue;

/* State of the worker that reads. */
typedef struct scan_input {
    AVPacket *pending; /* first packet of the next part */
    int64_t greatest_pts, last_dts, part_pts;
    int parameters; /* every part has its own parameter sets; -1: unknown */
} scan_input;

/* State of the caller. */
typedef struct scan_output {
    scan_frame *before;              /* last delivered decoded frame */
    scan_frame *waiting, **wait_end; /* skipped frames, until the next decoded frame arrives */
    int64_t index, start_pts, decoded;
    double last_seconds;
    int64_t history_pts[HISTORY];
    weft_video_frame mixed[2];
    uint8_t *mixture;
} scan_output;

typedef struct scan {
    const char *name;
    const weft_scan_options *options;
    const weft_scan_visitor *visitor;
    weft_video_reader *reader;
    const AVStream *stream;
    int64_t small_plane, large_plane; /* bytes */
    int64_t longest_gap; /* maximum time between two frames with skipped frames between */
    part_queue queue;
    scan_input input;
    scan_output output;
} scan;

typedef struct worker {
    scan *s;
    pthread_t thread;
    AVCodecContext *decoder;
    AVFrame *frame, *latest; /* output frame; last decoded frame, as the decoder stores it */
    int captured;            /* pictures begun by the current packet */
    weft_converter *small, *large;
    AVPacket *packet[CHUNK_PACKETS];
    int packets;
    int64_t part;
    scan_frame *list; /* not delivered yet, ascending by time */
    scan_frame *last; /* pixels of the last delivered decoded frame */
    bool has_last;
    int64_t asked_before, asked_after; /* last call of `alike` and its result */
    bool alike;
} worker;

/* ---- What goes wrong ----------------------------------------------------------------------- */

static void stop_scan(scan *s, weft_status_code status)
{
    pthread_mutex_lock(&s->queue.lock);
    if (!s->queue.stop && status != WEFT_OK) {
        s->queue.status = status;
        s->queue.error = weft_error_save();
    }
    s->queue.stop = true;
    pthread_cond_broadcast(&s->queue.changed);
    pthread_mutex_unlock(&s->queue.lock);
}

/* Stops the parallel scan: the stream is unsuitable for this method. */
static bool unusual(scan *s)
{
    pthread_mutex_lock(&s->queue.lock);
    s->queue.unusual = true;
    s->queue.stop = true;
    pthread_cond_broadcast(&s->queue.changed);
    pthread_mutex_unlock(&s->queue.lock);
    return false;
}

static bool too_large(scan *s)
{
    stop_scan(s, weft_error(WEFT_MSG_FILE_TOO_LARGE, WEFT_AT(.file = s->name),
                            "a packet cannot be decoded: the file requires more memory than this "
                            "process can have; it is damaged, or too large for this machine"));
    return false;
}

static bool out_of_memory(scan *s)
{
    stop_scan(s, weft_no_memory("%s", s->name));
    return false;
}

/* ---- Packets ------------------------------------------------------------------------------- */

/* Looks at the NAL units up to the first slice. False: not understood. */
static bool parse_nal_units(const scan *s, const AVPacket *packet, bool *idr, bool *parameters)
{
    const AVCodecParameters *par = s->stream->codecpar;
    const bool prefixed = par->extradata_size > 4 && par->extradata[0] == 1;
    const int length_bytes = prefixed ? (par->extradata[4] & 3) + 1 : 0;
    const uint8_t *at = packet->data, *end = at + packet->size;
    *idr = *parameters = false;
    while (at + length_bytes < end) {
        int64_t length = 0;
        if (prefixed) {
            for (int k = 0; k < length_bytes; k++)
                length = length << 8 | *at++;
            if (length < 1 || length > end - at)
                return false;
        } else {
            while (at + 3 < end && !(at[0] == 0 && at[1] == 0 && at[2] == 1))
                at++;
            if (at + 3 >= end)
                return false;
            at += 3;
        }
        const int type = *at & 31;
        if (type == 1 || type == 5) {
            *idr = type == 5;
            return true;
        }
        if (type >= 2 && type <= 4) /* data partitions */
            return false;
        *parameters |= type == 7 || type == 8;
        at += length;
    }
    return false;
}

/* Reads more packets of the part. *complete is set when the packet after the part was read. Each
 * part must be decodable separately and be shown after all earlier parts; every packet must have a
 * presentation time. */
static bool read_chunk(worker *w, bool first, bool *complete)
{
    scan *s = w->s;
    int64_t bytes = 0;
    for (*complete = false; !*complete && w->packets < CHUNK_PACKETS && bytes < chunk_bytes;) {
        AVPacket *p = s->input.pending;
        bool got = true, idr, parameters;
        s->input.pending = NULL;
        if (!p) {
            if (!(p = av_packet_alloc()))
                return out_of_memory(s);
            const weft_status_code status = weft_video_reader_packet(s->reader, p, &got);
            if (status != WEFT_OK)
                stop_scan(s, status);
            if (status != WEFT_OK || !got) {
                av_packet_free(&p);
                *complete = true;
                return status == WEFT_OK &&
                       (weft_video_reader_errors(s->reader) == 0 || unusual(s));
            }
        }
        if (!parse_nal_units(s, p, &idr, &parameters) || p->pts == AV_NOPTS_VALUE ||
            p->pts < p->dts || (p->flags & (AV_PKT_FLAG_CORRUPT | AV_PKT_FLAG_DISCARD)) ||
            av_packet_get_side_data(p, AV_PKT_DATA_NEW_EXTRADATA, NULL)) {
            av_packet_free(&p);
            return unusual(s);
        }
        const bool begins = first && w->packets == 0;
        if (idr && !begins) {
            s->input.pending = p;
            *complete = true;
            return true;
        }
        w->packet[w->packets++] = p;
        bytes += p->size;
        if (s->input.parameters < 0)
            s->input.parameters = parameters;
        /* Matroska has no decoding times for the first packets. AV_NOPTS_VALUE is the smallest
         * integer. */
        if ((p->dts <= s->input.last_dts && s->input.last_dts != AV_NOPTS_VALUE) ||
            (begins ? !idr || p->pts <= s->input.greatest_pts : p->pts <= s->input.part_pts) ||
            parameters != (begins && s->input.parameters))
            return unusual(s);
        if (begins)
            s->input.part_pts = p->pts;
        s->input.last_dts = p->dts;
        s->input.greatest_pts = p->pts > s->input.greatest_pts ? p->pts : s->input.greatest_pts;
    }
    return true;
}

/* ---- Decoding a part ----------------------------------------------------------------------- */

/* Captures each picture as soon as it is decoded, long before the decoder outputs it in order. */
static int capture_frame(AVCodecContext *decoder, AVFrame *frame, int flags)
{
    worker *w = decoder->opaque;
    int error = avcodec_default_get_buffer2(decoder, frame, flags);
    if (error >= 0) {
        av_frame_unref(w->latest);
        error = av_frame_ref(w->latest, frame);
        w->captured++;
    }
    return error;
}

static weft_status open_worker(worker *w)
{
    const scan *s = w->s;
    const weft_video_info *info = weft_video_reader_info(s->reader);
    const AVCodec *codec = avcodec_find_decoder(s->stream->codecpar->codec_id);
    w->decoder = avcodec_alloc_context3(codec);
    w->frame = av_frame_alloc();
    w->latest = av_frame_alloc();
    w->last = weft_alloc((int64_t)sizeof *w->last + 3 * s->small_plane);
    if (!w->decoder || !w->frame || !w->latest || !w->last ||
        avcodec_parameters_to_context(w->decoder, s->stream->codecpar) < 0)
        return weft_no_memory("%s", s->name);
    AVCodecContext *d = w->decoder;
    d->opaque = w;
    d->get_buffer2 = capture_frame;
    d->pkt_timebase = s->stream->time_base;
    d->thread_count = 1; /* one thread, so that capture_frame sees complete pictures */
    d->thread_type = FF_THREAD_SLICE;
    d->skip_loop_filter = AVDISCARD_ALL;
    d->flags2 |= AV_CODEC_FLAG2_FAST | (s->options->motion_vectors ? AV_CODEC_FLAG2_EXPORT_MVS : 0);
    if (avcodec_open2(d, codec, NULL) < 0)
        return weft_error(WEFT_MSG_VIDEO_UNSUPPORTED, WEFT_AT(.file = s->name),
                          "the decoder does not start");
    weft_video_options o = {
        .format = WEFT_VIDEO_SMALL, .width = s->options->width, .height = s->options->height};
    WEFT_TRY(weft_converter_create(&o, info->rotation, info->width, info->height, &w->small));
    if (s->large_plane == 0)
        return WEFT_OK;
    o.width = s->options->large_width;
    o.height = s->options->large_height;
    return weft_converter_create(&o, info->rotation, info->width, info->height, &w->large);
}

static void free_frames(scan_frame *list)
{
    while (list) {
        scan_frame *next = list->next;
        weft_free(list->motion);
        weft_free(list);
        list = next;
    }
}

static void free_worker(worker *w)
{
    for (int k = 0; k < w->packets; k++)
        av_packet_free(&w->packet[k]);
    avcodec_free_context(&w->decoder);
    av_frame_free(&w->frame);
    av_frame_free(&w->latest);
    weft_converter_free(w->small);
    weft_converter_free(w->large);
    free_frames(w->list);
    weft_free(w->last);
}

/* View of `pixels` as a frame of three contiguous planes. */
static weft_video_frame view(const uint8_t *pixels, int64_t width, int64_t height)
{
    weft_video_frame f = {.width = width, .height = height};
    for (int p = 0; p < 3; p++) {
        f.plane[p] = pixels + p * width * height;
        f.stride[p] = width;
    }
    return f;
}

static weft_video_frame small_view(const scan *s, const scan_frame *p)
{
    return view(p->pixels, s->options->width, s->options->height);
}

static void copy_planes(const weft_video_frame *from, uint8_t *to)
{
    for (int p = 0; p < 3; p++)
        for (int64_t y = 0; y < from->height; y++, to += from->width)
            memcpy(to, from->plane[p] + y * from->stride[p], (size_t)from->width);
}

static int64_t frame_bytes(const scan *s)
{
    return 3 * (s->small_plane + s->large_plane);
}

/* Bytes of a frame in the queue. Skipped frames have no pixels; motion vectors are counted. */
static int64_t waiting_bytes(const scan *s, const scan_frame *p)
{
    return p->left_out ? 0 : frame_bytes(s) + p->motion_capacity * (int64_t)sizeof *p->motion;
}

/* True if a frame of part `index` fits in the queue. The part being delivered may always queue one
 * frame, so that the scan progresses. Requires the lock. */
static bool fits_queue(const scan *s, int64_t index, int64_t bytes)
{
    const int64_t head_queued = s->queue.ring[s->queue.head % s->queue.size].bytes;
    if (index == s->queue.head)
        return head_queued == 0 || head_queued + bytes <= head_bytes;
    return s->queue.queued + bytes <= WEFT_SCAN_WAITING - head_bytes;
}

/* Delivers the oldest frames that are complete and that no later frame can precede. */
static void give_until(worker *w, int64_t pts)
{
    scan *s = w->s;
    while (w->list && w->list->pts <= pts && (w->list->left_out || w->list->complete)) {
        scan_frame *p = w->list;
        w->list = p->next;
        p->next = NULL;
        if (!p->left_out) {
            w->has_last = true;
            w->last->pts = p->pts;
            memcpy(w->last->pixels, p->pixels, (size_t)(3 * s->small_plane));
        }
        const int64_t bytes = waiting_bytes(s, p);
        pthread_mutex_lock(&s->queue.lock);
        part *to = &s->queue.ring[w->part % s->queue.size];
        while (!s->queue.stop && !fits_queue(s, w->part, bytes))
            pthread_cond_wait(&s->queue.changed, &s->queue.lock);
        if (to->last)
            to->last->next = p;
        else
            to->first = p;
        to->last = p;
        to->bytes += bytes;
        s->queue.queued += bytes;
        s->queue.most_queued =
            s->queue.queued > s->queue.most_queued ? s->queue.queued : s->queue.most_queued;
        pthread_cond_broadcast(&s->queue.changed);
        pthread_mutex_unlock(&s->queue.lock);
    }
}

/* Receives the decoder's output frames. */
static bool take_outputs(worker *w, bool at_end)
{
    scan *s = w->s;
    for (;;) {
        const int error = avcodec_receive_frame(w->decoder, w->frame);
        if (error == (at_end ? AVERROR_EOF : AVERROR(EAGAIN)))
            return true;
        if (error < 0)
            return unusual(s);
        const AVFrame *f = w->frame;
        scan_frame *p = w->list;
        while (p && p->pts != f->pts)
            p = p->next;
        if (!p || p->left_out || p->complete || p->data != f->data[0] || p->width != f->width ||
            p->height != f->height || f->interlaced_frame || f->decode_error_flags ||
            (f->flags & AV_FRAME_FLAG_CORRUPT))
            return unusual(s);
        p->complete = true;
        p->key = f->key_frame;
        const weft_status_code status =
            weft_motion_export(f, weft_video_reader_info(s->reader), &p->motion,
                               &p->motion_capacity, &p->motion_count);
        av_frame_unref(w->frame);
        if (status != WEFT_OK) {
            stop_scan(s, status);
            return false;
        }
    }
}

static bool decode_frame(worker *w, const AVPacket *packet, scan_frame *p)
{
    scan *s = w->s;
    w->captured = 0;
    const int error = avcodec_send_packet(w->decoder, packet);
    if (error == AVERROR(ENOMEM))
        return too_large(s);
    if (error < 0)
        return unusual(s);
    AVFrame *f = w->latest;
    if (w->captured < 1 || f->pts != p->pts)
        return unusual(s);
    f->width = w->decoder->width; /* visible part of the coded size */
    f->height = w->decoder->height;
    p->data = f->data[0];
    p->width = f->width;
    p->height = f->height;
    weft_video_frame small, large;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_converter_run(w->small, f, &small));
    if (w->large)
        WEFT_GO(weft_converter_run(w->large, f, &large));
out:
    if (status != WEFT_OK)
        return unusual(s);
    copy_planes(&small, p->pixels);
    if (w->large)
        copy_planes(&large, p->pixels + 3 * s->small_plane);
    return take_outputs(w, false);
}

/* Finds the decoded frames nearest in time on both sides; NULL: none. */
static void neighbours(const worker *w, int64_t pts, const scan_frame **before,
                       const scan_frame **after)
{
    *before = w->has_last ? w->last : NULL;
    *after = NULL;
    for (const scan_frame *p = w->list; p && !*after; p = p->next)
        if (!p->left_out)
            *(p->pts < pts ? before : after) = p;
}

static bool may_leave_out(worker *w, const scan_frame *before, const scan_frame *after)
{
    const scan *s = w->s;
    if (!before || !after || after->pts - before->pts > s->longest_gap)
        return false;
    if (w->asked_before != before->pts || w->asked_after != after->pts) {
        const weft_video_frame a = small_view(s, before), b = small_view(s, after);
        w->alike = s->visitor->alike(s->visitor->settings, &a, &b);
        w->asked_before = before->pts;
        w->asked_after = after->pts;
    }
    return w->alike;
}

static bool take_packet(worker *w, const AVPacket *packet)
{
    scan *s = w->s;
    const scan_frame *before, *after;
    neighbours(w, packet->pts, &before, &after);
    const bool left_out = may_leave_out(w, before, after);
    scan_frame *p = weft_alloc((int64_t)sizeof *p + (left_out ? 0 : frame_bytes(s)));
    if (!p)
        return out_of_memory(s);
    p->pts = packet->pts;
    p->from_pts = before ? before->pts : packet->pts;
    p->left_out = left_out;
    scan_frame **at = &w->list;
    while (*at && (*at)->pts < p->pts)
        at = &(*at)->next;
    const bool twice = (*at && (*at)->pts == p->pts) || (w->has_last && p->pts <= w->last->pts);
    p->next = *at;
    *at = p;
    if (twice)
        return unusual(s);
    if (!left_out && !decode_frame(w, packet, p))
        return false;
    give_until(w, packet->dts);
    return true;
}

static bool decode_part(worker *w)
{
    scan *s = w->s;
    bool complete = false;
    w->has_last = false;
    w->asked_before = w->asked_after = AV_NOPTS_VALUE;
    for (bool first = true; !complete; first = false) {
        bool good = read_chunk(w, first, &complete);
        if (complete || !good) {
            pthread_mutex_lock(&s->queue.lock);
            s->queue.reading = false;
            s->queue.all_read |= !s->input.pending;
            pthread_cond_broadcast(&s->queue.changed);
            pthread_mutex_unlock(&s->queue.lock);
        }
        for (int k = 0; k < w->packets; k++) {
            good = good && !s->queue.stop && take_packet(w, w->packet[k]);
            av_packet_free(&w->packet[k]);
        }
        w->packets = 0;
        if (!good)
            return false;
    }
    avcodec_send_packet(w->decoder, NULL);
    if (!take_outputs(w, true))
        return false;
    avcodec_flush_buffers(w->decoder);
    give_until(w, INT64_MAX);
    return !w->list || unusual(s);
}

static bool begin_part(worker *w)
{
    scan *s = w->s;
    pthread_mutex_lock(&s->queue.lock);
    while (!s->queue.stop && !s->queue.all_read &&
           (s->queue.reading || s->queue.begun - s->queue.head >= s->queue.size))
        pthread_cond_wait(&s->queue.changed, &s->queue.lock);
    const bool more = !s->queue.stop && !s->queue.all_read;
    if (more) {
        s->queue.reading = true;
        w->part = s->queue.begun++;
    }
    pthread_mutex_unlock(&s->queue.lock);
    return more;
}

static void *work(void *argument)
{
    worker *w = argument;
    scan *s = w->s;
    const weft_status_code status = open_worker(w);
    if (status != WEFT_OK)
        stop_scan(s, status);
    while (status == WEFT_OK && begin_part(w) && decode_part(w)) {
        pthread_mutex_lock(&s->queue.lock);
        s->queue.ring[w->part % s->queue.size].done = true;
        pthread_cond_broadcast(&s->queue.changed);
        pthread_mutex_unlock(&s->queue.lock);
    }
    free_worker(w);
    return NULL;
}

/* ---- Telling the frames in order ----------------------------------------------------------- */

static weft_status emit_frame(scan *s, const scan_frame *p, const scan_frame *motion_from,
                              const uint8_t *pixels)
{
    const weft_scan_options *o = s->options;
    weft_video_frame f = view(pixels, o->width, o->height), large = {0};
    if (s->output.start_pts == AV_NOPTS_VALUE)
        s->output.start_pts = p->pts;
    s->output.history_pts[s->output.index % HISTORY] = p->pts;
    f.index = s->output.index++;
    f.seconds = s->output.last_seconds =
        (double)(p->pts - s->output.start_pts) * av_q2d(s->stream->time_base);
    f.mixed = p->left_out;
    f.key = p->key;
    f.motion = motion_from->motion_count ? motion_from->motion : NULL;
    f.motion_count = motion_from->motion_count;
    if (s->large_plane) {
        large = view(pixels + 3 * s->small_plane, o->large_width, o->large_height);
        large.index = f.index;
        large.seconds = f.seconds;
        large.mixed = f.mixed;
        large.key = f.key;
        large.motion = f.motion;
        large.motion_count = f.motion_count;
    }
    return s->visitor->frame(s->visitor->user, &f, s->large_plane ? &large : NULL);
}

/* Motion vectors span the interval since the nearest earlier decoded picture. Divides the vectors
 * by the number of frames in the interval. */
static void share_motion(const scan *s, scan_frame *p, int64_t between)
{
    const int64_t own = s->output.index + between;
    int64_t from = own - 1;
    while (from > own - HISTORY && from >= 0 &&
           (from >= s->output.index || s->output.history_pts[from % HISTORY] > p->from_pts))
        from--;
    const float share = from >= 0 ? 1 / (float)(own - from) : 1;
    for (int64_t k = 0; k < p->motion_count; k++) {
        p->motion[k].dx *= share;
        p->motion[k].dy *= share;
    }
}

/* Emits the waiting frames as mixtures of the decoded frame before and the one after. */
static weft_status emit_mixtures(scan *s, const scan_frame *p)
{
    const int64_t bytes = frame_bytes(s);
    for (const scan_frame *m = s->output.waiting; m; m = m->next) {
        const uint8_t *a = s->output.before->pixels, *b = p->pixels;
        const int64_t whole = p->pts - s->output.before->pts;
        const uint32_t wb =
                           (uint32_t)((256 * (m->pts - s->output.before->pts) + whole / 2) / whole),
                       wa = 256 - wb;
        for (int64_t i = 0; i < bytes; i++)
            s->output.mixture[i] = (uint8_t)((wa * a[i] + wb * b[i] + 128) >> 8);
        WEFT_TRY(emit_frame(s, m, p, s->output.mixture));
    }
    return WEFT_OK;
}

static weft_status emit_with_waiting(scan *s, scan_frame *p)
{
    int64_t between = 0;
    for (const scan_frame *m = s->output.waiting; m; m = m->next)
        between++;
    share_motion(s, p, between);
    weft_status_code status = emit_mixtures(s, p);
    free_frames(s->output.waiting);
    s->output.waiting = NULL;
    s->output.wait_end = &s->output.waiting;
    WEFT_GO(status);
    WEFT_GO(emit_frame(s, p, p, p->pixels));
out:
    free_frames(s->output.before);
    s->output.before = p;
    s->output.decoded++;
    return status;
}

/* Next frame in order; NULL: the end, or a stop. */
static scan_frame *next_frame(scan *s)
{
    scan_frame *p = NULL;
    pthread_mutex_lock(&s->queue.lock);
    while (!s->queue.stop && !p && !(s->queue.all_read && s->queue.head == s->queue.begun)) {
        part *from = &s->queue.ring[s->queue.head % s->queue.size];
        if (s->queue.head < s->queue.begun && from->first) {
            p = from->first;
            from->first = p->next;
            if (!from->first)
                from->last = NULL;
            p->next = NULL;
            const int64_t bytes = waiting_bytes(s, p);
            from->bytes -= bytes;
            s->queue.queued -= bytes;
            pthread_cond_broadcast(&s->queue.changed);
        } else if (s->queue.head < s->queue.begun && from->done) {
            *from = (part){0};
            s->queue.head++;
            pthread_cond_broadcast(&s->queue.changed);
        } else {
            pthread_cond_wait(&s->queue.changed, &s->queue.lock);
        }
    }
    pthread_mutex_unlock(&s->queue.lock);
    return p;
}

static void emit_all(scan *s)
{
    scan_frame *p;
    while ((p = next_frame(s))) {
        if (p->left_out) {
            *s->output.wait_end = p;
            s->output.wait_end = &p->next;
            continue;
        }
        const weft_status_code status = emit_with_waiting(s, p);
        if (status != WEFT_OK) {
            stop_scan(s, status);
            return;
        }
    }
}

/* Decodes the parts in up to `threads` threads, and emits their frames in this one. */
static weft_status run_workers(scan *s, worker *w, int threads)
{
    WEFT_TRY(s->visitor->begin(s->visitor->user, weft_video_reader_info(s->reader)));
    int running = 0;
    for (; running < threads; running++) {
        w[running].s = s;
        if (pthread_create(&w[running].thread, NULL, work, &w[running]) != 0)
            break;
    }
    if (running == 0)
        return weft_no_memory("%s: a thread", s->name);
    emit_all(s);
    stop_scan(s, WEFT_OK);
    for (int k = 0; k < running; k++)
        pthread_join(w[k].thread, NULL);
    return s->queue.status != WEFT_OK ? weft_error_restore(s->queue.error) : WEFT_OK;
}

/* Scans in parallel by parts. *must_read: the stream is unsuitable; the reader must decode it. */
static weft_status scan_parts(scan *s, weft_scan_result *out, bool *must_read)
{
    const weft_video_info *info = weft_video_reader_info(s->reader);
    int threads = s->options->threads < 1         ? 1
                  : s->options->threads > THREADS ? THREADS
                                                  : s->options->threads;
    worker *w = weft_calloc(threads, sizeof *w);
    s->output.mixture = weft_alloc(frame_bytes(s));
    if (!w || !s->output.mixture) {
        weft_free(w);
        weft_free(s->output.mixture);
        return weft_no_memory("%s", s->name);
    }
    s->queue.size = 2 * threads + 2;
    s->output.wait_end = &s->output.waiting;
    s->output.start_pts = AV_NOPTS_VALUE;
    s->input.greatest_pts = s->input.last_dts = AV_NOPTS_VALUE;
    s->input.parameters = -1;
    pthread_mutex_init(&s->queue.lock, NULL);
    pthread_cond_init(&s->queue.changed, NULL);
    const weft_status_code status = run_workers(s, w, threads);
    *must_read = s->queue.unusual;
    *out = (weft_scan_result){.frames = s->output.index,
                              .decoded = s->output.decoded,
                              .most_waiting = s->queue.most_queued,
                              .truncated =
                                  weft_video_ended_early(info, s->output.last_seconds, false)};
    for (int64_t k = 0; k < s->queue.size; k++)
        free_frames(s->queue.ring[k].first);
    free_frames(s->output.before);
    free_frames(s->output.waiting);
    av_packet_free(&s->input.pending);
    weft_free(s->queue.error);
    pthread_mutex_destroy(&s->queue.lock);
    pthread_cond_destroy(&s->queue.changed);
    weft_free(s->output.mixture);
    weft_free(w);
    return status;
}

/* ---- Scan by the video reader -------------------------------------------------------------- */

static weft_status scan_frames(weft_video_reader *reader, const weft_scan_options *options,
                               const weft_scan_visitor *visitor, weft_scan_result *out)
{
    const weft_video_info *info = weft_video_reader_info(reader);
    weft_converter *second = NULL;
    const weft_video_options o = {
        .format = WEFT_VIDEO_SMALL, .width = options->large_width, .height = options->large_height};
    weft_status_code status = WEFT_OK;
    bool got = true;
    *out = (weft_scan_result){0};
    if (options->large_width)
        WEFT_GO(weft_converter_create(&o, info->rotation, info->width, info->height, &second));
    WEFT_GO(visitor->begin(visitor->user, info));
    for (;;) {
        weft_video_frame frame, large;
        WEFT_GO(weft_video_reader_next(reader, &frame, &got));
        if (!got)
            break;
        large = frame;
        if (second)
            WEFT_GO(weft_converter_run(second, weft_video_reader_picture(reader), &large));
        WEFT_GO(visitor->frame(visitor->user, &frame, second ? &large : NULL));
        out->frames = ++out->decoded;
    }
    out->errors = weft_video_reader_errors(reader);
    out->truncated = weft_video_reader_truncated(reader);
out:
    weft_converter_free(second);
    return status;
}

/* Scans H.264 by parts. *must_read as in scan_parts(). */
static weft_status scan_h264(const char *path, weft_video_reader *reader,
                             const weft_scan_options *options, const weft_scan_visitor *visitor,
                             weft_scan_result *out, bool *must_read)
{
    scan *s;
    WEFT_TRY(WEFT_NEW(s, 1, "%s", path));
    s->name = path;
    s->options = options;
    s->visitor = visitor;
    s->reader = reader;
    s->stream = weft_video_reader_stream(reader);
    s->small_plane = options->width * options->height;
    s->large_plane = options->large_width * options->large_height;
    const double fps = weft_video_reader_info(reader)->fps;
    if (options->leave_out > 0 && fps > 0)
        s->longest_gap =
            (int64_t)(((double)options->leave_out + 1.25) / (fps * av_q2d(s->stream->time_base)));
    const weft_status_code status = scan_parts(s, out, must_read);
    weft_free(s);
    return status;
}

weft_status weft_video_scan(const char *path, const weft_scan_options *options,
                            const weft_scan_visitor *visitor, weft_scan_result *out)
{
    weft_video_options o = {.format = WEFT_VIDEO_SMALL,
                            .width = options->width,
                            .height = options->height,
                            .threads = 1,
                            .motion_vectors = options->motion_vectors,
                            .fast = true,
                            .stall_seconds = options->stall_seconds};
    weft_video_reader *reader = NULL;
    weft_status_code status = WEFT_OK;
    bool must_read = true, by_parts = false;
    WEFT_GO(weft_video_reader_open(path, &o, &reader));
    if (weft_video_reader_stream(reader)->codecpar->codec_id == AV_CODEC_ID_H264 &&
        !weft_video_reader_info(reader)->interlaced) {
        by_parts = true;
        WEFT_GO(scan_h264(path, reader, options, visitor, out, &must_read));
    }
    if (must_read) {
        weft_video_reader_close(reader);
        reader = NULL;
        /* Irregular H.264 is usually damaged. A decoder with several pictures in flight sometimes
         * loses the damage flag of concealed ones. */
        o.threads = by_parts ? 1 : options->threads;
        WEFT_GO(weft_video_reader_open(path, &o, &reader));
        WEFT_GO(scan_frames(reader, options, visitor, out));
    }
out:
    weft_video_reader_close(reader);
    return status;
}

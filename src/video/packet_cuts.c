#include "video/packet_cuts.h"

#include "base/memory.h"
#include "video/reader.h"
#include "video/sound_reader.h"
#include "video/sound_track.h"

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/imgutils.h>
#include <libavutil/pixdesc.h>
#include <stdlib.h>
#include <string.h>

/* A packet in decode order. */
typedef struct coded {
    int64_t pts, rank; /* rank: place in the order of presentation */
    bool key;
} coded;

typedef struct packet_list {
    coded *item;   /* owned; in decode order */
    int64_t *time; /* owned; pts in order of presentation */
    int64_t count;
    bool usable; /* every packet has a time of its own, is intact and is shown */
} packet_list;

static int by_time(const void *a, const void *b)
{
    const int64_t x = (*(const coded *const *)a)->pts, y = (*(const coded *const *)b)->pts;
    return (x > y) - (x < y);
}

/* Sets the rank of each packet. */
static weft_status rank_packets(packet_list *list)
{
    coded **sorted;
    WEFT_TRY(WEFT_NEW(sorted, list->count + 1, "the packets of a video"));
    for (int64_t i = 0; i < list->count; i++)
        sorted[i] = &list->item[i];
    qsort(sorted, (size_t)list->count, sizeof *sorted, by_time);
    const weft_status_code status = WEFT_NEW(list->time, list->count + 1, "the packets of a video");
    for (int64_t i = 0; i < list->count && status == WEFT_OK; i++) {
        sorted[i]->rank = i;
        list->time[i] = sorted[i]->pts;
        list->usable &= i == 0 || sorted[i]->pts > sorted[i - 1]->pts;
    }
    weft_free(sorted);
    return status;
}

static void free_packets(packet_list *list)
{
    weft_free(list->item);
    weft_free(list->time);
    *list = (packet_list){0};
}

/* Calls the watch after some packets. */
static void watch_packet(weft_packet_watch watch, int64_t count)
{
    if (watch.beat && count % 256 == 0)
        watch.beat(watch.user);
}

static weft_status list_packets(const char *path, weft_packet_watch watch, packet_list *list)
{
    weft_video_reader *reader = NULL;
    AVPacket *packet = av_packet_alloc();
    int64_t capacity = 0;
    bool got = true;
    *list = (packet_list){.usable = true};
    weft_status_code status = WEFT_ALLOCATED(packet, "%s", path);
    WEFT_GO(status);
    WEFT_GO(weft_video_reader_open(path, NULL, &reader));
    const AVOutputFormat *mp4 = av_guess_format("mp4", NULL, NULL);
    const enum AVCodecID codec = weft_video_reader_stream(reader)->codecpar->codec_id;
    list->usable = mp4 && avformat_query_codec(mp4, codec, FF_COMPLIANCE_NORMAL) == 1;
    while (list->usable) {
        WEFT_GO(weft_video_reader_packet(reader, packet, &got));
        if (!got)
            break;
        const int refused = AV_PKT_FLAG_CORRUPT | AV_PKT_FLAG_DISCARD;
        list->usable = packet->pts != AV_NOPTS_VALUE && !(packet->flags & refused);
        const coded item = {.pts = packet->pts, .key = packet->flags & AV_PKT_FLAG_KEY};
        av_packet_unref(packet);
        WEFT_GO(weft_grow((void **)&list->item, list->count, &capacity, sizeof *list->item));
        list->item[list->count++] = item;
        watch_packet(watch, list->count);
    }
    WEFT_GO(rank_packets(list));
out:
    av_packet_free(&packet);
    weft_video_reader_close(reader);
    return status;
}

/* ---- cuts ---------------------------------------------------------------------------------- */

weft_status weft_packet_cuts_read(const char *path, weft_packet_watch watch, weft_packet_cuts *cuts)
{
    packet_list list = {0};
    int64_t last = -1;
    *cuts = (weft_packet_cuts){0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(list_packets(path, watch, &list));
    if (!list.usable || list.count == 0)
        goto out;
    WEFT_GO(WEFT_NEW(cuts->starts, list.count, "the cuts of a video"));
    WEFT_GO(WEFT_NEW(cuts->ends, list.count, "the cuts of a video"));
    cuts->frames = list.count;
    for (int64_t i = 0; i < list.count; i++) {
        last = list.item[i].rank > last ? list.item[i].rank : last;
        cuts->starts[list.item[i].rank] = list.item[i].key;
        if (last == i) /* the first i + 1 packets are the first i + 1 frames */
            cuts->ends[last] = true;
    }
out:
    free_packets(&list);
    return status;
}

void weft_packet_cuts_free(weft_packet_cuts *cuts)
{
    weft_free(cuts->starts);
    weft_free(cuts->ends);
    *cuts = (weft_packet_cuts){0};
}

bool weft_packet_cuts_trim(const weft_packet_cuts *cuts, int64_t *start, int64_t *end)
{
    int64_t from = *start, to = *end;
    while (from <= to && !cuts->starts[from])
        from++;
    while (to >= from && !cuts->ends[to])
        to--;
    if (from > to)
        return false;
    *start = from;
    *end = to;
    return true;
}

/* ---- copies -------------------------------------------------------------------------------- */

/* The file of a span while it is written. */
typedef struct copy {
    AVFormatContext *mux;    /* NULL: refused */
    weft_sound_track *sound; /* NULL: none */
    int64_t frames;          /* written so far */
    int64_t delay;           /* of the decode times */
} copy;

/* The decode time of a packet is the presentation time of the frame in the same place, earlier by
 * this delay: no frame is then decoded after its presentation. Containers without decode times have
 * the same result as others. */
static int64_t decode_delay(const packet_list *list, const weft_packet_span *span)
{
    int64_t delay = 0, place = span->start;
    bool begun = false;
    for (int64_t i = 0; i <= span->end; i++) {
        begun |= list->item[i].rank == span->start;
        if (!begun || list->item[i].rank < span->start)
            continue;
        const int64_t late = list->time[place++] - list->item[i].pts;
        delay = late > delay ? late : delay;
    }
    return delay;
}

static bool open_file(const AVStream *from, const weft_packet_span *span, const weft_sound *sound,
                      copy *c)
{
    AVDictionary *flags = NULL;
    weft_buf url = {0};
    AVStream *to;
    bool opened = avformat_alloc_output_context2(&c->mux, NULL, "mp4", span->path) >= 0 &&
                  (to = avformat_new_stream(c->mux, NULL)) &&
                  avcodec_parameters_copy(to->codecpar, from->codecpar) >= 0;
    if (opened) {
        to->codecpar->codec_tag =
            to->codecpar->codec_id == AV_CODEC_ID_HEVC ? MKTAG('h', 'v', 'c', '1') : 0;
        to->time_base = from->time_base;
        to->avg_frame_rate = from->avg_frame_rate;
        to->sample_aspect_ratio = from->sample_aspect_ratio;
        c->mux->flags |= AVFMT_FLAG_BITEXACT; /* no library version or time of day */
    }
    for (int i = 0; opened && i < from->nb_side_data; i++) { /* rotation, HDR */
        uint8_t *data =
            av_stream_new_side_data(to, from->side_data[i].type, from->side_data[i].size);
        opened = data != NULL;
        if (opened)
            memcpy(data, from->side_data[i].data, from->side_data[i].size);
    }
    for (int i = 0; opened && i < span->tag_count; i++)
        av_dict_set(&c->mux->metadata, span->tags[i].key, span->tags[i].value, 0);
    if (opened && sound->samples &&
        weft_sound_track_open(span->path, "aac", sound, c->mux, &c->sound))
        opened = false;
    weft_buf_printf(&url, "file:%s", span->path);
    av_dict_set(&flags, "movflags", "use_metadata_tags+faststart", 0);
    opened = opened && weft_buf_check(&url) == WEFT_OK &&
             avio_open(&c->mux->pb, url.data, AVIO_FLAG_WRITE) >= 0 &&
             avformat_write_header(c->mux, &flags) >= 0;
    av_dict_free(&flags);
    weft_buf_free(&url);
    return opened;
}

/* Opens the file of a span, with its sound. False: its writer refuses it. */
static weft_status open_span(const char *source, const AVStream *from, const packet_list *list,
                             const weft_packet_span *span, copy *c, bool *good)
{
    const int64_t begin = from->start_time == AV_NOPTS_VALUE ? 0 : from->start_time;
    weft_sound sound = {0};
    float *samples = NULL;
    if (span->sound_seconds > 0)
        WEFT_TRY(weft_sound_read_part(source, span->stall_seconds,
                                      (double)(list->time[span->start] - begin) *
                                          av_q2d(from->time_base),
                                      span->sound_seconds, &samples, &sound));
    *good = open_file(from, span, &sound, c);
    weft_free(samples);
    return WEFT_OK;
}

/* Frees the file. `complete`: with its index, which makes it readable. */
static bool close_file(copy *c, bool complete)
{
    complete = complete && (!c->sound || weft_sound_track_write(c->sound, 0, true) == WEFT_OK);
    bool written = complete && av_write_trailer(c->mux) >= 0;
    weft_sound_track_free(c->sound);
    if (c->mux && c->mux->pb)
        written = avio_closep(&c->mux->pb) >= 0 && written;
    avformat_free_context(c->mux);
    c->mux = NULL;
    return written;
}

static bool write_packet(copy *c, const AVStream *from, const packet_list *list,
                         const weft_packet_span *span, AVPacket *packet)
{
    const int64_t first = list->time[span->start];
    packet->pts -= first;
    packet->dts = list->time[span->start + c->frames++] - first - c->delay;
    packet->stream_index = 0;
    packet->pos = -1;
    const double seconds = (double)packet->dts * av_q2d(from->time_base);
    av_packet_rescale_ts(packet, from->time_base, c->mux->streams[0]->time_base);
    if (!c->sound)
        return av_write_frame(c->mux, packet) >= 0;
    return av_interleaved_write_frame(c->mux, packet) >= 0 &&
           weft_sound_track_write(c->sound, seconds, false) == WEFT_OK;
}

/* Writes the packets from the key frame to the last frame of the span in decode order. *at is the
 * number of packets read so far. */
static weft_status copy_span(const char *source, weft_video_reader *reader, const packet_list *list,
                             weft_packet_watch watch, AVPacket *packet, weft_packet_span *span,
                             int64_t *at)
{
    const AVStream *from = weft_video_reader_stream(reader);
    copy c = {.delay = decode_delay(list, span)};
    bool good = true, got = true;
    weft_status_code status = WEFT_OK;
    for (; *at <= span->end; ++*at) { /* the first end + 1 packets are the frames up to `end` */
        WEFT_GO(weft_video_reader_packet(reader, packet, &got));
        if (!got || *at >= list->count)
            break;
        const coded *item = &list->item[*at];
        if (item->rank == span->start)
            WEFT_GO(open_span(source, from, list, span, &c, &good));
        if (good && c.mux && item->rank >= span->start)
            good = write_packet(&c, from, list, span, packet);
        av_packet_unref(packet);
        watch_packet(watch, *at);
    }
    good = good && c.mux && *at > span->end;
out:
    span->copied = close_file(&c, status == WEFT_OK && good);
    return status;
}

weft_status weft_packet_spans_copy(const char *path, weft_packet_watch watch,
                                   weft_packet_span *spans, int64_t count)
{
    weft_video_reader *reader = NULL;
    packet_list list = {0};
    int64_t at = 0;
    AVPacket *packet = av_packet_alloc();
    weft_status_code status = WEFT_ALLOCATED(packet, "%s", path);
    WEFT_GO(status);
    for (int64_t i = 0; i < count; i++)
        spans[i].copied = false;
    WEFT_GO(list_packets(path, watch, &list));
    if (!list.usable)
        goto out;
    WEFT_GO(weft_video_reader_open(path, NULL, &reader));
    for (int64_t i = 0; i < count; i++)
        WEFT_GO(copy_span(path, reader, &list, watch, packet, &spans[i], &at));
out:
    av_packet_free(&packet);
    weft_video_reader_close(reader);
    free_packets(&list);
    return status;
}

bool weft_pictures_are_equal(const AVFrame *a, const AVFrame *b)
{
    const AVPixFmtDescriptor *format = av_pix_fmt_desc_get(a->format);
    if (!format || a->format != b->format || a->width != b->width || a->height != b->height)
        return false;
    for (int p = 0; p < av_pix_fmt_count_planes(a->format); p++) {
        const int bytes = av_image_get_linesize(a->format, a->width, p);
        const int rows =
            p == 1 || p == 2 ? AV_CEIL_RSHIFT(a->height, format->log2_chroma_h) : a->height;
        for (int y = 0; y < rows; y++)
            if (memcmp(a->data[p] + (ptrdiff_t)y * a->linesize[p],
                       b->data[p] + (ptrdiff_t)y * b->linesize[p], (size_t)bytes) != 0)
                return false;
    }
    return true;
}

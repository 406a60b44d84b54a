#include "curate/proof/corruption_check.h"

#include "base/memory.h"
#include "curate/proof/coded_ranges.h"
#include "video/reader_internal.h"

#include <libavutil/imgutils.h>
#include <libavutil/pixdesc.h>
#include <math.h>
#include <xxhash.h>

enum {
    RANGES = 8,    /* maximum slices or tiles examined per picture */
    LEAST = 96,    /* minimum bytes of data for a check */
    DULL = 32,     /* bytes at the end, of which at most a quarter are equal */
    VARIANTS = 3,  /* alternative ends to try */
    NEAR = 16,     /* pictures before a suspect that may be the cause (HEVC) */
    AFTER = 2,     /* pictures after a suspect with contexts from it (VP9) */
    WITNESSES = 6, /* pictures tested for ending with their data */
};
static const int64_t most_bytes = 256 << 20; /* between two key pictures */
/* jump above which all earlier pictures are decoded again */
static const float jump_worth = 0.2f;

typedef enum verdict { UNKNOWN, SOUND, DAMAGED } verdict;

typedef struct checker {
    const char *name;
    weft_video_reader *reader;
    const AVCodecParameters *par;
    AVRational tick;
    /* A key picture and the following packets, up to the next key picture. */
    AVPacket **packet;
    int64_t packets, capacity, bytes;
    AVPacket *next; /* next key picture; NULL: the end */
    int64_t start;  /* time of the first frame; AV_NOPTS_VALUE: not known yet */
    const weft_suspect_frame *suspect;
    int64_t suspects, at; /* number of suspects; first suspect not yet passed */
    const weft_corruption_options *options;
    int64_t span_capacity;
    weft_corruption_report found;
    weft_status_code status; /* memory errors */
} checker;

/* ---- One coded picture --------------------------------------------------------------------- */

static uint64_t frame_checksum(const AVFrame *f)
{
    const AVPixFmtDescriptor *desc = av_pix_fmt_desc_get(f->format);
    uint64_t sum = 0;
    for (int p = 0; p < 4 && f->data[p]; p++) { /* without row padding */
        const int bytes = av_image_get_linesize(f->format, f->width, p);
        const int shift = p == 1 || p == 2 ? desc->log2_chroma_h : 0;
        for (int y = 0; y < AV_CEIL_RSHIFT(f->height, shift) && bytes > 0; y++)
            sum = XXH3_64bits_withSeed(f->data[p] + y * f->linesize[p], (size_t)bytes, sum);
    }
    return sum;
}

static AVCodecContext *open_decoder(const checker *p)
{
    const AVCodec *codec = avcodec_find_decoder(p->par->codec_id);
    AVCodecContext *d = avcodec_alloc_context3(codec);
    if (!d)
        return NULL;
    d->pkt_timebase = p->tick;
    d->thread_count = 1;
    d->skip_loop_filter = AVDISCARD_ALL;
    if (avcodec_parameters_to_context(d, p->par) < 0 || avcodec_open2(d, codec, NULL) < 0)
        avcodec_free_context(&d);
    return d;
}

/* Decodes packets first .. n with `last` in place of packet n. False: no output picture, a decoder
 * error, or known damage. Every call uses a new decoder without state of earlier calls. */
static bool play(checker *p, int64_t first, int64_t n, const AVPacket *last, uint64_t *sum)
{
    AVCodecContext *d = open_decoder(p);
    AVFrame *f = av_frame_alloc();
    bool got = false, good = d && f;
    if (!good)
        p->status = weft_no_memory("%s", p->name);
    for (int64_t k = first; k <= n + 1 && good && !got; k++) {
        good = avcodec_send_packet(d, k > n ? NULL : k == n ? last : p->packet[k]) >= 0;
        while (good && !got && avcodec_receive_frame(d, f) >= 0)
            if (f->pts == p->packet[n]->pts) {
                *sum = frame_checksum(f);
                got = true;
                good = !f->decode_error_flags && !(f->flags & AV_FRAME_FLAG_CORRUPT);
            }
        if (k <= n && ++p->found.decoded % 32 == 0 && p->options->beat)
            p->options->beat(p->options->user);
    }
    av_frame_free(&f);
    avcodec_free_context(&d);
    return got && good;
}

/* True if the picture is unchanged with other data at its end, without a decoder error. */
static bool is_same(checker *p, int64_t first, int64_t n, AVPacket *other, uint64_t sum)
{
    uint64_t now;
    const bool got = other && play(p, first, n, other, &now);
    if (!other)
        p->status = weft_no_memory("%s", p->name);
    av_packet_free(&other);
    return got && now == sum;
}

/* True for unsuitable data. Encoders for a fixed rate may pad with one byte value. Data dominated
 * by one byte value belong to an empty picture, which other data may leave empty. */
static bool is_dull(const uint8_t *end)
{
    int count[256] = {0};
    for (int k = 1; k <= DULL; k++)
        if (++count[end[-k]] > DULL / 4)
            return true;
    return false;
}

/* Checks whether picture n, decoded from picture `first` on, uses exactly its data. */
static verdict check_frame(checker *p, int64_t first, int64_t n)
{
    weft_coded_range range[RANGES + 1];
    const AVPacket *packet = p->packet[n];
    const int ranges =
        weft_coded_ranges_find(p->par, packet->data, packet->size, range, RANGES + 1);
    /* The H.264 decoder reports missing data itself. */
    const bool may_want = p->par->codec_id != AV_CODEC_ID_H264;
    uint64_t sum, second_sum;
    verdict is = UNKNOWN;
    if (ranges > RANGES || packet->pts == AV_NOPTS_VALUE || packet->pts < p->packet[first]->pts)
        return UNKNOWN;
    for (int k = 0; k < ranges; k++) {
        if (range[k].end - range[k].begin < LEAST || is_dull(packet->data + range[k].end))
            continue;
        if (is == UNKNOWN && !play(p, first, n, packet, &sum))
            return UNKNOWN;
        is = SOUND;
        bool same = true;
        for (int variant = 0; variant < VARIANTS && same; variant++)
            same = is_same(p, first, n, weft_coded_range_altered(packet, &range[k], variant), sum);
        if (same)
            return DAMAGED;
        AVPacket *more = may_want ? weft_coded_range_grown(packet, &range[k]) : NULL;
        if (more && !is_same(p, first, n, more, sum))
            return play(p, first, n, packet, &second_sum) && second_sum == sum ? DAMAGED : UNKNOWN;
    }
    return is;
}

/* ---- Coded pictures from one key picture to the next --------------------------------------- */

static double seconds_of(const checker *p, int64_t pts)
{
    return (double)(pts - p->start) * av_q2d(p->tick);
}

/* Records that packet n is damaged. Pictures decoded after it up to the next key picture may be
 * damaged, and so may the frame at `suspect_seconds`. */
static void note(checker *p, int64_t n, double suspect_seconds)
{
    weft_corruption_report *found = &p->found;
    double from = suspect_seconds;
    for (int64_t k = n; k < p->packets; k++)
        if (p->packet[k]->pts != AV_NOPTS_VALUE)
            from = fmin(from, seconds_of(p, p->packet[k]->pts));
    if (weft_grow((void **)&found->span, found->spans, &p->span_capacity, sizeof *found->span) !=
        WEFT_OK) {
        p->status = weft_no_memory("%s", p->name);
        return;
    }
    found->span[found->spans++] =
        (weft_damage){from, p->next ? seconds_of(p, p->next->pts) : INFINITY};
}

static bool has_work_left(const checker *p)
{
    return p->status == WEFT_OK && p->found.decoded < p->options->most;
}

/* First damaged packet of from .. to. HEVC parsing does not depend on other pictures, so each
 * picture is first tried alone. This is sometimes wrong, because references are missing. The
 * picture is then tried with all earlier ones, which VP9 always needs. */
static int64_t first_damaged(checker *p, int64_t from, int64_t to)
{
    const bool alone = p->par->codec_id == AV_CODEC_ID_HEVC;
    for (int64_t n = from < 1 ? 1 : from; n <= to && n < p->packets && has_work_left(p); n++)
        if ((!alone || check_frame(p, n, n) == DAMAGED) && check_frame(p, 0, n) == DAMAGED)
            return n;
    return -1;
}

/* Finds the source of the damage in picture `at`. In VP9, the next pictures take their contexts
 * from it and are wrong with it. */
static int64_t search(checker *p, int64_t at, bool wide)
{
    if (p->par->codec_id == AV_CODEC_ID_VP9)
        return first_damaged(p, at, at + AFTER);
    int64_t n = first_damaged(p, at - NEAR, at);
    if (n < 0 && wide)
        n = first_damaged(p, 1, at - NEAR - 1);
    return n >= 0 || !wide ? n : first_damaged(p, at + 1, p->packets - 1);
}

/* True if another picture of the group ends with its data. The encoder then does not pad, and the
 * decoder has all stream parameters. */
static bool has_witness(checker *p, int64_t n)
{
    bool sound = false;
    for (int64_t k = 0; k < p->packets && k <= WITNESSES && !sound; k++)
        sound = k != n && check_frame(p, 0, k) == SOUND;
    return sound;
}

/* Index of the packet shown at `seconds`, or -1. */
static int64_t packet_at(const checker *p, double seconds)
{
    for (int64_t k = 0; k < p->packets; k++)
        if (p->packet[k]->pts != AV_NOPTS_VALUE &&
            fabs(seconds_of(p, p->packet[k]->pts) - seconds) < 1e-4)
            return k;
    return -1;
}

/* True if decoding the pictures before this one can find damage. The H.264 decoder reports nearly
 * all damage itself. */
static bool is_worth(const checker *p, const weft_suspect_frame *suspect, int64_t at)
{
    return at == 0 || p->par->codec_id == AV_CODEC_ID_HEVC ||
           (p->par->codec_id == AV_CODEC_ID_VP9 && (suspect->wide || suspect->jump > jump_worth));
}

static void check_suspects(checker *p)
{
    const double end = p->next ? seconds_of(p, p->next->pts) - 1e-4 : INFINITY;
    bool damaged = false;
    for (; p->at < p->suspects && p->suspect[p->at].seconds < end; p->at++) {
        const weft_suspect_frame *suspect = &p->suspect[p->at];
        const int64_t at = packet_at(p, suspect->seconds);
        if (at < 0 || damaged || !has_work_left(p) || !is_worth(p, suspect, at))
            continue;
        p->found.asked++;
        const int64_t n = at > 0                            ? search(p, at, suspect->wide)
                          : check_frame(p, 0, 0) == DAMAGED ? 0
                                                            : -1;
        damaged = n >= 0;
        if (damaged && has_witness(p, n))
            note(p, n, suspect->seconds);
    }
}

/* ---- The file ------------------------------------------------------------------------------ */

static void forget(checker *p)
{
    for (int64_t k = 0; k < p->packets; k++)
        av_packet_free(&p->packet[k]);
    p->packets = p->bytes = 0;
}

static weft_status append_packet(checker *p, AVPacket *packet)
{
    if (weft_grow((void **)&p->packet, p->packets, &p->capacity, sizeof(AVPacket *)) != WEFT_OK) {
        av_packet_free(&packet);
        return weft_no_memory("%s", p->name);
    }
    p->bytes += packet->size;
    p->packet[p->packets++] = packet;
    return WEFT_OK;
}

/* Finds time 0, the first frame: the presentation time of the first shown packet. */
static void find_start(checker *p)
{
    if (p->start == AV_NOPTS_VALUE)
        for (int64_t k = 0; k < p->packets; k++) {
            const AVPacket *q = p->packet[k];
            if (q->pts != AV_NOPTS_VALUE && !(q->flags & AV_PKT_FLAG_DISCARD) &&
                q->pts >= p->packet[0]->pts && (p->start == AV_NOPTS_VALUE || q->pts < p->start))
                p->start = q->pts;
        }
}

/* Reads packets up to the next key picture. */
static weft_status read_group(checker *p)
{
    forget(p);
    if (p->next)
        WEFT_TRY(append_packet(p, p->next));
    p->next = NULL;
    for (;;) {
        AVPacket *packet = av_packet_alloc();
        bool got = false;
        WEFT_TRY(WEFT_ALLOCATED(packet, "%s", p->name));
        const weft_status_code status = weft_video_reader_packet(p->reader, packet, &got);
        if (status != WEFT_OK || !got) {
            av_packet_free(&packet);
            return status;
        }
        if ((packet->flags & AV_PKT_FLAG_KEY) && packet->pts != AV_NOPTS_VALUE && p->packets > 0) {
            p->next = packet;
            return WEFT_OK;
        }
        if (p->bytes > most_bytes) /* too many bytes for repeated decoding */
            av_packet_free(&packet);
        else
            WEFT_TRY(append_packet(p, packet));
    }
}

static weft_status prove(checker *p)
{
    do {
        WEFT_TRY(read_group(p));
        if (p->packets == 0)
            break;
        find_start(p);
        if (p->start != AV_NOPTS_VALUE && (p->packet[0]->flags & AV_PKT_FLAG_KEY) &&
            p->bytes <= most_bytes)
            check_suspects(p);
    } while (p->next && p->status == WEFT_OK);
    return p->status;
}

weft_status weft_video_check_corruption(const char *path, const weft_suspect_frame *suspects,
                                        int64_t count, const weft_corruption_options *options,
                                        weft_corruption_report *out)
{
    const weft_video_options o = {.format = WEFT_VIDEO_SMALL,
                                  .width = 16,
                                  .height = 16,
                                  .stall_seconds = options->stall_seconds};
    checker p = {.name = path,
                 .start = AV_NOPTS_VALUE,
                 .options = options,
                 .suspect = suspects,
                 .suspects = count};
    *out = (weft_corruption_report){0};
    if (count == 0)
        return WEFT_OK;
    WEFT_TRY(weft_video_reader_open(path, &o, &p.reader));
    const AVStream *stream = weft_video_reader_stream(p.reader);
    p.par = stream->codecpar;
    p.tick = stream->time_base;
    const weft_status_code status = weft_coded_ranges_known(p.par) ? prove(&p) : WEFT_OK;
    forget(&p);
    av_packet_free(&p.next);
    weft_free(p.packet);
    weft_video_reader_close(p.reader);
    if (status != WEFT_OK) {
        weft_free(p.found.span);
        return status;
    }
    *out = p.found;
    return WEFT_OK;
}

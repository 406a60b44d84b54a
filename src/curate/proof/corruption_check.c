#include "video/proof.h"

#include "base/memory.h"
#include "video/reader_inside.h"
#include "video/tails.h"

#include <libavutil/imgutils.h>
#include <libavutil/pixdesc.h>
#include <math.h>
#include <xxhash.h>

enum {
    TAILS = 8,     /* slices or tiles of a picture that are looked at */
    LEAST = 96,    /* bytes of data that are worth it */
    DULL = 32,     /* bytes at the end of which a quarter or less may be equal */
    VARIANTS = 3,  /* other ends that are tried */
    NEAR = 16,     /* pictures before one in doubt that may be the cause (HEVC) */
    BEHIND = 2,    /* and behind it, whose contexts come from it (VP9) */
    WITNESSES = 6, /* pictures that are asked whether they end with their data */
};
static const int64_t most_bytes = 256 << 20; /* between two key pictures */
static const float leap_worth = 0.2f;        /* of a picture before which all is decoded again */

typedef enum verdict { UNKNOWN, SOUND, DAMAGED } verdict;

typedef struct proof {
    const char *name;
    weft_video_reader *reader;
    const AVCodecParameters *par;
    AVRational tick;
    /* A key picture and the packets behind it, up to the next key picture. */
    AVPacket **packet;
    int64_t packets, capacity, bytes;
    AVPacket *next; /* that key picture; NULL: the end */
    int64_t start;  /* time of the first frame; AV_NOPTS_VALUE: not known yet */
    const weft_doubt *doubt;
    int64_t doubts, at; /* all; the first that is not behind us */
    const weft_proof_options *options;
    int64_t span_capacity;
    weft_proof found;
    weft_status_code status; /* of memory */
} proof;

/* ---- One picture --------------------------------------------------------------------------- */

static uint64_t picture_sum(const AVFrame *f)
{
    const AVPixFmtDescriptor *desc = av_pix_fmt_desc_get(f->format);
    uint64_t sum = 0;
    for (int p = 0; p < 4 && f->data[p]; p++) { /* what pads a row is no picture */
        const int bytes = av_image_get_linesize(f->format, f->width, p);
        const int shift = p == 1 || p == 2 ? desc->log2_chroma_h : 0;
        for (int y = 0; y < AV_CEIL_RSHIFT(f->height, shift) && bytes > 0; y++)
            sum = XXH3_64bits_withSeed(f->data[p] + y * f->linesize[p], (size_t)bytes, sum);
    }
    return sum;
}

static AVCodecContext *open_decoder(const proof *p)
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

/* Decodes packets first .. n with `last` in place of the n-th. False: its picture does not come,
 * the decoder complains, or damage is known. Each time in a new decoder, in which nothing is left
 * of another. */
static bool play(proof *p, int64_t first, int64_t n, const AVPacket *last, uint64_t *sum)
{
    AVCodecContext *d = open_decoder(p);
    AVFrame *f = av_frame_alloc();
    bool got = false, good = d && f;
    if (!good)
        p->status = weft_fail(WEFT_E_MEMORY, "%s: out of memory", p->name);
    for (int64_t k = first; k <= n + 1 && good && !got; k++) {
        good = avcodec_send_packet(d, k > n ? NULL : k == n ? last : p->packet[k]) >= 0;
        while (good && !got && avcodec_receive_frame(d, f) >= 0)
            if (f->pts == p->packet[n]->pts) {
                *sum = picture_sum(f);
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

/* Whether the picture is as it was with another end of its data, without a complaint. */
static bool is_same(proof *p, int64_t first, int64_t n, AVPacket *other, uint64_t sum)
{
    uint64_t now;
    const bool got = other && play(p, first, n, other, &now);
    if (!other)
        p->status = weft_fail(WEFT_E_MEMORY, "%s: out of memory", p->name);
    av_packet_free(&other);
    return got && now == sum;
}

/* Encoders for a fixed rate may fill up with the same byte; and data in which one byte is most of
 * them are those of an empty picture, which other data may leave empty. */
static bool is_dull(const uint8_t *end)
{
    int count[256] = {0};
    for (int k = 1; k <= DULL; k++)
        if (++count[end[-k]] > DULL / 4)
            return true;
    return false;
}

/* Whether picture n, decoded from picture `first` on, takes just the data that it has. */
static verdict judge(proof *p, int64_t first, int64_t n)
{
    weft_tail tail[TAILS + 1];
    const AVPacket *packet = p->packet[n];
    const int tails = weft_tails_find(p->par, packet->data, packet->size, tail, TAILS + 1);
    /* H.264 that wants more data than there are is known to the decoder. */
    const bool may_want = p->par->codec_id != AV_CODEC_ID_H264;
    uint64_t sum, again;
    verdict is = UNKNOWN;
    if (tails > TAILS || packet->pts == AV_NOPTS_VALUE || packet->pts < p->packet[first]->pts)
        return UNKNOWN;
    for (int k = 0; k < tails; k++) {
        if (tail[k].end - tail[k].begin < LEAST || is_dull(packet->data + tail[k].end))
            continue;
        if (is == UNKNOWN && !play(p, first, n, packet, &sum))
            return UNKNOWN;
        is = SOUND;
        bool same = true;
        for (int variant = 0; variant < VARIANTS && same; variant++)
            same = is_same(p, first, n, weft_tail_altered(packet, &tail[k], variant), sum);
        if (same)
            return DAMAGED;
        AVPacket *more = may_want ? weft_tail_grown(packet, &tail[k]) : NULL;
        if (more && !is_same(p, first, n, more, sum))
            return play(p, first, n, packet, &again) && again == sum ? DAMAGED : UNKNOWN;
    }
    return is;
}

/* ---- Pictures from one key picture to the next --------------------------------------------- */

static double seconds_of(const proof *p, int64_t pts)
{
    return (double)(pts - p->start) * av_q2d(p->tick);
}

/* Packet n is damaged: so may be all that is decoded behind it up to the next key picture, and what
 * is shown at `doubt`. */
static void note(proof *p, int64_t n, double doubt)
{
    weft_proof *found = &p->found;
    double from = doubt;
    for (int64_t k = n; k < p->packets; k++)
        if (p->packet[k]->pts != AV_NOPTS_VALUE)
            from = fmin(from, seconds_of(p, p->packet[k]->pts));
    if (weft_grow((void **)&found->span, found->spans, &p->span_capacity, sizeof *found->span) !=
        WEFT_OK) {
        p->status = weft_fail(WEFT_E_MEMORY, "%s: out of memory", p->name);
        return;
    }
    found->span[found->spans++] =
        (weft_damage){from, p->next ? seconds_of(p, p->next->pts) : INFINITY};
}

static bool has_work_left(const proof *p)
{
    return p->status == WEFT_OK && p->found.decoded < p->options->most;
}

/* The first damaged one of packets from .. to. HEVC is parsed without a look at other pictures:
 * each is tried alone first, which is wrong now and then, as what it is predicted from is missing;
 * then with all before it, which VP9 needs at once. */
static int64_t first_damaged(proof *p, int64_t from, int64_t to)
{
    const bool alone = p->par->codec_id == AV_CODEC_ID_HEVC;
    for (int64_t n = from < 1 ? 1 : from; n <= to && n < p->packets && has_work_left(p); n++)
        if ((!alone || judge(p, n, n) == DAMAGED) && judge(p, 0, n) == DAMAGED)
            return n;
    return -1;
}

/* Where the damage of picture `at` can come from. In VP9 contexts of the next pictures come from
 * it, and are wrong with it. */
static int64_t search(proof *p, int64_t at, bool wide)
{
    if (p->par->codec_id == AV_CODEC_ID_VP9)
        return first_damaged(p, at, at + BEHIND);
    int64_t n = first_damaged(p, at - NEAR, at);
    if (n < 0 && wide)
        n = first_damaged(p, 1, at - NEAR - 1);
    return n >= 0 || !wide ? n : first_damaged(p, at + 1, p->packets - 1);
}

/* Whether another picture of the group ends with its data: then the encoder does not fill them up,
 * and the decoder has all that it wants to know of the stream. */
static bool has_witness(proof *p, int64_t n)
{
    bool sound = false;
    for (int64_t k = 0; k < p->packets && k <= WITNESSES && !sound; k++)
        sound = k != n && judge(p, 0, k) == SOUND;
    return sound;
}

/* The packet that is shown at `seconds`, or -1. */
static int64_t packet_at(const proof *p, double seconds)
{
    for (int64_t k = 0; k < p->packets; k++)
        if (p->packet[k]->pts != AV_NOPTS_VALUE &&
            fabs(seconds_of(p, p->packet[k]->pts) - seconds) < 1e-4)
            return k;
    return -1;
}

/* Whether it is worth to decode what is before the picture; of H.264 the decoder tells nearly all
 * damage itself. */
static bool is_worth(const proof *p, const weft_doubt *doubt, int64_t at)
{
    return at == 0 || p->par->codec_id == AV_CODEC_ID_HEVC ||
           (p->par->codec_id == AV_CODEC_ID_VP9 && (doubt->wide || doubt->leap > leap_worth));
}

static void look_into(proof *p)
{
    const double end = p->next ? seconds_of(p, p->next->pts) - 1e-4 : INFINITY;
    bool damaged = false;
    for (; p->at < p->doubts && p->doubt[p->at].seconds < end; p->at++) {
        const weft_doubt *doubt = &p->doubt[p->at];
        const int64_t at = packet_at(p, doubt->seconds);
        if (at < 0 || damaged || !has_work_left(p) || !is_worth(p, doubt, at))
            continue;
        p->found.asked++;
        const int64_t n = at > 0 ? search(p, at, doubt->wide) : judge(p, 0, 0) == DAMAGED ? 0 : -1;
        damaged = n >= 0;
        if (damaged && has_witness(p, n))
            note(p, n, doubt->seconds);
    }
}

/* ---- The file ------------------------------------------------------------------------------ */

static void forget(proof *p)
{
    for (int64_t k = 0; k < p->packets; k++)
        av_packet_free(&p->packet[k]);
    p->packets = p->bytes = 0;
}

static weft_status keep(proof *p, AVPacket *packet)
{
    if (weft_grow((void **)&p->packet, p->packets, &p->capacity, sizeof(AVPacket *)) != WEFT_OK) {
        av_packet_free(&packet);
        return weft_fail(WEFT_E_MEMORY, "%s: out of memory", p->name);
    }
    p->bytes += packet->size;
    p->packet[p->packets++] = packet;
    return WEFT_OK;
}

/* Time 0 is the first frame: that of the first packet that is shown. */
static void find_start(proof *p)
{
    if (p->start == AV_NOPTS_VALUE)
        for (int64_t k = 0; k < p->packets; k++) {
            const AVPacket *q = p->packet[k];
            if (q->pts != AV_NOPTS_VALUE && !(q->flags & AV_PKT_FLAG_DISCARD) &&
                q->pts >= p->packet[0]->pts && (p->start == AV_NOPTS_VALUE || q->pts < p->start))
                p->start = q->pts;
        }
}

/* Reads up to the next key picture. */
static weft_status read_group(proof *p)
{
    forget(p);
    if (p->next)
        WEFT_TRY(keep(p, p->next));
    p->next = NULL;
    for (;;) {
        AVPacket *packet = av_packet_alloc();
        bool got = false;
        if (!packet)
            return weft_fail(WEFT_E_MEMORY, "%s: out of memory", p->name);
        const weft_status_code status = weft_video_reader_packet(p->reader, packet, &got);
        if (status != WEFT_OK || !got) {
            av_packet_free(&packet);
            return status;
        }
        if ((packet->flags & AV_PKT_FLAG_KEY) && packet->pts != AV_NOPTS_VALUE && p->packets > 0) {
            p->next = packet;
            return WEFT_OK;
        }
        if (p->bytes > most_bytes) /* too much to decode again and again */
            av_packet_free(&packet);
        else
            WEFT_TRY(keep(p, packet));
    }
}

static weft_status prove(proof *p)
{
    do {
        WEFT_TRY(read_group(p));
        if (p->packets == 0)
            break;
        find_start(p);
        if (p->start != AV_NOPTS_VALUE && (p->packet[0]->flags & AV_PKT_FLAG_KEY) &&
            p->bytes <= most_bytes)
            look_into(p);
    } while (p->next && p->status == WEFT_OK);
    return p->status;
}

weft_status weft_video_prove(const char *path, const weft_doubt *doubts, int64_t count,
                             const weft_proof_options *options, weft_proof *out)
{
    const weft_video_options o = {.format = WEFT_VIDEO_SMALL,
                                  .width = 16,
                                  .height = 16,
                                  .stall_seconds = options->stall_seconds};
    proof p = {.name = path,
               .start = AV_NOPTS_VALUE,
               .options = options,
               .doubt = doubts,
               .doubts = count};
    *out = (weft_proof){0};
    if (count == 0)
        return WEFT_OK;
    WEFT_TRY(weft_video_reader_open(path, &o, &p.reader));
    const AVStream *stream = weft_video_reader_stream(p.reader);
    p.par = stream->codecpar;
    p.tick = stream->time_base;
    weft_status_code status = weft_tails_known(p.par) ? prove(&p) : WEFT_OK;
    forget(&p);
    av_packet_free(&p.next);
    weft_free(p.packet);
    weft_video_reader_close(p.reader);
    if (status == WEFT_OK)
        *out = p.found;
    else
        weft_free(p.found.span);
    return status;
}

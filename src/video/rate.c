#include "video/rate.h"

#include "base/compare.h"

#include <math.h>
#include <stdlib.h>

/* REORDER: between the last times that were read some may miss, which come in later packets. */
enum { PACKETS = 400, REORDER = 16 };

static double rate_of(AVRational q)
{
    return q.num > 0 && q.den > 0 ? av_q2d(q) : 0;
}

static bool agree(double a, double b, double share)
{
    return fabs(a - b) <= share * fmax(a, b);
}

double weft_rate_claimed(AVFormatContext *demux, int stream, bool *sure)
{
    AVStream *s = demux->streams[stream];
    const double average = rate_of(s->avg_frame_rate), base = rate_of(s->r_frame_rate);
    const double guess = rate_of(av_guess_frame_rate(demux, s, NULL));
    const double claimed = average > 0 ? average : base > 0 ? base : guess;
    /* Files with a sample table have exact frame counts. In other files, the base rate is that of
     * the smallest time step, so it is the larger one. For fields, it is twice the average. */
    const bool counted =
        s->nb_frames > 1 && s->duration > 0 &&
        agree((double)s->nb_frames, claimed * (double)s->duration * av_q2d(s->time_base), 0.05);
    *sure =
        counted || (claimed >= 5 && claimed <= 121 &&
                    (base <= 0 || agree(claimed, base, 0.05) || agree(2 * claimed, base, 0.05)) &&
                    (guess <= 0 || agree(claimed, guess, 0.05) || agree(2 * claimed, guess, 0.05)));
    return claimed;
}

double weft_rate_measured(AVFormatContext *demux, int stream, AVPacket *packet)
{
    const AVStream *s = demux->streams[stream];
    int64_t time[PACKETS];
    int count = 0;
    bool ended = false, known = true;
    while (count < PACKETS && !ended && known) {
        ended = av_read_frame(demux, packet) < 0;
        if (ended)
            break;
        if (packet->stream_index == stream && !(packet->flags & AV_PKT_FLAG_DISCARD)) {
            known = packet->pts != AV_NOPTS_VALUE;
            time[count++] = packet->pts;
        }
        av_packet_unref(packet);
    }
    if (!known || count < 2)
        return 0;
    qsort(time, (size_t)count, sizeof *time, weft_compare_i64);
    const int last = ended || count <= 4 * REORDER ? count - 1 : count - 1 - REORDER;
    if (time[last] <= time[0])
        return 0;
    const double rate = last / ((double)(time[last] - time[0]) * av_q2d(s->time_base));
    /* Times in milliseconds have an error of one at either end. */
    const double usual = rate_of(s->r_frame_rate);
    return agree(rate, usual, 0.01) ? usual : agree(rate, usual / 2, 0.01) ? usual / 2 : rate;
}

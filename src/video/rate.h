/* Frame rate of a stream, with a check because some containers declare impossible rates. Private to
 * video/. */
#ifndef WEFT_VIDEO_RATE_H
#define WEFT_VIDEO_RATE_H

#include <libavformat/avformat.h>
#include <stdbool.h>

/* Average rate from the header and from FFmpeg's analysis of the first packets; 0: unknown. *sure
 * is false if these rates are impossible or contradict each other. The rate then comes from the
 * packets' own times. */
double weft_rate_claimed(AVFormatContext *demux, int stream, bool *sure);
/* Average rate from the times of the next few hundred packets; 0: no times. Advances the input. */
double weft_rate_measured(AVFormatContext *demux, int stream, AVPacket *packet);

#endif

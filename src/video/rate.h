/* The frame rate of a stream: containers claim impossible ones. Private to video/. */
#ifndef WEFT_VIDEO_RATE_H
#define WEFT_VIDEO_RATE_H

#include <libavformat/avformat.h>
#include <stdbool.h>

/* The average rate by the header and FFmpeg's look at the first packets; 0: not told. *sure is
 * false where these are impossible or contradict each other: then the packets' own times decide. */
double weft_rate_claimed(AVFormatContext *demux, int stream, bool *sure);
/* The average rate by the times of the next packets (at most a few hundred), 0: they have none.
 * Moves the input. */
double weft_rate_measured(AVFormatContext *demux, int stream, AVPacket *packet);

#endif

/* State that the reader shares with the scan: stream, packets and frames. Private to video/. */
#ifndef WEFT_VIDEO_READER_INTERNAL_H
#define WEFT_VIDEO_READER_INTERNAL_H

#include "video/reader.h"

#include <libavformat/avformat.h>

/* The open container, borrowed. Starts a new time limit of reading (stall_seconds). */
AVFormatContext *weft_video_reader_demuxer(weft_video_reader *reader);

#endif

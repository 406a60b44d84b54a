/* What the reader shares with the scan: its stream, packets and pictures. Private to video/. */
#ifndef WEFT_VIDEO_READER_INSIDE_H
#define WEFT_VIDEO_READER_INSIDE_H

#include "video/reader.h"

#include <libavformat/avformat.h>

const AVStream *weft_video_reader_stream(const weft_video_reader *reader);
/* The next packet of the stream, undecoded; *got is false at the end. What cannot be read counts in
 * weft_video_reader_errors. Not to be mixed with weft_video_reader_next. */
weft_status weft_video_reader_packet(weft_video_reader *reader, AVPacket *packet, bool *got);
/* The promised duration lasts on behind the last frame: by more than an inaccurate header does, or
 * at all when the file is known to end amid something. */
bool weft_video_ended_early(const weft_video_info *info, double last_seconds, bool cut_off);
/* The decoder's picture of the frame that weft_video_reader_next gave last. */
const AVFrame *weft_video_reader_picture(const weft_video_reader *reader);

/* The decoder's vectors of `frame` from past pictures, turned and scaled like the picture, into a
 * list that grows. */
weft_status weft_motion_export(const AVFrame *frame, const weft_video_info *info,
                               weft_motion **list, int64_t *capacity, int64_t *count);

#endif

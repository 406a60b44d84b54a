/* Reads the sound of a part of a video. */
#ifndef WEFT_VIDEO_SOUND_READER_H
#define WEFT_VIDEO_SOUND_READER_H

#include "video/reader.h"
#include "video/sound.h"

typedef struct weft_sound_request {
    double start_seconds; /* offset from the first frame of the video, as of weft_clip_request */
    int64_t channels, count;
    int64_t rate; /* samples per second */
} weft_sound_request;

/* Fills `samples` [channels][count], owned by the caller: sample i is heard start_seconds + i /
 * rate after the first frame. Other numbers of channels are mixed, and other rates resampled, as
 * FFmpeg does. Times without sound are zeros, as damaged packets are. *has_sound is false if the
 * video has no stream of sound that FFmpeg decodes; all samples are then zeros. */
weft_status weft_sound_read_memory(const void *bytes, int64_t size, const char *name,
                                   const weft_sound_request *request, float *samples,
                                   bool *has_sound);
weft_status weft_sound_read_source(const weft_video_source *source, const char *name,
                                   const weft_sound_request *request, float *samples,
                                   bool *has_sound);
/* Reads `seconds` of the sound of the file `path`, from start_seconds after its first frame on. The
 * sound has the rate of its stream and one or two channels. *samples belongs to the caller
 * (weft_free), and *sound borrows it. NULL: the video has no sound that FFmpeg decodes.
 * stall_seconds: longest time of one read; 0: 30. */
weft_status weft_sound_read_part(const char *path, double stall_seconds, double start_seconds,
                                 double seconds, float **samples, weft_sound *sound);

#endif

/* The sound of a video file: a stream of the muxer, encoded while frames are written. */
#ifndef WEFT_VIDEO_SOUND_TRACK_H
#define WEFT_VIDEO_SOUND_TRACK_H

#include "base/status.h"
#include "video/sound.h"

#include <libavformat/avformat.h>

typedef struct weft_sound_track weft_sound_track;

/* Adds a stream to `mux`, before its header is written. `encoder`: FFmpeg's name. Samples are
 * copied. A rate that the encoder does not take is raised to its next one. `path` is for
 * messages. */
weft_status weft_sound_track_open(const char *path, const char *encoder, const weft_sound *sound,
                                  AVFormatContext *mux, weft_sound_track **track);
/* Writes the sound up to `seconds`, and with `last` the whole sound. */
weft_status weft_sound_track_write(weft_sound_track *track, double seconds, bool last);
void weft_sound_track_free(weft_sound_track *track); /* accepts NULL */

#endif

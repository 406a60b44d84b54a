/* Clips whose coded frames are copied from the source video. Private to curate/. */
#ifndef WEFT_CURATE_LOSSLESS_CLIPS_H
#define WEFT_CURATE_LOSSLESS_CLIPS_H

#include "curate/curate_work.h"
#include "video/packet_cuts.h"
#include "video/reader.h"

/* Copies of some clips of a source, in temporary files next to the clips. */
typedef struct weft_lossless_clips {
    weft_packet_span *span; /* owned, with their paths; span i belongs to clip[i] */
    const weft_curate_clip **clip;
    weft_video_tag *tag;
    int64_t count, capacity;
    bool sound;           /* copies have the sound of the source */
    double stall_seconds; /* longest time of one read; 0: 30 */
} weft_lossless_clips;

/* Adds a clip, ascending by start. */
weft_status weft_lossless_clips_add(weft_lossless_clips *list, const weft_curate_clip *clip);
/* Copies the coded frames of all clips. */
weft_status weft_lossless_clips_copy(weft_lossless_clips *list, const char *source,
                                     const weft_heartbeat *heart);
/* Removes the temporary files that are left. */
void weft_lossless_clips_free(weft_lossless_clips *list);

/* Options of readers whose decoded frames are compared. */
extern const weft_video_options weft_lossless_options;
/* Compares a copied clip with its frames of `reader`, which is at or before its start. Equal clips
 * get their name and *info. *equal is false for a copy that was refused, or whose decoded frames
 * differ in number, samples or times. */
weft_status weft_lossless_clip_accept(const weft_lossless_clips *list, const weft_curate_clip *clip,
                                      weft_video_reader *reader, const weft_heartbeat *heart,
                                      weft_video_info *info, bool *equal);

#endif

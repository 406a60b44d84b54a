#ifndef WEFT_CURATE_CLIPS_H
#define WEFT_CURATE_CLIPS_H

#include "curate/curate_work.h"

/* True if the clip exists, written with the settings and the crop of its metadata. The metadata
 * file is written last, so a clip with metadata is complete. */
bool weft_curate_clip_is_written(const weft_curate_clip *clip);
/* Writes the missing clips of one source in one pass. Clips are ascending by start and do not
 * overlap. */
weft_status weft_curate_write_clips(const char *source, const weft_curate_clip *clips,
                                    int64_t count, const weft_curate_config *config, int threads,
                                    const weft_heartbeat *heart);

/* Ends the window of a clip with a single one at its last frame: a lower rate drops frames. */
void weft_curate_fit_window(json_t *meta);

#endif

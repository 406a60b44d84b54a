/* Frame jumps: frames in which some region differs suddenly from the frame before, like damage that
 * a decoder conceals. Most jumps are not damage (flashes, cuts, fast objects). The list only
 * selects the frames whose data corruption_check.h examines. */
#ifndef WEFT_CURATE_PROOF_SUSPECT_FRAMES_H
#define WEFT_CURATE_PROOF_SUSPECT_FRAMES_H

#include "curate/proof/corruption_check.h"
#include "curate/shots/shots.h"
#include "video/reader.h"

enum {
    WEFT_FRAME_JUMP_BLOCK = 4,
    WEFT_FRAME_JUMP_BLOCKS =
        WEFT_SHOT_WIDTH / WEFT_FRAME_JUMP_BLOCK * (WEFT_SHOT_HEIGHT / WEFT_FRAME_JUMP_BLOCK),
    WEFT_FRAME_JUMP_PAST = 4, /* preceding frames that define the usual change */
    WEFT_FRAME_JUMP_REACH = 2
};

typedef struct weft_frame_jump {
    double seconds;
    float jump;      /* mean over the frame, in pixel values */
    bool key, known; /* known: mixed, or already known to be damaged */
} weft_frame_jump;

typedef struct weft_suspect_detector {
    weft_frame_jump *frame; /* 16 bytes each */
    int64_t frames, capacity;
    uint8_t last[WEFT_SHOT_HEIGHT + 2 * WEFT_FRAME_JUMP_REACH]
                [WEFT_SHOT_WIDTH + 2 * WEFT_FRAME_JUMP_REACH];
    uint16_t change[WEFT_FRAME_JUMP_PAST][WEFT_FRAME_JUMP_BLOCKS]; /* of the last frames, a ring */
} weft_suspect_detector;

/* Takes the next frame, of WEFT_SHOT_WIDTH x WEFT_SHOT_HEIGHT. */
weft_status weft_suspect_detector_push(weft_suspect_detector *suspects,
                                       const weft_video_frame *frame);
/* Times of the suspect frames, ascending; the caller owns *list. Suspect are key frames that start
 * the video or jump, and other frames that jump more than usual. So is the largest jump before a
 * key frame that jumps, since damage ends at the key frame. */
weft_status weft_suspect_detector_list(const weft_suspect_detector *suspects,
                                       weft_suspect_frame **list, int64_t *count);
/* Resets the detector. */
void weft_suspect_detector_clear(weft_suspect_detector *suspects);

#endif

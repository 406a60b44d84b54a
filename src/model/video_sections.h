/* Sections: a video that its model denoises section by section, each with frames of the video as a
 * history (Framepack, Zhang and Agrawala). Frame 0 of the video is the given image.
 *
 *     reverse   image [ section 2 ][ section 1 ][ section 0 ]    history: frames after the section
 *     forward   image [ section 0 ][ section 1 ][ section 2 ]    history: frames before the section
 *
 * With `precedes`, the image and the latents of other given frames are before the video:
 *
 *     given, image | [ section 0 ][ section 1 ][ section 2 ]     history: frames before the section
 *
 * All counts are in latent frames. */
#ifndef WEFT_MODEL_VIDEO_SECTIONS_H
#define WEFT_MODEL_VIDEO_SECTIONS_H

#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>

/* Frames of the history with tokens of 1, 2 and 4 frames; before the first there is the image. */
enum { WEFT_HISTORY_SCALES = 3 };
extern const int64_t weft_history_frames[WEFT_HISTORY_SCALES];

typedef struct weft_video_sections {
    int64_t count;  /* 0 (default): the video is denoised at once */
    int64_t frames; /* length of a section */
    bool forward;
    bool precedes; /* the image is not a frame of the video; sections are in order */
    bool image;    /* precedes: an image is given */
    int64_t given; /* precedes: given frames before the video */
    /* Frames by which sections overlap, in place of a history; 0 (default): a history. */
    int64_t shared;
    bool blocks; /* sections follow each other from frame `first` on, without a given image */
    int64_t first;
} weft_video_sections;

/* Sources of a frame of the history that are not frames of the video. */
enum {
    WEFT_HISTORY_ZEROS = -1,
    WEFT_HISTORY_LAST_IMAGE = -2,
    WEFT_HISTORY_IMAGE = -3, /* before the video */
    WEFT_HISTORY_GIVEN = -4  /* GIVEN - k: given frame k before the video, counted from its end */
};

/* First frame of section `at`, counted in the order of denoising. With `shared`, section 0 begins
 * at frame 0 and the others overlap. */
int64_t weft_video_section_first(const weft_video_sections *s, int64_t at);
/* Frame of the video that is frame i of the history of scale `scale` for section `at`. Frame 0 of
 * scale 0 is the image. `last`: a last image is given. */
int64_t weft_video_section_source(const weft_video_sections *s, int64_t at, int scale, int64_t i,
                                  bool last);
/* Time position of frame i of the section, and of frame i of the history of scale `scale`. */
int64_t weft_video_section_index(const weft_video_sections *s, int64_t at, int64_t i);
int64_t weft_video_section_history_index(const weft_video_sections *s, int64_t at, int scale,
                                         int64_t i);

/* Sections that a model was trained with, as weft.json of the model names them. */
typedef struct weft_trained_sections {
    int64_t window; /* frames of a section; 0 (default): the model's own length */
    bool forward;   /* from the first section to the last */
} weft_trained_sections;
/* `settings`: weft.json; NULL: none. `where` names it in messages. */
weft_status weft_trained_sections_read(const json_t *settings, const char *where,
                                       weft_trained_sections *trained);

#endif

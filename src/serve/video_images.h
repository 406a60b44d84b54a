/* Thumbnail and sprite sheet of a finished video: files of the job's folder that a child process
 * makes from the video at the first request (`weft stills`). */
#ifndef WEFT_SERVE_VIDEO_IMAGES_H
#define WEFT_SERVE_VIDEO_IMAGES_H

#include "serve/child_process.h"
#include "serve/queue_store.h"

/* Zero-initialised: no images are missing. One video at a time. The server's lock is needed. */
typedef struct weft_video_images {
    char id[WEFT_QUEUE_ID]; /* job whose images are made; "": none */
    weft_child child;       /* pid 0: none runs */
    char error[64];         /* message class of the last failure; "": unknown */
} weft_video_images;

/* A variant of the content of a video, and the files that may have it. */
typedef struct weft_video_variant {
    const char *name;
    struct {
        const char *file, *type;
    } form[2]; /* NULL: no second form */
} weft_video_variant;

/* The variant with a name; "": the video. NULL: none has this name. */
const weft_video_variant *weft_video_variant_find(const char *name);

struct weft_server;
/* Asks for the images of a job. False: another job's images are made first. */
bool weft_video_images_ask(struct weft_server *server, const char *id);
/* The main thread's, after each event: starts the child, and wakes the requests at its end. */
void weft_video_images_advance(struct weft_server *server);
/* Kills the child. */
void weft_video_images_stop(struct weft_server *server);

#endif

#include "serve/video_images.h"

#include "base/config.h"
#include "base/log.h"
#include "serve/http_server.h"
#include "serve/server_parts.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { NICENESS = 5 }; /* of the worker, too */

static const weft_video_variant variants[] = {
    {"video", {{"video.mp4", "video/mp4"}}},
    {"thumbnail", {{"video.thumbnail.webp", "image/webp"}, {"video.thumbnail.jpg", "image/jpeg"}}},
    {"spritesheet", {{"video.spritesheet.jpg", "image/jpeg"}}},
};

const weft_video_variant *weft_video_variant_find(const char *name)
{
    for (int i = 0; i < WEFT_COUNT(variants); i++)
        if (!strcmp(variants[i].name, *name ? name : "video"))
            return &variants[i];
    return NULL;
}

bool weft_video_images_ask(weft_server *s, const char *id)
{
    weft_video_images *v = &s->images;
    if (!*v->id) {
        snprintf(v->id, sizeof v->id, "%s", id);
        weft_server_wake(s);
    }
    return !strcmp(v->id, id);
}

/* A request whose files are missing at the end fails. */
static void finish(weft_server *s)
{
    s->images.id[0] = '\0';
    weft_http_server_wake(s);
}

static void start(weft_server *s)
{
    char verb[] = "stills", video[] = "video.mp4", *argv[] = {s->program, verb, video, NULL};
    char *folder = weft_server_job_folder(s, s->images.id);
    const weft_child_start_options options = {
        .argv = argv, .folder = folder, .lock = -1, .niceness = NICENESS, .starter = &s->starter};
    if (!folder || weft_child_start(&options, &s->images.child) != WEFT_OK)
        finish(s);
    weft_free(folder);
}

void weft_video_images_advance(weft_server *s)
{
    weft_video_images *v = &s->images;
    if (!v->child.pid && *v->id && !s->stopping)
        start(s);
    if (!v->child.pid || weft_child_read(&v->child))
        return;
    char code[64] = "", field[32], text[512] = "";
    if (weft_child_wait(&v->child) != 0) {
        (void)weft_last_error(v->child.error_text.data ? v->child.error_text.data : "", code, field,
                              text);
        weft_warning(WEFT_MSG_WORKER_ENDED, WEFT_AT(.key = v->id, .value = code),
                     "the images of a video were not made: %s", text);
        memcpy(v->error, code, sizeof v->error);
    }
    weft_child_close(&v->child);
    finish(s);
}

void weft_video_images_stop(weft_server *s)
{
    weft_video_images *v = &s->images;
    if (!v->child.pid)
        return;
    kill(v->child.pid, SIGKILL);
    (void)weft_child_wait(&v->child);
    weft_child_close(&v->child);
}

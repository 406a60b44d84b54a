#include "cli/options/result_place.h"

#include "base/launcher.h"
#include "generate/jobs/video_outputs.h"
#include "storage/output_copy.h"
#include "storage/working_copy.h"

#include <string.h>

struct weft_result_place {
    const char *location;     /* borrowed */
    char *path;               /* owned */
    weft_output_copy *output; /* FILE and NEW */
    weft_working_copy *copy;  /* FOLDER and VIDEO */
    bool sent;                /* completely */
};

/* A video is a file by its extension; a folder otherwise. */
static weft_status open_video(weft_result_place *p)
{
    WEFT_TRY(weft_video_outputs_check_out(p->location));
    if (!weft_video_outputs_is_file(p->location))
        return weft_working_copy_open(p->location, &p->copy);
    WEFT_TRY(weft_working_copy_open_file(p->location, &p->copy));
    p->path = weft_path_join(weft_working_copy_folder(p->copy), weft_path_base(p->location));
    return WEFT_ALLOCATED(p->path, "%s", p->location);
}

static weft_status open_kind(weft_result_place *p, weft_result kind)
{
    if (kind == WEFT_RESULT_VIDEO)
        WEFT_TRY(open_video(p));
    if (kind == WEFT_RESULT_FOLDER)
        WEFT_TRY(weft_working_copy_open(p->location, &p->copy));
    if (kind == WEFT_RESULT_FILE)
        WEFT_TRY(weft_output_copy_open_file(p->location, &p->output));
    if (kind == WEFT_RESULT_NEW)
        WEFT_TRY(weft_output_copy_open(p->location, &p->output));
    if (!p->path)
        p->path = weft_strdup(p->copy ? weft_working_copy_folder(p->copy)
                                      : weft_output_copy_path(p->output));
    return WEFT_ALLOCATED(p->path, "%s", p->location);
}

weft_status weft_result_place_open(const char *location, weft_result kind,
                                   weft_result_place **place)
{
    weft_result_place *p;
    WEFT_TRY(WEFT_NEW(p, 1, "%s", location));
    p->location = location;
    const weft_status_code status = open_kind(p, kind);
    if (status == WEFT_OK)
        *place = p;
    else
        weft_result_place_close(p);
    return status;
}

const char *weft_result_place_path(const weft_result_place *p)
{
    return p->path;
}

const char *weft_result_place_location(const weft_result_place *p)
{
    return p->location;
}

const char *weft_result_place_folder(const weft_result_place *p)
{
    return p->copy ? weft_working_copy_folder(p->copy) : NULL;
}

weft_status weft_result_place_send(weft_result_place *p, bool done)
{
    if (weft_launcher_rank() > 0)
        return WEFT_OK;
    if (p->copy)
        WEFT_TRY(weft_working_copy_send(p->copy));
    if (p->output && done)
        WEFT_TRY(weft_output_copy_send(p->output));
    p->sent = done;
    return WEFT_OK;
}

void weft_result_place_close(weft_result_place *p)
{
    if (!p)
        return;
    if (p->sent)
        weft_working_copy_discard(p->copy);
    else
        weft_working_copy_close(p->copy);
    weft_output_copy_close(p->output);
    weft_free(p->path);
    weft_free(p);
}

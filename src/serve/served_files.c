#include "serve/served_files.h"

#include "base/config.h"
#include "base/fs.h"
#include "base/hex.h"
#include "base/log.h"
#include "serve/price_estimate.h"
#include "serve/worker_lock.h"
#include "video/image.h"

#include <string.h>

weft_status weft_served_files_remove(const weft_server *s, const char *id)
{
    char *folder = weft_server_job_folder(s, id);
    WEFT_TRY(WEFT_ALLOCATED(folder, "a job"));
    const weft_status_code status = weft_path_exists(folder) ? weft_remove_tree(folder) : WEFT_OK;
    weft_free(folder);
    return status;
}

static weft_status remove_job(weft_server *s, const char *id)
{
    WEFT_TRY(weft_served_files_remove(s, id));
    WEFT_TRY(weft_queue_store_remove(s->store, id, weft_server_time() - WEFT_QUEUE_DAY));
    weft_server_changed(s, id);
    return WEFT_OK;
}

weft_status weft_served_files_remove_deleted(weft_server *s)
{
    weft_queue_job job;
    bool found;
    for (int64_t after = 0;;) {
        WEFT_TRY(weft_queue_store_next(s->store, WEFT_QUEUE_DELETING, after, &job, &found));
        if (!found)
            return WEFT_OK;
        after = job.number;
        const weft_status_code status =
            weft_server_group(s, job.id) ? WEFT_OK : remove_job(s, job.id);
        weft_queue_job_free(&job);
        WEFT_TRY(status);
    }
}

/* ---- recovery ------------------------------------------------------------------------------- */

static weft_status clean_folder(weft_server *s, const char *id)
{
    weft_queue_job job;
    bool found;
    WEFT_TRY(weft_queue_store_find(s->store, id, &job, &found));
    const bool keep =
        found && job.state != WEFT_QUEUE_CANCELLED && job.state != WEFT_QUEUE_DELETING;
    if (found)
        weft_queue_job_free(&job);
    return keep ? WEFT_OK : weft_served_files_remove(s, id);
}

static weft_status write_price_image(const weft_server *s)
{
    static const uint8_t grey[16 * 16 * 3];
    char *path = weft_path_join(s->state, WEFT_PRICE_IMAGE);
    WEFT_TRY(WEFT_ALLOCATED(path, "an image"));
    const weft_status_code status =
        !weft_path_exists(path) ? weft_png_write(path, grey, 16, 16) : WEFT_OK;
    weft_free(path);
    return status;
}

/* Only folders with names of jobs are removed. */
static bool is_job_name(const char *name)
{
    return !strncmp(name, "video_", 6) && weft_hex_starts(name + 6, 24) && name[30] == '\0';
}

weft_status weft_served_files_recover(weft_server *s)
{
    char *jobs = weft_path_join(s->state, "jobs");
    weft_names names = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(jobs, "the jobs"));
    WEFT_GO(weft_make_dirs(jobs));
    for (int i = 0; i < WEFT_SERVE_GROUPS; i++)
        WEFT_GO(weft_worker_wait(s, i));
    WEFT_GO(write_price_image(s));
    WEFT_GO(weft_queue_store_recover(s->store, weft_server_time()));
    WEFT_GO(weft_list_dir(jobs, false, &names));
    for (int64_t i = 0; i < names.count; i++)
        if (is_job_name(names.name[i]))
            WEFT_GO(clean_folder(s, names.name[i]));
    if (weft_served_files_remove_deleted(s) != WEFT_OK)
        weft_warn_error(WEFT_MSG_QUEUE_DATABASE, "trying again");
out:
    weft_names_free(&names);
    weft_free(jobs);
    return status;
}

#include "curate/curate_bucket.h"

#include "base/compare.h"
#include "base/location.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Clips are most of the bytes, and no later step reads them here, except captions. */
static bool is_clip(const char *name)
{
    return !strncmp(name, "clips/", 6);
}

/* Runs of shards and workers share the bucket; all others own it. */
static weft_status claim(weft_curate_plan *p)
{
    const weft_curate_config *c = p->config;
    return c->shards > 0 || c->worker
               ? weft_bucket_owner_open_shared(p->location, c->wait, &p->owner)
               : weft_bucket_owner_open(p->location, NULL, p->location, c->wait, &p->owner);
}

weft_status weft_curate_bucket_open(weft_curate_plan *p)
{
    if (!weft_location_is_remote(p->location))
        return WEFT_OK;
    WEFT_TRY(weft_error_at(claim(p), WEFT_AT(.key = "--out")));
    WEFT_TRY(weft_error_at(weft_shared_copy_open(p->location, is_clip, &p->bucket),
                           WEFT_AT(.key = "--out")));
    p->out = weft_shared_copy_folder(p->bucket);
    return weft_shared_copy_pull(p->bucket);
}

void weft_curate_bucket_close(weft_curate_plan *p)
{
    weft_names_free(&p->removed);
    weft_shared_copy_close(p->bucket);
    p->bucket = NULL;
    weft_bucket_owner_close(p->owner);
    p->owner = NULL;
}

weft_status weft_curate_bucket_pull(const weft_curate_plan *p)
{
    return p->bucket ? weft_shared_copy_pull(p->bucket) : WEFT_OK;
}

static const char *name_of(const weft_curate_plan *p, const char *path)
{
    return path + strlen(p->out) + 1;
}

weft_status weft_curate_bucket_pull_video(const weft_curate_plan *p, const weft_curate_source *s)
{
    static const char *const extensions[] = {"json", "parts", "scores.json",
                                             "embeddings.safetensors"};
    if (!p->bucket)
        return WEFT_OK;
    for (int i = 0; i < WEFT_COUNT(extensions); i++) {
        char name[128];
        bool found;
        snprintf(name, sizeof name, "state/%s.%s", s->id, extensions[i]);
        WEFT_TRY(weft_shared_copy_fetch(p->bucket, name, &found));
    }
    return WEFT_OK;
}

weft_status weft_curate_bucket_send(const weft_curate_plan *p, const char *path)
{
    if (!p->bucket)
        return WEFT_OK;
    char *name = (char *)name_of(p, path); /* is not written */
    WEFT_TRY(weft_bucket_owner_check(p->owner));
    return weft_shared_copy_send(p->bucket, &name, 1);
}

/* ---- clips --------------------------------------------------------------------------------- */

weft_status weft_curate_bucket_send_clips(const weft_curate_plan *p, const weft_curate_source *s)
{
    char **name;
    if (!p->bucket || s->clips == 0)
        return WEFT_OK;
    WEFT_TRY(weft_bucket_owner_check(p->owner));
    WEFT_TRY(WEFT_NEW(name, s->clips, "the clips of a video"));
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < s->clips; i++)
        name[i] = (char *)name_of(p, s->clip[i].path);
    WEFT_GO(weft_shared_copy_send(p->bucket, name, s->clips));
    for (int64_t i = 0; i < s->clips; i++)
        name[i] = (char *)name_of(p, s->clip[i].meta_path);
    WEFT_GO(weft_shared_copy_send(p->bucket, name, s->clips));
    for (int64_t i = 0; i < s->clips; i++)
        weft_curate_bucket_drop_clip(p, &s->clip[i]);
out:
    weft_free(name);
    return status;
}

weft_status weft_curate_bucket_fetch_clip(const weft_curate_plan *p, const weft_curate_clip *clip)
{
    bool found;
    return p->bucket ? weft_shared_copy_fetch(p->bucket, name_of(p, clip->path), &found) : WEFT_OK;
}

void weft_curate_bucket_drop_clip(const weft_curate_plan *p, const weft_curate_clip *clip)
{
    if (p->bucket && weft_shared_copy_has(p->bucket, name_of(p, clip->path)))
        (void)unlink(clip->path); /* a clip that stays is of no harm */
}

/* ---- lists --------------------------------------------------------------------------------- */

weft_status weft_curate_bucket_remove(weft_curate_plan *p, const char *path)
{
    if (unlink(path) != 0 && errno != ENOENT)
        return weft_error_errno(WEFT_AT(.file = path), "cannot remove the file of an earlier run");
    if (!p->bucket)
        return WEFT_OK;
    weft_names *n = &p->removed;
    WEFT_TRY(weft_grow((void **)&n->name, n->count, &n->capacity, sizeof *n->name));
    n->name[n->count] = weft_strdup(name_of(p, path));
    return WEFT_ALLOCATED(n->name[n->count++], "the curation");
}

weft_status weft_curate_bucket_list(const weft_curate_plan *p, const char *folder,
                                    weft_names *names)
{
    char *dir = weft_path_join(p->out, folder);
    WEFT_TRY(WEFT_ALLOCATED(dir, "the curation"));
    weft_status_code status = weft_list_dir(dir, false, names);
    weft_free(dir);
    WEFT_TRY(status);
    if (!p->bucket)
        return WEFT_OK;
    WEFT_TRY(weft_shared_copy_list(p->bucket, folder, names));
    if (names->count)
        qsort(names->name, (size_t)names->count, sizeof *names->name, weft_compare_text);
    int64_t kept = 0;
    for (int64_t i = 0; i < names->count; i++)
        if (kept && !strcmp(names->name[kept - 1], names->name[i]))
            weft_free(names->name[i]);
        else
            names->name[kept++] = names->name[i];
    names->count = kept;
    return WEFT_OK;
}

static weft_status send_all_clips(const weft_curate_plan *p)
{
    for (int64_t i = 0; i < p->sources; i++)
        WEFT_TRY(weft_curate_bucket_send_clips(p, &p->source[i]));
    return WEFT_OK;
}

static weft_status remove_files(const weft_curate_plan *p, bool clips)
{
    char **name;
    int64_t count = 0;
    WEFT_TRY(WEFT_NEW(name, p->removed.count + 1, "the curation"));
    for (int64_t i = 0; i < p->removed.count; i++)
        if (is_clip(p->removed.name[i]) == clips)
            name[count++] = p->removed.name[i];
    const weft_status_code status = weft_shared_copy_remove(p->bucket, name, count);
    weft_free(name);
    return status;
}

weft_status weft_curate_bucket_publish(weft_curate_plan *p)
{
    char *details[] = {"clusters.json", "operators.json"},
         *lists[] = {"manifest.jsonl", "rejects.jsonl"}, *summary[] = {"summary.json"};
    if (!p->bucket)
        return WEFT_OK;
    WEFT_TRY(weft_bucket_owner_check(p->owner));
    WEFT_TRY(send_all_clips(p));
    WEFT_TRY(weft_shared_copy_send(p->bucket, details, WEFT_COUNT(details)));
    WEFT_TRY(weft_shared_copy_send(p->bucket, lists, WEFT_COUNT(lists)));
    WEFT_TRY(weft_bucket_owner_check(p->owner));
    WEFT_TRY(weft_shared_copy_send(p->bucket, summary, WEFT_COUNT(summary)));
    WEFT_TRY(remove_files(p, false)); /* metas first: a clip without one is in no shard */
    WEFT_TRY(remove_files(p, true));
    weft_names_free(&p->removed);
    return WEFT_OK;
}

#include "data/curated_set.h"

#include "base/config.h"
#include "base/location.h"
#include "base/rng.h"
#include "storage/input_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct weft_curated_set {
    const char *in;        /* borrowed */
    weft_storage *storage; /* NULL: a folder */
    weft_input_copy *texts;
    weft_names clips; /* of a bucket, without "clips/" */
};

static const char clips_folder[] = "clips/";

static bool is_text(const char *name)
{
    static const char *const lists[] = {"manifest.jsonl", "rejects.jsonl", "captions.csv"};
    bool text = !strncmp(name, "metas/", 6);
    for (int i = 0; i < WEFT_COUNT(lists); i++)
        text |= !strcmp(name, lists[i]);
    return text;
}

static weft_status add_clip(weft_curated_set *s, const char *name)
{
    weft_names *n = &s->clips;
    if (strchr(name, '/'))
        return WEFT_OK; /* a folder has no such clips either */
    WEFT_TRY(weft_grow((void **)&n->name, n->count, &n->capacity, sizeof *n->name));
    n->name[n->count] = weft_strdup(name);
    return WEFT_ALLOCATED(n->name[n->count++], "%s", s->in);
}

static weft_status open_bucket(weft_curated_set *s)
{
    const int64_t prefix = (int64_t)strlen(clips_folder);
    weft_names all = {0};
    char **text = NULL;
    int64_t texts = 0;
    weft_status_code status = WEFT_OK;
    if (!weft_location_is_bucket(s->in))
        return weft_error(WEFT_MSG_STORAGE_LOCATION, WEFT_AT(.key = "--in", .value = s->in),
                          "clips are read from a folder or from s3://BUCKET/PREFIX, because a web "
                          "server has no list of its files");
    WEFT_GO(weft_storage_open(s->in, &s->storage));
    WEFT_GO(weft_storage_list_all(s->storage, &all));
    WEFT_GO(WEFT_NEW(text, all.count + 1, "%s", s->in));
    for (int64_t i = 0; i < all.count; i++)
        if (!strncmp(all.name[i], clips_folder, (size_t)prefix))
            WEFT_GO(add_clip(s, all.name[i] + prefix));
        else if (is_text(all.name[i]))
            text[texts++] = all.name[i];
    if (s->clips.count == 0)
        WEFT_GO(weft_error(WEFT_MSG_FILE_NOT_FOUND, WEFT_AT(.file = s->in),
                           "the bucket has no object with this prefix and clips/"));
    if (texts)
        WEFT_GO(weft_input_copy_open_names(s->storage, text, texts, &s->texts));
out:
    weft_free(text);
    weft_names_free(&all);
    return status;
}

weft_status weft_curated_set_open(const char *in, weft_curated_set **set)
{
    weft_curated_set *s;
    WEFT_TRY(WEFT_NEW(s, 1, "%s", in));
    s->in = in;
    const weft_status_code status = weft_location_is_remote(in) ? open_bucket(s) : WEFT_OK;
    if (status == WEFT_OK)
        *set = s;
    else
        weft_curated_set_close(s);
    return status;
}

void weft_curated_set_close(weft_curated_set *s)
{
    if (!s)
        return;
    weft_input_copy_close(s->texts);
    weft_storage_close(s->storage);
    weft_names_free(&s->clips);
    weft_free(s);
}

const char *weft_curated_set_folder(const weft_curated_set *s)
{
    return s->texts ? weft_input_copy_path(s->texts) : s->in;
}

weft_status weft_curated_set_list(const weft_curated_set *s, weft_names *names)
{
    char *folder = s->storage ? NULL : weft_path_join(s->in, "clips");
    weft_status_code status = WEFT_OK;
    *names = (weft_names){0};
    if (!s->storage) {
        WEFT_TRY(WEFT_ALLOCATED(folder, "%s", s->in));
        status = weft_list_dir(folder, false, names);
        weft_free(folder);
        return status;
    }
    WEFT_GO(WEFT_NEW(names->name, s->clips.count + 1, "%s", s->in));
    for (; names->count < s->clips.count; names->count++) {
        names->name[names->count] = weft_strdup(s->clips.name[names->count]);
        WEFT_GO(WEFT_ALLOCATED(names->name[names->count], "%s", s->in));
    }
    return WEFT_OK;
out:
    weft_names_free(names);
    return status;
}

/* Size and time of change of a file of a folder. */
static int64_t stamp_file(const weft_curated_set *s, const char *name, uint64_t *stamp)
{
    struct stat facts;
    char *path = weft_path_join(s->in, name);
    const bool known = path && stat(path, &facts) == 0;
    weft_free(path);
    if (!known)
        return 0;
    *stamp = weft_seed_mix(*stamp, (uint64_t)facts.st_size);
    *stamp = weft_seed_mix(*stamp, (uint64_t)facts.st_mtim.tv_sec);
    *stamp = weft_seed_mix(*stamp, (uint64_t)facts.st_mtim.tv_nsec);
    return facts.st_size;
}

int64_t weft_curated_set_stamp(const weft_curated_set *s, const char *name, uint64_t *stamp)
{
    weft_storage_facts facts;
    if (!s->storage)
        return stamp_file(s, name, stamp);
    if (weft_storage_facts_of(s->storage, name, &facts) != WEFT_OK) {
        weft_error_clear(); /* reading the file reports it */
        return 0;
    }
    *stamp = weft_seed_mix(*stamp, (uint64_t)facts.bytes);
    *stamp = weft_seed_mix(*stamp, facts.stamp);
    return facts.bytes;
}

void weft_curated_set_expect(const weft_curated_set *s, const char *name)
{
    weft_storage_facts facts;
    if (!s->storage)
        return;
    if (weft_storage_facts_of(s->storage, name, &facts) == WEFT_OK)
        weft_storage_expect(s->storage, name, 0, facts.bytes);
    else
        weft_error_clear();
}

/* ---- a clip -------------------------------------------------------------------------------- */

static weft_status open_file(weft_curated_clip *c, bool *usable)
{
    struct stat st;
    char *path = weft_path_join(c->set->in, c->name);
    WEFT_TRY(WEFT_ALLOCATED(path, "%s", c->name));
    c->fd = open(path, O_RDONLY | O_CLOEXEC);
    *usable = c->fd >= 0 && fstat(c->fd, &st) == 0 && S_ISREG(st.st_mode);
    c->bytes = *usable ? st.st_size : 0;
    weft_status_code status = WEFT_OK;
    if (!*usable &&
        weft_error_errno(WEFT_AT(.file = path), "cannot open the clip") == WEFT_E_MEMORY)
        status = WEFT_E_MEMORY;
    weft_free(path);
    return status;
}

weft_status weft_curated_clip_open(const weft_curated_set *s, const char *name,
                                   weft_curated_clip *clip, bool *usable)
{
    weft_storage_facts facts;
    *clip = (weft_curated_clip){.set = s, .name = name, .fd = -1};
    if (!s->storage)
        return open_file(clip, usable);
    WEFT_TRY(weft_storage_facts_of(s->storage, name, &facts));
    clip->bytes = facts.bytes;
    *usable = true;
    return WEFT_OK;
}

static weft_status read_file(const weft_curated_clip *c, int64_t at, int64_t most, void *to,
                             int64_t *got)
{
    ssize_t n;
    while ((n = pread(c->fd, to, (size_t)most, at)) < 0 && errno == EINTR)
        ;
    *got = n;
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", c->set->in, c->name);
    if (n < 0)
        return weft_error_errno(WEFT_AT(.file = path), "cannot read at byte %" PRId64, at);
    if (n == 0)
        return weft_error(WEFT_MSG_FILE_CHANGED, WEFT_AT(.file = path),
                          "the file was shortened to %" PRId64 " of %" PRId64
                          " bytes while it was read. Run the command again.",
                          at, c->bytes);
    return WEFT_OK;
}

weft_status weft_curated_clip_read(const weft_curated_clip *c, int64_t at, int64_t most, void *to,
                                   int64_t *got)
{
    const int64_t bytes = most < c->bytes - at ? most : c->bytes - at;
    *got = bytes;
    return c->fd >= 0 ? read_file(c, at, bytes, to, got)
                      : weft_storage_read(c->set->storage, c->name, at, bytes, to);
}

void weft_curated_clip_close(weft_curated_clip *c)
{
    if (c->set && c->fd >= 0)
        close(c->fd);
    *c = (weft_curated_clip){.fd = -1};
}

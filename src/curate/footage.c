#include "curate/footage.h"

#include "base/location.h"
#include "curate/source_kind.h"
#include "storage/bucket_owner.h"
#include "storage/remote_files.h"

#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

struct weft_footage {
    const char *in;            /* borrowed, or `parent` */
    char *parent;              /* owned; NULL: not one video */
    weft_storage *storage;     /* owned; NULL: a folder */
    weft_input_copy *captions; /* NULL: none */
};

/* ---- the list ------------------------------------------------------------------------------ */

static bool is_caption(const char *name)
{
    const weft_source_kind kind = weft_source_kind_of(name);
    return kind == WEFT_SOURCE_KIND_SIDECAR || kind == WEFT_SOURCE_KIND_TABLE;
}

static const char *name_of(const weft_footage *f, const char *path)
{
    const char *name = path + strlen(f->in);
    return name + (*name == '/');
}

/* Whether the name is below `out`, is a claim of a run, or marks a folder and has no file. */
static bool is_ignored(const weft_footage *f, const char *out, const char *name)
{
    const size_t length = strlen(name), in = strlen(f->in);
    if (length == 0 || name[length - 1] == '/' || weft_bucket_owner_is_claim(name))
        return true;
    if (strncmp(out, f->in, in) != 0 || (f->in[in - 1] != '/' && out[in] != '/'))
        return false;
    const char *below = name_of(f, out);
    size_t own = strlen(below);
    while (own > 0 && below[own - 1] == '/')
        own--;
    return own > 0 && !strncmp(name, below, own) && name[own] == '/';
}

/* Moves names to `files` and `others`. */
static weft_status sort_names(weft_footage *f, const char *out, weft_names *all, weft_names *files,
                              weft_names *others)
{
    for (int64_t i = 0; i < all->count; i++) {
        const bool ignored = is_ignored(f, out, all->name[i]);
        const bool usable = ignored || weft_remote_name_check(all->name[i]) == WEFT_OK;
        weft_names *to = usable ? files : others;
        if (ignored)
            continue;
        if (!usable)
            weft_error_clear();
        WEFT_TRY(weft_grow((void **)&to->name, to->count, &to->capacity, sizeof *to->name));
        to->name[to->count++] = all->name[i];
        all->name[i] = NULL;
    }
    return WEFT_OK;
}

static weft_status copy_captions(weft_footage *f, const weft_names *files)
{
    char **name;
    int64_t count = 0;
    WEFT_TRY(WEFT_NEW(name, files->count + 1, "%s", f->in));
    for (int64_t i = 0; i < files->count; i++)
        if (is_caption(files->name[i]))
            name[count++] = files->name[i];
    const weft_status_code status =
        count ? weft_input_copy_open_names(f->storage, name, count, &f->captions) : WEFT_OK;
    weft_free(name);
    return status;
}

static weft_status list_bucket(weft_footage *f, const char *out, weft_names *files,
                               weft_names *others)
{
    weft_names all = {0};
    weft_status_code status = WEFT_OK;
    if (!weft_location_is_bucket(f->in))
        return weft_error(WEFT_MSG_STORAGE_LOCATION, WEFT_AT(.file = f->in),
                          "footage is read from a folder or from s3://BUCKET/PREFIX, because a web "
                          "server has no list of its files");
    WEFT_GO(weft_storage_open(f->in, &f->storage));
    WEFT_GO(weft_storage_list_all(f->storage, &all));
    WEFT_GO(sort_names(f, out, &all, files, others));
    WEFT_GO(copy_captions(f, files));
out:
    weft_names_free(&all);
    return status;
}

weft_status weft_footage_open(const char *in, const char *location, const char *out,
                              weft_footage **footage, weft_names *files, weft_names *others)
{
    weft_footage *f;
    WEFT_TRY(WEFT_NEW(f, 1, "%s", in));
    f->in = in;
    const weft_status_code status = weft_location_is_remote(in)
                                        ? list_bucket(f, location, files, others)
                                        : weft_list_tree(in, out, files, others);
    if (status != WEFT_OK)
        weft_footage_close(f);
    else
        *footage = f;
    return status;
}

weft_status weft_footage_open_video(const char *location, weft_footage **footage)
{
    weft_footage *f;
    WEFT_TRY(WEFT_NEW(f, 1, "%s", location));
    f->in = f->parent = weft_strdup(location);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(f->parent, "%s", location));
    f->parent[weft_path_base(location) - location] = 0;
    WEFT_GO(weft_storage_open(f->parent, &f->storage));
    *footage = f;
    return WEFT_OK;
out:
    weft_footage_close(f);
    return status;
}

void weft_footage_close(weft_footage *f)
{
    if (!f)
        return;
    weft_free(f->parent);
    weft_input_copy_close(f->captions);
    weft_storage_close(f->storage);
    weft_free(f);
}

bool weft_footage_is_remote(const weft_footage *f)
{
    return f->storage != NULL;
}

/* ---- a file -------------------------------------------------------------------------------- */

void weft_footage_facts(weft_footage *f, const char *path, int64_t *bytes, int64_t *stamp)
{
    weft_storage_facts facts;
    struct stat st;
    if (f->storage) {
        if (weft_storage_facts_of(f->storage, name_of(f, path), &facts) == WEFT_OK) {
            *bytes = facts.bytes;
            *stamp = (int64_t)facts.stamp;
        } else {
            weft_error_clear(); /* reading the file reports it */
        }
    } else if (stat(path, &st) == 0) {
        *bytes = st.st_size;
        *stamp = st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    }
}

static weft_status hash_object(weft_footage *f, const char *name, XXH128_hash_t *hash)
{
    enum { PIECE = 8 << 20 };
    weft_storage_facts facts;
    WEFT_TRY(weft_storage_facts_of(f->storage, name, &facts));
    char *piece = weft_alloc(PIECE);
    XXH3_state_t *state = XXH3_createState();
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(piece && state, "%s", name));
    XXH3_128bits_reset(state);
    for (int64_t at = 0; at < facts.bytes; at += PIECE) {
        const int64_t n = facts.bytes - at < PIECE ? facts.bytes - at : PIECE;
        WEFT_GO(weft_storage_read_uncached(f->storage, name, at, n, piece));
        XXH3_128bits_update(state, piece, (size_t)n);
    }
    *hash = XXH3_128bits_digest(state);
out:
    XXH3_freeState(state);
    weft_free(piece);
    return status;
}

weft_status weft_footage_hash(weft_footage *f, const char *path, XXH128_hash_t *hash)
{
    weft_map map;
    if (f->storage)
        return hash_object(f, name_of(f, path), hash);
    WEFT_TRY(weft_map_open(path, &map));
    *hash = XXH3_128bits(map.data, (size_t)map.bytes);
    weft_map_close(&map);
    return WEFT_OK;
}

weft_status weft_footage_caption(const weft_footage *f, const char *path, char **copy)
{
    *copy = NULL;
    if (!f->captions || !is_caption(path))
        return WEFT_OK;
    *copy = weft_path_join(weft_input_copy_path(f->captions), name_of(f, path));
    return WEFT_ALLOCATED(*copy, "%s", path);
}

/* ---- a video ------------------------------------------------------------------------------- */

/* Beats while another thread waits for the server, which has limits of time of its own. */
typedef struct pulse {
    pthread_t thread;
    bool runs;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stopped;
    void (*beat)(void *user);
    void *user;
} pulse;

static void *pulse_main(void *user)
{
    pulse *p = user;
    struct timespec until;
    pthread_mutex_lock(&p->lock);
    while (!p->stopped) {
        p->beat(p->user);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&p->changed, &p->lock, &until);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void pulse_start(pulse *p)
{
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    p->runs = p->beat && pthread_create(&p->thread, NULL, pulse_main, p) == 0;
}

static void pulse_stop(pulse *p)
{
    pthread_mutex_lock(&p->lock);
    p->stopped = true;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->lock);
    if (p->runs)
        pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
}

weft_status weft_footage_video_open(weft_footage *f, const char *source, void (*beat)(void *user),
                                    void *user, weft_footage_video *video)
{
    *video = (weft_footage_video){.path = source, .source = source};
    if (!f->storage)
        return WEFT_OK;
    pulse p = {.beat = beat, .user = user};
    pulse_start(&p);
    const weft_status_code status =
        weft_input_copy_open_object(f->storage, name_of(f, source), &video->copy);
    pulse_stop(&p);
    if (status == WEFT_OK)
        video->path = weft_input_copy_path(video->copy);
    if (status == WEFT_OK || status == WEFT_E_SPACE || status == WEFT_E_CANCELLED)
        return status;
    video->path = NULL;
    const bool changed = weft_error_class() == WEFT_MSG_FILE_CHANGED ||
                         weft_error_class() == WEFT_MSG_FILE_NOT_FOUND;
    return weft_error(changed ? WEFT_MSG_VIDEO_UNREADABLE : WEFT_MSG_STORAGE_REQUEST,
                      WEFT_AT(.file = source), "%s", weft_error_text());
}

weft_status weft_footage_video_close(weft_footage_video *video, weft_status_code status)
{
    const weft_message_fields *at = weft_error_fields();
    if (status != WEFT_OK && video->copy && at && at->file && !strcmp(at->file, video->path)) {
        weft_message_fields own = *at;
        own.file = video->source;
        weft_buf text = {0};
        weft_buf_printf(&text, "%s", weft_error_text());
        status = weft_error(weft_error_class(), &own, "%s", text.data ? text.data : "");
        weft_buf_free(&text);
    }
    weft_input_copy_close(video->copy);
    *video = (weft_footage_video){0};
    return status;
}

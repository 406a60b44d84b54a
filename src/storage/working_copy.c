#include "storage/working_copy.h"

#include "base/config.h"
#include "base/hex.h"
#include "base/launcher.h"
#include "base/log.h"
#include "storage/bucket_owner.h"
#include "storage/copy_record.h"
#include "storage/remote_files.h"
#include "storage/stoppable_wait.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

struct weft_working_copy {
    char *location, *base, *folder, *record_path; /* owned */
    char *stem; /* "NAME." of the only files, owned; NULL: all files of the location */
    weft_storage *storage;
    weft_bucket_owner *owner; /* NULL: in ranks that send nothing */
    weft_copy_record record;  /* files that the bucket has, as far as this folder knows */
    pthread_mutex_t lock;     /* of a send */
};

const char *weft_working_copy_folder(const weft_working_copy *copy)
{
    return copy->folder;
}

const char *weft_working_copy_location(const weft_working_copy *copy)
{
    return copy->location;
}

/* ---- names --------------------------------------------------------------------------------- */

/* Files that make a folder valid: without them, readers take the folder for unfinished. */
static bool is_mark(const char *name)
{
    const char *base = weft_path_base(name);
    return !strcmp(base, "state.json") || !strcmp(base, "model_index.json") ||
           !strcmp(base, "complete");
}

/* Files that describe others: configs, records, indexes. */
static bool is_list(const char *name)
{
    return !strcmp(weft_path_extension(name), "json");
}

/* Files that describe all others of a set. */
static bool is_summary(const char *name)
{
    return !strcmp(weft_path_base(name), "summary.json") ||
           !strcmp(weft_path_extension(name), "jsonl");
}

/* Hidden names are folders that are being written or removed, and locks. */
static bool is_sent(const char *name)
{
    return name[0] != '.' && !strstr(name, "/.") && !weft_is_temporary(name) &&
           strcmp(weft_path_base(name), "lock") != 0;
}

static bool is_own(const weft_working_copy *c, const char *name)
{
    return is_sent(name) &&
           (!c->stem || (!strncmp(name, c->stem, strlen(c->stem)) && !strchr(name, '/')));
}

/* Lists the files of the bucket that this copy receives and sends. */
static weft_status list_there(weft_working_copy *c, weft_names *there)
{
    int64_t kept = 0;
    WEFT_TRY(c->stem ? weft_storage_list(c->storage, there)
                     : weft_storage_list_all(c->storage, there));
    for (int64_t i = 0; i < there->count; i++)
        if (is_own(c, there->name[i]))
            there->name[kept++] = there->name[i];
        else
            weft_free(there->name[i]);
    there->count = kept;
    return WEFT_OK;
}

/* Whether the mark's folder contains the file. */
static bool marks(const char *mark, const char *name)
{
    const size_t folder = (size_t)(weft_path_base(mark) - mark);
    return strcmp(mark, name) != 0 && !strncmp(mark, name, folder);
}

/* ---- open ---------------------------------------------------------------------------------- */

/* Locks the copy for an open or a send; -1: error. Closing the file unlocks it. */
static weft_status lock_copy(const weft_working_copy *c, int *fd)
{
    char *path = weft_path_join(c->base, "lock");
    WEFT_TRY(WEFT_ALLOCATED(path, "%s", c->base));
    weft_status_code status = WEFT_OK;
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    int locked = -1;
    while (*fd >= 0 && (locked = flock(*fd, LOCK_EX)) != 0 && errno == EINTR)
        ;
    if (locked != 0)
        status = weft_error_errno(WEFT_AT(.file = path), "cannot lock the file");
    if (locked != 0 && *fd >= 0)
        close(*fd);
    weft_free(path);
    return status;
}

/* Whether the bucket is not as this folder last left it. */
static weft_status find_foreign(weft_working_copy *c, const weft_names *there, bool *foreign)
{
    int64_t settled = 0;
    *foreign = false;
    for (int64_t i = 0; i < there->count && !*foreign; i++) {
        weft_storage_facts facts;
        WEFT_TRY(weft_storage_facts_of(c->storage, there->name[i], &facts));
        const weft_copied_file file = weft_copy_record_get(&c->record, there->name[i]);
        const bool own = file.pending && file.bytes == facts.bytes; /* sent before a kill */
        *foreign = !file.known || (file.stamp != facts.stamp && !own);
        settled += !file.pending;
    }
    *foreign |= weft_copy_record_count_settled(&c->record) > settled;
    return WEFT_OK;
}

/* Removes the files that the bucket has not: it is the truth. */
static weft_status remove_absent(weft_working_copy *c, const weft_names *there)
{
    weft_names here = {0};
    WEFT_TRY(weft_list_dir(c->folder, true, &here));
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0, k = 0; i < here.count; i++) {
        int order = 1;
        while (k < there->count && (order = strcmp(there->name[k], here.name[i])) < 0)
            k++;
        if ((k < there->count && order == 0) || !is_sent(here.name[i]))
            continue;
        char *path = weft_path_join(c->folder, here.name[i]);
        if (!path || (unlink(path) != 0 && errno != ENOENT))
            status = weft_error_errno(WEFT_AT(.file = here.name[i]), "cannot remove the file");
        weft_free(path);
        WEFT_GO(status);
    }
out:
    weft_names_free(&here);
    return status;
}

/* Whether the bucket's version replaces the version of the folder. */
static weft_status is_wanted(weft_working_copy *c, const char *name, bool *wanted)
{
    weft_storage_facts facts;
    weft_copied_file here;
    const weft_copied_file file = weft_copy_record_get(&c->record, name);
    WEFT_TRY(weft_storage_facts_of(c->storage, name, &facts));
    WEFT_TRY(weft_copied_file_stat(c->folder, name, &here));
    const bool same = file.known && !file.pending && file.stamp == facts.stamp;
    *wanted = !same || file.bytes != here.bytes || file.mtime != here.mtime;
    return WEFT_OK;
}

/* Whether the folder lacks a file that it had sent or received. */
static weft_status is_missing(weft_working_copy *c, const char *name, bool *missing)
{
    weft_copied_file here;
    WEFT_TRY(weft_copied_file_stat(c->folder, name, &here));
    *missing = here.bytes < 0 && !weft_copy_record_get(&c->record, name).pending;
    return WEFT_OK;
}

/* Records what the bucket has. `received`: names that were received, in the order of `there`.
 * After a kill during a send, some files may be in the bucket or not; the next send sends them. */
static weft_status record_all(weft_working_copy *c, const weft_names *there, char **received)
{
    weft_copy_record old = c->record;
    weft_status_code status = WEFT_OK;
    c->record = (weft_copy_record){0};
    WEFT_GO(weft_copy_record_open(&c->record));
    for (int64_t i = 0; i < there->count; i++) {
        weft_storage_facts facts;
        weft_copied_file file = weft_copy_record_get(&old, there->name[i]);
        WEFT_GO(weft_storage_facts_of(c->storage, there->name[i], &facts));
        if (*received == there->name[i]) {
            WEFT_GO(weft_copied_file_stat(c->folder, there->name[i], &file));
            received++;
        }
        file.stamp = facts.stamp;
        file.bytes = file.pending ? facts.bytes : file.bytes;
        file.mtime = file.pending ? -1 : file.mtime;
        file.pending = false;
        WEFT_GO(weft_copy_record_put(&c->record, there->name[i], &file));
    }
out:
    weft_copy_record_close(&old);
    return status;
}

/* Makes the folder like the bucket, if the bucket is `foreign`. Otherwise receives files that
 * something else has removed from the folder, such as a cleaner of caches: a send would remove them
 * from the bucket. */
static weft_status receive(weft_working_copy *c, const weft_names *there, bool foreign)
{
    char **wanted;
    int64_t count = 0;
    bool yes;
    WEFT_TRY(WEFT_NEW(wanted, there->count + 1, "%s", c->location));
    weft_status_code status = WEFT_OK;
    if (foreign)
        WEFT_GO(remove_absent(c, there));
    for (int64_t i = 0; i < there->count; i++) {
        WEFT_GO(foreign ? is_wanted(c, there->name[i], &yes) : is_missing(c, there->name[i], &yes));
        if (yes)
            wanted[count++] = there->name[i];
    }
    if (count > 0)
        weft_notice(WEFT_MSG_STORAGE_COPY, WEFT_AT(.file = c->location, WEFT_NUMBER(count)),
                    "copying %" PRId64 " files to %s", count, c->folder);
    WEFT_GO(weft_remote_receive(c->storage, wanted, count, c->folder));
    WEFT_GO(record_all(c, there, wanted));
out:
    weft_free(wanted);
    return status;
}

static weft_status refresh(weft_working_copy *c)
{
    weft_names there = {0};
    bool foreign;
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_copy_record_load(&c->record, c->record_path));
    WEFT_GO(list_there(c, &there));
    for (int64_t i = 0; i < there.count; i++)
        WEFT_GO(weft_remote_name_check(there.name[i]));
    WEFT_GO(find_foreign(c, &there, &foreign));
    WEFT_GO(receive(c, &there, foreign));
    WEFT_GO(weft_copy_record_save(&c->record, c->record_path));
out:
    weft_names_free(&there);
    return status;
}

static weft_status find_folders(weft_working_copy *c)
{
    const char *origin = weft_storage_origin(c->storage);
    uint64_t hash = XXH3_64bits(origin, strlen(origin));
    char hex[WEFT_HEX_BYTES], *copies;
    weft_buf base = {0};
    if (c->stem)
        hash = XXH3_64bits_withSeed(c->stem, strlen(c->stem), hash);
    WEFT_TRY(weft_remote_copies_folder(&copies));
    weft_buf_printf(&base, "%s/out-%s", copies, weft_hex_print(hash, hex));
    weft_free(copies);
    c->base = base.data;
    WEFT_TRY(weft_buf_check(&base));
    c->folder = weft_path_join(c->base, "files");
    c->record_path = weft_path_join(c->base, "record.json");
    WEFT_TRY(WEFT_ALLOCATED(c->folder && c->record_path, "%s", c->location));
    WEFT_TRY(weft_make_dirs(c->folder));
    return weft_remove_leftovers(c->folder, true);
}

/* Opens the storage of the location, or of the parent of its file. */
static weft_status open_storage(weft_working_copy *c, bool file)
{
    const char *name = weft_path_base(c->location), *dot = strrchr(name, '.');
    weft_buf parent = {0};
    if (!file)
        return weft_storage_open(c->location, &c->storage);
    weft_buf_append(&parent, c->location, name - c->location);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&parent));
    c->stem = weft_strdup(name);
    WEFT_GO(WEFT_ALLOCATED(c->stem, "%s", c->location));
    if (dot)
        c->stem[dot + 1 - name] = 0;
    WEFT_GO(weft_storage_open(parent.data, &c->storage));
out:
    weft_buf_free(&parent);
    return status;
}

/* Claims the location. Before the lock of the folder: a child of this process renews the claim, and
 * would keep the lock. */
static weft_status claim(weft_working_copy *c)
{
    const char *root = weft_storage_root(c->storage);
    return weft_launcher_rank() > 0
               ? WEFT_OK
               : weft_bucket_owner_open(root, c->stem, c->location, false, &c->owner);
}

static weft_status open_copy(const char *location, bool file, weft_working_copy **copy)
{
    weft_working_copy *c;
    int lock = -1;
    WEFT_TRY(WEFT_NEW(c, 1, "%s", location));
    pthread_mutex_init(&c->lock, NULL);
    c->location = weft_strdup(location);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(c->location, "%s", location));
    WEFT_GO(weft_copy_record_open(&c->record));
    WEFT_GO(open_storage(c, file));
    WEFT_GO(weft_storage_check_writable(c->storage));
    WEFT_GO(claim(c));
    WEFT_GO(find_folders(c));
    WEFT_GO(lock_copy(c, &lock));
    WEFT_GO(refresh(c));
    *copy = c;
out:
    if (lock >= 0)
        close(lock);
    if (status == WEFT_OK)
        return WEFT_OK;
    weft_error_copy *error = weft_error_save();
    weft_working_copy_close(c);
    weft_error_restore(error);
    weft_free(error);
    return status;
}

weft_status weft_working_copy_open(const char *location, weft_working_copy **copy)
{
    return open_copy(location, false, copy);
}

weft_status weft_working_copy_open_file(const char *location, weft_working_copy **copy)
{
    return open_copy(location, true, copy);
}

void weft_working_copy_discard(weft_working_copy *c)
{
    if (c) /* before the claim ends: the next run works in the same folder */
        (void)weft_remote_copy_remove(c->base);
    weft_working_copy_close(c);
}

void weft_working_copy_close(weft_working_copy *c)
{
    if (!c)
        return;
    weft_bucket_owner_close(c->owner);
    weft_free(c->stem);
    weft_storage_close(c->storage);
    weft_copy_record_close(&c->record);
    pthread_mutex_destroy(&c->lock);
    weft_free(c->location);
    weft_free(c->base);
    weft_free(c->folder);
    weft_free(c->record_path);
    weft_free(c);
}

/* ---- send ---------------------------------------------------------------------------------- */

/* Files of one step of a send. */
typedef struct batch {
    weft_remote_file *file; /* owned; names are borrowed */
    int64_t count, capacity;
} batch;

/* The steps, and the files of the folder. */
typedef struct changes {
    weft_names here;
    char **gone; /* owned, [gone_count]: names that the record has and the folder has not */
    int64_t gone_count, gone_capacity;
    batch unmark, files, lists, summaries, marks, gone_marks, gone_files;
} changes;

static weft_status add(batch *b, const char *name, const weft_copied_file *file)
{
    WEFT_TRY(weft_grow((void **)&b->file, b->count, &b->capacity, sizeof *b->file));
    b->file[b->count++] =
        (weft_remote_file){.name = name, .bytes = file->bytes, .mtime = file->mtime};
    return WEFT_OK;
}

/* Lists new and changed files. */
static weft_status compare_here(weft_working_copy *c, changes *change)
{
    WEFT_TRY(weft_list_dir(c->folder, true, &change->here));
    for (int64_t i = 0; i < change->here.count; i++) {
        const char *name = change->here.name[i];
        weft_copied_file here;
        const weft_copied_file sent = weft_copy_record_get(&c->record, name);
        if (!is_own(c, name))
            continue;
        WEFT_TRY(weft_copied_file_stat(c->folder, name, &here));
        if (here.bytes < 0 ||
            (sent.known && !sent.pending && sent.bytes == here.bytes && sent.mtime == here.mtime))
            continue;
        WEFT_TRY(add(is_mark(name)      ? &change->marks
                     : is_summary(name) ? &change->summaries
                     : is_list(name)    ? &change->lists
                                        : &change->files,
                     name, &here));
    }
    return WEFT_OK;
}

/* Lists files of the bucket that were removed here. */
static weft_status compare_there(weft_working_copy *c, changes *change)
{
    const char *name;
    json_t *members;
    json_object_foreach(c->record.files, name, members)
    {
        weft_copied_file here;
        WEFT_TRY(weft_copied_file_stat(c->folder, name, &here));
        if (here.bytes >= 0)
            continue;
        WEFT_TRY(weft_grow((void **)&change->gone, change->gone_count, &change->gone_capacity,
                           sizeof *change->gone));
        char *copy = weft_strdup(name); /* the record drops its own */
        WEFT_TRY(WEFT_ALLOCATED(copy, "%s", name));
        change->gone[change->gone_count++] = copy;
        WEFT_TRY(add(is_mark(name) ? &change->gone_marks : &change->gone_files, copy, &here));
    }
    return WEFT_OK;
}

static bool any_below(const batch *b, const char *mark)
{
    for (int64_t i = 0; i < b->count; i++)
        if (marks(mark, b->file[i].name))
            return true;
    return false;
}

/* Lists the marks of the bucket whose folders change. They are sent again as the last files. */
static weft_status compare_marks(weft_working_copy *c, changes *change)
{
    for (int64_t i = 0; i < change->here.count; i++) {
        const char *name = change->here.name[i];
        weft_copied_file here;
        if (!is_mark(name) || !weft_copy_record_get(&c->record, name).known)
            continue;
        if (!any_below(&change->files, name) && !any_below(&change->lists, name) &&
            !any_below(&change->gone_files, name))
            continue;
        WEFT_TRY(weft_copied_file_stat(c->folder, name, &here));
        WEFT_TRY(add(&change->unmark, name, &here));
        bool listed = false;
        for (int64_t k = 0; k < change->marks.count; k++)
            listed |= !strcmp(change->marks.file[k].name, name);
        if (!listed)
            WEFT_TRY(add(&change->marks, name, &here));
    }
    return WEFT_OK;
}

static weft_status set_pending(weft_working_copy *c, const batch *b)
{
    for (int64_t i = 0; i < b->count; i++) {
        weft_copied_file file = weft_copy_record_get(&c->record, b->file[i].name);
        file.bytes = b->file[i].bytes;
        file.mtime = b->file[i].mtime;
        file.pending = true;
        WEFT_TRY(weft_copy_record_put(&c->record, b->file[i].name, &file));
    }
    return WEFT_OK;
}

static weft_status send_batch(weft_working_copy *c, batch *b)
{
    if (b->count > 0)
        WEFT_TRY(weft_bucket_owner_check(c->owner));
    const weft_status_code status = weft_remote_send(c->storage, b->file, b->count, c->folder);
    for (int64_t i = 0; i < b->count; i++) {
        weft_copied_file file = {.bytes = b->file[i].bytes, .mtime = b->file[i].mtime};
        weft_storage_facts facts;
        if (!b->file[i].done)
            continue;
        if (weft_storage_facts_of(c->storage, b->file[i].name, &facts) == WEFT_OK)
            file.stamp = facts.stamp;
        else
            file.pending = true; /* the next open asks again */
        WEFT_TRY(weft_copy_record_put(&c->record, b->file[i].name, &file));
    }
    return status;
}

static weft_status remove_batch(weft_working_copy *c, batch *b)
{
    if (b->count > 0)
        WEFT_TRY(weft_bucket_owner_check(c->owner));
    const weft_status_code status = weft_remote_remove(c->storage, b->file, b->count);
    for (int64_t i = 0; i < b->count; i++)
        if (b->file[i].done)
            weft_copy_record_drop(&c->record, b->file[i].name);
    return status;
}

static weft_status run_steps(weft_working_copy *c, changes *change)
{
    WEFT_TRY(remove_batch(c, &change->unmark));
    WEFT_TRY(send_batch(c, &change->files));
    WEFT_TRY(send_batch(c, &change->lists));
    WEFT_TRY(send_batch(c, &change->summaries));
    WEFT_TRY(send_batch(c, &change->marks));
    WEFT_TRY(remove_batch(c, &change->gone_marks));
    return remove_batch(c, &change->gone_files);
}

static void free_change(changes *change)
{
    batch *const all[] = {&change->unmark,    &change->files, &change->lists,
                          &change->summaries, &change->marks, &change->gone_marks,
                          &change->gone_files};
    for (int i = 0; i < WEFT_COUNT(all); i++)
        weft_free(all[i]->file);
    for (int64_t i = 0; i < change->gone_count; i++)
        weft_free(change->gone[i]);
    weft_free(change->gone);
    weft_names_free(&change->here);
}

/* Whether another writer has added, removed or replaced files since this folder was last as the
 * bucket. Versions alone do not count: some servers list another ETag than the one of a write. */
static weft_status check_alone(weft_working_copy *c)
{
    weft_names there = {0};
    const char *other = NULL;
    int64_t settled = 0;
    weft_status_code status = WEFT_OK;
    WEFT_GO(list_there(c, &there));
    for (int64_t i = 0; i < there.count && !other; i++) {
        weft_storage_facts facts;
        const char *name = there.name[i];
        const weft_copied_file file = weft_copy_record_get(&c->record, name);
        WEFT_GO(weft_storage_facts_of(c->storage, name, &facts));
        other = !file.known || (!file.pending && file.bytes != facts.bytes) ? name : NULL;
        settled += !file.pending;
    }
    if (!other && weft_copy_record_count_settled(&c->record) > settled)
        other = "a file that was removed";
    if (other)
        status = weft_error(WEFT_MSG_FOLDER_LOCKED, WEFT_AT(.file = c->location, .value = other),
                            "another machine has written here since this run did, for example %s. "
                            "End one of the two runs.",
                            other);
out:
    weft_names_free(&there);
    return status;
}

/* The caller holds the lock. */
static weft_status send_changes(weft_working_copy *c)
{
    changes change = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(compare_here(c, &change));
    WEFT_GO(compare_there(c, &change));
    WEFT_GO(compare_marks(c, &change));
    const batch *const all[] = {&change.files, &change.lists,      &change.summaries,
                                &change.marks, &change.gone_marks, &change.gone_files};
    int64_t count = 0;
    for (int i = 0; i < WEFT_COUNT(all); i++)
        count += all[i]->count;
    if (count == 0)
        goto out;
    WEFT_GO(weft_bucket_owner_check(c->owner));
    WEFT_GO(check_alone(c));
    for (int i = 0; i < WEFT_COUNT(all); i++)
        WEFT_GO(set_pending(c, all[i]));
    WEFT_GO(weft_copy_record_save(&c->record, c->record_path));
    status = run_steps(c, &change);
    weft_error_copy *error = status == WEFT_OK ? NULL : weft_error_save();
    const weft_status_code saved = weft_copy_record_save(&c->record, c->record_path);
    if (error)
        weft_error_restore(error);
    weft_free(error);
    status = weft_status_first(status, saved);
out:
    free_change(&change);
    return status;
}

weft_status weft_working_copy_send(weft_working_copy *c)
{
    int lock = -1;
    const bool ignored = weft_stop_ignores_interrupt();
    pthread_mutex_lock(&c->lock);
    weft_stop_ignore_interrupt(true);
    weft_status_code status = WEFT_OK;
    WEFT_GO(lock_copy(c, &lock));
    WEFT_GO(send_changes(c));
out:
    if (lock >= 0)
        close(lock);
    weft_stop_ignore_interrupt(ignored);
    pthread_mutex_unlock(&c->lock);
    return weft_error_add(status, "Results are in %s; the same command on this machine sends them",
                          c->folder);
}

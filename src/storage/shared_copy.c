#include "storage/shared_copy.h"

#include "base/compare.h"
#include "base/hex.h"
#include "base/log.h"
#include "storage/copy_record.h"
#include "storage/remote_files.h"
#include "storage/stoppable_wait.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

struct weft_shared_copy {
    char *location, *base, *folder, *journal_path; /* owned */
    bool (*left)(const char *name);
    weft_storage *storage;
    int lock, journal;       /* descriptors; -1: none */
    int64_t journal_read;    /* bytes of the journal in the record */
    weft_copy_record record; /* files that the bucket has */
    pthread_mutex_t mutex;   /* of the record and the journal */
};

const char *weft_shared_copy_folder(const weft_shared_copy *c)
{
    return c->folder;
}

static bool is_left(const weft_shared_copy *c, const char *name)
{
    return c->left && c->left(name);
}

static bool is_shared(const char *name)
{
    return name[0] != '.' && !strstr(name, "/.") && !weft_is_temporary(name) &&
           strcmp(weft_path_base(name), "lock") != 0 &&
           strcmp(weft_path_extension(name), "lock") != 0;
}

/* ---- the journal --------------------------------------------------------------------------- */

/* Appends a line and updates the record. `file` NULL: the bucket has not got the file. */
static weft_status note(weft_shared_copy *c, const char *name, const weft_copied_file *file)
{
    weft_status_code status = WEFT_OK;
    json_t *line =
        file ? json_pack("{s:s,s:I,s:I,s:I}", "name", name, "bytes", (json_int_t)file->bytes,
                         "mtime", (json_int_t)file->mtime, "stamp", (json_int_t)file->stamp)
             : json_pack("{s:s}", "name", name);
    char *text = line ? weft_json_line(line) : NULL;
    weft_buf whole = {0};
    json_decref(line);
    weft_buf_printf(&whole, "%s\n", text ? text : "");
    pthread_mutex_lock(&c->mutex);
    WEFT_GO(WEFT_ALLOCATED(text, "the journal of %s; the name may not be UTF-8", name));
    WEFT_GO(weft_buf_check(&whole));
    /* one write: lines of other processes stay whole */
    if (write(c->journal, whole.data, (size_t)whole.len) != whole.len)
        WEFT_GO(weft_error_errno(WEFT_AT(.file = c->journal_path), "cannot write the journal"));
    if (file)
        status = weft_copy_record_put(&c->record, name, file);
    else
        weft_copy_record_drop(&c->record, name);
out:
    pthread_mutex_unlock(&c->mutex);
    weft_free(text);
    weft_buf_free(&whole);
    return status;
}

static weft_status take_line(weft_shared_copy *c, const char *line, int64_t bytes)
{
    json_t *entry = NULL;
    if (weft_json_parse(line, bytes, "journal", &entry) != WEFT_OK) {
        weft_error_clear(); /* cut by a kill; its file is received again */
        return WEFT_OK;
    }
    const char *name = json_string_value(json_object_get(entry, "name"));
    const weft_copied_file file = {
        .bytes = json_integer_value(json_object_get(entry, "bytes")),
        .mtime = json_integer_value(json_object_get(entry, "mtime")),
        .stamp = (uint64_t)json_integer_value(json_object_get(entry, "stamp"))};
    weft_status_code status = WEFT_OK;
    if (name && json_object_get(entry, "stamp"))
        status = weft_copy_record_put(&c->record, name, &file);
    else if (name)
        weft_copy_record_drop(&c->record, name);
    json_decref(entry);
    return status;
}

/* Reads the lines that this and other processes have added. */
static weft_status read_journal(weft_shared_copy *c)
{
    struct stat st;
    char *text = NULL;
    weft_status_code status = WEFT_OK;
    pthread_mutex_lock(&c->mutex);
    if (fstat(c->journal, &st) != 0 || st.st_size <= c->journal_read)
        goto out;
    const int64_t bytes = st.st_size - c->journal_read;
    WEFT_GO(WEFT_NEW(text, bytes + 1, "%s", c->journal_path));
    if (pread(c->journal, text, (size_t)bytes, (off_t)c->journal_read) != bytes)
        WEFT_GO(weft_error_errno(WEFT_AT(.file = c->journal_path), "cannot read the journal"));
    const char *line = text;
    for (const char *end; (end = memchr(line, '\n', (size_t)(text + bytes - line))); line = end + 1)
        WEFT_GO(take_line(c, line, end - line));
    c->journal_read += line - text;
out:
    pthread_mutex_unlock(&c->mutex);
    weft_free(text);
    return status;
}

/* Replaces the journal by one line per file. No other process uses the folder. */
static weft_status compact(weft_shared_copy *c)
{
    const char *name;
    json_t *file;
    weft_buf text = {0};
    weft_status_code status = WEFT_OK;
    json_object_foreach(c->record.files, name, file)
    {
        json_t *line = json_copy(file);
        json_object_set_new(line, "name", json_string(name));
        char *words = weft_json_line(line);
        weft_buf_printf(&text, "%s\n", words ? words : "");
        weft_free(words);
        json_decref(line);
    }
    WEFT_GO(weft_buf_check(&text));
    status = weft_file_write_atomic(c->journal_path, text.data ? text.data : "", text.len);
out:
    weft_buf_free(&text);
    return status;
}

/* ---- open ---------------------------------------------------------------------------------- */

static weft_status unlink_file(const weft_shared_copy *c, const char *name)
{
    char *path = weft_path_join(c->folder, name);
    WEFT_TRY(WEFT_ALLOCATED(path, "%s", name));
    const bool removed = unlink(path) == 0 || errno == ENOENT;
    const weft_status_code status =
        removed ? WEFT_OK : weft_error_errno(WEFT_AT(.file = path), "cannot remove the file");
    weft_free(path);
    return status;
}

static bool is_as_recorded(const weft_copied_file *here, const weft_copied_file *file)
{
    return file->known && here->bytes == file->bytes && here->mtime == file->mtime;
}

/* Removes the unfinished work of a killed command. No other process uses the folder. */
static weft_status drop_unsent(weft_shared_copy *c)
{
    weft_names here = {0};
    WEFT_TRY(weft_list_dir(c->folder, true, &here));
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < here.count; i++) {
        weft_copied_file own;
        const weft_copied_file file = weft_copy_record_get(&c->record, here.name[i]);
        WEFT_GO(weft_copied_file_stat(c->folder, here.name[i], &own));
        if (!is_as_recorded(&own, &file))
            WEFT_GO(unlink_file(c, here.name[i]));
    }
out:
    weft_names_free(&here);
    return status;
}

static weft_status open_journal(weft_shared_copy *c)
{
    c->journal = open(c->journal_path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    c->journal_read = 0;
    weft_copy_record_clear(&c->record);
    if (c->journal < 0)
        return weft_error_errno(WEFT_AT(.file = c->journal_path), "cannot open the journal");
    return read_journal(c);
}

static weft_status take_lock(const weft_shared_copy *c, int how)
{
    while (flock(c->lock, how) != 0)
        if (errno != EINTR)
            return weft_error_errno(WEFT_AT(.file = c->base), "cannot lock the folder");
    return WEFT_OK;
}

/* Cleans the folder if no other process uses it, and locks it against cleaning. */
static weft_status enter(weft_shared_copy *c)
{
    char *path = weft_path_join(c->base, "lock");
    WEFT_TRY(WEFT_ALLOCATED(path, "%s", c->base));
    c->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    weft_free(path);
    if (c->lock < 0)
        return weft_error_errno(WEFT_AT(.file = c->base), "cannot open the lock of the folder");
    if (flock(c->lock, LOCK_EX | LOCK_NB) == 0) {
        WEFT_TRY(open_journal(c));
        WEFT_TRY(drop_unsent(c));
        WEFT_TRY(compact(c));
        close(c->journal);
        c->journal = -1;
    }
    WEFT_TRY(take_lock(c, LOCK_SH));
    return open_journal(c);
}

static weft_status find_folders(weft_shared_copy *c)
{
    const char *origin = weft_storage_origin(c->storage);
    char hex[WEFT_HEX_BYTES], *copies;
    weft_buf base = {0};
    WEFT_TRY(weft_remote_copies_folder(&copies));
    weft_buf_printf(&base, "%s/shared-%s", copies,
                    weft_hex_print(XXH3_64bits(origin, strlen(origin)), hex));
    weft_free(copies);
    c->base = base.data;
    WEFT_TRY(weft_buf_check(&base));
    c->folder = weft_path_join(c->base, "files");
    c->journal_path = weft_path_join(c->base, "journal");
    WEFT_TRY(WEFT_ALLOCATED(c->folder && c->journal_path, "%s", c->location));
    return weft_make_dirs(c->folder);
}

weft_status weft_shared_copy_open(const char *location, bool (*left)(const char *name),
                                  weft_shared_copy **copy)
{
    weft_shared_copy *c;
    WEFT_TRY(WEFT_NEW(c, 1, "%s", location));
    pthread_mutex_init(&c->mutex, NULL);
    c->lock = c->journal = -1;
    c->left = left;
    c->location = weft_strdup(location);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(c->location, "%s", location));
    WEFT_GO(weft_copy_record_open(&c->record));
    WEFT_GO(weft_storage_open(location, &c->storage));
    WEFT_GO(weft_storage_check_writable(c->storage));
    WEFT_GO(find_folders(c));
    WEFT_GO(enter(c));
    *copy = c;
    return WEFT_OK;
out:
    weft_shared_copy_close(c);
    return status;
}

void weft_shared_copy_close(weft_shared_copy *c)
{
    if (!c)
        return;
    if (c->journal >= 0)
        close(c->journal);
    if (c->lock >= 0)
        close(c->lock);
    weft_storage_close(c->storage);
    weft_copy_record_close(&c->record);
    pthread_mutex_destroy(&c->mutex);
    weft_free(c->location);
    weft_free(c->base);
    weft_free(c->folder);
    weft_free(c->journal_path);
    weft_free(c);
}

/* ---- pull ---------------------------------------------------------------------------------- */

static weft_copied_file get(weft_shared_copy *c, const char *name)
{
    pthread_mutex_lock(&c->mutex);
    const weft_copied_file file = weft_copy_record_get(&c->record, name);
    pthread_mutex_unlock(&c->mutex);
    return file;
}

/* Notes a version of the bucket, with the file of the folder, if any. */
static weft_status note_version(weft_shared_copy *c, const char *name)
{
    weft_copied_file file;
    weft_storage_facts facts;
    WEFT_TRY(weft_storage_facts_of(c->storage, name, &facts));
    WEFT_TRY(weft_copied_file_stat(c->folder, name, &file));
    file.stamp = facts.stamp;
    return note(c, name, &file);
}

/* Whether the bucket's version replaces the version of the folder. */
static weft_status is_wanted(weft_shared_copy *c, const char *name, bool *wanted)
{
    weft_storage_facts facts;
    weft_copied_file here;
    const weft_copied_file file = get(c, name);
    WEFT_TRY(weft_remote_name_check(name));
    WEFT_TRY(weft_storage_facts_of(c->storage, name, &facts));
    WEFT_TRY(weft_copied_file_stat(c->folder, name, &here));
    const bool same = file.known && file.stamp == facts.stamp;
    *wanted = !is_left(c, name) && (!same || here.bytes < 0);
    if (is_left(c, name) && !same)
        WEFT_TRY(note(c, name, &(weft_copied_file){.bytes = -1, .stamp = facts.stamp}));
    return WEFT_OK;
}

/* Forgets a file that the bucket has lost, and removes the file of the folder unless it changed. */
static weft_status drop_file(weft_shared_copy *c, const char *name)
{
    weft_copied_file here;
    const weft_copied_file was = get(c, name);
    char *own = weft_strdup(name); /* the record drops its own */
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_ALLOCATED(own, "%s", name));
    WEFT_GO(weft_copied_file_stat(c->folder, own, &here));
    if (is_as_recorded(&here, &was))
        WEFT_GO(unlink_file(c, own));
    WEFT_GO(note(c, own, NULL));
out:
    weft_free(own);
    return status;
}

static weft_status drop_lost(weft_shared_copy *c, const weft_names *there)
{
    const char *name;
    json_t *file;
    void *next;
    json_object_foreach_safe(c->record.files, next, name, file)
    {
        if (!there->count || !bsearch(&name, there->name, (size_t)there->count, sizeof *there->name,
                                      weft_compare_text))
            WEFT_TRY(drop_file(c, name));
    }
    return WEFT_OK;
}

static weft_status receive(weft_shared_copy *c, char **wanted, int64_t count)
{
    if (count > 0)
        weft_notice(WEFT_MSG_STORAGE_COPY, WEFT_AT(.file = c->location, WEFT_NUMBER(count)),
                    "copying %" PRId64 " files to %s", count, c->folder);
    WEFT_TRY(weft_remote_receive(c->storage, wanted, count, c->folder));
    for (int64_t i = 0; i < count; i++)
        WEFT_TRY(note_version(c, wanted[i]));
    return WEFT_OK;
}

weft_status weft_shared_copy_pull(weft_shared_copy *c)
{
    weft_names there = {0};
    char **wanted = NULL;
    int64_t count = 0;
    bool yes;
    weft_status_code status = WEFT_OK;
    WEFT_GO(read_journal(c));
    WEFT_GO(weft_storage_list_all(c->storage, &there));
    WEFT_GO(WEFT_NEW(wanted, there.count + 1, "%s", c->location));
    for (int64_t i = 0; i < there.count; i++) {
        if (!is_shared(there.name[i]))
            continue;
        WEFT_GO(is_wanted(c, there.name[i], &yes));
        if (yes)
            wanted[count++] = there.name[i];
    }
    WEFT_GO(receive(c, wanted, count));
    WEFT_GO(drop_lost(c, &there));
out:
    weft_free(wanted);
    weft_names_free(&there);
    return status;
}

weft_status weft_shared_copy_fetch(weft_shared_copy *c, const char *name, bool *found)
{
    weft_copied_file here;
    weft_storage_facts facts;
    char *own = (char *)name; /* is not written */
    WEFT_TRY(weft_copied_file_stat(c->folder, name, &here));
    *found = here.bytes >= 0;
    if (*found)
        return WEFT_OK;
    const weft_status_code status = weft_storage_facts_of(c->storage, name, &facts);
    if (status == WEFT_E_NOT_FOUND && weft_error_class() == WEFT_MSG_FILE_NOT_FOUND) {
        weft_error_clear();
        return WEFT_OK;
    }
    WEFT_TRY(status);
    WEFT_TRY(weft_remote_receive(c->storage, &own, 1, c->folder));
    *found = true;
    return note_version(c, name);
}

/* ---- send ---------------------------------------------------------------------------------- */

static weft_status send_files(weft_shared_copy *c, weft_remote_file *file, int64_t count)
{
    weft_status_code sent = weft_remote_send(c->storage, file, count, c->folder);
    weft_error_copy *error = sent == WEFT_OK ? NULL : weft_error_save();
    for (int64_t i = 0; i < count; i++) {
        weft_copied_file own = {.bytes = file[i].bytes, .mtime = file[i].mtime};
        weft_storage_facts facts;
        if (!file[i].done)
            continue;
        weft_status_code status = weft_storage_facts_of(c->storage, file[i].name, &facts);
        own.stamp = status == WEFT_OK ? facts.stamp : 0;
        status = status == WEFT_OK ? note(c, file[i].name, &own) : status;
        sent = weft_status_first(sent, status);
    }
    if (error)
        weft_error_restore(error);
    weft_free(error);
    return sent;
}

weft_status weft_shared_copy_send(weft_shared_copy *c, char *const *name, int64_t count)
{
    const bool ignored = weft_stop_ignores_interrupt();
    weft_remote_file *file;
    int64_t changed = 0;
    WEFT_TRY(read_journal(c)); /* children have sent files */
    WEFT_TRY(WEFT_NEW(file, count + 1, "%s", c->location));
    weft_stop_ignore_interrupt(true);
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < count; i++) {
        weft_copied_file here;
        const weft_copied_file sent = get(c, name[i]);
        WEFT_GO(weft_copied_file_stat(c->folder, name[i], &here));
        if (here.bytes >= 0 && !is_as_recorded(&here, &sent))
            file[changed++] =
                (weft_remote_file){.name = name[i], .bytes = here.bytes, .mtime = here.mtime};
    }
    WEFT_GO(send_files(c, file, changed));
out:
    weft_stop_ignore_interrupt(ignored);
    weft_free(file);
    return weft_error_add(status, "Run the same command again to continue.");
}

weft_status weft_shared_copy_remove(weft_shared_copy *c, char *const *name, int64_t count)
{
    const bool ignored = weft_stop_ignores_interrupt();
    weft_remote_file *file;
    int64_t known = 0;
    WEFT_TRY(read_journal(c));
    WEFT_TRY(WEFT_NEW(file, count + 1, "%s", c->location));
    weft_stop_ignore_interrupt(true);
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < count; i++)
        if (get(c, name[i]).known)
            file[known++] = (weft_remote_file){.name = name[i]};
    WEFT_GO(weft_remote_remove(c->storage, file, known));
    for (int64_t i = 0; i < known; i++) {
        WEFT_GO(unlink_file(c, file[i].name));
        WEFT_GO(note(c, file[i].name, NULL));
    }
out:
    weft_stop_ignore_interrupt(ignored);
    weft_free(file);
    return status;
}

bool weft_shared_copy_has(weft_shared_copy *c, const char *name)
{
    weft_copied_file here;
    const weft_copied_file file = get(c, name);
    if (!file.known || is_left(c, name))
        return file.known;
    if (weft_copied_file_stat(c->folder, name, &here) != WEFT_OK) {
        weft_error_clear();
        return false;
    }
    return is_as_recorded(&here, &file);
}

weft_status weft_shared_copy_list(weft_shared_copy *c, const char *folder, weft_names *names)
{
    const size_t length = strlen(folder);
    const char *name;
    json_t *file;
    WEFT_TRY(read_journal(c));
    json_object_foreach(c->record.files, name, file)
    {
        if (strncmp(name, folder, length) != 0 || name[length] != '/' ||
            strchr(name + length + 1, '/'))
            continue;
        WEFT_TRY(
            weft_grow((void **)&names->name, names->count, &names->capacity, sizeof *names->name));
        names->name[names->count] = weft_strdup(name + length + 1);
        WEFT_TRY(WEFT_ALLOCATED(names->name[names->count++], "%s", c->location));
    }
    return WEFT_OK;
}

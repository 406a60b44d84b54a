#include "serve/queue_file.h"

#include "base/fs.h"
#include "serve/queue_tables.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* ---- statements ----------------------------------------------------------------------------- */

weft_status weft_queue_store_error(const weft_queue_store *s)
{
    const int code = s->db ? sqlite3_extended_errcode(s->db) : SQLITE_NOMEM;
    if ((code & 0xff) == SQLITE_FULL)
        return weft_error(WEFT_MSG_DISK_FULL, WEFT_AT(.file = s->path), "the disk is full");
    return weft_error(WEFT_MSG_QUEUE_DATABASE, WEFT_AT(.file = s->path, WEFT_NUMBER(code)),
                      "SQLite: %s", s->db ? sqlite3_errmsg(s->db) : "out of memory");
}

weft_status weft_queue_store_run(weft_queue_store *s, const char *sql)
{
    s->version++;
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? WEFT_OK
                                                                   : weft_queue_store_error(s);
}

weft_status weft_queue_store_prepare(weft_queue_store *s, const char *sql, sqlite3_stmt **statement)
{
    return sqlite3_prepare_v2(s->db, sql, -1, statement, NULL) == SQLITE_OK
               ? WEFT_OK
               : weft_queue_store_error(s);
}

weft_status weft_queue_store_finish(weft_queue_store *s, sqlite3_stmt *statement)
{
    const int code = sqlite3_step(statement);
    const weft_status_code status = code == SQLITE_DONE ? WEFT_OK : weft_queue_store_error(s);
    sqlite3_finalize(statement);
    s->version++;
    return status;
}

weft_status weft_queue_store_set_waits(weft_queue_store *s, bool waits)
{
    const char *sql = waits ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL";
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? WEFT_OK
                                                                   : weft_queue_store_error(s);
}

int64_t weft_queue_store_version(const weft_queue_store *s)
{
    return s->version;
}

void weft_queue_store_bind(sqlite3_stmt *statement, int at, const char *text)
{
    if (text)
        sqlite3_bind_text(statement, at, text, -1, SQLITE_STATIC);
    else
        sqlite3_bind_null(statement, at);
}

/* ---- transactions --------------------------------------------------------------------------- */

weft_status weft_queue_store_end(weft_queue_store *s, weft_status_code status)
{
    if (status != WEFT_OK) {
        (void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
        return status;
    }
    return weft_queue_store_run(s, "COMMIT");
}

weft_status weft_queue_store_sync(weft_queue_store *s)
{
    weft_buf path = {0};
    weft_status_code status = WEFT_OK;
    if (!s->unsynced)
        return WEFT_OK;
    weft_buf_printf(&path, "%s-wal", s->path);
    WEFT_TRY(weft_buf_check(&path));
    const int fd = open(path.data, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fdatasync(fd) != 0)
        status = weft_error_errno(WEFT_AT(.file = path.data), "cannot write the queue to the disk");
    else
        s->unsynced = false;
    if (fd >= 0)
        close(fd);
    weft_buf_free(&path);
    return status;
}

/* ---- opening -------------------------------------------------------------------------------- */

/* The lock is released when this process ends, whatever ends it. */
static weft_status lock_folder(weft_queue_store *s, const char *folder)
{
    char *path = weft_path_join(folder, "lock");
    WEFT_TRY(WEFT_ALLOCATED(path, "the queue"));
    weft_status_code status = WEFT_OK;
    s->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (s->lock < 0)
        status = weft_error_errno(WEFT_AT(.file = path), "cannot open the lock of the queue");
    else if (flock(s->lock, LOCK_EX | LOCK_NB) != 0)
        status = errno == EWOULDBLOCK
                     ? weft_error(WEFT_MSG_FOLDER_LOCKED, WEFT_AT(.file = folder),
                                  "another `weft serve` uses this state folder. Stop it, or give "
                                  "this one another --state.")
                     : weft_error_errno(WEFT_AT(.file = path), "cannot lock the queue");
    weft_free(path);
    return status;
}

static weft_status read_number(weft_queue_store *s, const char *sql, int64_t *value)
{
    sqlite3_stmt *statement;
    WEFT_TRY(weft_queue_store_prepare(s, sql, &statement));
    const int code = sqlite3_step(statement);
    *value = code == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : 0;
    const weft_status_code status = code == SQLITE_ROW ? WEFT_OK : weft_queue_store_error(s);
    sqlite3_finalize(statement);
    return status;
}

static weft_status check_version(weft_queue_store *s, bool *is_new, int64_t *found)
{
    int64_t version, mark, tables;
    WEFT_TRY(read_number(s, "PRAGMA user_version", &version));
    WEFT_TRY(read_number(s, "PRAGMA application_id", &mark));
    WEFT_TRY(read_number(s, "SELECT count(*) FROM sqlite_master", &tables));
    *is_new = tables == 0 && mark == 0; /* or killed before the tables were written */
    if (!*is_new && mark != WEFT_QUEUE_MARK)
        return weft_error(WEFT_MSG_QUEUE_VERSION, WEFT_AT(.file = s->path),
                          "the file is not a queue of weft; give another --state");
    if (version > WEFT_QUEUE_VERSION)
        return weft_error(WEFT_MSG_QUEUE_VERSION, WEFT_AT(.file = s->path, WEFT_NUMBER(version)),
                          "the queue has version %" PRId64 ", and this weft reads versions up to "
                          "%d; use the newer weft, or another --state",
                          version, WEFT_QUEUE_VERSION);
    *found = version;
    return WEFT_OK;
}

/* Makes the tables, or changes the tables of an earlier version. */
static weft_status write_tables(weft_queue_store *s, bool is_new, int64_t version)
{
    weft_buf sql = {0};
    weft_status_code status = WEFT_OK;
    if (!is_new && version == WEFT_QUEUE_VERSION)
        return WEFT_OK;
    if (is_new)
        weft_queue_tables_create(&sql);
    else
        weft_queue_tables_update(version, &sql);
    WEFT_GO(weft_buf_check(&sql));
    status = weft_queue_store_run(s, sql.data);
    if (status != WEFT_OK)
        (void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
out:
    weft_buf_free(&sql);
    return status;
}

/* A missing queue is not replaced by an empty one: the next start would remove the videos. */
static weft_status check_no_jobs(const weft_queue_store *s, const char *folder)
{
    char *jobs = weft_path_join(folder, "jobs");
    weft_names names = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(jobs, "the queue"));
    if (weft_path_is_dir(jobs))
        WEFT_GO(weft_list_dir(jobs, false, &names));
    if (names.count > 0)
        WEFT_GO(weft_error(WEFT_MSG_QUEUE_LOST, WEFT_AT(.file = s->path, WEFT_NUMBER(names.count)),
                           "the queue is missing or empty, and the folder has files of %" PRId64
                           " job%s. Restore queue.sqlite together with queue.sqlite-wal, or move "
                           "the folder `jobs` away.",
                           names.count, weft_plural(names.count)));
out:
    weft_names_free(&names);
    weft_free(jobs);
    return status;
}

static weft_status set_mode(const weft_queue_store *s, const char *end)
{
    weft_buf path = {0};
    weft_status_code status = WEFT_OK;
    weft_buf_printf(&path, "%s%s", s->path, end);
    WEFT_GO(weft_buf_check(&path));
    if (chmod(path.data, 0600) != 0 && errno != ENOENT)
        WEFT_GO(weft_error_errno(WEFT_AT(.file = path.data), "cannot set the mode to 0600"));
out:
    weft_buf_free(&path);
    return status;
}

/* Prompts are private: only the owner reads the files. SQLite gives new files the mode of the
 * queue, and an earlier server may have left files with another one. */
static weft_status set_modes(const weft_queue_store *s)
{
    static const char *const ends[] = {"", "-wal", "-shm"};
    const int fd = open(s->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return weft_error_errno(WEFT_AT(.file = s->path), "cannot open the queue");
    close(fd);
    for (int i = 0; i < 3; i++)
        WEFT_TRY(set_mode(s, ends[i]));
    return WEFT_OK;
}

/* Fills the log of SQLite with zeros up to the size at which it starts from the beginning (1000
 * pages of 4 KiB). A write inside of the file waits for the disk once; one that extends the file
 * also waits for records of the file system, up to twice as long. SQLite ends the log at the first
 * frame that is not valid. On a disk with little space the file grows as needed. */
static void fill_log(const weft_queue_store *s)
{
    enum { BYTES = 32 + 1000 * (24 + 4096) };
    static const char zeros[1 << 16];
    struct stat facts;
    struct statvfs disk;
    weft_buf path = {0};
    weft_buf_printf(&path, "%s-wal", s->path);
    const int fd = path.data ? open(path.data, O_WRONLY | O_CLOEXEC) : -1;
    weft_buf_free(&path);
    if (fd < 0 || fstat(fd, &facts) != 0 || fstatvfs(fd, &disk) != 0 ||
        (double)disk.f_bavail * (double)disk.f_frsize < 16.0 * BYTES)
        facts.st_size = BYTES;
    for (int64_t at = facts.st_size, written = 1; at < BYTES && written > 0; at += written) {
        const int64_t left = BYTES - at, most = (int64_t)sizeof zeros;
        written = pwrite(fd, zeros, (size_t)(left < most ? left : most), at);
    }
    if (fd >= 0) {
        (void)fdatasync(fd);
        close(fd);
    }
}

static weft_status open_database(weft_queue_store *s, const char *folder)
{
    bool is_new;
    int64_t version = 0;
    WEFT_TRY(set_modes(s));
    if (sqlite3_open_v2(s->path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL) !=
        SQLITE_OK)
        return weft_queue_store_error(s);
    WEFT_TRY(check_version(s, &is_new, &version));
    if (is_new)
        WEFT_TRY(check_no_jobs(s, folder));
    WEFT_TRY(weft_queue_store_run(s, "PRAGMA journal_mode=WAL"));
    WEFT_TRY(weft_queue_store_set_waits(s, true));
    WEFT_TRY(write_tables(s, is_new, version));
    fill_log(s);
    return WEFT_OK;
}

weft_status weft_queue_store_open(const char *folder, weft_queue_store **store)
{
    weft_queue_store *s;
    weft_status_code status = WEFT_OK;
    WEFT_TRY(weft_make_dirs(folder));
    WEFT_TRY(WEFT_NEW(s, 1, "the queue"));
    *s = (weft_queue_store){.path = weft_path_join(folder, "queue.sqlite"), .lock = -1};
    WEFT_GO(WEFT_ALLOCATED(s->path, "the queue"));
    WEFT_GO(lock_folder(s, folder));
    WEFT_GO(open_database(s, folder));
    *store = s;
    return WEFT_OK;
out:
    weft_queue_store_close(s);
    return status;
}

void weft_queue_store_close(weft_queue_store *s)
{
    if (!s)
        return;
    sqlite3_close(s->db);
    if (s->lock >= 0)
        close(s->lock);
    weft_free(s->path);
    weft_free(s);
}

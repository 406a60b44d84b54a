/* The stored queue: acceptance, transitions, recovery after a kill, versions and the lock. */
#include "serve/queue_store.h"

#include <criterion/criterion.h>

#include "base/fs.h"
#include "serve/delivery_store.h"
#include "serve/learned_store.h"

#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64];

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/weft-queue-XXXXXX");
    cr_assert(mkdtemp(folder) != NULL);
}

static void remove_folder(void)
{
    cr_assert_eq(weft_remove_tree(folder), WEFT_OK);
}

TestSuite(queue_store, .init = make_folder, .fini = remove_folder);

static weft_queue_store *open_store(void)
{
    weft_queue_store *s = NULL;
    cr_assert_eq(weft_queue_store_open(folder, &s), WEFT_OK, "%s", weft_error_message());
    return s;
}

static void add(weft_queue_store *s, const char *id, const char *request_id, int64_t priority)
{
    bool existing;
    weft_queue_job job = {.priority = priority,
                          .created = 100,
                          .seconds = 2,
                          .bytes = 7,
                          .request = weft_strdup("{\"prompt\":\"x\"}"),
                          .request_id = request_id ? weft_strdup(request_id) : NULL,
                          .fingerprint = weft_strdup(id)};
    snprintf(job.id, sizeof job.id, "%s", id);
    cr_assert_eq(weft_queue_store_add(s, &job, &existing), WEFT_OK, "%s", weft_error_message());
    cr_assert(!existing);
    weft_queue_job_free(&job);
}

/* request_id: may be NULL. Returns whether the owner had a job with this id. */
static bool ask_of(weft_queue_store *s, const char *id, const char *owner, const char *request_id,
                   char found[WEFT_QUEUE_ID])
{
    bool existing;
    weft_queue_job job = {.created = 100,
                          .seconds = 8,
                          .request = weft_strdup("{\"steps\": 4}"),
                          .request_id = request_id ? weft_strdup(request_id) : NULL,
                          .fingerprint = weft_strdup(id),
                          .owner = owner ? weft_strdup(owner) : NULL};
    snprintf(job.id, sizeof job.id, "%s", id);
    cr_assert_eq(weft_queue_store_add(s, &job, &existing), WEFT_OK, "%s", weft_error_message());
    memcpy(found, job.id, sizeof job.id);
    weft_queue_job_free(&job);
    return existing;
}

static void add_of(weft_queue_store *s, const char *id, const char *owner)
{
    char found[WEFT_QUEUE_ID];
    cr_assert(!ask_of(s, id, owner, NULL, found));
}

static weft_queue_state apply(weft_queue_store *s, const char *id, weft_queue_event event)
{
    weft_queue_state next = WEFT_QUEUE_STATES;
    const weft_queue_change change = {
        .now = 200, .spent = 1, .error_code = "code", .error = "text"};
    cr_assert_eq(weft_queue_store_apply(s, id, event, &change, &next), WEFT_OK, "%s",
                 weft_error_message());
    return next;
}

static weft_queue_job get(weft_queue_store *s, const char *id)
{
    weft_queue_job job;
    bool found;
    cr_assert_eq(weft_queue_store_find(s, id, &job, &found), WEFT_OK);
    cr_assert(found);
    return job;
}

Test(queue_store, a_job_survives_reopening)
{
    weft_queue_store *s = open_store();
    add(s, "a", NULL, 3);
    weft_queue_store_close(s);
    s = open_store();
    weft_queue_job job = get(s, "a");
    cr_assert(job.state == WEFT_QUEUE_QUEUED && job.priority == 3 && job.created == 100 &&
              job.seconds == 2 && job.bytes == 7 && !job.request_id && !job.error_code);
    cr_assert_str_eq(job.request, "{\"prompt\":\"x\"}");
    weft_queue_job_free(&job);
    weft_queue_store_close(s);
}

Test(queue_store, a_request_id_has_one_job)
{
    weft_queue_store *s = open_store();
    add(s, "a", "r1", 0);
    weft_queue_job again = {.request = weft_strdup("{\"steps\": 4}"),
                            .request_id = weft_strdup("r1"),
                            .fingerprint = weft_strdup("other")};
    bool existing;
    snprintf(again.id, sizeof again.id, "b");
    cr_assert_eq(weft_queue_store_add(s, &again, &existing), WEFT_OK);
    cr_assert(existing);
    cr_assert_str_eq(again.id, "a");
    cr_assert_str_eq(again.fingerprint, "a");
    weft_queue_job_free(&again);
    weft_queue_store_close(s);
}

/* The id r1 has the job a without an owner, b of ann and c of zoe. */
static void check_requests(weft_queue_store *s)
{
    static const char *const owners[] = {NULL, "ann", "zoe"};
    char found[WEFT_QUEUE_ID];
    for (int i = 0; i < 3; i++) {
        cr_assert(ask_of(s, "other", owners[i], "r1", found), "owner %d", i);
        cr_assert_str_eq(found, ((const char *[]){"a", "b", "c"})[i]);
    }
}

Test(queue_store, owners_share_no_request_ids)
{
    weft_queue_store *s = open_store();
    char found[WEFT_QUEUE_ID];
    cr_assert(!ask_of(s, "a", NULL, "r1", found));
    cr_assert(!ask_of(s, "b", "ann", "r1", found));
    cr_assert(!ask_of(s, "c", "zoe", "r1", found));
    check_requests(s);
    weft_queue_store_close(s);
    s = open_store();
    check_requests(s);
    cr_assert(!ask_of(s, "d", "ann", NULL, found)); /* any number of jobs has none */
    cr_assert(!ask_of(s, "e", "ann", NULL, found));
    weft_queue_store_close(s);
}

Test(queue_store, transitions_are_stored)
{
    weft_queue_store *s = open_store();
    weft_queue_state next;
    const weft_queue_change change = {.now = 300};
    add(s, "a", NULL, 0);
    cr_assert_eq(apply(s, "a", WEFT_QUEUE_START), WEFT_QUEUE_RUNNING);
    cr_assert_eq(weft_queue_store_apply(s, "a", WEFT_QUEUE_START, &change, &next), WEFT_E_ARG);
    cr_assert_eq(next, WEFT_QUEUE_RUNNING);
    cr_assert_eq(weft_error_class(), WEFT_MSG_QUEUE_TRANSITION);
    cr_assert_eq(apply(s, "a", WEFT_QUEUE_CRASHED), WEFT_QUEUE_QUEUED);
    cr_assert_eq(apply(s, "a", WEFT_QUEUE_START), WEFT_QUEUE_RUNNING);
    cr_assert_eq(apply(s, "a", WEFT_QUEUE_CRASHED), WEFT_QUEUE_PARKED);
    weft_queue_job job = get(s, "a");
    cr_assert(job.crashes == 2 && job.started == 200 && job.finished == 200 && job.spent == 4);
    cr_assert_str_eq(job.error_code, "code");
    weft_queue_job_free(&job);
    cr_assert_eq(apply(s, "a", WEFT_QUEUE_RESUME), WEFT_QUEUE_QUEUED);
    job = get(s, "a");
    cr_assert(job.crashes == 0 && job.finished == 0);
    weft_queue_job_free(&job);
    weft_queue_store_close(s);
}

Test(queue_store, order_list_and_removal)
{
    weft_queue_store *s = open_store();
    weft_queue_job job, *jobs;
    weft_queue_entry *entries;
    int64_t count, counts[WEFT_QUEUE_STATES];
    bool found, more;
    add(s, "a", NULL, 0);
    add(s, "b", NULL, 5);
    add(s, "c", NULL, 0);
    cr_assert_eq(weft_queue_store_at(s, 2, &job, &found), WEFT_OK);
    cr_assert(found && !strcmp(job.id, "b"));
    weft_queue_job_free(&job);
    apply(s, "c", WEFT_QUEUE_START);
    cr_assert_eq(weft_queue_store_waiting(s, &entries, &count), WEFT_OK);
    cr_assert(count == 3 && entries[0].number == 3 && entries[0].held && entries[1].number == 2);
    weft_free(entries);
    weft_queue_page page = {.after = "", .limit = 2, .descending = true};
    cr_assert_eq(weft_queue_store_list(s, &page, &jobs, &count, &more), WEFT_OK);
    cr_assert(count == 2 && more && !strcmp(jobs[0].id, "c") && !strcmp(jobs[1].id, "b"));
    weft_queue_jobs_free(jobs, count);
    page = (weft_queue_page){.after = "a", .limit = 5};
    cr_assert_eq(weft_queue_store_list(s, &page, &jobs, &count, &more), WEFT_OK);
    cr_assert(count == 2 && !more && !strcmp(jobs[0].id, "b"));
    weft_queue_jobs_free(jobs, count);
    add_of(s, "d", "zoe"); /* an owner has its jobs and jobs of none */
    add_of(s, "e", "ann");
    page = (weft_queue_page){.after = "b", .limit = 5, .owner = "ann"};
    cr_assert_eq(weft_queue_store_list(s, &page, &jobs, &count, &more), WEFT_OK);
    cr_assert(count == 2 && !more && !strcmp(jobs[0].id, "c") && !strcmp(jobs[1].id, "e"));
    weft_queue_jobs_free(jobs, count);
    apply(s, "b", WEFT_QUEUE_CANCEL);
    for (weft_queue_part part = WEFT_QUEUE_UNFINISHED; part <= WEFT_QUEUE_FINAL; part++) {
        page = (weft_queue_page){.after = "", .limit = 5, .part = part};
        cr_assert_eq(weft_queue_store_list(s, &page, &jobs, &count, &more), WEFT_OK);
        cr_assert(count == (part == WEFT_QUEUE_FINAL ? 1 : 4) && !more);
        cr_assert_str_eq(jobs[0].id, part == WEFT_QUEUE_FINAL ? "b" : "a");
        weft_queue_jobs_free(jobs, count);
    }
    apply(s, "a", WEFT_QUEUE_DELETE);
    cr_assert_eq(weft_queue_store_next(s, WEFT_QUEUE_DELETING, 0, &job, &found), WEFT_OK);
    cr_assert(found && !strcmp(job.id, "a"));
    const int64_t after = job.number;
    weft_queue_job_free(&job);
    cr_assert_eq(weft_queue_store_next(s, WEFT_QUEUE_DELETING, after, &job, &found), WEFT_OK);
    cr_assert(!found);
    cr_assert_eq(weft_queue_store_remove(s, "a", 0), WEFT_OK);
    cr_assert_eq(weft_queue_store_remove(s, "b", 0), WEFT_OK); /* is not in DELETING: stays */
    cr_assert_eq(weft_queue_store_count(s, counts), WEFT_OK);
    cr_assert(counts[WEFT_QUEUE_CANCELLED] == 1 && counts[WEFT_QUEUE_RUNNING] == 1 &&
              counts[WEFT_QUEUE_DELETING] == 0);
    weft_queue_store_close(s);
}

/* A child is killed after its changes were acknowledged, without closing anything. */
Test(queue_store, acknowledged_changes_survive_a_kill)
{
    const pid_t child = fork();
    cr_assert(child >= 0);
    if (child == 0) {
        weft_queue_store *s = open_store();
        add(s, "a", NULL, 0);
        add(s, "b", NULL, 0);
        apply(s, "a", WEFT_QUEUE_START);
        add(s, "c", NULL, 0);
        apply(s, "c", WEFT_QUEUE_START);
        apply(s, "c", WEFT_QUEUE_PAUSE);
        raise(SIGKILL);
    }
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    weft_queue_store *s = open_store(); /* the kill released the lock */
    weft_queue_job job = get(s, "a");
    cr_assert_eq(job.state, WEFT_QUEUE_RUNNING);
    weft_queue_job_free(&job);
    cr_assert_eq(weft_queue_store_recover(s, 300), WEFT_OK);
    const char *const id[] = {"a", "b", "c"};
    const weft_queue_state state[] = {WEFT_QUEUE_QUEUED, WEFT_QUEUE_QUEUED, WEFT_QUEUE_PAUSED};
    for (int i = 0; i < 3; i++) {
        job = get(s, id[i]);
        cr_assert_eq(job.state, state[i], "%s", id[i]);
        cr_assert_eq(job.crashes, 0);
        weft_queue_job_free(&job);
    }
    weft_queue_store_close(s);
}

/* SQLite's waits for the disk come here. */
static int waits;
int fdatasync(int fd)
{
    waits++;
    return (int)syscall(SYS_fdatasync, fd);
}

/* A change waits for the disk unless the recovery repeats it. The request to stop a running job does
 * not wait, and the end of the stop does. */
Test(queue_store, only_lasting_changes_wait_for_the_disk)
{
    static const struct {
        weft_queue_event event;
        bool waits;
    } all[] = {
        {WEFT_QUEUE_START, false},  {WEFT_QUEUE_PAUSE, false},   {WEFT_QUEUE_STOPPED, true},
        {WEFT_QUEUE_RESUME, true},  {WEFT_QUEUE_START, false},   {WEFT_QUEUE_CRASHED, true},
        {WEFT_QUEUE_START, false},  {WEFT_QUEUE_STOPPED, false}, {WEFT_QUEUE_START, false},
        {WEFT_QUEUE_CANCEL, false}, {WEFT_QUEUE_STOPPED, true},  {WEFT_QUEUE_DELETE, true},
    };
    weft_queue_store *s = open_store();
    waits = 0;
    add(s, "a", NULL, 0);
    cr_assert_gt(waits, 0);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        waits = 0;
        apply(s, "a", all[i].event);
        cr_assert_eq(waits > 0, all[i].waits, "event %zu", i);
    }
    waits = 0;
    cr_assert_eq(weft_queue_store_remove(s, "a", 0), WEFT_OK);
    cr_assert_eq(waits, 0);
    add(s, "b", NULL, 0);
    cr_assert_gt(waits, 0);
    weft_queue_store_close(s);
}

/* The end of a job may wait together with later changes. */
Test(queue_store, an_end_waits_for_the_disk_later)
{
    static const struct {
        weft_queue_event before, event; /* before: after START; START: none */
        bool waits;
    } all[] = {{WEFT_QUEUE_START, WEFT_QUEUE_STOPPED, false},
               {WEFT_QUEUE_START, WEFT_QUEUE_FINISHED, true},
               {WEFT_QUEUE_START, WEFT_QUEUE_CRASHED, true},
               {WEFT_QUEUE_CANCEL, WEFT_QUEUE_STOPPED, true}};
    weft_queue_store *s = open_store();
    for (int i = 0; i < 4; i++) {
        const weft_queue_change change = {.now = 1, .spent = 1, .unsynced = true};
        weft_queue_state next;
        char id[2] = {(char)('a' + i), '\0'};
        add(s, id, NULL, 0);
        apply(s, id, WEFT_QUEUE_START);
        if (all[i].before != WEFT_QUEUE_START)
            apply(s, id, all[i].before);
        waits = 0;
        cr_assert_eq(weft_queue_store_apply(s, id, all[i].event, &change, &next), WEFT_OK);
        cr_assert_eq(waits, 0, "event %d", i);
        cr_assert_eq(weft_queue_store_sync(s), WEFT_OK);
        cr_assert_eq(waits, all[i].waits, "event %d", i);
        cr_assert_eq(weft_queue_store_sync(s), WEFT_OK);
        cr_assert_eq(waits, all[i].waits, "event %d, again", i);
    }
    weft_queue_store_close(s);
}

static int64_t log_bytes(void)
{
    char path[96];
    struct stat facts;
    snprintf(path, sizeof path, "%s/queue.sqlite-wal", folder);
    cr_assert_eq(stat(path, &facts), 0);
    return facts.st_size;
}

/* A write that extends a file waits longer for the disk. */
Test(queue_store, writes_do_not_extend_the_log)
{
    for (int run = 0; run < 2; run++) {
        weft_queue_store *s = open_store();
        const int64_t bytes = log_bytes();
        cr_assert_eq(bytes, 32 + 1000 * (24 + 4096));
        for (int i = 0; i < 300; i++) { /* more than a log has room for */
            char id[16];
            snprintf(id, sizeof id, "%d-%d", run, i);
            add(s, id, NULL, 0);
        }
        cr_assert_lt(log_bytes(), bytes + (1 << 16));
        weft_queue_store_close(s);
    }
}

/* The server was killed before the worker of a cancelled job had stopped. */
Test(queue_store, a_recovered_cancel_has_a_time_and_a_webhook)
{
    weft_queue_store *s = open_store();
    weft_delivery delivery;
    bool existing, found;
    weft_queue_job job = {.request = weft_strdup("{\"steps\": 4}"),
                          .fingerprint = weft_strdup("f"),
                          .webhook = weft_strdup("https://example.org/")};
    snprintf(job.id, sizeof job.id, "a");
    cr_assert_eq(weft_queue_store_add(s, &job, &existing), WEFT_OK, "%s", weft_error_message());
    weft_queue_job_free(&job);
    apply(s, "a", WEFT_QUEUE_START);
    apply(s, "a", WEFT_QUEUE_CANCEL);
    for (int i = 0; i < 2; i++) /* a second recovery changes nothing */
        cr_assert_eq(weft_queue_store_recover(s, 300 + i), WEFT_OK, "%s", weft_error_message());
    job = get(s, "a");
    cr_assert(job.state == WEFT_QUEUE_CANCELLED && job.finished == 300);
    weft_queue_job_free(&job);
    cr_assert_eq(weft_delivery_store_find(s, "a", &delivery, &found), WEFT_OK);
    cr_assert(found && delivery.number == 1);
    cr_assert_str_eq(delivery.event, "job.cancelled");
    weft_delivery_free(&delivery);
    weft_queue_store_close(s);
}

static void check_modes(const char *when)
{
    static const char *const names[] = {"queue.sqlite", "queue.sqlite-wal", "queue.sqlite-shm"};
    for (int i = 0; i < 3; i++) {
        char path[128];
        struct stat facts;
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        cr_assert_eq(stat(path, &facts), 0, "%s %s", when, path);
        cr_assert_eq(facts.st_mode & 0777, 0600, "%s %s: %o", when, path, facts.st_mode & 0777);
    }
}

/* The same if an earlier server left files that others can read. */
Test(queue_store, only_the_owner_reads_the_files)
{
    const mode_t before = umask(022);
    char path[128];
    weft_queue_store *s = open_store();
    add(s, "a", NULL, 0);
    check_modes("new");
    weft_queue_store_close(s);
    snprintf(path, sizeof path, "%s/queue.sqlite", folder);
    cr_assert_eq(chmod(path, 0644), 0);
    s = open_store();
    add(s, "b", NULL, 0);
    check_modes("opened");
    weft_queue_store_close(s);
    umask(before);
}

static void limit_pages(weft_queue_store *s, int pages)
{
    sqlite3_stmt *statement;
    char sql[64];
    snprintf(sql, sizeof sql, "PRAGMA max_page_count=%d", pages);
    cr_assert_eq(weft_queue_store_prepare(s, sql, &statement), WEFT_OK);
    cr_assert_eq(sqlite3_step(statement), SQLITE_ROW);
    sqlite3_finalize(statement);
}

/* A full disk refuses the job that does not fit. Stored jobs stay, and jobs are accepted again as
 * soon as the disk has space. */
Test(queue_store, a_full_disk_loses_no_job)
{
    weft_queue_store *s = open_store();
    weft_status_code status = WEFT_OK;
    bool existing;
    int stored = 0;
    limit_pages(s, 1); /* the present size */
    for (; status == WEFT_OK && stored < 10000; stored += status == WEFT_OK) {
        weft_queue_job job = {.seconds = 2,
                              .request = weft_strdup("{\"steps\": 4}"),
                              .fingerprint = weft_strdup("f")};
        snprintf(job.id, sizeof job.id, "%d", stored);
        status = weft_queue_store_add(s, &job, &existing);
        weft_queue_job_free(&job);
    }
    cr_assert_eq(weft_error_class(), WEFT_MSG_DISK_FULL, "%s", weft_error_message());
    weft_error_clear();
    limit_pages(s, 1000);
    add(s, "next", NULL, 0);
    weft_queue_store_close(s);
    s = open_store();
    weft_queue_entry *entries;
    int64_t count;
    cr_assert_eq(weft_queue_store_waiting(s, &entries, &count), WEFT_OK);
    cr_assert(stored > 0 && count == stored + 1, "%d stored, %d found", stored, (int)count);
    weft_free(entries);
    weft_queue_store_close(s);
}

Test(queue_store, one_server_per_folder)
{
    weft_queue_store *s = open_store(), *second = NULL;
    cr_assert_eq(weft_queue_store_open(folder, &second), WEFT_E_ARG);
    cr_assert_eq(weft_error_class(), WEFT_MSG_FOLDER_LOCKED);
    weft_queue_store_close(s);
    weft_queue_store_close(open_store());
}

static void execute(const char *sql)
{
    sqlite3 *db;
    char path[128];
    snprintf(path, sizeof path, "%s/queue.sqlite", folder);
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

Test(queue_store, newer_and_foreign_files_are_refused)
{
    weft_queue_store *s = open_store();
    weft_queue_store_close(s);
    execute("PRAGMA user_version=7");
    cr_assert_eq(weft_queue_store_open(folder, &s), WEFT_E_FORMAT);
    cr_assert_eq(weft_error_class(), WEFT_MSG_QUEUE_VERSION);
    cr_assert_eq(weft_error_fields()->number, 7);
    execute("PRAGMA user_version=1; PRAGMA application_id=5");
    cr_assert_eq(weft_queue_store_open(folder, &s), WEFT_E_FORMAT);
    cr_assert_eq(weft_error_class(), WEFT_MSG_QUEUE_VERSION);
}

/* A server was killed after SQLite had set the journal and before the tables existed. */
Test(queue_store, a_database_without_tables_is_new)
{
    execute("PRAGMA journal_mode=WAL");
    weft_queue_store *s = open_store();
    add(s, "a", NULL, 0);
    weft_queue_store_close(s);
}

static void check_order(weft_queue_store *s, const char *order)
{
    weft_queue_entry *entries;
    int64_t count;
    cr_assert_eq(weft_queue_store_waiting(s, &entries, &count), WEFT_OK);
    cr_assert_eq(count, (int64_t)strlen(order));
    for (int64_t i = 0; i < count; i++) {
        weft_queue_job job = get(s, (char[]){order[i], '\0'});
        cr_assert_eq(entries[i].number, job.number, "place %d", (int)i);
        weft_queue_job_free(&job);
    }
    weft_free(entries);
}

Test(queue_store, a_moved_job_stays_at_its_place)
{
    weft_queue_store *s = open_store();
    for (const char *id = "abcd"; *id; id++)
        add(s, (char[]){*id, '\0'}, NULL, 0);
    cr_assert_eq(weft_queue_store_move(s, "d", "a", false), WEFT_OK, "%s", weft_error_message());
    check_order(s, "dabc");
    weft_queue_store_close(s);
    s = open_store();
    check_order(s, "dabc");
    add(s, "e", NULL, 0); /* a new job is the last one */
    check_order(s, "dabce");
    cr_assert_eq(weft_queue_store_move(s, "d", "x", false), WEFT_E_ARG);
    cr_assert_eq(apply(s, "d", WEFT_QUEUE_START), WEFT_QUEUE_RUNNING);
    cr_assert_eq(weft_queue_store_move(s, "a", "d", false), WEFT_E_ARG);
    cr_assert_eq(weft_queue_store_move(s, "d", "a", true), WEFT_E_ARG);
    check_order(s, "dabce");
    weft_queue_store_close(s);
}

Test(queue_store, only_a_waiting_job_is_edited)
{
    weft_queue_store *s = open_store();
    add(s, "a", NULL, 0);
    weft_queue_job job = get(s, "a");
    job.priority = 7;
    job.seconds = 5;
    cr_assert_eq(weft_queue_store_edit(s, &job), WEFT_OK, "%s", weft_error_message());
    weft_queue_job_free(&job);
    job = get(s, "a");
    cr_assert(job.priority == 7 && job.seconds == 5 && job.state == WEFT_QUEUE_QUEUED);
    (void)apply(s, "a", WEFT_QUEUE_START);
    job.priority = 8;
    cr_assert_eq(weft_queue_store_edit(s, &job), WEFT_E_ARG);
    weft_queue_job_free(&job);
    job = get(s, "a");
    cr_assert_eq(job.priority, 7);
    weft_queue_job_free(&job);
    weft_queue_store_close(s);
}

/* The tables of version 1 get the order of acceptance. */
Test(queue_store, an_earlier_version_is_updated)
{
    weft_queue_store *s = open_store();
    add(s, "a", NULL, 0);
    add(s, "b", NULL, 0);
    weft_queue_store_close(s);
    execute("DROP TABLE learned; DROP TABLE delivery; DROP TABLE used; DROP INDEX job_state; DROP "
            "INDEX job_owner; "
            "DROP INDEX job_request; ALTER TABLE job "
            "DROP COLUMN rank; ALTER TABLE job DROP COLUMN webhook; ALTER TABLE job DROP COLUMN "
            "owner; ALTER TABLE job DROP COLUMN remaining; CREATE INDEX job_state ON job(state, "
            "priority DESC, number); "
            "PRAGMA user_version=1");
    s = open_store();
    check_order(s, "ab");
    cr_assert_eq(weft_queue_store_move(s, "b", "a", false), WEFT_OK, "%s", weft_error_message());
    check_order(s, "ba");
    weft_queue_store_close(s);
    execute("DROP TABLE learned; DROP TABLE used; DROP INDEX job_owner; DROP INDEX job_request; "
            "ALTER TABLE job "
            "DROP COLUMN owner; ALTER TABLE job DROP COLUMN remaining; PRAGMA user_version=2");
    s = open_store();
    check_order(s, "ba");
    weft_queue_store_close(s);
}

static double used_by(weft_queue_store *s, const char *owner, double since)
{
    weft_queue_owners owners;
    double used = -1;
    cr_assert_eq(weft_queue_store_owners(s, since, &owners), WEFT_OK, "%s", weft_error_message());
    for (int64_t i = 0; i < owners.count; i++)
        used = strcmp(owners.name[i], owner) ? used : owners.used[i];
    weft_queue_owners_free(&owners);
    return used;
}

/* A queue as the server of version 4 wrote it: a running job with a webhook, a finished one and a
 * deleted one, whose number was the largest. */
static const char version_4[] =
    "CREATE TABLE job(number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, state "
    "TEXT "
    "NOT NULL, priority INTEGER NOT NULL, crashes INTEGER NOT NULL, created REAL NOT NULL, started "
    "REAL NOT NULL, finished REAL NOT NULL, deadline REAL NOT NULL, seconds REAL NOT NULL, bytes "
    "INTEGER NOT NULL, spent REAL NOT NULL, request TEXT NOT NULL, request_id TEXT UNIQUE, "
    "fingerprint TEXT NOT NULL, remix_of TEXT, error_code TEXT, error_text TEXT, rank INTEGER NOT "
    "NULL, webhook TEXT, owner TEXT, remaining REAL NOT NULL) STRICT;"
    "CREATE INDEX job_owner ON job(ifnull(owner, ''));"
    "CREATE INDEX job_state ON job(state, priority DESC, rank);"
    "CREATE TABLE delivery(number INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT NOT NULL, url TEXT "
    "NOT "
    "NULL, event TEXT NOT NULL, created REAL NOT NULL, due REAL NOT NULL, state INTEGER NOT NULL, "
    "attempts INTEGER NOT NULL, reply INTEGER NOT NULL, error TEXT NOT NULL) STRICT;"
    "CREATE INDEX delivery_due ON delivery(state, due); CREATE INDEX delivery_job ON delivery(job);"
    "CREATE TABLE used(owner TEXT NOT NULL, finished REAL NOT NULL, seconds REAL NOT NULL) STRICT;"
    "INSERT INTO job VALUES(1,'a','completed',0,0,100,110,120,0,2,7,10,'{}','r1','a',NULL,NULL,"
    "NULL,1,NULL,NULL,0), (2,'b','running',3,1,101,111,0,500,4,8,5,'{\"steps\":4}','r2','fb','a',"
    "'code','text',9,'http://x','ann',2.5), (7,'z','completed',0,0,100,0,0,0,0,0,0,'{}',NULL,'z',"
    "NULL,NULL,NULL,7,NULL,NULL,0);"
    "DELETE FROM job WHERE number=7; INSERT INTO used VALUES('ann', 300, 6);"
    "INSERT INTO delivery VALUES(1,'a','http://x','job.completed',120,120,0,0,0,'');"
    "PRAGMA application_id=2003134068; PRAGMA user_version=4; PRAGMA journal_mode=WAL";

Test(queue_store, version_4_is_updated)
{
    execute(version_4);
    weft_queue_store *s = open_store();
    weft_queue_job b = get(s, "b");
    cr_assert(b.number == 2 && b.state == WEFT_QUEUE_RUNNING && b.priority == 3 && b.crashes == 1 &&
              b.created == 101 && b.started == 111 && b.finished == 0 && b.deadline == 500);
    cr_assert(b.seconds == 4 && b.bytes == 8 && b.spent == 5 && b.rank == 9 && b.remaining == 2.5);
    cr_assert_str_eq(b.request, "{\"steps\":4}");
    cr_assert_str_eq(b.request_id, "r2");
    cr_assert_str_eq(b.fingerprint, "fb");
    cr_assert_str_eq(b.remix_of, "a");
    cr_assert(!strcmp(b.error_code, "code") && !strcmp(b.error_text, "text"));
    cr_assert(!strcmp(b.webhook, "http://x") && !strcmp(b.owner, "ann"));
    weft_queue_job_free(&b);
    cr_assert_eq(used_by(s, "ann", 200), 11);
    weft_delivery due;
    bool found;
    cr_assert_eq(weft_delivery_store_next(s, &due, &found), WEFT_OK);
    cr_assert(found && !strcmp(due.job, "a"));
    weft_delivery_free(&due);
    char same[WEFT_QUEUE_ID];
    cr_assert(ask_of(s, "c", "ann", "r2", same) && !strcmp(same, "b"));
    cr_assert(!ask_of(s, "c", "ann", "r1", same)); /* job a has no owner */
    b = get(s, "c");
    cr_assert(b.number == 8 && b.rank == 10, "number %d", (int)b.number);
    weft_queue_job_free(&b);
    weft_queue_store_close(s);
    weft_queue_store_close(open_store()); /* the present version */
}

/* Jobs on two ranks took twice their price, and the means of all ranks are known. */
static weft_learned_seconds learned_from(int jobs)
{
    weft_learned_seconds l = {.retire = 0.25,
                              .retires = 2,
                              .start = 0.125,
                              .stop = 0.0625,
                              .cold = 1.5,
                              .starts = 3,
                              .pace = 1.1,
                              .finish = -0.01,
                              .paced = 4};
    for (int i = 0; i < jobs; i++)
        weft_rank_seconds_add(&l.ranks.at[1],
                              &(weft_rank_run){0.1 * (1 + i % 3), 20, 0.5, 0.2 * (1 + i % 3)});
    weft_rank_mean_add(&l.ranks.at[1].warm, &l.ranks.at[1].warms, 0.1);
    weft_rank_mean_add(&l.ranks.at[2].cold, &l.ranks.at[2].colds, 0.7);
    weft_rank_mean_add(&l.ranks.at[0].ending, &l.ranks.at[0].endings, 1.3);
    return l;
}

static weft_learned_seconds read_learned(weft_queue_store *s, uint64_t conditions)
{
    weft_learned_seconds l;
    cr_assert_eq(weft_learned_store_read(s, conditions, &l), WEFT_OK, "%s", weft_error_message());
    return l;
}

/* More jobs than are kept: the last ones determine the seconds. */
Test(queue_store, learned_seconds_survive_reopening)
{
    enum { HERE = 7, ELSEWHERE = 8 };
    const weft_learned_seconds l = learned_from(WEFT_RANK_RUNS + 3);
    weft_queue_store *s = open_store();
    cr_assert_eq(read_learned(s, HERE).ranks.at[1].count, 0);
    cr_assert_eq(weft_learned_store_write(s, HERE, &(weft_learned_seconds){0}), WEFT_OK);
    cr_assert_eq(weft_learned_store_write(s, HERE, &l), WEFT_OK, "%s", weft_error_message());
    weft_queue_store_close(s);
    s = open_store();
    const weft_learned_seconds r = read_learned(s, HERE);
    cr_assert(r.retire == l.retire && r.retires == 2 && r.start == l.start && r.stop == l.stop);
    cr_assert(r.cold == l.cold && r.starts == 3 && r.pace == l.pace && r.finish == l.finish &&
              r.paced == 4);
    cr_assert(r.ranks.at[1].count == WEFT_RANK_RUNS && r.ranks.at[1].is_warm);
    cr_assert(r.ranks.at[1].warm == 0.1 && r.ranks.at[1].warms == 1 && r.ranks.at[2].cold == 0.7 &&
              r.ranks.at[2].colds == 1 && r.ranks.at[0].ending == 1.3);
    for (int crowd = 0; crowd < 2; crowd++) /* close: the sums begin at another run */
        cr_assert_float_eq(weft_rank_seconds_of(&r.ranks.at[1], 0.3, 20, crowd),
                           weft_rank_seconds_of(&l.ranks.at[1], 0.3, 20, crowd), 1e-9);
    cr_assert_eq(read_learned(s, ELSEWHERE).ranks.at[1].count, 0);
    cr_assert_eq(read_learned(s, ELSEWHERE).pace, 0);
    weft_queue_store_close(s);
    execute("UPDATE learned SET seconds=replace(seconds, '0.5,', '1.5,')"); /* a crowd above 1 */
    s = open_store();
    cr_assert(read_learned(s, HERE).pace == 0 && read_learned(s, HERE).ranks.at[1].count == 0);
    weft_queue_store_close(s);
    execute("UPDATE learned SET seconds='{'");
    s = open_store();
    cr_assert_eq(read_learned(s, HERE).pace, 0);
    weft_queue_store_close(s);
}

/* The seconds of a video's end are a difference, which may be negative. Others are not. */
Test(queue_store, negative_learned_seconds_are_refused)
{
    static const char *const name[] = {"retire", "start", "stop", "cold", "pace", "warm", "ending"};
    const weft_learned_seconds l = learned_from(2);
    weft_learned_seconds read;
    weft_buf text = {0};
    cr_assert_eq(weft_learned_seconds_write(&l, &text), WEFT_OK);
    cr_assert(weft_learned_seconds_read(text.data, &read) && read.finish == l.finish);
    for (int i = 0; i < (int)(sizeof name / sizeof *name); i++) {
        char key[20], changed[4096];
        snprintf(key, sizeof key, "\"%s\":", name[i]);
        const char *at = strstr(text.data, key);
        cr_assert_not_null(at, "%s", key);
        at += strlen(key);
        snprintf(changed, sizeof changed, "%.*s-0.5%s", (int)(at - text.data), text.data,
                 at + strspn(at, "0123456789.e-"));
        cr_assert_not(weft_learned_seconds_read(changed, &read), "%s", changed);
        cr_assert(read.pace == 0 && read.starts == 0);
    }
    weft_buf_free(&text);
}

/* Version 5 stored no learned seconds. */
Test(queue_store, version_5_is_updated)
{
    weft_queue_store *s = open_store();
    add(s, "a", "r1", 3);
    weft_queue_store_close(s);
    execute("DROP TABLE learned; PRAGMA user_version=5");
    s = open_store();
    weft_queue_job a = get(s, "a");
    cr_assert(a.number == 1 && a.priority == 3 && a.state == WEFT_QUEUE_QUEUED);
    weft_queue_job_free(&a);
    const weft_learned_seconds l = learned_from(2);
    cr_assert_eq(read_learned(s, 7).pace, 0);
    cr_assert_eq(weft_learned_store_write(s, 7, &l), WEFT_OK, "%s", weft_error_message());
    weft_queue_store_close(s);
    s = open_store();
    cr_assert_eq(read_learned(s, 7).pace, l.pace);
    weft_queue_store_close(s);
}

/* The index of a job's owner is the place in the list of owners, and the seconds that remain are
 * kept when a worker is stopped. */
Test(queue_store, owners_have_used_seconds)
{
    weft_queue_store *s = open_store();
    weft_queue_state next;
    weft_queue_entry *entries;
    weft_queue_owners owners;
    int64_t count;
    add(s, "a", NULL, 0);
    add_of(s, "b", "zoe");
    add_of(s, "c", "ann");
    const weft_queue_change start = {.now = 200}, stop = {.now = 210, .spent = 6, .remaining = 3};
    cr_assert_eq(weft_queue_store_apply(s, "b", WEFT_QUEUE_START, &start, &next), WEFT_OK);
    cr_assert_eq(weft_queue_store_apply(s, "b", WEFT_QUEUE_STOPPED, &stop, &next), WEFT_OK);
    cr_assert_eq(apply(s, "c", WEFT_QUEUE_START), WEFT_QUEUE_RUNNING);
    cr_assert_eq(apply(s, "c", WEFT_QUEUE_FINISHED), WEFT_QUEUE_COMPLETED); /* at 200 */
    cr_assert_eq(weft_queue_store_owners(s, 150, &owners), WEFT_OK, "%s", weft_error_message());
    cr_assert(owners.count == 3 && !strcmp(owners.name[0], "") && !strcmp(owners.name[1], "ann") &&
              !strcmp(owners.name[2], "zoe"));
    cr_assert(owners.used[0] == 0 && owners.used[1] == 2 && owners.used[2] == 6);
    weft_queue_owners_free(&owners);
    cr_assert_eq(weft_queue_store_owners(s, 250, &owners), WEFT_OK);
    cr_assert(owners.used[1] == 0 && owners.used[2] == 6); /* c ended before */
    weft_queue_owners_free(&owners);
    cr_assert_eq(weft_queue_store_waiting(s, &entries, &count), WEFT_OK);
    cr_assert(count == 2 && entries[0].owner == 0 && entries[0].seconds == 2);
    cr_assert(entries[1].owner == 2 && entries[1].seconds == 3 && entries[1].arrival == 100);
    weft_free(entries);
    weft_queue_entry past[2]; /* also of ended jobs, with all their seconds */
    cr_assert_eq(weft_queue_store_past(s, 99, 2, past, &count), WEFT_OK);
    cr_assert(count == 2 && past[0].number == 3 && past[0].owner == 1 && past[0].arrival == 100);
    cr_assert(past[1].number == 2 && past[1].seconds == 8 && past[1].steps == 4);
    cr_assert_eq(weft_queue_store_past(s, 100, 2, past, &count), WEFT_OK);
    cr_assert_eq(count, 0); /* accepted before */
    weft_queue_store_close(s);
}

/* A deleted job keeps its seconds until they are old, whether it had ended or was running. */
Test(queue_store, deleted_jobs_keep_their_seconds)
{
    weft_queue_store *s = open_store();
    weft_queue_entry *entries;
    weft_queue_state next;
    int64_t count;
    add_of(s, "a", "ann");
    add_of(s, "b", "bob");
    apply(s, "a", WEFT_QUEUE_START);
    apply(s, "a", WEFT_QUEUE_FINISHED); /* at 200, with a second for each event */
    apply(s, "a", WEFT_QUEUE_DELETE);
    cr_assert_eq(used_by(s, "ann", 150), 3);
    const weft_queue_change start = {.now = 300}, stop = {.now = 310, .spent = 6};
    cr_assert_eq(weft_queue_store_apply(s, "b", WEFT_QUEUE_START, &start, &next), WEFT_OK);
    cr_assert_eq(weft_queue_store_apply(s, "b", WEFT_QUEUE_DELETE, &start, &next), WEFT_OK);
    cr_assert_eq(weft_queue_store_apply(s, "b", WEFT_QUEUE_STOPPED, &stop, &next), WEFT_OK);
    cr_assert_eq(weft_queue_store_remove(s, "a", 150), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_queue_store_remove(s, "b", 150), WEFT_OK, "%s", weft_error_message());
    weft_queue_store_close(s);
    s = open_store();
    cr_assert_eq(used_by(s, "ann", 150), 3);
    cr_assert_eq(used_by(s, "ann", 200), 0);
    cr_assert_eq(used_by(s, "bob", 299), 6);
    add_of(s, "c", "bob"); /* has the index of its owner, which is the second one */
    cr_assert_eq(weft_queue_store_waiting(s, &entries, &count), WEFT_OK);
    cr_assert(count == 1 && entries[0].owner == 1);
    weft_free(entries);
    apply(s, "c", WEFT_QUEUE_DELETE); /* has used nothing, and the seconds until 200 are old */
    cr_assert_eq(weft_queue_store_remove(s, "c", 250), WEFT_OK);
    cr_assert_eq(used_by(s, "ann", 0), -1);
    cr_assert_eq(used_by(s, "bob", 0), 6);
    weft_queue_store_close(s);
}

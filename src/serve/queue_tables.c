#include "serve/queue_tables.h"

#define DELIVERY_TABLE                                                                             \
    "CREATE TABLE delivery(number INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT NOT NULL,"           \
    " url TEXT NOT NULL, event TEXT NOT NULL, created REAL NOT NULL, due REAL NOT NULL,"           \
    " state INTEGER NOT NULL, attempts INTEGER NOT NULL, reply INTEGER NOT NULL,"                  \
    " error TEXT NOT NULL) STRICT;"                                                                \
    "CREATE INDEX delivery_due ON delivery(state, due);"                                           \
    "CREATE INDEX delivery_job ON delivery(job);"

/* Seconds of deleted jobs, which count until a day has passed. */
#define USED_TABLE                                                                                 \
    "CREATE TABLE used(owner TEXT NOT NULL, finished REAL NOT NULL, seconds REAL NOT NULL) "       \
    "STRICT;"

/* One row (learned_store.h). */
#define LEARNED_TABLE                                                                              \
    "CREATE TABLE learned(number INTEGER PRIMARY KEY, conditions INTEGER NOT NULL,"                \
    " seconds TEXT NOT NULL) STRICT;"

#define JOB_TABLE(name)                                                                            \
    "CREATE TABLE " name "(number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,"     \
    " state TEXT NOT NULL, priority INTEGER NOT NULL, crashes INTEGER NOT NULL,"                   \
    " created REAL NOT NULL, started REAL NOT NULL, finished REAL NOT NULL,"                       \
    " deadline REAL NOT NULL, seconds REAL NOT NULL, bytes INTEGER NOT NULL,"                      \
    " spent REAL NOT NULL, request TEXT NOT NULL, request_id TEXT, fingerprint TEXT NOT NULL,"     \
    " remix_of TEXT, error_code TEXT, error_text TEXT, rank INTEGER NOT NULL, webhook TEXT,"       \
    " owner TEXT, remaining REAL NOT NULL) STRICT;"

/* A request id has one job of each owner. */
#define JOB_INDEXES                                                                                \
    "CREATE INDEX job_owner ON job(ifnull(owner, ''));"                                            \
    "CREATE INDEX job_state ON job(state, priority DESC, rank);"                                   \
    "CREATE UNIQUE INDEX job_request ON job(ifnull(owner, ''), request_id) "                       \
    "WHERE request_id IS NOT NULL;"

void weft_queue_tables_create(weft_buf *sql)
{
    weft_buf_printf(sql,
                    "BEGIN IMMEDIATE;" JOB_TABLE("job")
                        JOB_INDEXES DELIVERY_TABLE USED_TABLE LEARNED_TABLE
                    "PRAGMA application_id=%d; PRAGMA user_version=%d; COMMIT;",
                    WEFT_QUEUE_MARK, WEFT_QUEUE_VERSION);
}

/* Version 1 had no order but the order of acceptance, and no webhooks. */
static const char to_version_2[] =
    "ALTER TABLE job ADD COLUMN rank INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE job ADD COLUMN webhook TEXT; UPDATE job SET rank=number;" DELIVERY_TABLE;
/* Version 2 had no owners, and did not store the seconds that remain. */
static const char to_version_3[] = "ALTER TABLE job ADD COLUMN owner TEXT;"
                                   "ALTER TABLE job ADD COLUMN remaining REAL NOT NULL DEFAULT 0;";
/* Request ids were unique over all owners up to version 4. The column had this rule, so the table
 * is written again. A new job never gets the number of a deleted one: the last number is kept. */
static const char to_version_5[] = JOB_TABLE(
    "new_job") "INSERT INTO new_job(" WEFT_QUEUE_COLUMNS ") SELECT " WEFT_QUEUE_COLUMNS " FROM job;"
               "DELETE FROM sqlite_sequence WHERE name='new_job';"
               "INSERT INTO sqlite_sequence(name, seq) SELECT 'new_job', seq FROM sqlite_sequence "
               "WHERE name='job';"
               "DROP TABLE job; ALTER TABLE new_job RENAME TO job;" JOB_INDEXES;

void weft_queue_tables_update(int64_t version, weft_buf *sql)
{
    static const char *const steps[] = {to_version_2, to_version_3, USED_TABLE, to_version_5,
                                        LEARNED_TABLE};
    weft_buf_printf(sql, "BEGIN IMMEDIATE;");
    for (int64_t from = version; from < WEFT_QUEUE_VERSION; from++)
        weft_buf_printf(sql, "%s", from > 0 ? steps[from - 1] : "");
    weft_buf_printf(sql, "PRAGMA user_version=%d; COMMIT;", WEFT_QUEUE_VERSION);
}
